"""Problems, examples and tasks, which every other module works on, and the distributions that draw
tasks.

The shape vocabulary of the whole library: `tasks`, `support`, `query`, `ways` (classes of a task),
`shots` (support examples of each class), `queries`, `features`, `prototypes`, `vertices`, `code`
(a task's representation).
"""

import abc
import warnings
import weakref
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from arml.core.identity import identity_of

Facts = Mapping[str, str | int | float | bool | None]
"""Facts about tasks that a table states, by name."""
AXES = {"vectors": 1, "tables": 2, "pictures": 3}
"""The kinds of inputs, with the axes of one input: its numbers; its columns, and the facts about a
cell; height, width and channels."""
Tasks = Any
"""A `TaskDistribution`, or any object with `problem`, `families` and `sample(key)`."""


@dataclass(frozen=True)
class Problem:
    """The properties that all tasks of a distribution share, and that a learner is built from.

    `features` is the shape of one input; `outputs` the number of classes (ways) or of regression
    targets; `shots` the support examples of each class (classification) or in all (regression);
    `queries` likewise for the query set; `classes` the number of classes that tasks draw theirs
    from, 0 where there is no such list. `inputs` is one of `AXES`; if it is empty, the one with as
    many axes as `features`.

        problem = arml.Problem("regression", (1,), outputs=1, shots=5, queries=10)
        problem.support, problem.query

    **Raises** `ValueError` in one line for another kind, for features that are no such inputs, and
    for a count below 1.
    """

    kind: Literal["regression", "classification"]
    features: tuple[int, ...]
    outputs: int
    shots: int
    queries: int
    classes: int = 0
    inputs: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("regression", "classification"):
            raise ValueError(f"kind must be regression or classification, got {self.kind!r}")
        if not isinstance(self.features, tuple):
            raise ValueError(f"features must be a shape such as (2,), got {self.features!r}")
        rank = len(self.features)
        if not self.inputs:
            kinds = [kind for kind, axes in AXES.items() if axes == rank]
            object.__setattr__(self, "inputs", [*kinds, "vectors"][0])
        if AXES.get(self.inputs) != rank:
            kinds = [f"{kind} (axes: {axes})" for kind, axes in AXES.items()]
            raise ValueError(
                f"inputs must be one of {', '.join(kinds)}, got {self.inputs!r} and features "
                f"{self.features}"
            )
        for name in ("outputs", "shots", "queries"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")

    @property
    def support(self) -> int:
        """Support examples of one task."""
        return self.shots * (self.outputs if self.kind == "classification" else 1)

    @property
    def query(self) -> int:
        """Query examples of one task."""
        return self.queries * (self.outputs if self.kind == "classification" else 1)


class Examples(NamedTuple):
    """A set of labelled examples.

    `x` has shape `[n, *features]`; `y` is `[n, targets]` floats (regression) or `[n]` integer
    classes `0 <= y < ways` (classification).

        support = arml.Examples(jnp.ones((5, 1)), jnp.zeros((5, 1)))
    """

    x: Float[Array, "n *features"]
    y: Shaped[Array, "n *targets"]


class Task(NamedTuple):
    """One few-shot task: a learner learns from `support` and is scored on `query`.

    `family` is the index of the data family that the task came from. It is for reports only: no
    learner sees it. `classes` is the number of each of the task's classes among all classes of the
    distribution; None where these are not numbered. Training may use it (TADAM's auxiliary task),
    adaptation never sees it.

        task = arml.Task(support, query=support, family=jnp.array(0))
    """

    support: Examples
    query: Examples
    family: Int[Array, ""]
    classes: Int[Array, " ways"] | None = None


class TaskDistribution(eqx.Module):
    """A distribution over tasks, which describes itself. Its arrays (pixels, say) are data, not
    parameters.

    A subclass gives `problem`, `families` (names, in the order of `Task.family`) and `sample`:

        class Sines(arml.TaskDistribution):
            problem = arml.Problem("regression", (1,), 1, shots=5, queries=10)
            families = ("sine",)
            highest: float = 3.0

            def sample(self, key):
                keys = jax.random.split(key)
                x = jax.random.uniform(keys[0], (15, 1), maxval=6.0)
                y = self.highest * jax.random.uniform(keys[1]) * jnp.sin(x)
                support, query = arml.Examples(x[:5], y[:5]), arml.Examples(x[5:], y[5:])
                return arml.Task(support, query, jnp.array(0))

        tasks = Sines()
    """

    families: eqx.AbstractVar[tuple[str, ...]]
    problem: eqx.AbstractVar[Problem]

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray) -> Task:
        """Draw ONE task (no task axis). Pure and jittable; every task has the same shapes."""

    def protocol(self) -> Facts:
        """The facts that a table must state about these tasks, in the order of the table."""
        return protocol_of(self.problem)

    def identity(self) -> str:
        """A text that two distributions share exactly if they draw the same task from the same
        key: only then may two scores be paired. By default it is a digest of the class, with the
        code of its methods, and of all its fields (`arml.core.identity`).

        **Raises** `ValueError` in one line for a field that cannot be compared.
        """
        return identity_of(self)

    def floor(self) -> float | None:
        """The lowest expected score that a learner can reach; None where it is not known."""
        return None


def protocol_of(problem: Problem) -> Facts:
    """The facts that every table states: ways, shots, queries, and the size of pictures."""
    ways = {"ways": problem.outputs} if problem.kind == "classification" else {}
    pictures = {"size": problem.features[0]} if problem.inputs == "pictures" else {}
    return {**ways, "shots": problem.shots, "queries": problem.queries, **pictures}


def in_words(protocol: Facts) -> str:
    """A protocol as one phrase: `5-way 1-shot, 15 queries, 28 px`.

    Any other entry gives its name and its value (`noise 0.3`); the name alone if the value is True,
    and nothing if it is False or None.
    """
    counts = {"ways": "way", "shots": "shot"}
    words = [
        " ".join(f"{protocol[name]}-{one}" for name, one in counts.items() if name in protocol)
    ]
    for name, value in protocol.items():
        if name in counts or value is None or value is False:
            continue
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(
            name if value is True else
            f"{shown} queries" if name == "queries" else
            f"{shown} px" if name == "size" else
            f"{name} {shown}"
        )  # fmt: skip
    return ", ".join(filter(None, words))


# Tasks that users bring are checked, and cast to the types that the library needs.


class _Static:
    """Holds an object that JAX must not look into. It is equal only to a wrapper of that object."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


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


SAMPLES = 16
"""Tasks of a class outside this package that are drawn to check their numbers."""
_checked: dict[Hashable, bool] = {}
"""Whether the tasks of a checked distribution have the right types already. The key is everything
of the distribution except the values of its arrays; an object that is no pytree is not kept."""
KEPT = 64
"""Only so many distributions are known, because they may hold data."""


def as_tasks(tasks: Tasks) -> TaskDistribution:
    """A task distribution from one, or from any object with `problem`, `families` and
    `sample(key)`.

    One task is traced to compare its shapes with the problem. Of a class outside this package some
    are drawn, too, to see whether classes and families are numbered from 0.

    **Raises** `ValueError` in one line for another object, and for tasks whose shapes or numbers
    are not those of the problem.
    """
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
    # The arrays of a pytree become arguments of a compiled program; any other object is held whole.
    leaves, structure = jax.tree.flatten(tasks)
    whole = jax.tree_util.treedef_is_leaf(structure)
    checked = _CheckedTasks(families, problem, _Static(tasks) if whole else tasks)
    try:
        held: list[Any] = [weakref.ref(tasks)] if whole else leaves
        shapes = tuple(_shape(leaf) if hasattr(leaf, "shape") else leaf for leaf in held)
        known: Hashable = (type(tasks), problem, families, structure, shapes)
        same = _checked.get(known)
    except TypeError:  # a value that cannot be hashed, or referred to
        known, same = None, None
    if same is None:
        drawn = _traced(tasks, name)
        _check_shapes(drawn, problem, name)
        same = jax.tree.map(_shape, drawn) == jax.tree.map(
            _shape, jax.eval_shape(checked.sample, jax.random.key(0))
        )
        if not type(tasks).__module__.startswith("arml."):
            keys = jax.random.split(jax.random.key(0), SAMPLES)
            if wrong := _misnumbered(jax.jit(jax.vmap(checked.sample))(keys), checked):
                raise ValueError(wrong)
        if known is not None:
            _checked[known] = same
            if len(_checked) > KEPT:
                del _checked[next(iter(_checked))]
    return tasks if same and isinstance(tasks, TaskDistribution) else checked


def _shape(leaf: jax.ShapeDtypeStruct | Array) -> tuple[tuple[int, ...], jnp.dtype]:
    return leaf.shape, leaf.dtype


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
    drawn, own = jax.vmap(tasks.sample)(keys), _users_class(tasks)
    for part in ("support", "query"):
        for name, leaf in getattr(drawn, part)._asdict().items():
            if not np.isfinite(np.asarray(leaf)).all():
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
                f"{name} of {_users_class(tasks)} has {kind} from {low} to {high}, not 0 to "
                f"{count - 1}: change its sample"
            )
    return ""


def _users_class(tasks: Tasks) -> str:
    """The name of the class that the user wrote."""
    return type(own_of(tasks)).__name__
