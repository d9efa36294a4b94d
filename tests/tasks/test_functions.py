"""The six families: their formulas, priors, noise, and what a draw must look like."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.episodes import Task
from arml.tasks.functions import (
    FAMILY_NAMES,
    FLAT_FAMILIES,
    Functions,
    evaluate_family,
    functions_2d,
)

TASKS = 6000


def draw(tasks: Functions, n: int = TASKS, seed: int = 0) -> Task:
    keys = jax.random.split(jax.random.key(seed), n)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(tasks.sample))(keys))


@pytest.fixture(scope="module")
def noisy() -> Task:
    return draw(functions_2d())


@pytest.fixture(scope="module")
def clean() -> Task:
    return draw(functions_2d(noise=0.0))


def test_formulas():
    a, b, c, d = coefficients = np.array([0.7, -1.1, 0.4, 2.3], np.float32)
    xy = np.random.default_rng(0).uniform(-5, 5, (50, 2)).astype(np.float32)
    x, y = xy.T
    expected = {
        "sinusoid": a * np.sin(b * x + c),
        "line": a * x + b,
        "quadratic": a * x**2 + b * x + c,
        "cubic": a * x**3 + b * x**2 + c * x + d,
        "quadratic surface": a * x**2 + b * y**2,
        "ripple": np.sin(-a * (x**2 + y**2)) + b,
    }
    assert tuple(expected) == FAMILY_NAMES
    for i, value in enumerate(expected.values()):
        z = evaluate_family(i, jnp.asarray(coefficients), jnp.asarray(xy))
        assert z.shape == (50, 1)
        np.testing.assert_allclose(z[:, 0], value, atol=2e-4)


@pytest.mark.parametrize("low", [0.0, -5.0])
def test_inputs_are_uniform_and_flat(low, noisy):
    task = noisy if low == 0 else draw(functions_2d(low=low))
    x = np.concatenate([task.support.x, task.query.x], axis=1)
    flat = task.family < FLAT_FAMILIES
    assert np.all(x[flat][..., 1] == 1)
    for values in (x[..., 0], x[~flat][..., 1]):
        assert values.min() >= low
        assert values.max() < 5
        # Deciles of a uniform; each count's standard deviation is below 0.3 of its share of 1%.
        counts = np.histogram(values, 10, (low, 5))[0] / values.size
        np.testing.assert_allclose(counts, 0.1, atol=0.005)


def test_flat_is_an_option():
    task = draw(functions_2d(flat=False), 500)
    second = task.support.x[..., 1]
    assert np.all(second.std(axis=1) > 0)
    assert second.min() >= 0
    # The first families ignore it: the same key with flat points gives the same targets.
    np.testing.assert_array_equal(
        task.support.y[task.family < FLAT_FAMILIES],
        draw(functions_2d(), 500).support.y[task.family < FLAT_FAMILIES],
    )


def test_families_are_equally_probable(noisy):
    counts = np.bincount(noisy.family, minlength=6)
    expected = TASKS / 6
    assert np.sum((counts - expected) ** 2 / expected) < 20.5  # chi-squared, 5 degrees, p = 0.001


def test_noise_has_its_standard_deviation_on_both_sets(noisy, clean):
    np.testing.assert_array_equal(noisy.support.x, clean.support.x)
    support = noisy.support.y - clean.support.y
    query = noisy.query.y - clean.query.y
    for noise in (support, query):
        assert abs(noise.mean()) < 4 * 0.3 / np.sqrt(noise.size)
        assert abs(noise.std() / 0.3 - 1) < 4 / np.sqrt(2 * noise.size)
    assert not np.any(clean.support.x[..., 0] == clean.query.x[..., 0])
    # Independent of each other and from point to point.
    pairs = ((support[:, 0], query[:, 0]), (support[:, 0], support[:, 1]))
    for first, second in pairs:
        assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 4 / np.sqrt(TASKS)


def test_moments_of_the_priors(clean):
    def moment(power: int) -> float:
        return 5**power / (power + 1)  # E x^power, x ~ U[0, 5]

    a = np.linspace(-0.2, 0.2, 401)[:, None, None]
    x, y = np.linspace(0, 5, 201)[None, :, None], np.linspace(0, 5, 201)
    variances = [
        (5**3 - 0.1**3) / (3 * 4.9) / 2,
        3 * moment(2) + 3,
        0.4**2 / 12 * moment(4) + 4**2 / 12 * moment(2) + 3,
        0.2**2 / 12 * moment(6) + 0.4**2 / 12 * moment(4) + 4**2 / 12 * moment(2) + 3,
        2 / 3 * moment(4),
        np.mean(np.sin(a * (x**2 + y**2)) ** 2) + 3,
    ]
    for i, variance in enumerate(variances):
        z = clean.query.y[clean.family == i]
        per_task = np.mean(z**2, axis=(1, 2))
        error = per_task.std() / np.sqrt(len(z))
        assert abs(z.mean()) < 4 * np.sqrt(variance / len(z))
        assert abs(per_task.mean() - variance) < 4 * error + 0.01 * variance, FAMILY_NAMES[i]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shots": 0}, "shots must be 1 or more, got 0"),
        ({"queries": -1}, "queries must be 1 or more, got -1"),
        ({"low": 5.0}, "low < high, got low=5.0"),
        ({"high": float("inf")}, "finite range"),
        ({"noise": -0.1}, "0 or more and finite, got -0.1"),
        ({"noise": float("nan")}, "got nan"),
    ],
)
def test_bad_arguments(options, words):
    with pytest.raises(ValueError, match=words):
        functions_2d(**options)
