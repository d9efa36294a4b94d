"""Tasks that users bring: any object that draws tasks becomes a checked `TaskDistribution`."""

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from arml.core.episodes import (
    Examples,
    Facts,
    Problem,
    Task,
    TaskDistribution,
    identity_of,
    protocol_of,
)

if TYPE_CHECKING:

    class Tasks(Protocol):
        """An object that draws tasks."""

        @property
        def problem(self) -> Problem: ...

        @property
        def families(self) -> Sequence[str]: ...

        def sample(self, key: PRNGKeyArray, /) -> Task: ...
else:
    Tasks = object  # `as_tasks` checks its argument, and its error names the missing attribute


class _Static:
    """Holds an object that JAX must not look into. It is equal only to a wrapper of that object."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class CheckedTasks(TaskDistribution):
    """The tasks of another object with `problem`, `families` and `sample(key)`, cast to the types
    that the library needs."""

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
        return getattr(self._source(), "protocol", lambda: protocol_of(self.problem))()

    def identity(self) -> str:
        return getattr(self._source(), "identity", lambda: identity_of(self._source()))()

    def floor(self) -> float | None:
        return getattr(self._source(), "floor", lambda: None)()

    def _source(self) -> PyTree:
        return self.source.value if isinstance(self.source, _Static) else self.source


def as_tasks(tasks: Tasks) -> TaskDistribution:
    """A task distribution from one, or from any object with `problem`, `families` and
    `sample(key)`.

    One task is traced to compare its shapes with the problem. Of a class outside this package some
    are drawn, too, to see whether classes and families are numbered from 0.

    **Raises** `ValueError` in one line for another object, and for tasks whose shapes or numbers
    are not those of the problem.
    """
    if isinstance(tasks, type):
        name = tasks.__name__
        raise ValueError(f"expected tasks, got the class {name}: give an instance, as by {name}()")
    missing = [name for name in ("problem", "families", "sample") if not hasattr(tasks, name)]
    if missing:
        raise ValueError(
            "expected tasks: an object with problem, families and sample(key), got "
            f"{type(tasks).__name__} without {missing[0]}: see arml.TaskDistribution"
        )
    problem, families = tasks.problem, tuple(map(str, tasks.families))
    if not isinstance(problem, Problem) or not families:
        raise ValueError(
            f"{type(tasks).__name__}: expected problem as arml.Problem and one or more families, "
            f"got {type(problem).__name__} and {len(families)}: define both"
        )
    known = _seen(tasks)
    # The arrays of a pytree become arguments of a compiled program; any other object is held whole.
    whole = jax.tree_util.treedef_is_leaf(jax.tree.structure(tasks))
    checked = CheckedTasks(families, problem, _Static(tasks) if whole else tasks)
    same = _AS_THEY_ARE.get(known)
    if same is None:
        program, drawn = jax.make_jaxpr(_sampled(tasks), return_shape=True)(jax.random.key(0))
        (key,) = program.jaxpr.invars
        if not any(key in equation.invars for equation in program.jaxpr.eqns):
            warnings.warn(
                f"{type(tasks).__name__}: sample does not use its key, so all tasks are equal: "
                "draw numbers by jax.random, because JAX calls sample once",
                stacklevel=2,
            )
        _check(drawn, problem, type(tasks).__name__)
        canonical = jax.eval_shape(checked.sample, jax.random.key(0))
        same = jax.tree.map(_shape, drawn) == jax.tree.map(_shape, canonical)
        if not type(tasks).__module__.startswith("arml."):
            some = jax.jit(jax.vmap(checked.sample))(jax.random.split(jax.random.key(0), DRAWN))
            if wrong := _misnumbered(some, checked):
                raise ValueError(wrong)
        if known is not None:
            _AS_THEY_ARE[known] = same
    return tasks if same and isinstance(tasks, TaskDistribution) else checked


DRAWN = 16
"""Tasks of a user's own that are looked at before any work."""
_AS_THEY_ARE: dict[Hashable, bool] = {}
"""Whether the tasks of a checked distribution have the right types already. The key is everything
of the distribution except the values of its arrays."""


def _seen(tasks: Tasks) -> Hashable:
    """All values that the shapes of the tasks depend on; None if one of them cannot be hashed."""
    leaves, structure = jax.tree.flatten(tasks)
    held = [_shape(leaf) if hasattr(leaf, "shape") else leaf for leaf in leaves]
    own = (type(tasks), tasks.problem, tuple(tasks.families), structure, tuple(held))
    try:
        hash(own)
    except TypeError:
        return None
    return own


def _sampled(tasks: Tasks) -> Callable[[PRNGKeyArray], Task]:
    """`tasks.sample`, which raises `ValueError` unless it returns a `Task`."""

    def sample(key: PRNGKeyArray) -> Task:
        try:
            task: object = tasks.sample(key)
        except jax.errors.JAXTypeError as error:
            said = str(error).partition("\n")[0]
            raise ValueError(
                f"{type(tasks).__name__}: expected a sample(key) that JAX can trace, got: {said} "
                "Compute with jax.numpy, and choose by jnp.where, not by if"
            ) from error
        if not isinstance(task, Task):
            raise ValueError(
                f"{type(tasks).__name__}: expected sample(key) to return an arml.Task, got "
                f"{type(task).__name__}: return Task(support, query, family)"
            )
        return task

    return sample


def fault(tasks: TaskDistribution, keys: Array) -> str:
    """One line about wrong values in the tasks of these keys; empty if there are none."""
    drawn = jax.vmap(tasks.sample)(keys)
    for part in ("support", "query"):
        for name, leaf in getattr(drawn, part)._asdict().items():
            if not np.isfinite(np.asarray(leaf)).all():
                return (
                    f"{part}.{name} of {_name(tasks)} has numbers that are not finite: change its "
                    "sample"
                )
    return _misnumbered(drawn, tasks)


def _misnumbered(drawn: Task, tasks: TaskDistribution) -> str:
    """One line about classes or families of these tasks that do not exist; empty if all do."""
    parts = [("family", "families", drawn.family, len(tasks.families))]
    if tasks.problem.kind == "classification":
        ways = tasks.problem.outputs
        parts += [("support.y", "classes", drawn.support.y, ways)]
        parts += [("query.y", "classes", drawn.query.y, ways)]
    for name, what, leaf, count in parts:
        low, high = int(leaf.min()), int(leaf.max())
        if not 0 <= low <= high < count:
            return (
                f"{name} of {_name(tasks)} has {what} from {low} to {high}, not 0 to {count - 1}: "
                "change its sample"
            )
    return ""


def _name(tasks: TaskDistribution) -> str:
    """The name of the class that the user wrote."""
    own: PyTree = tasks
    while isinstance(own, CheckedTasks):
        own = own._source()
    return type(own).__name__


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
