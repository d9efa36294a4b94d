"""VERSA: a Gaussian over a linear head, sampled where it is read."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from arml.algorithms.versa import VERSA, VERSAOptions, VERSARegression
from arml.core.episodes import Examples, Problem, Task
from arml.core.learner import MetaLearner
from arml.experiment.contract import Blobs
from arml.nn.heads import class_means
from arml.nn.networks import MLPOptions
from arml.tasks.functions import functions_2d

KEY = jax.random.key(0)
FUNCTIONS = functions_2d(shots=6, queries=4)


def problem(ways: int = 3) -> Problem:
    return Problem("classification", (4,), ways, 2, 3)


@cache
def task(of: Problem) -> Task:
    return Blobs(of).sample(jax.random.key(1))


@cache
def versa(of: Problem, **options: int) -> VERSA | VERSARegression:
    net = MLPOptions(hidden=(8,), init="he").build(of, key=KEY)
    return VERSAOptions(**{"width": 16, **options}).build(net, of, key=jax.random.key(2))


def certain(learner: VERSA) -> VERSA:
    """Without variance: the logarithms are -200 whatever the class."""
    for name in ("weight_log_variance", "bias_log_variance"):
        learner = eqx.tree_at(
            lambda m, name=name: (
                getattr(m.amortise, name).weight,
                getattr(m.amortise, name).bias,
            ),
            learner,
            replace_fn=lambda a: jnp.full_like(a, -200.0 if a.ndim == 1 else 0.0),
        )
    return learner


@eqx.filter_jit
def predict(learner: MetaLearner, support: Examples, x: jax.Array) -> jax.Array:
    return learner.adapt(support, key=KEY).predict(x)


@eqx.filter_jit
def meta_loss(learner: MetaLearner, on: Task) -> jax.Array:
    return learner.meta_loss(on, key=KEY)


@eqx.filter_jit
def parts(learner: VERSA, on: Task) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """The head's Gaussian, and the features of the queries."""
    means, _ = class_means(learner.body(on.support.x), on.support.y, learner.ways)
    return tuple(learner.amortise(means, 8)), learner.body(on.query.x)


@eqx.filter_jit
def regression_parts(learner: VERSARegression, on: Task) -> tuple[tuple[jax.Array, ...], jax.Array]:
    embed, head = learner.head(on.support)
    return tuple(head), embed(on.query.x)


def in_numpy(learner: VERSA, on: Task) -> tuple[list[np.ndarray], np.ndarray]:
    head, features = parts(learner, on)
    return [np.asarray(a, np.float64) for a in head], np.asarray(features, np.float64)


def sampled(head: list[np.ndarray], features: np.ndarray, samples: int) -> np.ndarray:
    """Outputs `[samples, m, outputs]` of heads whose weights are drawn."""
    rng = np.random.default_rng(0)
    mean, log_variance, bias_mean, bias_log_variance = head
    weight = mean + np.exp(log_variance / 2) * rng.normal(size=(samples, *mean.shape))
    bias = bias_mean + np.exp(bias_log_variance / 2) * rng.normal(size=(samples, len(bias_mean)))
    return np.einsum("md,skd->smk", features, weight) + bias[:, None]


def softmax(logits: np.ndarray) -> np.ndarray:
    exponential = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponential / exponential.sum(axis=-1, keepdims=True)


def test_local_reparameterisation_agrees_with_sampled_weights():
    """Means, variances, and the probabilities that the samples make."""
    of = problem()
    on, learner = task(of), versa(of, samples=20_000)
    head, features = in_numpy(learner, on)
    logits = sampled(head, features, 20_000)
    mean = features @ head[0].T + head[2]
    variance = features**2 @ np.exp(head[1]).T + np.exp(head[3])
    sd = np.sqrt(variance)
    assert np.max(np.abs(logits.mean(axis=0) - mean) / sd) < 0.04
    np.testing.assert_allclose(logits.var(axis=0), variance, rtol=0.06)
    ours = np.exp(predict(learner, on.support, on.query.x))
    np.testing.assert_allclose(ours, softmax(logits).mean(axis=0), atol=0.015)


def test_meta_loss_against_numpy():
    """Minus the log of the mean probability, of samples that all queries share."""
    of = problem()
    on, learner = task(of), versa(of)
    head, features = in_numpy(learner, on)
    noise = np.asarray(jax.random.normal(KEY, (10, 1, 3)), np.float64)
    sd = np.sqrt(features**2 @ np.exp(head[1]).T + np.exp(head[3]))
    probabilities = softmax(features @ head[0].T + head[2] + sd * noise).mean(axis=0)
    picked = probabilities[np.arange(len(features)), np.asarray(on.query.y)]
    np.testing.assert_allclose(meta_loss(learner, on), -np.mean(np.log(picked)), rtol=1e-4)


def test_without_variance_it_is_a_linear_head():
    of = problem()
    on, learner = task(of), certain(versa(of))
    (weight, _, bias, _), features = in_numpy(learner, on)
    expected = np.log(softmax(features @ weight.T + bias))
    ours = predict(learner, on.support, on.query.x)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    gradient = eqx.filter_jit(eqx.filter_grad(meta_loss))(learner, on)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_classes_can_be_permuted():
    """A class's rows of the head depend on its own examples, so they move with its label."""
    of = problem()
    on, learner, turn = task(of), versa(of), np.array([2, 0, 1])
    turned = on._replace(support=on.support._replace(y=jnp.asarray(turn)[on.support.y]))
    for ours, other in zip(parts(learner, on)[0], parts(learner, turned)[0], strict=True):
        np.testing.assert_allclose(ours, other[turn], rtol=1e-5, atol=1e-6)
    plain = certain(learner)
    ours, other = (predict(plain, t.support, on.query.x) for t in (on, turned))
    np.testing.assert_allclose(ours, other[:, turn], rtol=1e-4, atol=1e-5)


def test_any_number_of_classes():
    """The weights of a learner for three classes serve five, of which two are absent."""
    on, labels = task(problem()), jnp.array([0, 2, 4])
    few, many = certain(versa(problem())), certain(versa(problem(ways=5)))
    many = eqx.tree_at(lambda m: (m.body, m.amortise), many, (few.body, few.amortise))
    spread = on._replace(
        support=on.support._replace(y=labels[on.support.y]),
        query=on.query._replace(y=labels[on.query.y]),
    )
    ours = predict(many, spread.support, on.query.x)
    expected = predict(few, on.support, on.query.x)
    np.testing.assert_allclose(ours[:, labels], expected, rtol=1e-4, atol=1e-5)
    assert np.all(np.isfinite(ours))
    assert np.all(np.exp(ours[:, [1, 3]]) == 0)
    np.testing.assert_allclose(np.sum(np.exp(ours), axis=1), 1, rtol=1e-5)
    gradient = eqx.filter_jit(eqx.filter_grad(meta_loss))(many, spread)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_regression_likelihood_agrees_with_sampled_weights():
    """The density of a target, as the mean of Gaussians around the outputs of sampled heads."""
    on = FUNCTIONS.sample(jax.random.key(3))
    on = on._replace(query=on.query._replace(y=0.3 * on.query.y))  # not far out in the tails
    learner = versa(FUNCTIONS.problem)
    assert isinstance(learner, VERSARegression)
    learner = eqx.tree_at(lambda m: m.log_noise, learner, jnp.asarray(1.0))
    head, embedded = regression_parts(learner, on)
    features, exact = np.asarray(embedded, np.float64), [np.asarray(a, np.float64) for a in head]
    outputs, noise = sampled(exact, features, 100_000), np.exp(1.0)
    np.testing.assert_allclose(
        predict(learner, on.support, on.query.x),
        outputs.mean(axis=0),
        atol=0.02 * np.max(outputs.std(axis=0)),
    )
    y = np.asarray(on.query.y, np.float64)
    density = np.mean(np.exp(-((y - outputs) ** 2) / (2 * noise)), axis=0) / np.sqrt(noise)
    weight = np.sqrt(outputs.var(axis=0) + noise)
    expected = np.mean(weight * -np.log(density))
    np.testing.assert_allclose(meta_loss(learner, on), expected, rtol=0.03)


def test_regression_reads_a_set():
    """The order of the support examples is irrelevant; their targets are not."""
    on, learner = FUNCTIONS.sample(jax.random.key(3)), versa(FUNCTIONS.problem)
    (x, y), queries = on.support, on.query.x
    ours = predict(learner, on.support, queries)
    np.testing.assert_allclose(
        ours, predict(learner, Examples(x[::-1], y[::-1]), queries), rtol=1e-4, atol=1e-5
    )
    assert np.max(np.abs(ours - predict(learner, Examples(x, y[::-1]), queries))) > 1e-3
