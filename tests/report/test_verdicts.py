"""Verdicts on several methods: the numbers by another route, and the forms of their table."""

import csv
import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from scipy import stats

import arml
from arml.results.scores import write_scores


def trainings(mean, spread=0.0, count=5, *, metric="accuracy", seed=0, n=300):
    """Scores of independent trainings of one method on tasks that all methods share."""
    rng = np.random.default_rng(seed)
    tasks = np.random.default_rng(99).normal(0, 0.05, n)
    return [
        arml.Scores(
            mean + tasks + rng.normal(0, spread) + rng.normal(0, 0.01, n),
            np.zeros(n, int),
            tasks="t",
            names=("all",),
            metric=metric,
            split="test",
        )
        for _ in range(count)
    ]


@pytest.fixture
def methods():
    return {
        "ours & co_1": trainings(0.70, 0.002, seed=1),
        "maml": trainings(0.60, 0.002, seed=2),
        "worse": trainings(0.55, 0.002, seed=3),
        "level": trainings(0.60, 0.002, seed=4),
        "few": trainings(0.70, 0.002, 3, seed=5),
        "once": trainings(0.70, 0.002, 1, seed=6),
    }


def test_the_verdicts_are_those_of_the_numbers(methods):
    found = arml.compare(methods, against="maml")
    said = {name: one.verdict for name, one in found.differences.items()}
    assert said == {
        "ours & co_1": "better",
        "worse": "worse",
        "level": "cannot tell",
        "few": "cannot tell",
        "once": "cannot tell",
    }
    few, level = found["few"], found["level"]
    assert (few.why, few.indicates, few.p) == ("too few trainings", "better", None)
    assert (level.why, level.indicates) == ("may be chance", "")
    # Holm: the smallest of three p-values three times, the next twice, and never less than before.
    known = sorted((one.p, one.adjusted) for one in found.differences.values() if one.p is not None)
    by_hand = np.maximum.accumulate([min(1, p * (3 - i)) for i, (p, _) in enumerate(known)])
    assert [adjusted for _, adjusted in known] == pytest.approx(by_hand)
    alone = arml.compare(methods["level"], methods["maml"])
    assert (alone.p, alone.adjusted) == (level.p, level.p)  # a family of one
    # Of errors, the lower is better.
    errors = {
        name: trainings(mean, 0.002, metric="mse", seed=i)
        for i, (name, mean) in enumerate({"low": 0.5, "high": 0.9}.items())
    }
    assert arml.compare(errors, against="high")["low"].verdict == "better"
    assert arml.compare(errors)["high"].verdict == "worse"


def test_the_table_has_the_same_numbers_in_every_form(methods):
    found = arml.compare(methods, against="maml")
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(found.to_csv()))}
    for name, some in methods.items():
        means = [scores.values.mean() for scores in some]
        row = rows[name]
        assert float(row["mean"]) == pytest.approx(np.mean(means))
        if len(means) > 1:
            low, high = stats.t.interval(
                0.95, len(means) - 1, np.mean(means), stats.sem(means)
            )  # another route to Student's t
            assert float(row["ci95_trainings"]) == pytest.approx((high - low) / 2)
        over_tasks = np.mean([scores.values for scores in some], axis=0)
        half = 1.96 * over_tasks.std(ddof=1) / np.sqrt(len(over_tasks))
        assert float(row["ci95_tasks"]) == pytest.approx(half)
        assert row["verdict"] == ("" if name == "maml" else found[name].verdict)
    assert rows["once"]["ci95_trainings"] == rows["once"]["sd"] == rows["few"]["p"] == ""
    tex = found.to_latex().splitlines()
    assert tex[0].startswith("% Accuracy, higher is better; 300 test tasks.")
    assert [line for line in tex if line.startswith(r"\t") or "rule" in line] == [
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
    ]
    body = [line for line in tex if line.endswith(r"\\")]
    assert len(body) == 1 + len(methods)
    assert all(line.count(" & ") == 6 for line in body)
    assert body[1].startswith(r"ours \& co\_1 & ")
    assert "±" not in "".join(body)
    page = "".join(ET.fromstring(found.to_html().partition("\n")[2]).itertext())
    for text in (str(found), found.to_markdown(), page):
        assert "cannot tell" in text
        assert "ours & co_1" in text


def test_runs_and_folders_take_the_place_of_scores(methods, tmp_path):
    for i, scores in enumerate(methods["maml"][:2]):
        folder = tmp_path / "maml" / f"seed-{i}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"recipe": "x/maml"}')
        write_scores(folder / "scores.npz", scores)
    folder = tmp_path / "maml"
    ours = methods["ours & co_1"]
    found = arml.compare({"ours": ours, "maml": folder, "one": str(folder / "seed-0")})
    assert found.against == "ours"
    assert (found["maml"].runs, found["one"].runs) == ((2, 5), (1, 5))
    (folder / "seed-1" / "scores.npz").unlink()
    for given, says in (
        ({"ours": ours, "maml": folder}, "`arml evaluate .*seed-1` first"),
        ({"ours": ours}, "two methods or more, each with scores, got ours with 5"),
        ({"ours": ours, "maml": []}, "got ours with 5, maml with 0"),
        ({"ours": ours, "maml": 3}, "expected Scores, a run or its folder, got int"),
        ({"ours": ours, "maml": trainings(0.6, n=20)}, "scores of equally many tasks"),
    ):
        with pytest.raises(ValueError, match=says):
            arml.compare(given)
    with pytest.raises(ValueError, match="against to be one of ours, maml, got 'b'"):
        arml.compare({"ours": ours, "maml": ours}, against="b")
