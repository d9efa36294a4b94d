"""A network of residual blocks, written as a user would, goes through every method."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray

import arml
from arml.algorithms import ALGORITHMS
from arml.core.episodes import Problem
from arml.core.inner import Shared, with_steps
from arml.experiment.contract import Blobs
from arml.nn.convolution import max_pool
from arml.nn.networks import Conv2d, Film, MLPOptions, filmed, layers, widths, with_layers

KEY = jax.random.key(0)
WIDTH = 8
REGRESSION = Problem("regression", (2,), 1, 5, 4)
CLASSES = Problem("classification", (4,), 3, 2, 2, classes=6)
IMAGES = Problem("classification", (16, 16, 3), 3, 1, 2, classes=6, inputs="pictures")
ON_IMAGES = ("mt-net", "mumomaml", "llama", "bmaml", "tadam", "arml", "hsml", "versa")
"""Methods that treat a convolution in another way than a dense layer."""


class Residual(eqx.Module):
    """x + W_2 relu(W_1 x)."""

    # Not in the order in which they are used.
    second: arml.nn.Linear
    first: arml.nn.Linear

    def __call__(self, x: Array) -> Array:
        return x + self.second(jax.nn.relu(self.first(x)))


class ResidualPictures(eqx.Module):
    """Half the size of x + convolution(x)."""

    layer: Conv2d

    def __call__(self, x: Array) -> Array:
        return max_pool(jax.nn.relu(x + self.layer(x)))


def residual(problem: Problem, *, key: PRNGKeyArray) -> eqx.Module:
    keys = jax.random.split(key, 6)
    if len(problem.features) == 3:
        kernel = jax.random.normal(keys[0], (3, 3, 3, 3))
        pictures = [ResidualPictures(Conv2d(kernel, jnp.zeros(3))) for _ in range(2)]
        return arml.network(pictures, arml.nn.linear(4 * 4 * 3, problem.outputs, key=keys[5]))
    blocks = [
        arml.nn.linear(*problem.features, WIDTH, key=keys[0]),
        *(
            Residual(
                arml.nn.linear(WIDTH, WIDTH, key=keys[2 * i]),
                arml.nn.linear(WIDTH, WIDTH, key=keys[2 * i - 1]),
            )
            for i in (1, 2)
        ),
    ]
    return arml.network(blocks, arml.nn.linear(WIDTH, problem.outputs, key=keys[5]))


def tasks(problem: Problem) -> arml.TaskDistribution:
    if problem.kind == "regression":
        from arml.tasks.functions import functions_2d

        return functions_2d(shots=problem.shots, queries=problem.queries)
    return Blobs(problem)


SLOW = {REGRESSION: [pytest.mark.slow], CLASSES: [], IMAGES: [pytest.mark.slow]}
CASES = [
    pytest.param(name, problem, marks=marks)
    for name, known in ALGORITHMS.items()
    for problem, marks in SLOW.items()
    if known.suits(problem) and (problem is not IMAGES or name in ON_IMAGES)
]


def learner(name: str, problem: Problem, key: PRNGKeyArray = KEY) -> arml.MetaLearner:
    net_key, key = jax.random.split(key)
    options = ALGORITHMS[name].options(problem)
    return with_steps(options.build(residual(problem, key=net_key), problem, key=key), 1)


@pytest.mark.parametrize(("name", "problem"), CASES, ids=lambda x: getattr(x, "kind", x))
def test_every_method_builds_on_it_adapts_and_has_a_gradient(name, problem):
    """Traced, not compiled: what a network lacks is found then."""

    def both(key: PRNGKeyArray) -> tuple[Array, object]:
        made, task = learner(name, problem, key), tasks(problem).sample(key)
        predictions = made.adapt(task.support, key=key).predict(task.query.x)
        return predictions, eqx.filter_grad(lambda m: m.meta_loss(task, key=key))(made)

    predictions, _ = eqx.filter_eval_shape(both, KEY)
    assert predictions.shape == (problem.query, problem.outputs)


PLAIN = ("maml", "first-order-maml", "meta-sgd", "reptile", "platipus", "hsml", "bmaml")
"""Methods that ask nothing of a network for vectors but to be one."""
METRIC = ("protonet", "tapnet", "tadam", "versa")


class Bare(eqx.Module):
    """A network without a body and a head."""

    weight: Array

    def __call__(self, x: Array) -> Array:
        return x @ self.weight

    def given(self, x: Array) -> "Bare":
        return self


CLASSIFIERS = [name for name, known in ALGORITHMS.items() if known.suits(CLASSES)]


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name in PLAIN])
def test_a_network_without_a_body_is_enough_for_some(name):
    def run(key: PRNGKeyArray) -> Array:
        net = Bare(jnp.ones((4, 3)))
        made = ALGORITHMS[name].options(CLASSES).build(net, CLASSES, key=key)
        return made.adapt(Blobs(CLASSES).sample(key).support, key=key).predict(jnp.ones((1, 4)))

    assert jax.eval_shape(run, KEY).shape == (1, 3)


@pytest.mark.parametrize("name", ["anil", "mt-net", "mumomaml", "llama", "proto-maml", *METRIC])
def test_others_say_in_one_line_that_they_need_more(name):
    options, net = ALGORITHMS[name].options(CLASSES), Bare(jnp.ones((4, 3)))
    with pytest.raises(ValueError, match=r"needs a network with .*arml\.(network\(|nn\.linear)"):
        options.build(net, CLASSES, key=KEY)


def test_layers_are_found_and_replaced_wherever_they_are():
    net = residual(CLASSES, key=KEY)
    found = layers(net)
    assert [layer.weight.shape for layer in found] == [(4, 8), *[(8, 8)] * 4, (8, 3)]
    again = with_layers(net, found)
    assert jax.tree.all(jax.tree.map(np.array_equal, net, again))
    silent = with_layers(net, [jax.tree.map(jnp.zeros_like, layer) for layer in found])
    assert not np.any(silent(jnp.ones((2, 4))))


def test_a_block_without_a_place_for_it_is_modulated_after():
    net, x = residual(CLASSES, key=KEY), jnp.linspace(-1, 1, 8).reshape(2, 4)
    assert widths(net.body, (4,)) == [WIDTH] * 3
    twice = Film(Shared(jnp.full(WIDTH, 2.0)), Shared(jnp.ones(WIDTH)))
    same = Film(Shared(jnp.ones(WIDTH)), Shared(jnp.zeros(WIDTH)))
    np.testing.assert_allclose(filmed(net.body, [same] * 3)(x), net.body(x), rtol=1e-6)
    np.testing.assert_allclose(
        filmed(net.body, [same, same, twice])(x), 2 * net.body(x) + 1, rtol=1e-5
    )
    # A dense block has its place before the activation.
    dense = MLPOptions(hidden=(WIDTH,), init="he").build(CLASSES, key=KEY)
    (block,) = dense.body.blocks
    expected = jax.nn.relu(2 * block.layer(x) + 1)
    np.testing.assert_allclose(filmed(dense.body, [twice])(x), expected, rtol=1e-6)


def test_the_curvature_is_that_of_the_layers_in_whatever_order_they_are_used():
    """Another route: the diagonal of the Fisher information from each example's gradient."""
    from arml.nn import curvature

    net = residual(REGRESSION, key=KEY)
    x = jnp.linspace(-1, 1, 6).reshape(3, 2)
    found = curvature.traced_layers(net, x, net.body.run(x)[1], curvature.gaussian_root)
    own = jax.jacrev(lambda net: net(x)[:, 0])(net)
    for layer, gradient in zip(found, layers(own), strict=True):
        each = jnp.einsum("npi,knpo->nio", layer.inputs, layer.gradients)
        np.testing.assert_allclose(each[:, :-1], gradient.weight, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(each[:, -1], gradient.bias, rtol=1e-4, atol=1e-5)
