"""Tasks of more classes than a learner was meta-trained on.

`widened` gives the learner an output for each class. Class prototypes and heads that are computed
from them (ProtoNet, TADAM, VERSA, ARML's encoder) are made for any number of classes. In a head
that descends, each output starts at the mean of the trained ones: training draws the classes of a
task in random order, so no output stands for a class, and one start for all of them does no harm
[1]. In the mean loss a class of C has the share 1/C, so the head's learned rates are multiplied by
C / W; a single constant rate is multiplied as a whole, as in the reference codes, whose rate is for
the loss summed over classes. The number of steps is doubled.

A learner whose other weights depend on the number of classes (labels that an encoder reads,
TapNet's references, a gate for each parameter) cannot be widened. `groups` makes W-way tasks of
the classes instead, and a class's score is its mean logit over the groups that it is in.

[1] Ye and Chao, How to Train Your MAML to Excel in Few-Shot Classification, ICLR 2022.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from arml.core.episodes import Examples, Problem
from arml.core.inner import GradientDescent
from arml.core.learner import MetaLearner
from arml.experiment.building import initial
from arml.experiment.loaded import Portable
from arml.predict.inference import adapted_function, inductive
from arml.training.checkpoint import filled, named

ROUNDS = 4
"""How many groups each class is in, at least."""


def for_classes(portable: Portable, ways: int) -> MetaLearner | None:
    """The learner for tasks of `ways` classes or fewer; None if it must be used in groups."""
    return widened(portable, ways) if ways > portable.problem.outputs else portable.learner


def widened(portable: Portable, ways: int) -> MetaLearner | None:
    """The learner with `ways` outputs; None if more than its head depends on their number."""
    problem = dataclasses.replace(portable.problem, outputs=ways)
    try:
        blank = eqx.filter_eval_shape(initial, portable.experiment, problem)
    except ValueError:  # a method may refuse so many classes
        return None
    trained, wanted = named(portable.learner), named(blank)
    if [*trained] != [*wanted]:
        return None
    factor = ways / portable.problem.outputs
    arrays = {}
    for name, like in wanted.items():
        leaf = trained[name]
        if leaf.shape != like.shape:
            pairs = zip(leaf.shape, like.shape, strict=True)
            axes = [i for i, (old, new) in enumerate(pairs) if old != new]
            of_head = "head" in name or "rate" in name
            if not of_head or len(axes) > 1 or leaf.shape[axes[0]] != portable.problem.outputs:
                return None
            leaf = jnp.repeat(jnp.mean(leaf, axes[0], keepdims=True), ways, axes[0])
            leaf = leaf * factor if "rate" in name else leaf
        arrays[name] = leaf

    def change(node: PyTree) -> PyTree:
        if not _is_descent(node):
            return node
        single = isinstance(node.rate, float | int) or eqx.is_array(node.rate)
        rate = node.rate * factor if single else node.rate
        return dataclasses.replace(node, rate=rate, steps=2 * node.steps)

    changed: MetaLearner = jax.tree.map(change, filled(blank, arrays), is_leaf=_is_descent)
    return inductive(changed, portable.problem.support)


def _is_descent(node: object) -> bool:
    return isinstance(node, GradientDescent)


def groups(classes: int, ways: int) -> Int[np.ndarray, "groups ways"]:
    """Groups of `ways` different classes of `classes`, each class in `ROUNDS` of them or more.

    A round deals all classes out in random order; its last group is filled with others.
    """
    rng = np.random.default_rng(0)
    dealt = []
    for _ in range(ROUNDS):
        order = rng.permutation(classes)
        rest = len(order) % ways
        if rest:
            order = np.concatenate([order, rng.permutation(order[:-rest])[: ways - rest]])
        dealt.append(order.reshape(-1, ways))
    return np.concatenate(dealt)


def grouped_function(
    learner: MetaLearner,
    support: Examples,
    problem: Problem,
    classes: int,
    n: int = 0,
) -> Callable[[Array], Float[Array, "n classes"]]:
    """The prediction function that combines W-way tasks; `n` as in `adapted_function`."""
    ways = problem.outputs
    dealt = groups(classes, ways)
    x, y = np.asarray(support.x), np.asarray(support.y)
    functions = []
    for group in dealt:
        own = np.concatenate([np.flatnonzero(y == k) for k in group])
        places = np.repeat(np.arange(ways), [np.sum(y == k) for k in group])
        part = Examples(jnp.asarray(x[own]), jnp.asarray(places, jnp.int32))
        functions.append(adapted_function(learner, part, problem.features, n))
    # Row g places the outputs of group g among all classes.
    place = np.stack([np.eye(classes, dtype=np.float32)[group] for group in dealt])
    share = jnp.asarray(place / place.sum(axis=(0, 1)))

    def scores(query: Array) -> Array:
        logits = jnp.stack([function(query) for function in functions])
        centred = logits - jnp.mean(logits, axis=-1, keepdims=True)
        return jnp.einsum("gnw,gwc->nc", centred, share)

    return scores
