"""TapNet: the subspace in which class means and references agree, and who gets which reference."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from arml.algorithms.tapnet import TapNet, TapNetOptions, match
from arml.core.episodes import Problem, Task
from arml.nn.heads import ABSENT_LOGIT
from small import KEY, meta, network, predictions, task

D = 8
PROBLEM = Problem("classification", (4,), 3, 2, 3)


def tapnet(ways: int = 3) -> TapNet:
    of = replace(PROBLEM, outputs=ways)
    return TapNetOptions().build(network(of, (D,)), of, key=KEY)


def greedy(means: np.ndarray, references: np.ndarray) -> list[int]:
    chosen: list[int] = []
    for mean in means:
        free = [i for i in range(len(references)) if i not in chosen]
        chosen.append(min(free, key=lambda i: np.sum((mean - references[i]) ** 2)))
    return chosen


def by_null_space(
    learner: TapNet, on: Task, classes: list[int], in_order: bool = False
) -> np.ndarray:
    """Logits of the queries for `classes`, with the basis of the whole null space."""
    support, query = (np.asarray(learner.body(e.x), np.float64) for e in (on.support, on.query))
    labels = np.asarray(on.support.y)
    means = np.stack([support[labels == k].mean(axis=0) for k in classes])
    references = np.asarray(learner.references, np.float64)
    phi = references[classes if in_order else greedy(means, references)]
    away = len(phi) * phi - phi.sum(axis=0)
    errors = [
        a / np.linalg.norm(a) - c / np.linalg.norm(c) for a, c in zip(away, means, strict=True)
    ]
    basis = np.linalg.svd(np.stack(errors), full_matrices=True)[2][len(phi) :].T
    assert basis.shape == (D, D - len(phi))
    return -np.stack([np.sum(((query - p) @ basis) ** 2, axis=1) for p in phi], axis=1)


@pytest.mark.parametrize("classes", [[0, 1, 2], [0, 2, 4]])
def test_distances_are_those_within_the_whole_null_space(classes):
    """Of five classes, too, of which a task has three: the others take no part."""
    learner, labels = tapnet(classes[-1] + 1), jnp.array(classes)
    on = task(PROBLEM)
    on = on._replace(support=on.support._replace(y=labels[on.support.y]))
    ours = np.asarray(predictions(learner, on))
    expected = by_null_space(learner, on, classes)
    np.testing.assert_allclose(ours[:, classes], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(np.delete(ours, classes, axis=1), ABSENT_LOGIT)


def test_in_training_references_belong_to_classes_in_order():
    learner, on = tapnet(), task(PROBLEM)
    turned = eqx.tree_at(lambda m: m.references, learner, learner.references[jnp.array([2, 0, 1])])
    for made in (learner, turned):
        logits = by_null_space(made, on, [0, 1, 2], in_order=True)
        picked = log_softmax(logits, axis=1)[np.arange(len(logits)), np.asarray(on.query.y)]
        np.testing.assert_allclose(meta(made, on)[0], -np.mean(picked), rtol=1e-3)
    # At test their order is irrelevant.
    ours, other = (predictions(m, on) for m in (learner, turned))
    np.testing.assert_allclose(ours, other, rtol=1e-4, atol=1e-5)


def test_matching_is_greedy_from_the_first_class_on():
    keys = jax.random.split(KEY, 20)
    means, references = (
        jax.vmap(lambda k, i=i: jax.random.normal(k, (6, 4)) * i)(keys) for i in (1, 2)
    )
    ours = jax.jit(jax.vmap(match, (0, 0, None)))(means, references, jnp.ones(6, bool))
    pairs = zip(np.asarray(means), np.asarray(references), strict=True)
    np.testing.assert_array_equal(ours, [greedy(*pair) for pair in pairs])


def test_no_gradient_passes_through_the_subspace():
    """The support set decides the subspace and nothing else, so that no gradient reaches it."""
    learner, on = tapnet(), task(PROBLEM)

    @jax.jit
    @jax.grad
    def gradient(x: tuple[jax.Array, jax.Array]) -> jax.Array:
        support, query = on.support._replace(x=x[0]), on.query._replace(x=x[1])
        return learner.meta_loss(on._replace(support=support, query=query), key=KEY)

    support, query = gradient((on.support.x, on.query.x))
    np.testing.assert_array_equal(support, 0)
    assert np.any(query)


def test_as_many_classes_as_dimensions_are_refused():
    with pytest.raises(ValueError, match="more dimensions than there are classes, got 8 for 8"):
        tapnet(D)
