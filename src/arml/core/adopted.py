"""Anything that can draw tasks, as a `TaskDistribution`: the door for a user's own families."""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from arml.core.episodes import Examples, Facts, Problem, Task, TaskDistribution, protocol_of
from arml.core.identity import identity_of

if TYPE_CHECKING:

    class Tasks(Protocol):
        """Whatever draws tasks."""

        @property
        def problem(self) -> Problem: ...

        @property
        def families(self) -> Sequence[str]: ...

        def sample(self, key: PRNGKeyArray, /) -> Task: ...
else:
    Tasks = object  # `as_tasks` checks what it is given, and says what is missing


class _Held:
    """An object that JAX does not look into: it equals itself alone."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Adopted(TaskDistribution):
    """The tasks of another object with `problem`, `families` and `sample(key)`, with the types that
    the library needs."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    source: PyTree

    def sample(self, key: PRNGKeyArray) -> Task:
        task = self._source().sample(key)
        number = jnp.float32 if self.problem.kind == "regression" else jnp.int32
        support, query = (
            Examples(jnp.asarray(x, jnp.float32), jnp.asarray(y, number))
            for x, y in (task.support, task.query)
        )
        return Task(support, query, jnp.asarray(task.family, jnp.int32), task.classes)

    def protocol(self) -> Facts:
        own = getattr(self._source(), "protocol", None)
        return protocol_of(self.problem) if own is None else own()

    def identity(self) -> str:
        own = getattr(self._source(), "identity", None)
        return identity_of(self._source()) if own is None else own()

    def floor(self) -> float | None:
        own = getattr(self._source(), "floor", None)
        return None if own is None else own()

    def _source(self) -> PyTree:
        return self.source.value if isinstance(self.source, _Held) else self.source


def as_tasks(tasks: Tasks) -> TaskDistribution:
    """A task distribution from one, or from any object with `problem`, `families` and
    `sample(key)`.

    One task is traced, not drawn, to see that it is of the problem.

    **Raises** `ValueError` in one line for another object, and for tasks of other shapes than its
    problem says.
    """
    missing = [name for name in ("problem", "families", "sample") if not hasattr(tasks, name)]
    if missing:
        raise ValueError(
            "expected tasks: an object with problem, families and sample(key), got "
            f"{type(tasks).__name__} without {missing[0]}: see arml.TaskDistribution"
        )
    given = tasks if isinstance(tasks, TaskDistribution) else None
    problem, families = tasks.problem, tuple(map(str, tasks.families))
    if not isinstance(problem, Problem) or not families:
        raise ValueError(
            f"{type(tasks).__name__}: expected problem as arml.Problem and one or more families, "
            f"got {type(problem).__name__} and {len(families)}: define both"
        )
    known = _seen(tasks)
    # What JAX knows as a pytree may have arrays, which are then arguments of a compiled program.
    whole = jax.tree_util.treedef_is_leaf(jax.tree.structure(tasks))
    adopted = Adopted(families, problem, _Held(tasks) if whole else tasks)
    if known not in _AS_THEY_ARE:
        drawn = jax.eval_shape(_sampled(tasks), jax.random.key(0))
        _check(drawn, problem, type(tasks).__name__)
        canonical = jax.eval_shape(adopted.sample, jax.random.key(0))
        same = jax.tree.map(_shape, drawn) == jax.tree.map(_shape, canonical)
        if known is None:
            return given if given is not None and same else adopted
        _AS_THEY_ARE[known] = given is not None and same
    return given if given is not None and _AS_THEY_ARE[known] else adopted


_AS_THEY_ARE: dict[Hashable, bool] = {}
"""Whether the tasks of a checked distribution have the right types already. The key is everything
of the distribution except the values of its arrays."""


def _seen(tasks: Tasks) -> Hashable:
    """Everything that the shapes of the tasks depend on; None where that cannot be compared."""
    leaves, structure = jax.tree.flatten(tasks)
    held = [_shape(leaf) if hasattr(leaf, "shape") else leaf for leaf in leaves]
    own = (type(tasks), tasks.problem, tuple(tasks.families), structure, tuple(held))
    try:
        hash(own)
    except TypeError:
        return None
    return own


def _sampled(tasks: Tasks) -> Callable[[PRNGKeyArray], Task]:
    def sample(key: PRNGKeyArray) -> Task:
        task: object = tasks.sample(key)
        if not isinstance(task, Task):
            raise ValueError(
                f"{type(tasks).__name__}: expected sample(key) to return an arml.Task, got "
                f"{type(task).__name__}: return Task(support, query, family)"
            )
        return task

    return sample


def _shape(leaf: jax.ShapeDtypeStruct | Array) -> tuple[tuple[int, ...], jnp.dtype]:
    return leaf.shape, leaf.dtype


def _check(task: Task, problem: Problem, name: str) -> None:
    targets = (problem.outputs,) if problem.kind == "regression" else ()
    for part, n in (("support", problem.support), ("query", problem.query)):
        x, y = getattr(task, part)
        for what, got, wanted in (
            (f"{part}.x", x.shape, (n, *problem.features)),
            (f"{part}.y", y.shape, (n, *targets)),
        ):
            if got != wanted:
                raise ValueError(
                    f"{name}: expected {what} of shape {wanted}, as its problem says, got {got}: "
                    "change sample or problem"
                )
        whole = jnp.issubdtype(y.dtype, jnp.integer)
        if whole != (problem.kind == "classification"):
            wanted_type = "floats" if whole else "integer classes"
            raise ValueError(f"{name}: expected {part}.y as {wanted_type}, got {y.dtype}: cast it")
    if task.family.shape:
        raise ValueError(
            f"{name}: expected family as one integer, got shape {task.family.shape}: return the "
            "index of the task's family"
        )
