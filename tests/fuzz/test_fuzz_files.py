"""Files that were altered, by type, by value and by single bits: each is refused in one line, or
means what it says. `slow` has the thousand cases, the others a sample; both print their counts."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest

import arml
from arml.predict.files import SHIPPED_LEARNERS
from arml.results.files import checksum, read_metrics
from arml.results.scores import Scores, read_scores, write_scores
from arml.tables.sheet import numbers_of, read_sheet
from arml.training import checkpoint
from hostile import CASES, altered, flips, tried


@pytest.mark.parametrize("cases", CASES)
def test_a_shared_learner_whose_checksum_is_right(tmp_path, record_property, cases):
    """What somebody sends may be well formed and mean nothing."""
    folder, rng, counts = tmp_path / "learner", np.random.default_rng(cases), Counter()
    shutil.copytree(SHIPPED_LEARNERS / "regression2d", folder)
    content = json.loads((folder / "config.json").read_text())
    del content["sha256"]
    x = np.zeros((3, 2), np.float32) + np.arange(3)[:, None]
    for _ in range(cases):
        change = altered(content, rng)
        text = json.dumps({**change, "sha256": checksum(change)})
        (folder / "config.json").write_text(text)
        learner = tried(lambda: arml.load(folder), counts)
        if learner is not None and rng.random() < 0.02:
            assert np.shape(learner.adapt(x, x[:, 0]).x) == (3, 2)
    record_property("counts", f"{cases} altered learners: {dict(counts)}")
    assert counts["refused"] > counts.total() / 3


@pytest.mark.parametrize("cases", CASES)
def test_a_predictor_with_a_bit_that_is_another_or_a_file_cut_short(
    tmp_path, record_property, cases
):
    """A predictor has the files of a learner, and its examples."""
    folder, rng, counts = tmp_path / "kept", np.random.default_rng(cases), Counter()
    arml.load("regression2d").adapt(np.eye(2), [1.0, 2.0]).save(folder)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for path, whole in flips(files, cases, rng):
        same = path.suffix == ".json" and _same_json(path, whole)
        tried(lambda: arml.load_predictor(folder), counts if not same else Counter())
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(whole[:-5])
        tried(lambda: arml.load_predictor(folder), counts)
        path.unlink()
        tried(lambda: arml.load_predictor(folder), counts)
        path.write_bytes(whole)
    record_property("counts", f"{cases} flipped bits: {dict(counts)}")
    assert not counts["accepted"]


def _same_json(path, whole):
    """Whether a flip changed nothing that JSON means, such as a space."""
    try:
        return json.loads(path.read_bytes()) == json.loads(whole)
    except ValueError:
        return False


@pytest.mark.parametrize("cases", [pytest.param(300, marks=pytest.mark.slow), 5])
def test_a_checkpoint_with_a_bit_that_is_another(tmp_path, record_property, cases):
    """It is refused, or the bit says nothing: what is loaded is what was saved."""
    rng, counts = np.random.default_rng(cases), Counter()
    state = {"a": rng.normal(size=(30, 30)).astype(np.float32), "b": np.arange(7)}
    checkpoint.save(tmp_path / "checkpoints", 5, state)
    files = sorted(p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size)
    for _ in flips(files, cases, rng):
        found = tried(lambda: checkpoint.restore(tmp_path / "checkpoints", 5, state), counts)
        for name in state if found is not None else ():
            np.testing.assert_array_equal(np.asarray(found[name]), state[name])
    record_property("counts", f"{cases} flipped bits of checkpoints: {dict(counts)}")


@pytest.mark.parametrize("cases", CASES)
def test_scores_and_metrics_with_a_bit_that_is_another(tmp_path, record_property, cases):
    rng, counts = np.random.default_rng(cases), Counter()
    scores, metrics = tmp_path / "scores.npz", tmp_path / "metrics.jsonl"
    given = Scores(rng.normal(size=50).astype(np.float32), np.zeros(50, np.uint8), "these")
    write_scores(scores, given)
    metrics.write_text("".join(f'{{"step": {i}, "loss": 0.5}}\n' for i in range(20)))
    for _ in flips([scores], cases, rng):
        found = tried(lambda: read_scores(scores), counts)
        if found is not None:  # a bit of the archive's own dates
            np.testing.assert_array_equal(found.values, given.values)
    for _ in flips([metrics], cases, rng):
        tried(lambda: read_metrics(metrics), counts)
    record_property("counts", f"{2 * cases} flipped bits of scores and metrics: {dict(counts)}")


@pytest.mark.parametrize("cases", CASES)
def test_tables_of_any_bytes(tmp_path, record_property, cases):
    """Every number that is read stands in the file as a decimal number."""
    rng, counts, path = np.random.default_rng(cases), Counter(), tmp_path / "table.csv"
    parts = (
        "a", "b", "1", "-2.5", ",", ",", ",", "\n", "\n", "\r\n", '"', "1e3", "0_5", "nan", "1e999",
        "\x00", "é", "٣", " ", "=1+1", ";", "\ufeff",
    )  # fmt: skip
    for _ in range(cases):
        text = "a,b\n" + "".join(rng.choice(parts, rng.integers(1, 12)))
        if rng.random() < 0.5:
            cells = rng.choice(("1", "-2.5", "1e3", " 4", "nan", "0_5", '"7"'), (3, 2))
            text = "b,a\n" + "\n\n".join(",".join(row) for row in cells)
        data = text.encode() if rng.random() < 0.9 else rng.bytes(40)
        path.write_bytes(data)

        def read():
            sheet = read_sheet(path).answered("a", numbers=False)[1]
            return sheet.lines, *numbers_of(sheet)

        if (table := tried(read, counts)) is not None:
            lines, x, columns = table
            assert not np.isnan(x).any()
            assert x.shape == (len(lines), len(columns))
            assert max(lines, default=0) <= 1 + data.count(b"\n") + data.count(b"\r")
    record_property("counts", f"{cases} tables: {dict(counts)}")
