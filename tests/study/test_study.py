"""The study: its tables can be run, its verdicts are right on invented scores, and its smallest
table is carried out from the command line, continued and collected."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import arml
from arml.experiment.contract import same
from arml.experiment.options import fingerprint, from_json, to_json
from arml.results import comparisons
from arml.results.files import read_json, write_json
from arml.results.scores import Scores, pairing
from arml.tasks.functions import BAYES_FLOORS
from study import claims
from study.__main__ import main
from study.data import RESULTS, Study, StudyRow, StudyTable, collect, load
from study.pages import page, written
from study.paper import overall
from study.plan import METHODS, SCALES, table, tiny, units
from study.unit import carry_out

ROOT = Path(__file__).parents[2]
EVERY = [(scale, name) for scale in SCALES.values() for name in scale.tables]


@pytest.mark.parametrize(("scale", "name"), EVERY, ids=lambda value: getattr(value, "name", value))
def test_every_row_is_an_experiment_that_can_be_run(scale, name):
    made = table(name, scale)
    labels = [row.label for row in made.rows]
    assert made.reference in labels
    assert len({*labels}) == len(labels)
    for unit in units([made]):
        from_json(json.loads(json.dumps(unit))["experiment"], "here").check()
        assert unit["seconds"] > 0


def test_every_claim_names_rows_that_its_tables_have():
    made = {name: table(name, SCALES["paper"]) for name in SCALES["paper"].tables}
    without = set()
    for claim in claims.CLAIMS:
        for name in claim.tables:
            if not {claim.better, claim.worse} <= {row.label for row in made[name].rows}:
                without.add(name)
    # A table of few methods, which the claims about the others pass over.
    assert without == {"starter-art-1shot"}


def test_rows_that_were_run_are_rows_of_the_plan():
    """The study kept the names of its time; renamed, they are those of today."""
    found = load(RESULTS / "laptop")
    for kept in found.tables:
        labels = {row.label for row in table(kept.name, SCALES["laptop"]).rows}
        assert {row.label for row in kept.rows} <= labels


def test_the_pages_are_those_of_the_results():
    for path, text in written().items():
        assert path.read_text(encoding="utf-8") == text, "run python -m study.pages"


def test_stored_scores_are_paired_with_those_of_today():
    """A task is the same function of its number as when the study was run."""
    found = load(RESULTS / "laptop")
    for name in ("regression2d", "starter-1shot", "starter-art-1shot"):
        made = next(row for row in table(name, SCALES["laptop"]).rows if row.label == "MAML")
        tasks = made.experiment.tasks.build(ROOT / "none.json").test
        stored = found.table(name).row("MAML").scores[0]
        assert pairing(tasks.identity(), "test") == stored.tasks
        assert tasks.families == stored.names


def test_the_floors_are_those_that_were_measured():
    floors = json.loads((RESULTS / "floor.json").read_text())
    for name, inputs in (("regression2d", (0.0, 5.0)), ("regression2d-wide", (-5.0, 5.0))):
        assert BAYES_FLOORS[inputs] == pytest.approx(floors[name]["score"]["mean"], abs=0.002)


def test_figures_of_the_paper():
    assert overall("regression2d", "arml") == (0.44, 0.03)
    assert overall("plain-multi-1shot", "arml").ci95 is None
    assert overall("regression2d", "nobody") is None
    assert {"arml-paper", "maml"} <= METHODS.keys()


def row(label, means, *, failures=0, metric="mse"):
    about = {"label": label, "run": label, "paper": ""}
    about |= {"seeds": list(range(len(means) + failures)), "steps": 10}
    facts = {"metric": metric, "families": ["f"], "tasks": 400, "protocol": "", "floor": None}
    noise = np.random.default_rng(0)
    scores = {
        seed: Scores(
            mean + 0.1 * noise.standard_normal(400), np.zeros(400, int), "t", ("f",), metric
        )
        for seed, mean in enumerate(means)
    }
    failed = {len(means) + i: "the loss was not finite" for i in range(failures)}
    return StudyRow(about, {seed: {**facts, "seconds": 60} for seed in scores}, scores, failed)


def judged(better, worse, *, equal=False):
    claim = claims.Claim("g", "b is better than w", ("regression2d",), "b", "w", equal)
    about = {"title": "T", "about": "", "reference": "b", "paper": ""}
    study = Study("laptop", (StudyTable("regression2d", about, (better, worse)),))
    (verdict,) = claims.judge(study, [claim])
    return verdict.verdict, verdict.why


def test_verdicts():
    near, far = [0.20, 0.21, 0.19, 0.20, 0.20], [0.50, 0.51, 0.49, 0.50, 0.50]
    low, high = row("b", near), row("w", far)
    assert judged(low, high) == ("holds", "")
    assert judged(row("b", far), row("w", near)) == ("does not hold", "")
    assert judged(low, row("w", near[::-1])) == ("cannot tell", comparisons.MAY_BE_CHANCE)
    assert judged(row("b", near[:3]), high) == ("cannot tell", comparisons.TOO_FEW)
    assert judged(low, row("w", far, failures=1)) == ("cannot tell", comparisons.RUN_FAILED)
    # More is no better: tested against the smallest gain that matters.
    assert judged(low, high, equal=True) == ("holds", "")
    assert judged(row("b", far), row("w", near), equal=True) == ("does not hold", "")


SMOKE = ["ablations-regression2d", "--scale", "smoke", "--seeds", "1", "--workers", "2"]


def study(*words):
    command = [sys.executable, "-m", "study", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def called(monkeypatch, capsys):
    """The same in this process: its status, and what it wrote to both streams."""
    monkeypatch.chdir(ROOT)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["study", *words])
        return main(), *capsys.readouterr()

    return call


def test_the_smallest_table_is_carried_out_and_collected(tmp_path, called):
    out = tmp_path / "smoke"
    done = study(*SMOKE, "--out", str(out), "--collect", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stderr + done.stdout
    assert "2 of 2 runs are done" in called(*SMOKE, "--out", str(out))[1]
    live, kept = load(out), load(tmp_path / "kept")
    (made,) = live.tables
    assert [len(row.scores) for row in made.rows] == [1, 1]
    assert page(live) == page(kept)
    assert "twenty steps of tiny networks" in (out / "tables.md").read_text()
    collect(out, tmp_path / "twice")
    assert (tmp_path / "twice.json").read_text() == (tmp_path / "kept.json").read_text()
    shutil.rmtree(next((out / "runs").glob("*/*/seed-0")))  # a study may go on elsewhere
    old = read_json(tmp_path / "kept.json")
    write_json(tmp_path / "kept.json", {**old, "failures": {"x": "why"}, "explained": {"y": {}}})
    collect(out, tmp_path / "kept")
    assert [len(row.scores) for row in load(tmp_path / "kept").tables[0].rows] == [1, 1]
    new = read_json(tmp_path / "kept.json")
    assert (new["failures"], new["explained"]) == ({"x": "why"}, {"y": {}})
    (kept_run,) = (out / "runs").glob("*/*/*/row.json")
    write_json(kept_run, {**read_json(kept_run), "options": "others"})
    with pytest.raises(ValueError, match="has other options than its row"):
        collect(out, tmp_path / "kept")
    with pytest.raises(ValueError, match="a study of scale laptop, not smoke"):
        collect(out, RESULTS / "laptop")
    status, _, wrong = called(*SMOKE[:2], "laptop", "--out", str(out))
    assert status == 2
    assert "holds a study of scale smoke, not laptop" in wrong


@pytest.mark.usefixtures("optax_promotes")
def test_a_longer_training_goes_on_from_a_shorter_one(tmp_path):
    base = tiny(arml.recipe("regression2d/maml"), side=False)

    def done(recipe, steps):
        made = replace(base, recipe=recipe, steps=steps, interval=5, checkpoint_every=5)
        unit = {"folder": f"runs/{recipe}/seed-0", "experiment": to_json(made), "tasks": 10}
        assert carry_out({**unit, "options": fingerprint(made), "explain": 0}, tmp_path)
        return arml.Run(tmp_path / unit["folder"])

    metrics = done("x-start/maml", 10).folder / "metrics.jsonl"
    mark = '{"step": 5, "loss": 9.0}'
    metrics.write_text("\n".join([mark, *metrics.read_text().splitlines()[1:], ""]))
    whole, longer = done("y/maml", 20), done("x/maml", 20)
    assert longer.experiment.recipe == "x/maml"
    assert longer.metrics[0] == json.loads(mark)
    assert longer.metrics[-1] == whole.metrics[-1]
    same(longer.state, whole.state)


@pytest.mark.slow
def test_the_study_runs_on_ray(tmp_path):
    done = study(*SMOKE, "--on", "ray", "--out", str(tmp_path / "smoke"))
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(load(tmp_path / "smoke").tables[0].rows) == 2


def test_mistakes_are_one_line(called):
    for words, said in (
        (("nothing",), "unknown table 'nothing' of scale laptop: expected one of regression2d"),
        (("regression2d", "--rows", "X"), "no row begins with X: expected one of VERSA"),
        (("plain-multi-1shot", "--scale", "paper"), "are not prepared: arml data prepare"),
    ):
        status, _, wrong = called(*words, "--out", "nowhere")
        assert status == 2
        assert said in wrong
    assert "on one CPU core" in called("regression2d", "--scale", "paper", "--list")[1]
