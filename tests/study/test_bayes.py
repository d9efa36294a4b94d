"""The Bayes-optimal predictor: against closed forms, quadrature, plain sampling, and chance."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.episodes import Examples
from arml.tasks.functions import PRIOR_HIGH, PRIOR_LOW, evaluate_family, functions_2d
from arml.training.evaluate import score_tasks
from study.bayes import _conditional, posterior
from study.floor import BayesOptimal, Options, measure

DRAWS = 2048
N = 400


def effective(drawn):
    """Effective sample size of each family's draws, between 1 and their number."""
    weights = jax.nn.softmax(drawn.log_weights, axis=1)
    return 1 / jnp.sum(weights * weights, axis=1)


def compiled(tasks, draws=DRAWS):
    """(support, x, key) -> (mean at x, probabilities, effective draws), over many tasks."""

    def one(support, x, key):
        drawn = posterior(tasks, support, key=key, draws=draws)
        return drawn.mean(x), drawn.family(), effective(drawn)

    def many(supports, xs, keys):
        return jax.lax.map(lambda a: one(*a), (supports, xs, keys), batch_size=25)

    return jax.jit(many)


@pytest.fixture(scope="module")
def paper():
    return compiled(functions_2d())


@pytest.fixture(scope="module")
def scored(paper):
    """Tasks of the paper, with the predictor's answers."""
    keys = jax.random.split(jax.random.key(0), (N, 2))
    drawn = jax.jit(jax.vmap(functions_2d().sample))(keys[:, 0])
    answers = paper(drawn.support, drawn.query.x, keys[:, 1])
    return jax.tree.map(np.asarray, (drawn, *answers))


@pytest.mark.parametrize("scale", [3.0, -3.0, 0.0, 1e-3, 40.0])
@pytest.mark.parametrize("target", [0.4, -7.0, 9.0])
def test_conditional_against_quadrature(scale, target):
    low, high, n = -1.0, 2.0, 20_000
    uniform = jnp.linspace(0.5 / n, 1 - 0.5 / n, n)
    values, log_factors = jax.jit(_conditional)(
        jnp.asarray(scale), jnp.full(n, target), jnp.asarray(low), jnp.asarray(high), uniform
    )
    log_mean = jax.scipy.special.logsumexp(log_factors) - np.log(n)
    assert values.min() >= low
    assert values.max() <= high
    grid = np.linspace(low, high, 200_001)
    log_density = -0.5 * (scale * grid - target) ** 2
    peak = log_density.max()
    density = np.exp(log_density - peak)
    np.testing.assert_allclose(log_mean, peak + np.log(density.mean()), rtol=1e-4, atol=2e-3)
    mean = np.sum(grid * density) / np.sum(density)
    np.testing.assert_allclose(jax.nn.softmax(log_factors) @ values, mean, atol=3e-3)


def test_agrees_with_the_conjugate_posterior():
    """A line far inside its prior, little noise: least squares, and the evidence in closed form."""
    noise = 0.05
    x = np.linspace(0.2, 4.8, 10, dtype=np.float32)
    rest = noise * np.random.default_rng(0).standard_normal(10)
    z = (0.7 * x - 0.4 + rest).astype(np.float32)
    xy = np.stack([x, np.ones_like(x)], axis=1)
    support = Examples(jnp.asarray(xy), jnp.asarray(z[:, None]))
    tasks, key = functions_2d(noise=noise), jax.random.key(0)
    drawn = jax.jit(lambda: posterior(tasks, support, key=key, draws=DRAWS))()

    design = np.stack([x, np.ones_like(x)], axis=1).astype(np.float64)
    fit, (squares,), *_ = np.linalg.lstsq(design, z.astype(np.float64))
    weights = jax.nn.softmax(drawn.log_weights[1])
    np.testing.assert_allclose(weights @ drawn.coefficients[1, :, :2], fit, atol=1e-3)
    spread = np.cov(drawn.coefficients[1, :, :2].T, aweights=np.asarray(weights))
    exact = noise**2 * np.linalg.inv(design.T @ design)
    np.testing.assert_allclose(spread, exact, rtol=0.03, atol=1e-6)
    evidence = (
        np.log(2 * np.pi * noise**2)
        - 0.5 * np.linalg.slogdet(design.T @ design)[1]
        - np.log(6.0 * 6.0)
        - squares / (2 * noise**2)
    )
    ours = jax.scipy.special.logsumexp(drawn.log_weights[1]) - np.log(DRAWS)
    np.testing.assert_allclose(ours, evidence, atol=2e-3)
    # Exact draws all weigh the same.
    np.testing.assert_allclose(effective(drawn)[1], DRAWS, rtol=1e-3)


@pytest.mark.slow
def test_agrees_with_plain_sampling_from_the_priors():
    """Few points and much noise, so that plain importance sampling is good enough to compare."""
    tasks = functions_2d(shots=3, noise=1.0, flat=False)
    rng = np.random.default_rng(1)
    keys = jax.random.split(jax.random.key(3), (6, 2))
    drawn = jax.vmap(tasks.sample)(keys[:, 0])
    means, probabilities, _ = compiled(tasks)(drawn.support, drawn.query.x, keys[:, 1])
    n = 60_000
    coefficients = jnp.asarray(rng.uniform(PRIOR_LOW, PRIOR_HIGH, (n, 6, 4)), jnp.float32)

    @jax.jit
    def plain(support, x):
        def values(points):
            one = jax.vmap(evaluate_family, in_axes=(0, 0, None))
            many = jax.vmap(lambda c: one(jnp.arange(6), c, points)[..., 0])
            return many(coefficients)  # [n, 6, points]

        residual = values(support.x) - support.y[:, 0]
        log_weights = -0.5 * jnp.sum(residual**2, axis=-1)
        weights = jax.nn.softmax(log_weights.reshape(-1)).reshape(n, 6)
        return jnp.einsum("nf,nfm->m", weights, values(x)), weights.sum(axis=0)

    for i in range(6):
        mean, probability = plain(
            Examples(drawn.support.x[i], drawn.support.y[i]), drawn.query.x[i]
        )
        np.testing.assert_allclose(probabilities[i], probability, atol=0.02)
        scale = 1 + np.abs(mean).max()
        np.testing.assert_allclose(means[i, :, 0], mean, atol=0.05 * scale)


@pytest.mark.slow
def test_probabilities_sum_to_one_and_are_calibrated(scored):
    task, _, probabilities, _ = scored
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    # If the posterior is right, (was it this family?) - probability has mean zero.
    happened = task.family[:, None] == np.arange(6)
    error = np.sqrt(np.mean(probabilities * (1 - probabilities), axis=0) / len(happened))
    assert np.all(np.abs(np.mean(happened - probabilities, axis=0)) < 4 * error + 1e-4)


@pytest.mark.slow
def test_error_is_at_the_known_floor_and_below_trivial_predictors(scored):
    task, means, _, effective = scored
    losses = np.mean((means - task.query.y) ** 2, axis=(1, 2))
    # Plain sampling with 120,000 draws a family gave 0.127 +- 0.011 on 400 tasks.
    interval = 1.96 * losses.std() / np.sqrt(len(losses))
    assert 0.09 < losses.mean() < 0.131 + interval
    average = np.mean((task.support.y.mean(axis=1, keepdims=True) - task.query.y) ** 2)
    assert losses.mean() < 0.05 * average
    own = np.take_along_axis(effective, task.family[:, None], axis=1)
    assert np.median(own) > DRAWS / 10


def test_bad_arguments():
    support = Examples(jnp.ones((2, 2)), jnp.ones((2, 1)))
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"needs noise > 0, got 0\.0"):
        posterior(functions_2d(noise=0.0), support, key=key)
    with pytest.raises(ValueError, match="draws must be 1 or more, got 0"):
        posterior(functions_2d(), support, key=key, draws=0)


@pytest.mark.slow
def test_measure_writes_the_score_of_the_evaluation(tmp_path):
    written = measure(Options(out=tmp_path / "floor.json", tasks=30, draws=128))
    assert json.loads((tmp_path / "floor.json").read_text()) == json.loads(json.dumps(written))
    tasks = functions_2d()
    scores = score_tasks(BayesOptimal(tasks, draws=128), tasks, split="test", n=30, chunk=30)
    assert written["score"]["mean"] == pytest.approx(scores.values.mean(), rel=1e-3)
