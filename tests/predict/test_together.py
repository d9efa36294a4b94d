"""Shares of classifiers: against a general optimiser, the condition of a maximum, and limits."""

import numpy as np
from scipy.optimize import minimize

from arml.predict.simple import softmax
from arml.predict.together import PRIOR, error_shares, left_out, mixed, shares


def some(n: int, k: int, seed: int = 0) -> np.ndarray:
    """The probabilities that `k` classifiers of different quality give to labels."""
    rng = np.random.default_rng(seed)
    return rng.beta(np.linspace(1, 4, k), 2, size=(n, k))


def test_a_general_optimiser_finds_the_same_shares():
    own, prior = some(25, 3), np.array([0.5, 0.25, 0.25])

    def loss(z: np.ndarray) -> float:
        s = softmax(z[None])[0]
        return -float(np.log(own @ s).sum() + PRIOR * prior @ np.log(s))

    wanted = softmax(minimize(loss, np.zeros(3), tol=1e-12).x[None])[0]
    np.testing.assert_allclose(shares(own), wanted, atol=1e-3)


def test_the_slope_is_the_same_in_each_direction():
    # At the maximum on the simplex all partial derivatives equal the number of examples.
    for n, k in ((12, 2), (40, 3)):
        own, found = some(n, k, seed=n), shares(some(n, k, seed=n))
        prior = np.array([0.5, *[0.5 / (k - 1)] * (k - 1)])
        slope = (own / (own @ found)[:, None]).sum(axis=0) + PRIOR * prior / found
        np.testing.assert_allclose(slope, n + PRIOR, rtol=1e-2)


def test_without_examples_the_shares_are_the_prior():
    np.testing.assert_allclose(shares(np.zeros((0, 3))), [0.5, 0.25, 0.25])
    np.testing.assert_allclose(shares(np.full((9, 2), 0.7)), [0.5, 0.5])


def test_a_classifier_that_knows_gets_nearly_all():
    own = np.tile([0.2, 0.99], (500, 1))
    assert shares(own)[1] > 0.99
    sure = np.tile([1.0, 0.5], (500, 1))
    sure[:3, 0] = 0  # sure and wrong costs much, and not all
    assert 0.9 < shares(sure)[0] < 0.999


def test_an_example_is_predicted_by_shares_found_without_it():
    rng, n = np.random.default_rng(3), 12
    chances = [softmax(2 * rng.normal(size=(n, 4))) for _ in range(3)]
    y = np.arange(n) % 4
    parts = [np.array([0, 5]), np.array([7]), np.setdiff1d(np.arange(n), [0, 5, 7])]
    found, mean = left_out(chances, y, parts)
    own = np.stack([each[np.arange(n), y] for each in chances], axis=1)
    np.testing.assert_allclose(found, shares(own))
    np.testing.assert_allclose(mean.sum(axis=1), 1)
    for part in parts:
        without = shares(np.delete(own, part, axis=0))
        wanted = sum(s * each[part] for s, each in zip(without, chances, strict=True))
        np.testing.assert_allclose(mean[part], wanted)


def test_a_regression_counts_by_its_error():
    squared = np.array([[1.0, 2.0, 1.0], [1.0, 6.0, 3.0]])
    np.testing.assert_allclose(error_shares(squared), np.array([16, 1, 4]) / 21)
    some = np.array([[True, False], [False, True], [False, False]])
    wanted = [np.array([4, 1, 4]) / 9, np.array([36, 1, 4]) / 41, np.full(3, 1 / 3)]
    np.testing.assert_allclose(error_shares(squared, some), wanted, rtol=1e-6)
    lost = error_shares(
        np.array([[1.0, np.inf], [1.0, 4.0]]), np.array([[True, True], [False, True]])
    )
    np.testing.assert_allclose(lost, [[1, 0], [16 / 17, 1 / 17]], rtol=1e-6)
    assert error_shares(np.full((2, 2), np.inf)).tolist() == [0.5, 0.5]
    exact = error_shares(np.array([[0.0, 1.0]]))
    assert exact[0] > 0.999
    assert exact[1] > 0


def test_the_mean_is_of_probabilities():
    rng = np.random.default_rng(4)
    odds = [rng.normal(size=(5, 3)), rng.normal(size=(5, 3))]
    logs = mixed([(0.3, lambda _: odds[0]), (0.7, lambda _: odds[1])])(None)
    np.testing.assert_allclose(np.exp(logs), 0.3 * softmax(odds[0]) + 0.7 * softmax(odds[1]))
