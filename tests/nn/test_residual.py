"""Residual networks: published sizes, what is dropped, and strides against XLA's own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import arml
from arml.core.episodes import Problem
from arml.nn.residual import Drop, ResNet12Options, WideBlock, WideResNetOptions, with_drops
from arml.training.fit import make_step, start
from small import KEY, Same, predictions, task

SMALL = Problem("classification", (16, 16, 3), 2, 2, 2, inputs="pictures")
NETS = (
    ResNet12Options(filters=(2, 3, 2, 4), drop=0.2, block=2),
    WideResNetOptions(width=1, blocks=1, drop=0.2),
)


@pytest.mark.parametrize(
    ("options", "published"),
    # ResNet-12 without a head, as in FEAT and DeepEMD; WRN-28-10 of the paper, without its head.
    [(ResNet12Options(), 12_424_320), (WideResNetOptions(), 36_479_194 - 6_410)],
)
def test_a_network_has_as_many_weights_as_its_authors_count(options, published):
    body = jax.eval_shape(
        lambda key: (
            options.build(
                Problem("classification", (84, 84, 3), 5, 1, 1, inputs="pictures"), key=key
            ).body
        ),
        KEY,
    )
    # Their convolutions have no biases; before a normalisation ours change nothing.
    names = jax.tree_util.tree_leaves_with_path(body)
    biases = sum(a.size for path, a in names if str(path[-1]) == ".bias")
    assert sum(a.size for _, a in names) - biases == published


@pytest.mark.slow
@pytest.mark.parametrize("options", NETS, ids=["resnet12", "wrn"])
def test_a_method_learns_with_it(options):
    """A step with numbers dropped differs from one without, and predictions drop nothing."""
    on = task(SMALL)
    built = arml.build("protonet", SMALL, network=options)

    def step(learner):
        optimiser = optax.sgd(0.1)
        one = jax.jit(make_step(optimiser, batch=1, key=KEY))
        record = one(Same(SMALL, on), start(learner, optimiser))[1]
        assert record.finite
        return float(record.loss)

    still = jax.tree.map(
        lambda node: Drop(0.0, node.size) if isinstance(node, Drop) else node,
        built,
        is_leaf=lambda node: isinstance(node, Drop),
    )
    assert step(built) != step(still)
    np.testing.assert_array_equal(predictions(built, on), predictions(still, on))


def test_squares_are_dropped_and_the_mean_stays():
    drop = with_drops(Drop(0.2, 3), KEY)
    out = np.asarray(drop(jnp.ones((50, 12, 12, 4))))
    gone = out == 0
    # A number at the edge is in fewer squares, so the share is near the rate, not at it.
    assert 0.12 < gone.mean() < 0.24
    assert out.mean() == pytest.approx(1.0, abs=1e-4)
    # Each dropped number lies in a whole square of dropped ones.
    corners = [gone[:, i : i + 10, j : j + 10] for i in range(3) for j in range(3)]
    whole, covered = np.all(corners, axis=0), np.zeros_like(gone)
    for i in range(3):
        for j in range(3):
            covered[:, i : i + 10, j : j + 10] |= whole
    np.testing.assert_array_equal(covered, gone)
    single = np.asarray(with_drops(Drop(0.3), KEY)(jnp.ones((50, 12, 12, 4)))) == 0
    assert single.mean() == pytest.approx(0.3, abs=0.01)
    np.testing.assert_array_equal(Drop(0.5)(jnp.ones((1, 2, 2, 1))), jnp.ones((1, 2, 2, 1)))


def test_a_stride_is_that_of_a_strided_convolution():
    block = WideBlock.drawn(3, 3, 2, Drop(0.0), key=KEY)
    x = jax.random.normal(jax.random.key(1), (2, 8, 8, 3))
    z, numbers = jax.nn.relu(block.norms[0](x)[0]), ("NHWC", "HWIO", "NHWC")
    strided = lax.conv_general_dilated(
        z, block.layers[0].kernel, (2, 2), ((1, 1), (1, 1)), dimension_numbers=numbers
    )
    np.testing.assert_allclose(block.layers[0](z)[:, ::2, ::2], strided, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", NETS, ids=["resnet12", "wrn"])
def test_with_support_statistics_a_query_stands_alone(options):
    net = type(options)(**{**vars(options), "normalisation": "support"}).build(SMALL, key=KEY)
    support, query = task(SMALL).support.x, task(SMALL).query.x

    @jax.jit
    def both(support, query):
        predict = net.given(support)
        return predict(query), jnp.concatenate([predict(one[None]) for one in query])

    together, alone = both(support, query)
    np.testing.assert_allclose(together, alone, rtol=1e-3, atol=1e-4)


def test_small_pictures_and_vectors_are_refused():
    with pytest.raises(ValueError, match="at least 16 px; these tasks have"):
        arml.build("protonet", Problem("classification", (4,), 2, 1, 1), network="resnet12")
