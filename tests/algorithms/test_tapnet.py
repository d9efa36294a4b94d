"""TapNet: the subspace in which class means and references agree, and who gets which reference."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.tapnet import TapNet, TapNetOptions, match, projection
from arml.core.episodes import Examples, Problem, Task
from arml.experiment.contract import Blobs
from arml.nn.heads import ABSENT
from arml.nn.networks import MLPOptions

KEY = jax.random.key(0)
D = 8


def problem(ways: int = 3) -> Problem:
    return Problem("classification", (4,), ways, 2, 3)


@cache
def task(of: Problem) -> Task:
    return Blobs(of).sample(jax.random.key(1))


@cache
def tapnet(of: Problem) -> TapNet:
    net = MLPOptions(hidden=(D,), init="he").build(of, key=KEY)
    return TapNetOptions().build(net, of, key=KEY)


@eqx.filter_jit
def predict(learner: TapNet, support: Examples, x: jax.Array) -> jax.Array:
    return learner.adapt(support, key=KEY).predict(x)


@eqx.filter_jit
def meta_loss(learner: TapNet, on: Task) -> jax.Array:
    return learner.meta_loss(on, key=KEY)


def greedy(means: np.ndarray, references: np.ndarray) -> list[int]:
    chosen: list[int] = []
    for mean in means:
        free = [i for i in range(len(references)) if i not in chosen]
        chosen.append(min(free, key=lambda i: np.sum((mean - references[i]) ** 2)))
    return chosen


def by_null_space(
    learner: TapNet, on: Task, classes: list[int], in_order: bool = False
) -> np.ndarray:
    """Logits of the queries for `classes`, in float64, with the basis of the whole null space."""

    def embedded(x: jax.Array) -> np.ndarray:
        layer = learner.body.blocks[0].layer
        x, weight, bias = (np.asarray(a, np.float64) for a in (x, layer.weight, layer.bias))
        return np.maximum(x @ weight + bias, 0)

    support, labels = embedded(on.support.x), np.asarray(on.support.y)
    means = np.stack([support[labels == k].mean(axis=0) for k in classes])
    references = np.asarray(learner.references, np.float64)
    phi = references[classes if in_order else greedy(means, references)]
    away = len(phi) * phi - phi.sum(axis=0)
    errors = [
        a / np.linalg.norm(a) - c / np.linalg.norm(c) for a, c in zip(away, means, strict=True)
    ]
    basis = np.linalg.svd(np.stack(errors), full_matrices=True)[2][len(phi) :].T
    assert basis.shape == (D, D - len(phi))
    query = embedded(on.query.x)
    return -np.stack([np.sum(((query - p) @ basis) ** 2, axis=1) for p in phi], axis=1)


def cross_entropy(logits: np.ndarray, y: jax.Array) -> float:
    log_sum = np.log(np.exp(logits).sum(axis=1))
    return np.mean(log_sum - logits[np.arange(len(logits)), np.asarray(y)])


def test_the_projection_annihilates_the_errors_and_nothing_else():
    errors = jax.random.normal(KEY, (3, D))
    project = projection(errors, jnp.ones(3, bool))
    np.testing.assert_allclose(project(errors), 0, atol=1e-5)
    matrix = np.asarray(project(jnp.eye(D)))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)
    np.testing.assert_allclose(matrix @ matrix, matrix, atol=1e-5)
    np.testing.assert_allclose(np.trace(matrix), D - 3, rtol=1e-5)


@pytest.mark.parametrize("absent", [0, 1, 3])
def test_absent_classes_take_no_dimension(absent):
    errors = jax.random.normal(KEY, (4, D))
    present = jnp.arange(4) != absent
    ours = projection(jnp.where(present[:, None], errors, 0), present)(jnp.eye(D))
    expected = projection(errors[present], jnp.ones(3, bool))(jnp.eye(D))
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_distances_are_those_within_the_whole_null_space():
    of = problem()
    learner, on = tapnet(of), task(of)
    ours = predict(learner, on.support, on.query.x)
    np.testing.assert_allclose(ours, by_null_space(learner, on, [0, 1, 2]), rtol=1e-3, atol=1e-4)


def test_in_training_references_belong_to_classes_in_order():
    of = problem()
    learner, on = tapnet(of), task(of)
    in_order = cross_entropy(by_null_space(learner, on, [0, 1, 2], in_order=True), on.query.y)
    matched = cross_entropy(by_null_space(learner, on, [0, 1, 2]), on.query.y)
    assert abs(in_order - matched) > 0.01  # the two differ on this task
    np.testing.assert_allclose(meta_loss(learner, on), in_order, rtol=1e-3)


def test_adaptation_does_not_depend_on_the_order_of_the_references():
    of = problem()
    learner, on = tapnet(of), task(of)
    turned = eqx.tree_at(lambda m: m.references, learner, learner.references[jnp.array([2, 0, 1])])
    ours, other = (predict(m, on.support, on.query.x) for m in (learner, turned))
    np.testing.assert_allclose(ours, other, rtol=1e-4, atol=1e-5)
    assert abs(meta_loss(learner, on) - meta_loss(turned, on)) > 0.01


def test_matching_is_greedy_from_the_first_class_on():
    keys = jax.random.split(KEY, 20)
    means, references = (
        jax.vmap(lambda k, i=i: jax.random.normal(k, (6, 4)) * i)(keys) for i in (1, 2)
    )
    everyone = jnp.ones(6, bool)
    ours = jax.jit(jax.vmap(match, (0, 0, None)))(means, references, everyone)
    expected = [
        greedy(*pair) for pair in zip(np.asarray(means), np.asarray(references), strict=True)
    ]
    np.testing.assert_array_equal(ours, expected)
    assert all(sorted(row) == list(range(6)) for row in expected)


def test_classes_that_a_task_lacks_take_no_part():
    """Five references, three classes: the selected references alone define the subspace."""
    learner, on = tapnet(problem(ways=5)), task(problem())
    labels = jnp.array([0, 2, 4])
    spread = on._replace(
        support=on.support._replace(y=labels[on.support.y]),
        query=on.query._replace(y=labels[on.query.y]),
    )
    ours = predict(learner, spread.support, on.query.x)
    expected = by_null_space(learner, spread, [0, 2, 4])
    np.testing.assert_allclose(ours[:, labels], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(ours[:, [1, 3]], ABSENT)
    gradient = eqx.filter_jit(eqx.filter_grad(meta_loss))(learner, spread)
    assert all(np.all(np.isfinite(leaf)) and np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_no_gradient_passes_through_the_subspace():
    """The support set decides the subspace and nothing else, so that no gradient reaches it."""
    of = problem()
    learner, on = tapnet(of), task(of)

    @jax.jit
    @jax.grad
    def gradient(x: tuple[jax.Array, jax.Array]) -> jax.Array:
        support, query = on.support._replace(x=x[0]), on.query._replace(x=x[1])
        return meta_loss(learner, on._replace(support=support, query=query))

    support, query = gradient((on.support.x, on.query.x))
    np.testing.assert_array_equal(support, 0)
    assert np.any(query)


def test_as_many_classes_as_dimensions_are_refused():
    with pytest.raises(ValueError, match="more dimensions than there are classes, got 8 for 8"):
        tapnet(problem(ways=D))
