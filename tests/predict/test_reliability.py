"""What a check says of predictors whose quality is known; and that it sees none of its answers."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression, Ridge

from arml.predict.folds import equal_inputs, folds
from arml.predict.reliability import (
    ALWAYS_THE_MEAN,
    OVERLAP_FACTOR,
    Z_95,
    Evaluation,
    NumberReliability,
    classification_reliability,
    regression_reliability,
)
from untrained import untrained

KINDS = np.array(["ash", "elm", "oak"])


def blobs(each: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes at the corners of a triangle."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), each)
    return 6 * np.eye(3)[y] + spread * rng.normal(size=(len(y), 3)), y


def refitting(x, y, model=None, classes=3):
    model = model or LogisticRegression()

    def refit(train, test):
        fitted = model.fit(x[train], y[train])
        chances = np.zeros((len(test), classes))
        chances[:, fitted.classes_] = fitted.predict_proba(x[test])
        return {"model": chances}

    return refit


def constant(*chances):
    return lambda _, test: {"model": np.tile(chances, (len(test), 1))}


def test_one_picture_with_two_labels_is_at_chance_and_named():
    x = np.repeat(np.random.default_rng(0).uniform(size=(1, 16, 16, 3)), 6, axis=0)
    found = (
        untrained("protonet", 16, 16, 3).adapt(x, list("ababab")).using("ensemble").reliability()
    )
    assert {found.accuracy, found.balanced, *found.others.values()} == {0.5}
    assert (found.copies, found.conflicts) == ((), ((0, 1, 2, 3, 4, 5),))
    said = found.lines("123456")
    assert "do not trust it" in said[1]
    assert said[2] == "equal examples with different labels: 1 = 2 = 3"


def test_copies_are_left_out_together_and_named():
    rng = np.random.default_rng(2)
    x, y = np.tile(rng.normal(size=(16, 50)), (2, 1)), np.tile(np.arange(16) % 2, 2)
    same = equal_inputs(x)
    near = x + 1e-3 * rng.normal(size=x.shape)
    assert len(np.unique(equal_inputs(near))) == 32
    labels = equal_inputs(near, near=0.05)
    assert len(np.unique(labels)) == len(np.unique(np.stack([labels, same]), axis=1).T) == 16
    check = refitting(x, y, LogisticRegression(C=100), 2)
    assert classification_reliability(check, y, KINDS[:2]).accuracy > 0.9
    found = classification_reliability(check, y, KINDS[:2], same)
    assert found.copies[3] == (3, 19)
    assert found.accuracy < 0.8
    assert "equal examples, which were left out together: 0 = 16, 1 = 17" in " ".join(
        found.lines([str(i) for i in range(32)])
    )
    for train, test in folds(y, same, classes=False):
        assert not {*same[train]} & {*same[test]}
    several = np.arange(32.0)[:, None]  # one input with several targets is no copy
    numbers = regression_reliability(lambda _, b: {"zero": 0 * several[b]}, several, same)
    assert (numbers.copies, numbers.conflicts[3]) == ((), (3, 19))


def test_the_interval_counts_distinct_examples():
    """Four rows, ten times each: the interval is that of four."""
    x, y = np.repeat(np.arange(4.0)[:, None], 10, axis=0), np.repeat([0, 1, 0, 1], 10)
    found = classification_reliability(constant(0.6, 0.4), y, KINDS[:2], equal_inputs(x))
    assert found.accuracy == 0.5
    # Wilson's interval of a share p are the p0 with (p - p0)^2 = Z_95^2 p0 (1 - p0) OVERLAP / n.
    for end in found.interval:
        assert (0.5 - end) ** 2 == pytest.approx(Z_95**2 * end * (1 - end) * OVERLAP_FACTOR / 4)
    alone = Evaluation(found.classes, y[::10], found.probabilities[::10])
    assert alone.interval == pytest.approx(binomtest(2, 4).proportion_ci(method="wilson"), abs=1e-6)
    assert "over 40 examples, 4 of them distinct" in str(found)
    zero = lambda _, test: {"zero": np.zeros((len(test), 1))}  # noqa: E731
    numbers = regression_reliability(zero, 1.0 * y, equal_inputs(x))
    assert numbers.independent == 4
    with pytest.raises(ValueError, match=r"4 examples are too few for a level of 0\.9"):
        numbers.half_width(0.9)


def test_folds_are_balanced_and_keep_every_class():
    for y in (np.repeat(np.arange(3), 5), np.repeat(np.arange(3), [2, 40, 60])):
        parts = [*folds(y, repeats=2)]
        counts = np.zeros(len(y), int)
        for train, test in parts:
            counts[test] += 1
            assert {*train} | {*test} == {*range(len(y))}
            assert not {*train} & {*test}
            assert len({*y[train]}) == 3
        assert {*counts} == {2}
    five = [test for _, test in folds(np.repeat(np.arange(3), 5))]
    assert [len(test) for test in five] == [3] * 5


def test_folds_do_not_depend_on_the_order_of_the_examples():
    x, y = blobs(7)
    x[1] = x[0]  # a copy
    x[20] = x[3]  # under another label
    mixed = np.random.default_rng(3).permutation(len(y))

    def parts(x, y, where):
        same = equal_inputs(x)
        numbers = [{*where[test]} for _, test in folds(x[:, 0], same, classes=False)]
        return [{*where[test]} for _, test in folds(y, same, repeats=2)], numbers

    assert parts(x, y, np.arange(len(y))) == parts(x[mixed], y[mixed], mixed)


def test_groups_are_left_out_together_in_balanced_folds():
    rng = np.random.default_rng(7)
    groups, y = np.repeat(np.arange(30), 4), np.repeat(np.arange(30) % 3, 4)
    same = equal_inputs(rng.normal(size=(120, 2)))
    same[4] = same[0]  # a copy of another group, whose label differs: both stay apart
    same[12] = same[0]  # a copy of another group with the same label: one unit of eight
    order = rng.permutation(120)

    def parts(where):
        found = folds(y[where], same[where], groups[where], repeats=2)
        return [{*where[test].tolist()} for _, test in found]

    assert parts(order) == parts(np.arange(120))
    for test in parts(order):
        left = {*range(120)} - test
        assert not {*groups[[*test]]} & {*groups[[*left]]}
        assert [*np.bincount(y[[*test]], minlength=3)] in ([4, 4, 4], [8, 4, 4], [0, 4, 4])


def test_a_class_of_one_example_or_of_its_copies_stays_and_is_not_checked():
    y, seen = np.array([0, 0, 0, 1, 1, 1, 2, 2]), []

    def refit(train, test):
        seen.append({6, 7} < {*train})
        return {"model": np.tile([0.5, 0.3, 0.2], (len(test), 1))}

    found = classification_reliability(refit, y, KINDS, np.array([0, 1, 2, 3, 4, 5, 6, 6]))
    assert all(seen)
    assert found.checked.tolist() == [0, 1, 2, 3, 4, 5]
    assert {*found.by_class} == {"ash", "elm"}
    unchecked = "not checked, because each has one distinct example: oak"
    assert unchecked in found.lines("abcdefgh")
    assert str(found).endswith(unchecked)
    alone = classification_reliability(refit, y[2:], KINDS, np.array([0, 1, 2, 3, 4, 4]))
    assert "only one class could be checked" in str(alone.lines("abcdef"))
    lone = classification_reliability(refit, np.array([0, 1, 2, 2]), KINDS, np.array([0, 1, 2, 2]))
    assert np.isnan(lone.accuracy)
    assert "cannot be checked" in str(lone)
    assert lone.lines("abcd")[0] == str(lone)


def test_a_large_class_does_not_flatter():
    found = classification_reliability(constant(0.9, 0.1), np.repeat([0, 1], [9, 3]), KINDS[:2])
    assert found.accuracy == 0.75
    assert found.balanced == 0.5
    assert found.largest == ("ash", 0.75)
    assert "mean over the classes 50%; always answering ash: 75%" in str(found)
    assert "no better than always answering ash: do not trust it" in found.lines("a" * 12)
    # 60% of a class of 10 and both of another of 2: less often right than the largest class.
    chances = np.array([[0.9, 0.1]] * 6 + [[0.1, 0.9]] * 6)
    found = classification_reliability(
        lambda _, i: {"m": chances[i]}, np.repeat([0, 1], [10, 2]), KINDS[:2]
    )
    assert found.warning.startswith("worse than always answering ash: do not trust it where ash is")
    assert found.warning in found.lines("a" * 12)
    assert found.warning in Evaluation(KINDS[:2], found.labels, chances).lines("a" * 12)


def test_a_label_that_is_wrong_is_named_first():
    x, y = blobs(6)
    y[4] = 2
    found = classification_reliability(refitting(x, y), y, KINDS)
    assert found.doubtful[0] == 4
    said = found.lines([f"{i}.png" for i in range(18)])
    assert any("check 4.png: labelled oak, predicted as ash" in line for line in said)
    assert found.accuracy == pytest.approx(17 / 18)
    assert found.confusion.sum() == 18
    assert found.confusion[2, 0] == 1
    assert "(mean of 3 repeats over 18 examples; 95% interval " in said[0]
    x, y = blobs(25)  # more are left out once
    found = classification_reliability(refitting(x, y), y, KINDS)
    assert f"({round(75 * found.accuracy)} of 75;" in str(found)


def test_other_models_stand_beside_the_one_that_is_checked():
    x, y = blobs(5)
    good = refitting(x, y)

    def refit(train, test):
        guess = np.tile([1.0, 0, 0], (len(test), 1))
        return {"learner": guess, "other": guess, "logistic": good(train, test)["model"]}

    found = classification_reliability(refit, y, KINDS)
    assert (found.model, found.accuracy) == ("learner", pytest.approx(1 / 3))
    assert found.others == {"other": pytest.approx(1 / 3), "logistic": 1}
    assert "other models: other 33%, logistic regression 100%" in str(found)
    chosen = classification_reliability(refit, y, KINDS, model="logistic")
    assert (chosen.model, chosen.accuracy) == ("logistic", 1)


def test_a_threshold_keeps_the_stated_share():
    x, y = blobs(10, spread=2)
    found = classification_reliability(refitting(x, y), y, KINDS)
    kept = found.probabilities.max(axis=1) >= found.threshold(0.9)
    assert np.mean(kept) == pytest.approx(0.9, abs=0.04)


def test_numbers_are_predicted_from_the_others():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(10, 2))
    y = x @ [[1.0], [2]] + 0.1 * rng.normal(size=(10, 1))
    y[5] += 8

    def refit(train, test):
        return {
            "ridge": Ridge(0.1).fit(x[train], y[train]).predict(x[test]).reshape(-1, 1),
            "lost": np.full((len(test), 1), np.inf),
            "mean": np.full((len(test), 1), y[train].mean()),
        }

    found = regression_reliability(refit, y)
    for i in range(10):
        kept = np.arange(10) != i
        alone = Ridge(0.1).fit(x[kept], y[kept]).predict(x[i : i + 1])
        assert found.predictions[i, 0] == pytest.approx(alone.item())
    means = (y.sum() - y) / 9
    assert found.errors[ALWAYS_THE_MEAN] == pytest.approx(np.sqrt(np.mean((means - y) ** 2)))
    assert found.doubtful[0] == 5
    said = found.lines([f"row {i}" for i in range(10)])
    assert "always the mean" in said[0]
    assert found.median == np.median(np.abs(found.predictions - y)) < found.error / 4
    assert f"median error {found.median[0]:.3g})" in said[0]
    assert any(line.startswith("check row 5: its target is") for line in said)
    assert np.isinf(found.errors["lost"])
    idle = regression_reliability(refit, y, model="mean")
    assert idle.error == found.errors[ALWAYS_THE_MEAN]
    assert "no better than always answering the mean" in idle.lines([""] * 10)[1]
    alone = regression_reliability(refit, y[:1])
    assert "cannot be checked" in str(alone)
    assert len(alone.targets) == 0


def test_intervals_hold_the_stated_share():
    rng = np.random.default_rng(6)

    def half_width(n, level):
        given = rng.normal(size=(n, 1)), np.zeros((n, 1)), "zero", {}
        return NumberReliability(*given).half_width(level)

    held = [abs(rng.normal()) <= half_width(19, 0.8)[0] for _ in range(2000)]
    assert np.mean(held) == pytest.approx(0.8, abs=0.03)
    with pytest.raises(ValueError, match=r"5 examples are too few for a level of 0\.9: give 9"):
        half_width(5, 0.9)
    with pytest.raises(ValueError, match="between 0 and 1"):
        half_width(5, 1.0)
