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
from arml.algorithms.maml import MAMLOptions
from arml.core.episodes import Examples, Problem, Task
from arml.nn import curvature
from arml.nn.networks import BaseNetwork, Conv4Options, MLPOptions
from small import doubled

KEY = jax.random.key(0)
PROBLEMS = {
    "regression": Problem("regression", (3,), 2, 4, 5),
    "classification": Problem("classification", (3,), 3, 2, 2),
}
TAU = 0.3
BOTH = pytest.mark.parametrize(
    "kind", [pytest.param("regression", marks=pytest.mark.slow), "classification"]
)
"""One of both is enough each time."""


pytestmark = pytest.mark.usefixtures("float64")


def built(kind: str, hidden: tuple[int, ...] = (4,), **options: Any) -> LLAMA:
    problem = PROBLEMS[kind]
    net = doubled(MLPOptions(hidden=hidden, init="he").build(problem, key=jax.random.key(1)))
    # Not zero, so that no unit is on the edge of its ReLU and no gradient is special.
    net = jax.tree.map(lambda a: a + 0.1 * jnp.cos(jnp.arange(a.size)).reshape(a.shape), net)
    options = {"inner_rate": 0.03, "inner_steps": 2, "precision": TAU, **options}
    return LLAMAOptions(**options).build(net, problem, key=KEY)


def inputs(n: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(n, 3)))


def task(kind: str) -> Task:
    problem, rng = PROBLEMS[kind], np.random.default_rng(0)

    def examples(n: int) -> Examples:
        x = jnp.asarray(rng.normal(size=(n, 3)))
        if kind == "regression":
            return Examples(x, jnp.asarray(rng.normal(size=(n, 2))))
        return Examples(x, jnp.arange(n) % problem.outputs)

    return Task(examples(problem.support), examples(problem.query), jnp.zeros((), jnp.int32))


def nll(kind: str, outputs: jax.Array, y: jax.Array) -> jax.Array:
    """The summed negative log-likelihood, but for a constant."""
    if kind == "regression":
        return jnp.sum((outputs - y) ** 2) / 2
    return -jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(outputs), y[:, None], axis=1))


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


@BOTH
def test_a_linear_layer_on_one_example_has_the_dense_hessian(kind):
    """There the Kronecker form is exact, and Fisher information and Hessian are the same."""
    ours, x = built(kind, hidden=()), inputs(1)
    y = task(kind).query.y[:1]
    flat, unravel = ravel_pytree(ours.net)
    hessian = jax.hessian(lambda f: nll(kind, unravel(f)(x), y))(flat)
    np.testing.assert_allclose(volume(ours, x), log_det([hessian]), rtol=1e-10)


@pytest.mark.slow
def test_a_linear_gaussian_layer_has_the_dense_hessian_on_any_number_of_examples():
    ours, x = built("regression", hidden=()), inputs(7)
    flat, unravel = ravel_pytree(ours.net)
    hessian = jax.hessian(lambda f: nll("regression", unravel(f)(x), jnp.zeros((7, 2))))(flat)
    np.testing.assert_allclose(volume(ours, x), log_det([hessian]), rtol=1e-10)


@pytest.mark.slow
@BOTH
def test_kronecker_blocks_on_one_example_are_the_dense_blocks(kind):
    ours, x = built(kind, hidden=(5, 4)), inputs(1)
    dense = fishers(kind, ours.net, x)
    assert all(np.any(block != 0) for block in dense)
    np.testing.assert_allclose(volume(ours, x), log_det(dense), rtol=1e-9)


@pytest.mark.slow
@BOTH
def test_kronecker_s_trace_is_near_the_dense_one(kind):
    """On many examples the factors are an approximation, of the right size: n * A (x) G."""
    ours, x = built(kind, hidden=(5, 4)), inputs(40)
    statistics = ours.net.body.run(x)[1]
    layers = jax.jit(lambda net: curvature.traced_layers(net, x, statistics, ours.root))(ours.net)
    for layer, dense in zip(layers, fishers(kind, ours.net, x), strict=True):
        a, g = curvature.factors(layer)
        assert 0.5 < 40 * np.trace(a) * np.trace(g) / np.trace(dense) < 2


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


def test_eigenvalues_that_coincide_have_finite_derivatives():
    """One example: all but one eigenvalue of A are zero."""
    ours, x = built("classification", hidden=(5,)), inputs(1)
    gradient = jax.jit(jax.grad(lambda net: ours.volume(net, x, x)))(ours.net)
    assert all(np.all(np.isfinite(a)) for a in jax.tree.leaves(gradient))


def loss_and_gradient(learner: Any, on: Task) -> tuple[jax.Array, Any]:
    return jax.jit(
        jax.value_and_grad(lambda net: replace(learner, net=net).meta_loss(on, key=KEY))
    )(learner.net)


@BOTH
def test_without_eta_it_is_maml(kind):
    on, ours = task(kind), built(kind, eta=0.0)
    maml = MAMLOptions(inner_rate=0.03, inner_steps=2).build(ours.net, PROBLEMS[kind], key=KEY)
    pair = (loss_and_gradient(learner, on) for learner in (ours, maml))
    for a, b in zip(*map(jax.tree.leaves, pair), strict=True):
        np.testing.assert_array_equal(a, b)
    predicted, expected = (m.adapt(on.support, key=KEY).predict(on.query.x) for m in (ours, maml))
    np.testing.assert_array_equal(predicted, expected)


@BOTH
def test_the_term_is_in_the_loss_and_moves_the_initialisation(kind):
    """Through the adapted weights, and to every array; `remat` changes no number."""
    on = task(kind)
    ours, plain = (built(kind, eta=eta) for eta in (0.1, 0.0))
    (loss, gradient), (other, less) = (loss_and_gradient(m, on) for m in (ours, plain))
    adapted = replace(ours, net=ours.descend(on.support))
    np.testing.assert_allclose(loss, other + 0.1 * volume(adapted, on.query.x), rtol=1e-9)
    for a, b in zip(*map(jax.tree.leaves, (gradient, less)), strict=True):
        assert np.max(np.abs(a - b)) > 1e-3
    again = loss_and_gradient(built(kind, eta=0.1, remat=True), on)[1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8), gradient, again)


class Images:
    problem = Problem("classification", (16, 16, 1), 2, 1, 2)

    def __init__(self, **options: Any):
        rng = np.random.default_rng(1)
        net = Conv4Options(filters=2, **options).build(self.problem, key=KEY)
        self.net = doubled(net)
        self.support, self.query = (jnp.asarray(rng.normal(size=(n, 16, 16, 1))) for n in (2, 3))
        self.statistics = self.net.body.run(self.support)[1]
        self.layers = jax.jit(
            lambda net: curvature.traced_layers(
                net, self.query, self.statistics, curvature.categorical_root
            )
        )(self.net)


@pytest.fixture(scope="module")
def images(float64) -> Images:
    return Images(normalisation="support")


@pytest.mark.slow
def test_a_convolution_s_inputs_are_its_patches(images):
    """What it multiplies its kernel with: position by position, the nine neighbours, and 1."""
    net = images.net
    for i, (x, layer) in enumerate(((images.query, images.layers[0]), (None, images.layers[1]))):
        if x is None:
            x = net.body.blocks[0](images.query, images.statistics[0])[0]
        x = np.asarray(x)
        n, h, w, c = x.shape
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        rows = np.ones((n, h * w, 9 * c + 1))
        for row in range(h):
            for column in range(w):
                patch = padded[:, row : row + 3, column : column + 3]
                rows[:, row * w + column, :-1] = patch.reshape(n, -1)
        np.testing.assert_allclose(layer.inputs, rows, rtol=1e-6, atol=1e-9)
        convolution = net.body.blocks[i].layer
        weight = np.concatenate([convolution.kernel.reshape(-1, 2), convolution.bias[None]])
        np.testing.assert_allclose(
            rows @ weight, convolution(jnp.asarray(x)).reshape(n, -1, 2), rtol=1e-6, atol=1e-9
        )
        a, g = curvature.factors(layer)
        expected = sum(np.outer(row, row) for row in rows.reshape(n * h * w, -1)) / n
        np.testing.assert_allclose(a, expected, rtol=1e-6, atol=1e-9)
        each = np.asarray(layer.gradients).reshape(-1, 2)
        np.testing.assert_allclose(g, sum(np.outer(r, r) for r in each) / (n * h * w), rtol=1e-6)


@pytest.mark.slow
def test_the_diagonal_of_a_convolution_is_the_dense_one(images):
    """From the Jacobian of the logits, the normalisation's statistics held fixed."""

    def logits(layer: Any, i: int) -> jax.Array:
        net = eqx.tree_at(lambda m: m.body.blocks[i].layer, images.net, layer)
        return net.head(net.body.run(images.query, images.statistics)[0])

    p = np.asarray(jax.nn.softmax(logits(images.net.body.blocks[0].layer, 0)))
    own = np.stack([np.diag(q) - np.outer(q, q) for q in p])
    for i in (0, 3):
        layer = images.net.body.blocks[i].layer
        slope = jax.jit(jax.jacrev(lambda m, i=i: logits(m, i)))(layer)
        kernel = np.asarray(slope.kernel).reshape(3, 2, -1, 2)  # [n, logit, inputs, filter]
        slopes = np.concatenate([kernel, np.asarray(slope.bias)[:, :, None]], axis=2)
        diagonal = np.einsum("nopf,noq,nqpf->pf", slopes, own, slopes)
        each = np.einsum("npi,knpo->knio", images.layers[i].inputs, images.layers[i].gradients)
        np.testing.assert_allclose(np.sum(each**2, axis=(0, 1)), diagonal, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("normalisation", ["batch", "support"])
def test_the_statistics_are_those_that_predictions_have(normalisation):
    """The curvature's forward pass is the prediction's."""
    images = Images(normalisation=normalisation)
    ours = LLAMAOptions().build(images.net, images.problem, key=KEY)

    @jax.jit
    def forward(net: BaseNetwork) -> tuple[jax.Array, jax.Array]:
        seen = []

        def root(logits: jax.Array) -> jax.Array:
            seen.append(logits)
            return curvature.categorical_root(logits)

        replace(ours, root=root).volume(net, images.support, images.query)
        return seen[0], net.given(images.support)(images.query)

    ours_logits, expected = forward(images.net)
    np.testing.assert_allclose(ours_logits, expected, rtol=1e-6, atol=1e-9)
