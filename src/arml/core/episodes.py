"""Problems, examples and tasks, which every other module works on, and the distributions that draw
tasks.

The shape vocabulary of the whole library: `tasks`, `support`, `query`, `ways` (classes of a task),
`shots` (support examples of each class), `queries`, `features`, `prototypes`, `vertices`, `code`
(a task's representation).
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from arml.core.inputs import INPUTS, Form
from arml.plugins.identity import identity_of

Facts = Mapping[str, str | int | float | bool | None]
"""Facts about tasks that a table states, by name."""
Tasks = Any
"""A `TaskDistribution`, or any object with `problem`, `families` and `sample(key)`."""


@dataclass(frozen=True)
class Problem:
    """The properties that all tasks of a distribution share, and that a learner is built from.

    `features` is the shape of one input; `outputs` the number of classes (ways) or of regression
    targets; `shots` the support examples of each class (classification) or in all (regression);
    `queries` likewise for the query set; `classes` the number of classes that tasks draw theirs
    from, 0 where there is no list. `inputs` names their kind: `vectors` of numbers, `pictures`
    (height, width, channels), `tables` (columns, and the facts about a cell), or a registered one.

        problem = arml.Problem("regression", (1,), outputs=1, shots=5, queries=10)
        problem.support, problem.query

    **Raises** `ValueError` in one line for another kind, for features that do not fit it, and
    for a count below 1.
    """

    kind: Literal["regression", "classification"]
    features: tuple[int, ...]
    outputs: int
    shots: int
    queries: int
    classes: int = 0
    inputs: str = "vectors"

    def __post_init__(self) -> None:
        if self.kind not in ("regression", "classification"):
            raise ValueError(f"kind must be regression or classification, got {self.kind!r}")
        if not isinstance(self.features, tuple):
            raise ValueError(f"features must be a shape such as (2,), got {self.features!r}")
        if self.form.axes != len(self.features):
            known = INPUTS.items()
            others = [name for name, kind in known if kind.axes == len(self.features)]
            raise ValueError(
                f"features of {self.inputs} have {self.form.axes} axes, got {self.features}: say "
                f"what the inputs are, inputs={' or '.join(map(repr, others)) or 'a kind of yours'}"
            )
        for name in ("outputs", "shots", "queries"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")

    @property
    def form(self) -> Form:
        """The kind of one input. **Raises** `ValueError` for a kind that is not registered."""
        return INPUTS.known(self.inputs)

    @property
    def spatial(self) -> bool:
        """Whether one input is height, width and channels."""
        return self.form.spatial

    @property
    def support(self) -> int:
        """Support examples of one task."""
        return self.shots * (self.outputs if self.kind == "classification" else 1)

    @property
    def query(self) -> int:
        """Query examples of one task."""
        return self.queries * (self.outputs if self.kind == "classification" else 1)


def problem_fields(held: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a problem that JSON holds. In files of earlier versions the axes stand for the
    kind of inputs."""
    features = tuple(held["features"])
    kinds = {2: "tables", 3: "pictures"}
    return {"inputs": kinds.get(len(features), "vectors"), **held, "features": features}


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
    """A distribution over tasks, which describes itself. Its arrays (such as pixels) are data, not
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
        code of its methods, and of all its fields (`arml.plugins.identity`).

        **Raises** `ValueError` in one line for a field that cannot be compared.
        """
        return identity_of(self)

    def floor(self) -> float | None:
        """The lowest expected score that a learner can reach; None where it is not known."""
        return None


def protocol_of(problem: Problem) -> Facts:
    """The facts that every table states: ways, shots, queries, and the size of pictures."""
    ways = {"ways": problem.outputs} if problem.kind == "classification" else {}
    pictures = {"size": problem.features[0]} if problem.spatial else {}
    return {**ways, "shots": problem.shots, "queries": problem.queries, **pictures}


def in_words(protocol: Facts) -> str:
    """A protocol as one phrase: `5-way 1-shot, 15 queries, 28 px`.

    Any other entry gives its name and its value (`noise 0.3`); only the name if the value is True,
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
        units = {"queries": "queries", "size": "px"}
        named = f"{shown} {units[name]}" if name in units else f"{name} {shown}"
        words.append(name if value is True else named)
    return ", ".join(filter(None, words))
