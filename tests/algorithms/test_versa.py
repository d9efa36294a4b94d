"""VERSA: a Gaussian over a linear head, sampled where it is read."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from arml.algorithms.versa import VERSA, VERSAOptions, VERSARegression
from arml.core.episodes import Problem
from arml.nn.heads import ABSENT_LOGIT, class_means
from small import REGRESSION, close, filled, meta, network, predictions, task

CLASSES = Problem("classification", (4,), 3, 2, 3)


def versa(of: Problem = CLASSES, **options: int) -> VERSA | VERSARegression:
    options = {"width": 16, **options}
    return VERSAOptions(**options).build(network(of, (8,)), of, key=jax.random.key(2))


def sampled(head: tuple, features: jax.Array, samples: int) -> np.ndarray:
    """Outputs `[samples, m, outputs]` of heads whose weights are drawn."""
    rng = np.random.default_rng(0)
    mean, log_variance, bias_mean, bias_log_variance = (np.asarray(a, np.float64) for a in head)
    weight = mean + np.exp(log_variance / 2) * rng.normal(size=(samples, *mean.shape))
    bias = bias_mean + np.exp(bias_log_variance / 2) * rng.normal(size=(samples, len(bias_mean)))
    return np.einsum("md,skd->smk", np.asarray(features, np.float64), weight) + bias[:, None]


def test_local_reparameterisation_agrees_with_sampled_weights():
    """Means, variances, the probabilities that the samples make, and the loss."""
    on, learner = task(CLASSES), versa(samples=20_000)
    means, _ = class_means(learner.body(on.support.x), on.support.y, 3)
    head, features = learner.amortise(means, 8), learner.body(on.query.x)
    logits = sampled(head, features, 20_000)
    mean, variance = map(np.asarray, head.outputs(features))
    assert np.max(np.abs(logits.mean(axis=0) - mean) / np.sqrt(variance)) < 0.04
    np.testing.assert_allclose(logits.var(axis=0), variance, rtol=0.06)
    probabilities = softmax(logits, axis=-1).mean(axis=0)
    np.testing.assert_allclose(np.exp(predictions(learner, on)), probabilities, atol=0.015)
    picked = probabilities[np.arange(len(features)), np.asarray(on.query.y)]
    np.testing.assert_allclose(meta(learner, on)[0], -np.mean(np.log(picked)), rtol=0.02)


def test_any_number_of_classes():
    """Without variance, the weights of a learner for three classes serve five, of which two are
    absent, in any order."""
    on, labels = task(CLASSES), jnp.array([4, 0, 2])
    few, many = versa(), versa(replace(CLASSES, outputs=5))
    many = eqx.tree_at(lambda m: (m.body, m.amortise), many, (few.body, few.amortise))

    def certain(learner: VERSA) -> VERSA:
        parts = ("weight_log_variance", "bias_log_variance")
        weights = filled(learner, lambda m: [getattr(m.amortise, p).weight for p in parts], 0.0)
        return filled(weights, lambda m: [getattr(m.amortise, p).bias for p in parts], -200.0)

    few, many = certain(few), certain(many)
    spread = on._replace(
        support=on.support._replace(y=labels[on.support.y]),
        query=on.query._replace(y=labels[on.query.y]),
    )
    ours = predictions(many, spread)
    close(ours[:, labels], predictions(few, on), rtol=1e-4, atol=1e-5)
    assert np.all(ours[:, [1, 3]] < ABSENT_LOGIT / 2)
    loss, gradient = meta(many, spread)
    close(loss, meta(few, on)[0], rtol=1e-4)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_regression_likelihood_agrees_with_sampled_weights():
    """The density of a target, as the mean of Gaussians around the outputs of sampled heads."""
    learner, on = filled(versa(REGRESSION), lambda m: m.log_noise, 1.0), task()
    on = on._replace(query=on.query._replace(y=0.3 * on.query.y))  # not far out in the tails
    embed, head = learner.head(on.support)
    outputs, noise = sampled(head, embed(on.query.x), 100_000), np.exp(1.0)
    spread = np.max(outputs.std(axis=0))
    close(predictions(learner, on), outputs.mean(axis=0), rtol=0, atol=0.02 * spread)
    y = np.asarray(on.query.y, np.float64)
    density = np.mean(np.exp(-((y - outputs) ** 2) / (2 * noise)), axis=0) / np.sqrt(noise)
    weight = np.sqrt(outputs.var(axis=0) + noise)
    np.testing.assert_allclose(meta(learner, on)[0], np.mean(-weight * np.log(density)), rtol=0.03)
