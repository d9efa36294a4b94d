"""Prototypes: class means whatever the order of the labels, and soft clusters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.arml import ClassMeans, SoftClusters, each_sample, sample_mean
from arml.nn.networks import linear

E, F = np.random.default_rng(0).normal(size=(2, 7, 3)).astype(np.float32)
TARGETS = jnp.zeros((7, 1))


@pytest.mark.parametrize("y", [[0, 0, 1, 1, 2, 2, 2], [2, 0, 1, 2, 1, 0, 2]])
def test_class_prototypes_are_class_means(y):
    ours = ClassMeans(3)(jnp.asarray(E), jnp.asarray(F), jnp.asarray(y))
    expected = [np.mean(E[np.array(y) == c], axis=0) for c in range(3)]
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_soft_clusters_are_sums_weighted_by_assignments_that_sum_to_one():
    clusters = SoftClusters(linear(3, 4, key=jax.random.key(0)))
    weights = np.asarray(clusters.assignment(jnp.asarray(E)))
    assert weights.shape == (7, 4)
    assert np.all(weights > 0)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    ours = clusters(jnp.asarray(E), jnp.asarray(F), TARGETS)
    expected = [sum(weights[i, k] * F[i] for i in range(7)) for k in range(4)]
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
    # The clusters share out the whole sum of the embeddings.
    np.testing.assert_allclose(ours.sum(axis=0), F.sum(axis=0), rtol=1e-4, atol=1e-6)


def test_mean_and_samples():
    e, f = jnp.asarray(E), jnp.asarray(F)
    np.testing.assert_allclose(sample_mean(e, f, TARGETS), F.mean(axis=0)[None], rtol=1e-5)
    np.testing.assert_array_equal(each_sample(e, f, TARGETS), F)
