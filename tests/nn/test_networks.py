"""Base networks: statistics come from where they are said to come from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.episodes import Problem
from arml.nn.networks import Body, Conv4Options, MLPOptions
from small import REGRESSION, close

IMAGES = Problem("classification", (17, 16, 2), 3, 1, 1, inputs="pictures")
SUPPORT, QUERY = (
    jnp.asarray(np.random.default_rng(n).normal(size=(n, 17, 16, 2)), jnp.float32) for n in (4, 3)
)


@pytest.mark.parametrize("normalisation", ["batch", "support"])
def test_a_query_depends_on_the_other_queries_only_in_batch_mode(normalisation):
    net = Conv4Options(filters=2, normalisation=normalisation).build(IMAGES, key=jax.random.key(0))

    @jax.jit
    def outputs(support: jax.Array, query: jax.Array) -> tuple[jax.Array, ...]:
        predict = net.given(support)
        alone = jnp.concatenate([predict(query[i : i + 1]) for i in range(3)])
        return predict(query), alone, predict(query[::-1])[::-1], predict(support), net(support)

    together, alone, backwards, on_support, plain = outputs(SUPPORT, QUERY)
    assert together.shape == (3, 3)
    apart = np.allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert apart == (normalisation == "support")
    # On the support set itself both modes are the plain network.
    close((together, on_support), (backwards, plain), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalisation", ["batch", "support"])
def test_a_body_embeds_its_support_set_in_one_run(normalisation):
    """As `given` does in two, with the same gradient."""
    net = Conv4Options(filters=2, normalisation=normalisation).build(IMAGES, key=jax.random.key(0))

    def twice(body: Body) -> jax.Array:
        embed = body.given(SUPPORT)
        return jnp.sum(jnp.sin(embed(SUPPORT))) + jnp.sum(jnp.cos(embed(QUERY)))

    def once(body: Body) -> jax.Array:
        features, embed = body.embedded(SUPPORT)
        return jnp.sum(jnp.sin(features)) + jnp.sum(jnp.cos(embed(QUERY)))

    ours, theirs = (jax.jit(jax.value_and_grad(f))(net.body) for f in (once, twice))
    close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_initial_weights():
    authors, he = (
        MLPOptions((200, 200), init=init).build(REGRESSION, key=jax.random.key(0))
        for init in ("authors", "he")
    )
    authors, he = (np.asarray(net.body.blocks[1].layer.weight) for net in (authors, he))
    assert np.abs(authors).max() <= 0.02
    np.testing.assert_allclose(np.std(authors), 0.01 * 0.8796, rtol=0.05)
    np.testing.assert_allclose(np.std(he), np.sqrt(2 / 200), rtol=0.1)


def test_networks_refuse_inputs_that_they_cannot_read():
    with pytest.raises(ValueError, match="an MLP reads vectors"):
        MLPOptions().build(IMAGES, key=jax.random.key(0))
    for features, inputs in (((2,), "vectors"), ((15, 16, 3), "pictures")):
        small = Problem("classification", features, 3, 1, 1, inputs=inputs)
        with pytest.raises(ValueError, match="at least 16 px"):
            Conv4Options().build(small, key=jax.random.key(0))
