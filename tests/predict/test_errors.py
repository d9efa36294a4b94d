"""Regression, checked by its own examples: against a loop, with a mistyped target, and coverage."""

import numpy as np
import pytest

import arml
from arml.predict.errors import NotFinite, checked_errors, intervals, jackknife_plus
from arml.predict.simple import choices
from arml.predict.trust import FOLDS, folds


def parts_of(x, y, **models):
    """The parts of leave-one-out, with functions from examples to a function of inputs."""
    n = len(x)
    kept = [(out, np.setdiff1d(np.arange(n), out)) for out in folds(np.zeros(n, int))]
    return [(out, {name: fit(x[k], y[k]) for name, fit in models.items()}.get) for out, k in kept]


def line(x, y):
    at = np.polyfit(x[:, 0], y[:, 0], 1)
    return lambda inputs: np.polyval(at, inputs)


def middle(x, y):
    return lambda inputs: np.broadcast_to(y.mean(axis=0), (len(inputs), 1))


def lines(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(n, 1))
    return x, 2 * x + rng.normal(size=(n, 1))


@pytest.mark.parametrize("uses", ["process", "together"])
def test_intervals_cover_as_often_as_they_say(uses):
    """Lines by least squares, beside the mean: the coverage of 90% intervals, over many tasks."""
    rng, within, every = np.random.default_rng(0), [], ("learner", "process", "together")
    for _ in range(100):
        x, y = lines(12, rng)
        query, wanted = lines(5, rng)
        parts = parts_of(x, y, learner=middle, process=line)
        low, high = intervals(checked_errors(parts, x, y, uses, every), parts, query, 0.9)
        assert np.all(low <= high)
        within.append(np.mean((low <= wanted) & (wanted <= high)))
    assert 0.86 < np.mean(within) < 0.96


def test_a_level_that_so_few_examples_cannot_give():
    with pytest.raises(ValueError, match="give 9 examples or more"):
        jackknife_plus(np.zeros((8, 1)), np.ones(8), 0.9)
    low, high = jackknife_plus(np.zeros((9, 1)), np.arange(9.0), 0.9)
    assert (low[0], high[0]) == (-8, 8)
    with pytest.raises(ValueError, match="such as"):
        jackknife_plus(np.zeros((9, 1)), np.ones(9), 1.0)


def test_the_weighted_mean_of_an_example_is_found_without_it():
    x, y = lines(7, np.random.default_rng(1))
    parts = parts_of(x, y, learner=middle, process=line)
    found = checked_errors(parts, x, y, "together", ("learner", "process", "together"))
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.shares["process"] > found.shares["learner"]
    for i in range(7):
        wrong = {k: np.delete(p - y, i) for k, p in found.predictions.items()}
        inverse = {k: np.mean(wrong[k] ** 2) ** -2 for k in ("learner", "process")}
        share = {k: each / sum(inverse.values()) for k, each in inverse.items()}
        assert found.without[i] == pytest.approx(share)
        wanted = sum(s * found.predictions[k][i] for k, s in share.items())
        np.testing.assert_allclose(found.predictions["together"][i], wanted)
    alone = checked_errors(parts, x, y, "learner", ("learner", "process", "together"))
    assert alone.without == [{"learner": 1.0}] * 7
    assert alone.best in ("process", "together")
    # Each is predicted by the mean of the others.
    assert alone.error == pytest.approx(alone.floor)
    np.testing.assert_allclose(alone.average, (y.sum() - y) / 6)
    assert "do not trust it" in alone.lines("abcdefg")[1]


def test_targets_count_alike_whatever_their_unit():
    x, y = lines(9, np.random.default_rng(2))
    both = np.concatenate([y, 1000 * y], axis=1)

    def two(each):
        return lambda x, y: (
            lambda new: np.concatenate([each(x, y[:, k : k + 1])(new) for k in (0, 1)], axis=1)
        )

    every = ("learner", "process", "together")
    found = checked_errors(parts_of(x, both, learner=two(middle), process=two(line)), x, both,
                           "learner", every)  # fmt: skip
    single = checked_errors(parts_of(x, y, learner=middle, process=line), x, y, "learner", every)
    assert found.shares == pytest.approx(single.shares)
    assert found.relative == pytest.approx(single.relative)
    np.testing.assert_allclose(found.error, single.error * [1, 1000])
    assert " and " in str(found)


def fails(x, y):
    def predict(inputs):
        raise NotFinite("a number is not finite")

    return predict


def test_one_that_cannot_predict_stops_no_other():
    x, y = lines(9, np.random.default_rng(4))
    every = ("learner", "process", "together")
    parts = parts_of(x, y, learner=fails, process=line)
    found = checked_errors(parts, x, y, "together", every)
    assert found.shares == {"learner": 0, "process": 1}
    np.testing.assert_allclose(found.predictions["together"], found.predictions["process"])
    assert found.as_json()["errors"]["learner"] == [None]
    low, high = intervals(found, parts, x, 0.9)
    assert np.all(np.isfinite(low) & np.isfinite(high))
    huge = (1e20 * y).astype(np.float32)
    large = checked_errors(
        parts_of(x, huge, learner=fails, process=line), x, huge, "together", every
    )
    assert large.shares == found.shares
    assert np.isfinite(large.error)
    none = checked_errors(parts_of(x, y, learner=fails, process=fails), x, y, "together", every)
    assert np.isinf(none.error)


def test_one_predicts_alone_where_the_mean_is_much_worse():
    x, y = lines(9, np.random.default_rng(5))

    def odd(some, targets):  # knows all but the last example, which it misses by far
        known = dict(zip(x[:, 0].tolist(), y[:, 0].tolist(), strict=True))
        return lambda inputs: np.array(
            [[known[at] if at != x[-1, 0] else 1e6] for at in inputs[:, 0].tolist()]
        )

    parts = parts_of(x, y, learner=odd, process=line)
    found = checked_errors(parts, x, y, "together", ("learner", "process", "together"))
    assert found.shares == {"learner": 0, "process": 1}
    assert found.error == pytest.approx(found.errors["process"])


def test_equal_targets_are_named():
    x, _ = lines(9, np.random.default_rng(6))
    y = np.full((9, 1), 3.3)
    found = checked_errors(parts_of(x, y, learner=middle), x, y)
    assert found.lines("abcdefghi")[1:] == ["all targets are alike"]


def test_many_examples_are_left_out_in_tenths():
    x, y = lines(56, np.random.default_rng(3))
    parts = parts_of(x, y, learner=line)
    assert len(parts) == FOLDS
    found = checked_errors(parts, x, y)
    assert found.shares == {}
    assert found.relative["learner"] < 1
    low, high = intervals(found, parts, x, 0.9)
    assert np.mean((low <= y) & (y <= high)) > 0.85


@pytest.fixture(scope="module")
def fitted():
    points = np.random.default_rng(0).uniform(0, 5, (12, 2)).astype(np.float32)
    return arml.load("regression2d").adapt(points, points[:, 0])


def test_a_fitted_function_has_errors_and_intervals(fitted):
    low, high = fitted.interval(fitted.x[:3])
    assert low.shape == high.shape == (3,)
    assert np.all(low < high)
    found = fitted.errors()
    alone = arml.load("regression2d").adapt(fitted.x[1:], fitted.y[1:, 0])
    for uses in ("learner", "process"):
        wanted = alone.using(uses).predict(fitted.x[:1])
        np.testing.assert_allclose(found.predictions[uses][0], wanted, atol=1e-4)
    assert found.error < found.floor
    assert {*found.errors} == {"learner", "process", "together"}
    assert found.as_json()["shares"] == found.shares
    assert fitted.using("process").errors().shares == found.shares
    assert fitted.using("process")._parts is fitted._parts  # adapted once
    with pytest.raises(ValueError, match="use errors"):
        fitted.trust()
    with pytest.raises(ValueError, match="give 19 examples"):
        fitted.interval(fitted.x, 0.95)


def test_all_predict_together_and_are_kept(fitted, tmp_path):
    both = fitted.using("together")
    shares, new = both.found_shares(), np.array([[1, 1], [4, 2]], np.float32)
    wanted = sum(share * fitted.using(uses).predict(new) for uses, share in shares.items())
    np.testing.assert_allclose(both.predict(new), wanted, rtol=1e-5)
    for uses in choices(fitted.problem):
        fitted.using(uses).save(tmp_path / uses)
        kept = arml.load_predictor(tmp_path / uses)
        assert kept.uses == uses
        np.testing.assert_allclose(kept.predict(new), fitted.using(uses).predict(new), rtol=1e-5)
    assert {*kept.fits} == {"process"}
    low, high = both.interval(new)
    assert np.all(low < high)


def test_a_mistyped_target_is_named(fitted):
    y = fitted.y[:, 0].copy()
    y[4] *= 100
    found = arml.load("regression2d").adapt(fitted.x, y).using("process").errors()
    assert found.far[0] == 4
    said = found.lines([f"row {i}" for i in range(12)])
    assert any(text.startswith("check row 4: its target is") for text in said)


def test_one_example_cannot_be_checked():
    one = arml.load("regression2d").adapt([[1, 1]], [2.0]).using("together")
    found = one.errors()
    assert np.isnan(found.error)
    assert found.as_json()["errors"]["learner"] == [None]
    assert found.lines(["row 2"]) == [
        "the predictor cannot be checked with one example: give two or more"
    ]
    assert one.predict([[1, 1]]).shape == (1,)
