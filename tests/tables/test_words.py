"""Free texts in tables, as a user meets them."""

import numpy as np
import pandas as pd
import pytest

import arml
from arml.tables.predictor import TablePredictor

N = 32
GOOD, BAD = ["lovely", "great", "warm", "sturdy"], ["torn", "late", "broken", "cheap"]
PLAIN = ["the", "box", "came", "with", "lamp", "and", "two", "books", "in", "paper", "on", "monday"]


def reviews(n: int, seed: int, told: bool = True) -> tuple[pd.DataFrame, np.ndarray]:
    """Reviews whose words tell the answer if `told`, beside numbers that do not."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    words = [[GOOD, BAD][k if told else rng.integers(2)] for k in y]
    texts = [" ".join([*rng.choice(PLAIN, 6), *rng.choice(some, 2)]) for some in words]
    frame = pd.DataFrame({"age": rng.normal(size=n), "note": texts, "n": rng.normal(size=n)})
    return frame, y


@pytest.mark.parametrize("kind", ["tables", "tables-regression"])
def test_texts_that_carry_the_answer_are_used(kind, tmp_path, recwarn):
    learner, (x, y), (more, wanted) = arml.load(kind), reviews(N, 0), reviews(60, 1)
    found = learner.adapt(x, y.astype(float) if "regression" in kind else y)
    assert np.mean((found.predict(more) > 0.5) == wanted) >= 0.85
    assert not [one for one in recwarn if "note" in str(one.message)]
    assert "used the words of note" in found.remarks
    assert found.model == "learner, and the words of note"
    assert next(iter(found.matter())) == "note"
    assert any(text.startswith("note") for text in found.decisive(more[:9]))
    if kind == "tables":
        checked = found.reliability()
        assert checked.accuracy > 0.85 > 0.7 > checked.others["learner"]
    else:
        low, high = found.interval(more)
        assert np.mean(high - low) < 2 * np.ptp(y)
    found.save(tmp_path / "kept")
    again = arml.load_predictor(tmp_path / "kept")
    np.testing.assert_array_equal(again.predict(more), found.predict(more))
    added = again.add(more[:8], wanted[:8])
    assert len(added.y) == N + 8
    # Hidden, or of rows that are lists.
    assert np.all(np.isfinite(found.predict(more.assign(note=None)).astype(float)))
    rows, lists = more.to_numpy().tolist(), x.to_numpy().tolist()
    np.testing.assert_array_equal(learner.adapt(lists, found.y).predict(rows), found.predict(more))


def test_a_fold_learns_words_without_its_own_labels():
    x, y = reviews(N, 0)
    found = arml.load("tables").adapt(x, y)
    train, test = found._parts[0]
    labels = np.where(np.isin(np.arange(N), test), 1 - y, y)
    other = TablePredictor(found.learner, found.schema, found.rows, labels, found.classes)
    vars(other)["_parts"] = found._parts
    assert found._words(train)
    np.testing.assert_array_equal(found._left_out(train, test), other._left_out(train, test))


@pytest.mark.slow
def test_texts_that_say_nothing_are_left_out_and_the_check_is_at_chance():
    """Labels of nobody: whoever learned words with the labels of the rows that a fold leaves out
    would state more."""
    stated, silent = [], 0
    for seed in range(4):
        x, y = reviews(N, seed, told=False)
        found = arml.load("tables").adapt(x, y)
        stated.append(found.reliability().accuracy)
        if "used the words of note" not in found.remarks:
            assert "not used: note (texts whose words do not help beside the others)" in (
                found.remarks
            )
            alone = arml.load("tables").adapt(x, y, without=["note"])
            np.testing.assert_array_equal(alone.predict_proba(x), found.predict_proba(x))
            silent += 1
    assert np.mean(stated) < 0.65
    assert silent


def test_texts_alone_and_on_the_command_line(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (x, y), (more, wanted) = reviews(N, 0), reviews(20, 1)
    x[["note"]].assign(kind=np.where(y, "bad", "good")).to_csv("known.csv", index=False)
    more[["note"]].to_csv("new.csv", index=False)
    words = "adapt tables --support known.csv --target kind --no-reliability"
    answers, said = command(f"{words} --query new.csv --columns")
    assert "used the words of note" in said
    assert "note: text" in said
    rows = [line.split(",") for line in answers.splitlines()]
    assert rows[0] == ["row", "note", "label", "probability"]
    assert np.mean([(row[2] == "bad") == k for row, k in zip(rows[1:], wanted, strict=True)]) > 0.9
    _, said = command(f"{words} --without note", code=2)
    assert "no column can be used" in said
