"""Tasks of users: they are checked, and cast to the types that the library needs."""

import contextlib
import warnings
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from arml.core.episodes import Examples, Facts, Problem, Task, TaskDistribution, Tasks, protocol_of
from arml.plugins.identity import identity_of


class _Static:
    """Wraps an object whose contents JAX must not read. It is equal only to a wrapper of the same
    object, made while its attributes were the same."""

    def __init__(self, value: object) -> None:
        self.value, self.content = value, _content_of(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Static):
            return False
        return self.value is other.value and self.content == other.content

    def __hash__(self) -> int:
        return hash((id(self.value), self.content))


def _content_of(value: object) -> str:
    """The identity of an object's content; empty if it cannot be told."""
    with contextlib.suppress(ValueError):
        return identity_of(value)
    return ""


class _CheckedTasks(TaskDistribution):
    """The tasks of another object with `problem`, `families` and `sample(key)`."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    source: PyTree

    def sample(self, key: PRNGKeyArray) -> Task:
        task = self.own.sample(key)
        number = jnp.float32 if self.problem.kind == "regression" else jnp.int32
        support, query = (
            Examples(jnp.asarray(x, jnp.float32), jnp.asarray(y, number))
            for x, y in (task.support, task.query)
        )
        return Task(support, query, jnp.asarray(task.family, jnp.int32), task.classes)

    def protocol(self) -> Facts:
        return getattr(self.own, "protocol", lambda: protocol_of(self.problem))()

    def identity(self) -> str:
        return getattr(self.own, "identity", lambda: identity_of(self.own))()

    def floor(self) -> float | None:
        return getattr(self.own, "floor", lambda: None)()

    @property
    def own(self) -> Tasks:
        return self.source.value if isinstance(self.source, _Static) else self.source


def own_of(tasks: Tasks) -> Tasks:
    """The object that a user made, of the tasks that `as_tasks` made of it."""
    return tasks.own if isinstance(tasks, _CheckedTasks) else tasks


CHECKED_TASKS = 16
"""Tasks of a class outside this package that are drawn to check their numbers."""
_checked: weakref.WeakValueDictionary[int, TaskDistribution] = weakref.WeakValueDictionary()
"""The results of `as_tasks` for objects that still exist, by their `id`."""


def as_tasks(tasks: Tasks) -> TaskDistribution:
    """A task distribution from one, or from any object with `problem`, `families` and
    `sample(key)`.

    Of a class outside this package one task is traced, to compare its shapes with the problem, and
    some are drawn, to see whether classes and families are numbered from 0.

    **Raises** `ValueError` in one line for another object, and for tasks whose shapes or numbers
    are not those of the problem.
    """
    if isinstance(tasks, TaskDistribution) and type(tasks).__module__.startswith("arml."):
        return tasks
    name = type(tasks).__name__
    if isinstance(tasks, type):
        own = tasks.__name__
        raise ValueError(f"expected tasks, got the class {own}: give an instance, as by {own}()")
    missing = [name for name in ("problem", "families", "sample") if not hasattr(tasks, name)]
    if missing:
        raise ValueError(
            "expected tasks: an object with problem, families and sample(key), got "
            f"{name} without {missing[0]}: see arml.TaskDistribution"
        )
    problem, families = tasks.problem, tuple(map(str, tasks.families))
    if not isinstance(problem, Problem) or not families:
        raise ValueError(
            f"{name}: expected problem as arml.Problem and one or more families, "
            f"got {type(problem).__name__} and {len(families)}: define both"
        )
    known = _checked.get(id(tasks))
    source = getattr(known, "source", None)
    if isinstance(source, _Static) and source != _Static(tasks):
        known = None  # an attribute has changed
    if known is not None and (known.problem, (*known.families,)) == (problem, families):
        return known
    # The arrays of a pytree become arguments of a compiled program; any other object is held whole.
    whole = jax.tree_util.treedef_is_leaf(jax.tree.structure(tasks))
    checked = _CheckedTasks(families, problem, _Static(tasks) if whole else tasks)
    drawn = _traced(tasks, name)
    _check_shapes(drawn, problem, name)
    # Not compiled: another object of the same class takes milliseconds then.
    some = jax.vmap(checked.sample)(jax.random.split(jax.random.key(0), CHECKED_TASKS))
    if wrong := _misnumbered(some, checked):
        raise ValueError(wrong)
    # A number of Python has a weak type.
    given, cast = (jax.tree.map(lambda a: (a.dtype, a.weak_type), one) for one in (drawn, some))
    found = tasks if given == cast and isinstance(tasks, TaskDistribution) else checked
    _checked[id(tasks)] = found
    return found


def _traced(tasks: Tasks, name: str) -> Task:
    """The shapes of one task. **Raises** `ValueError` unless `sample` returns a `Task`, and warns
    if it does not use its key."""
    try:
        program, drawn = jax.make_jaxpr(tasks.sample, return_shape=True)(jax.random.key(0))
    except jax.errors.JAXTypeError as error:
        first = str(error).partition("\n")[0]
        raise ValueError(
            f"{name}: expected a sample(key) that JAX can trace, got: {first} "
            "Compute with jax.numpy, and choose by jnp.where, not by if"
        ) from error
    if not isinstance(drawn, Task):
        raise ValueError(
            f"{name}: expected sample(key) to return an arml.Task, got {type(drawn).__name__}: "
            "return Task(support, query, family)"
        )
    (key,) = program.jaxpr.invars
    if not any(key in equation.invars for equation in program.jaxpr.eqns):
        warnings.warn(
            f"{name}: sample does not use its key, so all tasks are equal: draw numbers by "
            "jax.random, because JAX calls sample once",
            stacklevel=3,
        )
    return drawn


def _check_shapes(task: Task, problem: Problem, name: str) -> None:
    targets = (problem.outputs,) if problem.kind == "regression" else ()
    for part, n in (("support", problem.support), ("query", problem.query)):
        x, y = getattr(task, part)
        for array, got, expected in (("x", x.shape, problem.features), ("y", y.shape, targets)):
            if got != (n, *expected):
                raise ValueError(
                    f"{name}: expected {part}.{array} of shape {(n, *expected)}, as its problem "
                    f"says, got {got}: change sample or problem"
                )
        whole = jnp.issubdtype(y.dtype, jnp.integer)
        if whole != (problem.kind == "classification"):
            kind = "floats" if whole else "integer classes"
            raise ValueError(f"{name}: expected {part}.y as {kind}, got {y.dtype}: cast it")
    if task.family.shape:
        raise ValueError(
            f"{name}: expected family as one integer, got shape {task.family.shape}: return the "
            "index of the task's family"
        )


def fault(tasks: TaskDistribution, keys: Array) -> str:
    """One line about wrong values in the tasks of these keys; empty if there are none."""
    drawn = jax.vmap(tasks.sample)(keys)
    for part in ("support", "query"):
        for name, leaf in getattr(drawn, part)._asdict().items():
            if not np.isfinite(np.asarray(leaf)).all():
                own = type(own_of(tasks)).__name__
                return f"{part}.{name} of {own} has numbers that are not finite: change its sample"
    return _misnumbered(drawn, tasks)


def _misnumbered(drawn: Task, tasks: TaskDistribution) -> str:
    """One line about classes or families of these tasks that do not exist; empty if all do."""
    parts = [("family", "families", drawn.family, len(tasks.families))]
    if tasks.problem.kind == "classification":
        ways = tasks.problem.outputs
        parts += [("support.y", "classes", drawn.support.y, ways)]
        parts += [("query.y", "classes", drawn.query.y, ways)]
    for name, kind, leaf, count in parts:
        low, high = int(leaf.min()), int(leaf.max())
        if not 0 <= low <= high < count:
            return (
                f"{name} of {type(own_of(tasks)).__name__} has {kind} from {low} to {high}, not 0 "
                f"to {count - 1}: change its sample"
            )
    return ""
