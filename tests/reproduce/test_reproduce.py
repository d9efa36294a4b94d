"""The paper's tables as data, and the smoke study carried out, stopped, continued and spoilt."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from arml.algorithms import ALGORITHMS
from arml.algorithms.arml import ARMLOptions
from arml.cli import main
from arml.experiment.options import from_json, to_json
from arml.experiment.parts import REGRESSION, STARTER
from arml.experiment.recipes import RECIPES
from arml.report.claims import CLAIMS, INERT
from arml.report.paper import names
from arml.reproduce.crew import Progress, carry_out_all
from arml.reproduce.plan import is_done, record, suffix, units
from arml.reproduce.scales import LOCAL, SCALES, with_seeds
from arml.reproduce.tables import ABLATIONS, REPEATED, compared, table
from arml.results.files import read_json, write_json
from arml.results.folder import read_result
from arml.results.lock import alone
from arml.results.scores import read_scores
from arml.tasks.options import FunctionsOptions

EVERY = [(scale, name) for scale in SCALES.values() for name in scale.tables]


@pytest.mark.parametrize(("scale", "name"), EVERY, ids=lambda value: getattr(value, "name", value))
def test_every_row_is_an_experiment_that_can_be_run(scale, name) -> None:
    made = table(name, scale)
    assert made.name == name
    assert made.reference in {row.label for row in made.rows}
    assert len({row.label for row in made.rows}) == len(made.rows)
    for row in made.rows:
        row.experiment.check()
        if isinstance(row.experiment.algorithm, ARMLOptions):
            vectors = isinstance(row.experiment.tasks, FunctionsOptions)
            row.experiment.algorithm.check_problem(REGRESSION if vectors else STARTER)
    for unit in units([made]):
        again = json.loads(json.dumps(unit))
        assert to_json(from_json(again["experiment"], "here"))["recipe"] == unit["run"]
        assert unit["seconds"] > 0


def test_a_run_that_stands_in_two_tables_is_one_unit() -> None:
    laptop = SCALES["laptop"]
    one, two = (table(name, laptop) for name in ("regression2d", "order-regression2d"))
    together = units([one, two])
    assert len(together) == len(units([one]))
    twice = [unit for unit in together if unit["scored"] == ["as trained", "reversed"]]
    assert {unit["run"] for unit in twice} == {"regression2d/arml-paper", "regression2d/arml-film"}
    bmaml = [unit for unit in together if unit["run"].endswith("bmaml")]
    assert [unit["seed"] for unit in bmaml] == [0, 1, 2]


def test_the_laptop_takes_some_hours_and_the_smoke_two_minutes() -> None:
    hours = sum(u["seconds"] for u in units(table(n, SCALES["laptop"]) for n in LOCAL)) / 3600
    assert 14 < hours < 28  # on one core, two at a time: seven to fourteen on two
    smoke = SCALES["smoke"]
    twice = units(table(n, smoke) for n in smoke.tables)
    assert sum(u["seconds"] for u in twice) < 600
    assert len(twice) == 2 * len(units(table(n, ONE_SEED) for n in ONE_SEED.tables))


def test_the_ablations_are_the_papers_nine_and_each_changes_something() -> None:
    made = table("ablations-regression2d", SCALES["laptop"])
    assert len(made.rows) == 1 + len(ABLATIONS) == 10
    assert len({row.run for row in made.rows}) == 10
    edges = table("edges-regression2d", SCALES["laptop"])
    inert = next(row for row in edges.rows if row.label == INERT)
    assert (inert.experiment.algorithm.normalise, inert.experiment.algorithm.layers) == ("row", 1)


def test_five_shots_have_their_own_weights_and_steps() -> None:
    one, five = (
        table(f"plain-multi-{shots}shot", SCALES["paper"]).rows[-1].experiment for shots in (1, 5)
    )
    assert (one.tasks.shots, five.tasks.shots) == (1, 5)
    assert (one.steps, five.steps) == (50_000, 40_000)
    rows = table("art-multi-5shot", SCALES["paper"]).rows
    (official,) = (row.experiment.algorithm for row in rows if row.run.endswith("/arml-official"))
    assert official.vertices == 8
    assert official.mu_1 == pytest.approx(0.01 * 5 / 75)
    one, five = (table(f"starter-{shots}shot", SCALES["laptop"]).rows[-1] for shots in (1, 5))
    assert (one.experiment.steps, five.experiment.steps) == (400, 200)


@pytest.mark.parametrize("place", ["starter-1shot", "starter-5shot"])
def test_the_starter_set_has_a_row_of_every_method_of_the_paper(place) -> None:
    rows = table(place, SCALES["laptop"]).rows
    printed = names()
    named = {name for name, known in ALGORITHMS.items() if known.row in printed}
    assert len(named) > 12
    assert {row.run.partition("/")[2] for row in rows} >= named


def test_a_variant_may_be_a_row_with_options_of_its_own() -> None:
    row = table("regression2d", SCALES["laptop"]).rows[-1]
    assert (row.label, row.run, row.paper) == ("ARML, evidence", "regression2d/arml", "ours")
    assert row.expected == RECIPES[row.run].expected
    assert row.experiment == RECIPES[row.run].make()


def test_what_the_main_claim_is_about_is_trained_again() -> None:
    made = table("starter-1shot", SCALES["laptop"])
    seeds = {row.run.partition("/")[2]: len(made.seeds_of(row)) for row in made.rows}
    assert {name for name, count in seeds.items() if count == 3} == {*compared(REPEATED)}
    assert {name for name, count in seeds.items() if count == 1} == seeds.keys() - compared(
        REPEATED
    )
    one = table("starter-1shot", with_seeds(SCALES["laptop"], 1))
    assert all(len(one.seeds_of(row)) == 1 for row in one.rows)


def test_every_claim_names_rows_that_its_tables_have() -> None:
    made = {name: table(name, SCALES["paper"]) for name in SCALES["paper"].tables}
    without = set()
    for claim in CLAIMS:
        for name in claim.tables:
            labels = {row.label for row in made[name].rows}
            if not {claim.better, claim.worse} <= labels:
                without.add(name)
    # A table of few methods, which the claims about the others pass over.
    assert without == {"starter-art-1shot"}


def test_a_run_is_one_processs_at_a_time(tmp_path: Path) -> None:
    lines = ("from pathlib import Path", "from arml.results.lock import alone, alone")
    code = "; ".join((*lines, f"alone(Path({str(tmp_path)!r})).__enter__()"))
    other = [sys.executable, "-c", code]
    with alone(tmp_path):
        done = subprocess.run(other, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "another process is at work" in done.stderr
    assert subprocess.run(other, check=False).returncode == 0


ONE_SEED = with_seeds(SCALES["smoke"], 1)
SMOKE = ["reproduce", "--scale", "smoke", "--seeds", "1", "--workers", "1"]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("order-regression2d",), id="one table"),
        pytest.param(ONE_SEED.tables, id="all", marks=pytest.mark.slow),
    ],
)
def study(request, tmp_path_factory) -> tuple[Path, list[dict], Progress]:
    """The smoke study with one seed: stopped as soon as its first run begins, after one that cannot
    be read, and then continued by the command."""
    out = tmp_path_factory.mktemp("study")
    made = [table(name, ONE_SEED) for name in request.param]
    record(made, "smoke", out)
    work = units(made)
    bad = {**work[0], "folder": "runs/bad/seed-0", "experiment": {"algorithm": "none"}}
    stopped = []

    def watch(progress: Progress) -> None:
        if any(at["phase"] in ("compiling", "training") for at in progress.running.values()):
            stopped.append(True)

    begun = carry_out_all([bad, *work], out, workers=1, watch=watch, stop=lambda: bool(stopped))
    assert stopped  # a run began after the one that failed
    assert main([*SMOKE, *request.param, "--out", str(out)]) == 0
    return out, work, begun


def test_what_was_stopped_goes_on_and_what_failed_stops_nothing_else(study) -> None:
    out, work, begun = study
    assert len(begun.done) < 2
    assert begun.running == {}
    assert list(begun.failed) == ["runs/bad/seed-0"]
    assert "expected algorithm to be one of" in begun.failed["runs/bad/seed-0"]
    assert "expected algorithm" in read_json(out / "runs/bad/seed-0/failure.json")["error"]
    assert all(is_done(unit, out) for unit in work)
    bad = {**work[0], "folder": "runs/bad/seed-0", "experiment": {"algorithm": "none"}}
    assert not is_done(bad, out)
    assert not is_done({**work[0], "tasks": 41}, out)
    again = carry_out_all([bad, *work], out, workers=1, watch=lambda _: None, stop=lambda: False)
    assert list(again.failed) == ["runs/bad/seed-0"]
    assert {*again.done} == {unit["folder"] for unit in work}


def test_each_run_is_scored_once_on_the_same_tasks(study) -> None:
    out, work, _ = study
    found = [
        read_scores(out / unit["folder"] / f"scores{suffix(scored)}.npz")
        for unit in work
        for scored in unit["scored"]
    ]
    assert len(found) == len(work) + 1  # ARML is also scored reversed
    assert len({scores.tasks for scores in found}) == 1
    assert all(len(scores.values) == 40 for scores in found)
    for unit in work:
        folder = out / unit["folder"]
        result = read_result(folder / "result.json")
        values = read_scores(folder / "scores.npz").values
        assert result["score"]["mean"] == pytest.approx(float(values.mean()), rel=1e-5)
        assert (folder / "explain" / "explain.json").is_file() == bool(unit["explain"])


def test_the_page_has_every_table_and_a_row_changes_nothing_else(study, capsys) -> None:
    out, *_ = study
    text = (out / "index.html").read_text(encoding="utf-8")
    assert "ARML, paper&#39;s text, reversed" in text
    assert 'class="explorer"' in text
    assert "not yet run" not in text
    assert main([*SMOKE, "order-regression2d", "--rows", "ARML", "--out", str(out)]) == 0
    assert "the page is" in capsys.readouterr().out
    assert (out / "index.html").read_text(encoding="utf-8") == text


def refused(capsys, *arguments: str) -> str:
    assert main(["reproduce", *arguments]) == 2
    return capsys.readouterr().err


def test_what_cannot_be_is_refused_before_any_work(study, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    out = ["--out", str(tmp_path / "out")]
    said = refused(capsys, "regresion2d", *out)
    assert "unknown table 'regresion2d'" in said
    assert "did you mean 'regression2d'?" in said
    said = refused(capsys, "plain-multi-1shot", *out)
    assert "--scale paper has it" in said
    said = refused(capsys, "plain-multi-1shot", "--scale", "paper", *out)
    assert "`arml data prepare plain-multi`" in said
    assert "no row begins with" in refused(capsys, "regression2d", "--rows", "X", *out)
    assert "workers must be 0 or more" in refused(capsys, "--workers", "-1")
    assert "seeds must be 1 or more" in refused(capsys, "--seeds", "0")
    assert not (tmp_path / "out").exists()
    said = refused(capsys, "regression2d", "--scale", "laptop", "--out", str(study[0]))
    assert "holds a study of scale smoke, not laptop" in said


@pytest.mark.slow
def test_a_rows_own_command_finds_it(tmp_path: Path, capsys) -> None:
    record([table("starter-1shot", SCALES["laptop"])], "laptop", tmp_path)
    for row in read_json(tmp_path / "study.json")["tables"]["starter-1shot"]["rows"]:
        assert main([*shlex.split(row["command"])[1:], "--out", str(tmp_path), "--list"]) == 0
        assert f"{row['label']} " in capsys.readouterr().out


def test_the_list_says_what_things_take(capsys) -> None:
    assert main(["reproduce", "regression2d", "--scale", "laptop", "--list"]) == 0
    said = capsys.readouterr().out
    assert "2.29" in said
    assert "an empty cell: the paper, or we, have no such score" in said
    assert "on one core" in said


def test_a_damaged_study_is_named(tmp_path: Path, capsys) -> None:
    write_json(tmp_path / "study.json", {"format": 1, "scale": "smoke", "tables": {}})
    assert main(["reproduce", "--out", str(tmp_path), "--page"]) == 0
    (tmp_path / "study.json").write_text("{")
    assert "cut short or damaged" in refused(capsys, "--out", str(tmp_path), "--page")
