"""The embedding of pictures by pooled filters: what it cannot see, and that it always learns."""

import jax
import jax.numpy as jnp
import numpy as np

from arml.core.episodes import Examples
from arml.nn.embeddings import PooledEmbedding

EMBED = PooledEmbedding.drawn(3, 6, key=jax.random.key(0))
PICTURES = jnp.asarray(np.random.default_rng(0).uniform(size=(3, 8, 8, 3)), jnp.float32)
NONE = jnp.zeros(3, jnp.int32)


@jax.jit
def embedded(embed: PooledEmbedding, x: jax.Array) -> jax.Array:
    return embed(Examples(x, NONE[: len(x)]))


def test_brightness_and_contrast_are_not_seen() -> None:
    plain = embedded(EMBED, PICTURES)
    np.testing.assert_allclose(embedded(EMBED, 0.2 + 0.5 * PICTURES), plain, atol=0.05)


def test_embeddings_neither_vanish_nor_run_away() -> None:
    for factor in (1e-3, 1.0, 1e3):
        scaled = jax.tree.map(lambda weight, factor=factor: factor * weight, EMBED)
        values = np.asarray(embedded(scaled, PICTURES))
        np.testing.assert_allclose(values.mean(axis=1), 0, atol=1e-5)
        assert np.all(values.std(axis=1) < 1.001)
    np.testing.assert_allclose(embedded(EMBED, PICTURES).std(axis=1), 1, rtol=0.05)


def test_a_picture_of_one_colour_leaves_the_gradient_finite() -> None:
    same = jnp.concatenate([PICTURES, jnp.full((1, 8, 8, 3), 0.5)])[1:]

    @jax.jit
    @jax.grad
    def gradient(embed: PooledEmbedding) -> jax.Array:
        return jnp.sum(jnp.sin(jnp.arange(6.0) + embedded(embed, same)))

    for leaf in jax.tree.leaves(gradient(EMBED)):
        assert np.all(np.isfinite(leaf))
        assert np.any(leaf)
