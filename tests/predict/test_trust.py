"""Leave-one-out: against an explicit loop, and labels that are wrong on purpose."""

import numpy as np
import pytest
from sklearn.neighbors import NearestCentroid

import arml
from arml.algorithms import ALGORITHMS
from arml.experiment.building import build
from arml.experiment.loaded import Portable
from arml.experiment.options import Experiment
from arml.nn.networks import MLPOptions
from arml.predict.marks import wilson
from arml.predict.trust import (
    FOLDS,
    checked,
    folds,
)

KINDS = np.array(["ash", "elm", "oak"])


def blobs(each: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes at the corners of a triangle."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), each)
    return 6 * np.eye(3)[y] + spread * rng.normal(size=(len(y), 3)), y


def centroids(x: np.ndarray, y: np.ndarray):
    """Predictions by the nearest class mean, as probabilities."""

    def predict(kept: np.ndarray, out: np.ndarray, _: str) -> np.ndarray:
        means = np.stack([x[kept][y[kept] == k].mean(axis=0) for k in range(3)])
        logits = -np.square(x[out][:, None] - means).sum(axis=-1)
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)

    return predict


def test_a_rare_class_is_not_hidden():
    def ash(kept: np.ndarray, out: np.ndarray, _: str) -> np.ndarray:
        return np.tile([0.9, 0.1, 0.0], (len(out), 1))

    always = checked(ash, np.repeat([0, 1], [9, 3]), KINDS)
    said = always.lines([str(i) for i in range(12)])
    assert "no better than always answering ash, which is right for 75%" in said[1]
    alone = checked(centroids(*blobs(5)), np.repeat([0, 1, 2], [7, 7, 1]), KINDS)
    one = checked(ash, np.repeat([0, 1], [5, 1]), KINDS)
    said = one.lines([str(i) for i in range(6)])
    assert "one class alone could be checked" in said[1]
    assert not any("do not trust" in line for line in said)
    assert "not checked, with one example each: oak" in alone.lines([str(i) for i in range(15)])


def test_each_example_is_predicted_from_the_others():
    x, y = blobs(5, spread=3)
    trust = checked(centroids(x, y), y, KINDS)
    right = []
    for i in range(len(x)):
        kept = np.arange(len(x)) != i
        right.append(NearestCentroid().fit(x[kept], y[kept]).predict(x[i : i + 1])[0] == y[i])
    assert trust.accuracy == np.mean(right)
    assert np.trace(trust.confusion) == np.sum(right)
    np.testing.assert_array_equal(trust.confusion.sum(axis=1), 5)
    assert trust.by_class["elm"] == np.mean(right[5:10])
    assert {*trust.odd} == {*np.flatnonzero(~np.array(right))}
    own = trust.probabilities[trust.odd, y[trust.odd]]
    assert list(own) == sorted(own)
    assert f"{int(np.sum(right))} of 15" in str(trust)
    assert trust.as_json()["n"] == 15


def test_a_label_that_is_wrong_is_named_first():
    x, y = blobs(6)
    y[4] = 2
    trust = checked(centroids(x, y), y, KINDS)
    assert trust.odd[0] == 4
    lines = trust.lines([f"{i}.png" for i in range(18)])
    assert "check 4.png: labelled oak, but predicted as ash from the other" in lines[1]


def test_a_class_of_one_example_stays_and_is_not_checked():
    y = blobs(3)[1][:7]
    seen = []

    def predict(kept, out, _):
        seen.append((set(kept), set(out)))
        return np.tile([0.5, 0.3, 0.2], (len(out), 1))

    trust = checked(predict, y, KINDS)
    assert all(6 in kept and out != {6} for kept, out in seen)
    assert list(trust.checked) == [0, 1, 2, 3, 4, 5]
    assert {*trust.by_class} == {"ash", "elm"}
    lone = checked(predict, y[[0, 3, 6]], KINDS)
    assert np.isnan(lone.accuracy)
    assert "cannot be checked" in str(lone)
    assert lone.as_json()["accuracy"] is None


def test_many_examples_are_left_out_in_tenths():
    y = np.repeat(np.arange(3), [2, 40, 60])
    parts = folds(y)
    assert len(parts) == FOLDS
    assert sorted(np.concatenate(parts)) == list(range(102))
    assert all(len({*np.delete(y, part)}) == 3 for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_best_is_used_and_a_tie_stays():
    x, y = blobs(5)
    nearest = centroids(x, y)

    def predict(kept, out, uses):
        if uses != "inputs":
            return np.tile([1.0, 0, 0], (len(out), 1))
        return nearest(kept, out, uses)

    guessing = checked(predict, y, KINDS, "learner", ("learner", "inputs", "edges"))
    assert guessing.accuracy == guessing.others["edges"] == pytest.approx(1 / 3)
    assert guessing.others["inputs"] == checked(nearest, y, KINDS).accuracy
    assert guessing.best == "inputs"
    assert "logistic regression on the inputs 100%" in str(guessing)
    assert checked(predict, y, KINDS, "learner", ("learner", "edges")).best == "learner"
    assert checked(predict, y, KINDS, "inputs", ("learner", "inputs")).best == "inputs"
    assert guessing.as_json()["best"] == "inputs"


def test_wilson_against_published_values():
    # Newcombe (1998), Statistics in Medicine 17: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for right, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert wilson(right, n) == pytest.approx((low, high), abs=1e-4)


def test_a_predictor_is_checked_by_predictors_of_the_others():
    problem = arml.Problem("classification", (3,), 3, 5, 5)
    experiment = Experiment(
        "own", ALGORITHMS["protonet"].options(problem), network=MLPOptions((8,), "he")
    )
    few = arml.FewShotLearner(Portable(experiment, build(experiment, problem), problem, ("own",)))
    x, y = blobs(3, spread=2)
    trust = few.adapt(x, KINDS[y]).trust()
    for i in range(9):
        kept = np.arange(9) != i
        alone = few.adapt(x[kept], KINDS[y[kept]]).predict_proba(x[i : i + 1])
        np.testing.assert_allclose(trust.probabilities[i], alone[0], rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="use predict_proba"):
        few.adapt(x, KINDS[y]).interval(x)
    with pytest.raises(ValueError, match="use trust"):
        few.adapt(x, KINDS[y]).errors()
