"""Base networks and normalisation: statistics come from where they are said to come from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.episodes import Problem
from arml.core.inner import Shared
from arml.nn.networks import Body, Conv4Options, MLPOptions, mlp, truncated_normal
from arml.nn.normalisation import batch_norm, local_response_norm, moments

IMAGES = Problem("classification", (17, 16, 2), 3, 1, 1)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_mlp_against_numpy():
    net = mlp((2, 4, 3), key=jax.random.key(0))
    x = normal(0, 5, 2)
    hidden = np.maximum(x @ np.asarray(net.layers[0].weight) + np.asarray(net.layers[0].bias), 0)
    expected = hidden @ np.asarray(net.layers[1].weight) + np.asarray(net.layers[1].bias)
    np.testing.assert_allclose(net(jnp.asarray(x)), expected, rtol=1e-4, atol=1e-6)


def test_batch_norm_against_numpy():
    x, offset = 3 * normal(0, 6, 5, 4, 2) + 1, np.array([0.5, -1.0], np.float32)
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    expected = (x - mean) / np.sqrt(variance + 1e-3) + offset
    ours = batch_norm(jnp.asarray(x), jnp.asarray(offset))
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-5)
    given = batch_norm(jnp.asarray(x[:1]), jnp.asarray(offset), statistics=moments(jnp.asarray(x)))
    np.testing.assert_allclose(given, expected[:1], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_second_derivatives_of_batch_norm_by_finite_differences():
    with jax.enable_x64(True):
        x, v = (jnp.asarray(normal(seed, 5, 2), jnp.float64) for seed in (0, 1))

        def slope(x: jax.Array) -> jax.Array:
            return jax.grad(lambda x: jnp.sum(jnp.sin(batch_norm(x, jnp.zeros(2)))))(x)

        ours = jax.jvp(slope, (x,), (v,))[1]
        step = 1e-6
        differences = (slope(x + step * v) - slope(x - step * v)) / (2 * step)
        np.testing.assert_allclose(ours, differences, rtol=1e-6, atol=1e-8)


def test_local_response_norm_against_a_loop():
    x = normal(0, 2, 3, 12)
    for i in range(12):
        window = x[..., max(0, i - 4) : i + 5]
        expected = x[..., i] / (1 + 0.001 / 9 * np.sum(window**2, axis=-1)) ** 0.75
        ours = local_response_norm(jnp.asarray(x))[..., i]
        np.testing.assert_allclose(ours, expected, rtol=1e-5)


@pytest.mark.parametrize("normalisation", ["batch", "support"])
def test_a_query_depends_on_the_other_queries_only_in_batch_mode(normalisation):
    net = Conv4Options(filters=2, normalisation=normalisation).build(IMAGES, key=jax.random.key(0))
    support, query = jnp.asarray(normal(0, 4, 17, 16, 2)), jnp.asarray(normal(1, 3, 17, 16, 2))

    @jax.jit
    def outputs(support: jax.Array, query: jax.Array) -> tuple[jax.Array, ...]:
        predict = net.given(support)
        alone = jnp.concatenate([predict(query[i : i + 1]) for i in range(3)])
        return predict(query), alone, predict(query[::-1])[::-1], predict(support), net(support)

    together, alone, backwards, on_support, plain = outputs(support, query)
    assert together.shape == (3, 3)
    apart = np.allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert apart == (normalisation == "support")
    np.testing.assert_allclose(together, backwards, rtol=1e-4, atol=1e-5)
    # On the support set itself both modes are the plain network.
    np.testing.assert_allclose(on_support, plain, rtol=1e-4, atol=1e-5)


def test_conv4_has_a_shared_offset_and_no_scale():
    net = Conv4Options(filters=2).build(IMAGES, key=jax.random.key(0))
    assert [block.layer.kernel.shape for block in net.body.blocks] == [(3, 3, 2, 2)] * 4
    assert all(isinstance(block.offset, Shared) for block in net.body.blocks)
    assert net.head.weight.shape == (2, 3)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(net))


@pytest.mark.parametrize("normalisation", ["batch", "support"])
def test_a_body_embeds_its_support_set_in_one_run(normalisation):
    """As `given` does in two, with the same gradient."""
    net = Conv4Options(filters=2, normalisation=normalisation).build(IMAGES, key=jax.random.key(0))
    support, query = jnp.asarray(normal(0, 4, 17, 16, 2)), jnp.asarray(normal(1, 3, 17, 16, 2))

    def twice(body: Body) -> jax.Array:
        embed = body.given(support)
        return jnp.sum(jnp.sin(embed(support))) + jnp.sum(jnp.cos(embed(query)))

    def once(body: Body) -> jax.Array:
        features, embed = body.embedded(support)
        return jnp.sum(jnp.sin(features)) + jnp.sum(jnp.cos(embed(query)))

    ours, theirs = (jax.jit(jax.value_and_grad(f))(net.body) for f in (once, twice))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_initial_weights():
    init = truncated_normal(0.5)(jax.random.key(0), (4000,), jnp.float32)
    assert np.abs(init).max() <= 1.0
    np.testing.assert_allclose(np.std(init), 0.5 * 0.8796, rtol=0.05)
    problem = Problem("regression", (2,), 1, 5, 5)
    authors = MLPOptions().build(problem, key=jax.random.key(0))
    he = MLPOptions(init="he").build(problem, key=jax.random.key(0))
    assert np.abs(authors.body.blocks[1].layer.weight).max() <= 0.02
    assert np.std(he.body.blocks[1].layer.weight) > 0.1


def test_networks_refuse_inputs_that_they_cannot_read():
    with pytest.raises(ValueError, match="an MLP reads vectors"):
        MLPOptions().build(IMAGES, key=jax.random.key(0))
    for features in ((2,), (15, 16, 3)):
        small = Problem("classification", features, 3, 1, 1)
        with pytest.raises(ValueError, match="at least 16 px"):
            Conv4Options().build(small, key=jax.random.key(0))
