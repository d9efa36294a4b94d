"""`arml evaluate` and `arml report` of folders of seeds."""

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import arml
from arml.cli import main
from arml.results.folder import read_config, seeds_in
from arml.results.scores import read_scores

PACE = "--steps 10 --interval 10 --validate-every 10 --validation-tasks 5"
SMALL = f"{PACE} --batch 4 --network.hidden 8 --inner-steps 1 --chunk 10".split()


@pytest.fixture(scope="module")
def place(tmp_path_factory, optax_promotes):
    """Three seeds of MAML, and two of ANIL."""
    place = tmp_path_factory.mktemp("seeds")
    for name, seeds in (("maml", 3), ("anil", 2)):
        for seed in range(seeds):
            folder = ["--run", str(place / name / f"seed-{seed}"), "--seed", str(seed)]
            assert main(["train", f"regression2d/{name}", *SMALL, *folder]) == 0
    return place


@pytest.fixture
def evaluated(command):
    return lambda *words: json.loads(command("evaluate", *words, "--tasks 40 --json")[0])


def test_seeds_are_found_in_order_of_their_numbers(tmp_path):
    for name in ("seed-10", "seed-2", "seed-x", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "seed-3").mkdir()
    assert [path.name for path in seeds_in(tmp_path)] == ["seed-2", "seed-10"]
    assert seeds_in(tmp_path / "seed-2") == []
    assert seeds_in(tmp_path / "none") == []


def test_a_folder_of_seeds_has_a_mean_and_a_spread(place, evaluated, command):
    found = evaluated(place / "maml")
    means = [one["score"]["mean"] for one in found["runs"]]
    assert [one["seed"] for one in found["runs"]] == [0, 1, 2]
    assert found["mean"] == pytest.approx(np.mean(means))
    assert found["spread"] == pytest.approx(np.std(means, ddof=1))
    kept = [read_scores(place / "maml" / f"seed-{i}" / "scores.npz").mean for i in range(3)]
    assert means == pytest.approx(kept)
    assert "± over trainings" in command("evaluate", place / "maml", "--tasks 40")[0]


def test_folders_of_seeds_are_compared_over_runs_and_tasks(place, tmp_path, evaluated, command):
    shutil.copytree(place / "maml", tmp_path / "copy")
    found = evaluated(place / "maml", "--against", tmp_path / "copy")["against"]
    gap = found["difference"]
    assert (gap["mean"], gap["p"], gap["runs"]) == (0, None, [3, 3])
    found = evaluated(place / "anil", "--against", place / "maml")
    other, gap = found["against"], found["against"]["difference"]
    assert gap["mean"] == pytest.approx(found["mean"] - other["mean"])
    assert gap["p"] is None  # two runs of ANIL are an indication
    weighted = sum(part["n"] * part["mean"] for part in gap["families"].values())
    assert weighted / gap["n"] == pytest.approx(gap["mean"])
    for other, more, words in (
        ("maml", "--tasks 40", "over 40 tasks, of 1 and 3 training runs; an indication: a p-value"),
        ("maml/seed-0", "", "over 1,000 tasks, of 1 and 1 training runs; an indication: a p-value"),
    ):
        said, _ = command("evaluate", place / "anil" / "seed-0", "--against", place / other, more)
        assert f"{words} needs 5 training runs" in " ".join(said.split())


def test_a_report_has_a_verdict_for_each_recipe(place, tmp_path, evaluated, command):
    sides = [shutil.copytree(place / name, tmp_path / name) for name in ("anil", "maml")]
    for kept in tmp_path.rglob("result.json"):
        kept.unlink()
    gap = evaluated(sides[0], "--against", sides[1])["against"]["difference"]
    runs = ("report", *sides)
    said = " ".join(
        command(*runs, "--against regression2d/maml --out", tmp_path / "a.csv")[0].split()
    )
    assert "Verdict" in said
    rows = {
        row["method"]: row for row in csv.DictReader((tmp_path / "a.csv").read_text().splitlines())
    }
    assert float(rows["regression2d/anil"]["difference"]) == pytest.approx(gap["mean"])
    assert rows["regression2d/anil"]["why"] == "too few trainings"
    assert rows["regression2d/maml"]["mean"]
    command(*runs, "--out", tmp_path / "a.tex")
    assert r"\toprule" in (tmp_path / "a.tex").read_text()
    for more, says in (
        ("--against maml", "expected --against to be one of regression2d"),
        (f"--out {tmp_path / 'a.pdf'}", "--out must end in .html, .csv, .tex or .md"),
    ):
        assert says in command(*runs, more, code=2)[1]
    command("evaluate", sides[1] / "seed-0", "--tasks 30")  # on other tasks than the rest
    said = command(*runs, "--against regression2d/anil --out", tmp_path / "a.md", code=2)[1]
    assert (
        "a.md holds one table, of runs with one protocol. These runs have 2 (regression2d/" in said
    )
    assert "on 30 test tasks" in said
    said = command("report", sides[1] / "seed-0", "--out", tmp_path / "a.md", code=2)[1]
    assert "a.md holds differences of two recipes or more. These runs are of one recipe." in said
    assert arml.compare(sides[0], sides[1] / "seed-1").runs == (2, 1)


def test_a_comparison_keeps_the_scores_of_both_sides_for_the_report(
    place, tmp_path, evaluated, command
):
    sides = [shutil.copytree(place / name, tmp_path / name) for name in ("maml", "anil")]
    for kept in tmp_path.rglob("result.json"):
        kept.unlink()
    evaluated(sides[0], "--against", sides[1])
    assert len(list(tmp_path.rglob("result.json"))) == 5
    page = tmp_path / "report.html"
    command("report", *sides, "--out", page)
    assert all(f"<td>{n} (" in page.read_text() for n in (3, 2))


def test_what_is_no_folder_of_seeds_of_one_experiment_is_refused_before_the_work(
    place, tmp_path, command
):
    anil, maml = place / "anil", place / "maml"
    for name, source in (("other", anil), ("again", maml)):
        shutil.copytree(maml / "seed-0", tmp_path / name / "seed-0")
        shutil.copytree(source / "seed-0", tmp_path / name / "seed-1")
    started = shutil.copytree(maml / "seed-1", tmp_path / "short" / "seed-1")
    config = read_config(started)
    config["experiment"]["steps"] = 20
    (started / "config.json").write_text(json.dumps(config))
    run = maml / "seed-0"
    for words, says in (
        (f"evaluate {tmp_path}/other", "has other options than"),
        (f"evaluate {tmp_path}/again", "have the same seed: move one of them away"),
        (f"evaluate {tmp_path}/short", "seed-1 is at step 10 of 20: train it to the end"),
        (f"evaluate {maml} --against {maml}", "twice: name another folder"),
        (f"evaluate {place}", "there are runs in it: name one, such as"),
        (f"train regression2d/maml --run {run} --seeds 2", f"{run} is a run, not a folder for"),
        (f"tune regression2d/maml --run {maml} --trials 2", f"a sweep, got {maml} with runs"),
    ):
        _, error = command(words, code=2)
        assert says in error
        assert "scored" not in error


def test_runs_are_compared_only_on_the_same_tasks():
    def scores(n, metric="mse", tasks="a"):
        return arml.Scores(np.arange(n), np.zeros(n, int), tasks=tasks, metric=metric)

    same = [replace(scores(4), values=np.arange(4) + i / 1000) for i in range(5)]
    found = arml.compare(same, same)
    assert (found.mean, found.p, found.runs, found.counts) == (0, 1, (5, 5), False)
    far = [replace(scores(4), values=np.arange(4) + 9 + i / 100) for i in range(5)]
    assert arml.compare(far, same).counts
    # Two runs have an interval over runs, which one cannot have; neither has a p-value.
    apart = [replace(scores(4), values=np.arange(4) + i) for i in range(2)]
    two, one = arml.compare(apart, same[:2]), arml.compare(apart[:1], [scores(4)])
    assert (two.p, one.p, two.over_runs, one.over_runs, one.ci95) == (None, None, True, False, 0)
    assert two.ci95 > 6
    for other, said in (
        ([], "expected scores of each method, got 1 and 0"),
        ([scores(4)] * 2, "trainings 1 and 2 are the same: leave one"),
        (None, "expected two methods, or a mapping"),
        ([scores(5)], "scores of equally many tasks, got 4 and 5"),
        ([scores(4, "accuracy")], "scores of one metric"),
        ([scores(4, tasks="b")], "differ in their tasks"),
        ([replace(scores(4), split="test")], "differ in their split"),
    ):
        with pytest.raises(ValueError, match=said):
            arml.compare([scores(4)], other)
