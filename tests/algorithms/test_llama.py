"""The curvature against dense Fisher information and Hessians, and its place in LLAMA's loss."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from arml.algorithms.llama import LLAMA, LLAMAOptions
from arml.core.episodes import Problem
from arml.nn import curvature
from arml.nn.networks import BaseNetwork, Conv4Options
from small import KEY, close, doubled, meta, network, task

PROBLEMS = {
    "regression": Problem("regression", (3,), 2, 4, 5),
    "classification": Problem("classification", (3,), 3, 2, 2),
}
TAU = 0.3
BOTH = pytest.mark.parametrize("kind", PROBLEMS)
pytestmark = pytest.mark.usefixtures("float64")


def built(kind: str, hidden: tuple[int, ...] = (4,), **options: Any) -> LLAMA:
    problem = PROBLEMS[kind]
    options = {"inner_rate": 0.03, "inner_steps": 2, "precision": TAU, **options}
    # No unit is on the edge of its ReLU.
    net = doubled(network(problem, hidden))
    net = jax.tree.map(lambda a: a + 0.1 * jnp.cos(jnp.arange(a.size)).reshape(a.shape), net)
    return LLAMAOptions(**options).build(net, problem, key=KEY)


def inputs(n: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(n, 3)))


def volume(ours: LLAMA, x: jax.Array) -> jax.Array:
    return jax.jit(lambda net: ours.volume(net, x, x))(ours.net)


def fishers(kind: str, net: BaseNetwork, x: jax.Array) -> list[np.ndarray]:
    """Each layer's dense block J^T F J, summed over examples; rows are a layer's array by array."""
    outputs = np.asarray(net(x))
    n, count = outputs.shape
    own = np.stack([np.eye(count)] * n)
    if kind == "classification":
        p = np.asarray(jax.nn.softmax(net(x)))
        own = np.stack([np.diag(q) - np.outer(q, q) for q in p])

    def block(where: Any) -> np.ndarray:
        flat, unravel = ravel_pytree(where(net))
        moved = jax.jit(jax.jacobian(lambda f: eqx.tree_at(where, net, unravel(f))(x)))(flat)
        return np.einsum("nop,noq,nqr->pr", moved, own, moved)

    blocks = range(len(net.body.blocks))
    wheres = [lambda m, i=i: m.body.blocks[i].layer for i in blocks]
    return [block(where) for where in (*wheres, lambda m: m.head)]


def log_det(matrices: list[np.ndarray]) -> float:
    return sum(np.linalg.slogdet(m + TAU * np.eye(len(m)))[1] for m in matrices)


@pytest.mark.parametrize(("kind", "n"), [("regression", 5), ("classification", 1)])
def test_where_the_kronecker_form_is_exact_it_is_the_dense_hessian(kind, n):
    """Of a linear layer, for a Gaussian or for one example."""
    ours, x, y = built(kind, hidden=()), inputs(n), doubled(task(PROBLEMS[kind])).query.y[:n]
    flat, unravel = ravel_pytree(ours.net)
    total = y.size / 2 if kind == "regression" else 1
    hessian = jax.hessian(lambda f: total * ours.loss(unravel(f)(x), y))(flat)
    np.testing.assert_allclose(volume(ours, x), log_det([hessian]), rtol=1e-10)


@pytest.mark.slow
@BOTH
def test_kronecker_blocks_on_one_example_are_the_dense_blocks(kind):
    ours, x = built(kind, hidden=(5, 4)), inputs(1)
    dense = fishers(kind, ours.net, x)
    assert all(np.any(block != 0) for block in dense)
    np.testing.assert_allclose(volume(ours, x), log_det(dense), rtol=1e-9)


@BOTH
def test_the_log_det_s_gradient_agrees_with_finite_differences(kind):
    ours, x = built(kind, hidden=(5,)), inputs(7)
    flat, unravel = ravel_pytree(ours.net)
    curved = jax.jit(lambda f: ours.volume(unravel(f), x, x))
    gradient = jax.jit(jax.grad(curved))(flat)
    assert np.count_nonzero(gradient) > len(flat) / 2
    direction = jnp.cos(jnp.arange(flat.size, dtype=flat.dtype))
    slope = (curved(flat + 1e-5 * direction) - curved(flat - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-6)


@BOTH
def test_the_term_is_in_the_loss_and_moves_the_initialisation(kind):
    """Through the adapted weights, and to every array; `remat` changes no number."""
    on = doubled(task(PROBLEMS[kind]))
    ours, plain, again = (
        built(kind, eta=e, remat=r) for e, r in ((0.1, False), (0.0, False), (0.1, True))
    )
    (loss, gradient), (other, less) = meta(ours, on), meta(plain, on)
    adapted = replace(ours, net=ours.adapt(on.support, key=KEY).net)
    np.testing.assert_allclose(loss, other + 0.1 * volume(adapted, on.query.x), rtol=1e-9)
    for a, b in zip(*map(jax.tree.leaves, (gradient, less)), strict=True):
        assert np.max(np.abs(a - b)) > 1e-3
    close(gradient, meta(again, on)[1], rtol=1e-8)


IMAGES = Problem("classification", (16, 16, 1), 2, 1, 2, inputs="pictures")


@pytest.mark.slow
def test_the_diagonal_of_a_convolution_is_the_dense_one():
    """From the Jacobian of the logits, the normalisation's statistics held fixed."""
    net = doubled(Conv4Options(filters=2, normalisation="support").build(IMAGES, key=KEY))
    on = doubled(task(IMAGES))
    x, statistics, root = on.query.x, net.body.run(on.support.x)[1], curvature.categorical_root
    layers = jax.jit(lambda net: curvature.traced_layers(net, x, statistics, root))(net)

    def logits(layer: Any, i: int) -> jax.Array:
        changed = eqx.tree_at(lambda m: m.body.blocks[i].layer, net, layer)
        return changed.head(changed.body.run(x, statistics)[0])

    p = np.asarray(jax.nn.softmax(logits(net.body.blocks[0].layer, 0)))
    own = np.stack([np.diag(q) - np.outer(q, q) for q in p])
    for i in (0, 3):
        slope = jax.jit(jax.jacrev(lambda m, i=i: logits(m, i)))(net.body.blocks[i].layer)
        kernel = np.asarray(slope.kernel).reshape(len(x), 2, -1, 2)  # [n, logit, inputs, filter]
        slopes = np.concatenate([kernel, np.asarray(slope.bias)[:, :, None]], axis=2)
        diagonal = np.einsum("nopf,noq,nqpf->pf", slopes, own, slopes)
        each = np.einsum("npi,knpo->knio", layers[i].inputs, layers[i].gradients)
        np.testing.assert_allclose(np.sum(each**2, axis=(0, 1)), diagonal, rtol=1e-6, atol=1e-9)
        # The factors are an approximation, of the right size.
        a, g = curvature.factors(layers[i])
        assert 0.2 < len(x) * np.trace(a) * np.trace(g) / np.sum(diagonal) < 5


@pytest.mark.slow
@pytest.mark.parametrize("normalisation", ["batch", "support"])
def test_the_statistics_are_those_that_predictions_have(normalisation, monkeypatch):
    """The curvature's forward pass is the prediction's."""
    net = doubled(Conv4Options(filters=2, normalisation=normalisation).build(IMAGES, key=KEY))
    ours, on = LLAMAOptions().build(net, IMAGES, key=KEY), doubled(task(IMAGES))

    @jax.jit
    def forward(net: BaseNetwork) -> tuple[jax.Array, jax.Array]:
        seen = []

        def root(logits: jax.Array) -> jax.Array:
            seen.append(logits)
            return curvature.categorical_root(logits)

        monkeypatch.setitem(curvature.ROOTS, IMAGES.kind, root)
        ours.volume(net, on.support.x, on.query.x)
        return seen[0], net.given(on.support.x)(on.query.x)

    close(*forward(net), rtol=1e-6, atol=1e-9)
