"""Examples and tasks: the values that every other module works on.

The shape vocabulary of the whole library: `tasks`, `support`, `query`, `ways` (classes of a task),
`shots` (support examples of each class), `queries`, `features`, `prototypes`, `vertices`, `code`
(a task's representation).
"""

import abc
import dataclasses
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from arml.core.problem import Problem as Problem

Facts = Mapping[str, str | int | float | bool | None]
"""Facts about tasks that a table states, by name."""


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
        key: only then may two scores be paired. By default it is a digest of the name of the class
        and of all its fields."""
        return identity_of(self)

    def floor(self) -> float | None:
        """The lowest expected score that a learner can reach; None where it is not known."""
        return None


def protocol_of(problem: Problem) -> Facts:
    """The facts that every table states: ways, shots, queries, and the size of pictures."""
    ways = {"ways": problem.outputs} if problem.kind == "classification" else {}
    pictures = {"size": problem.features[0]} if len(problem.features) == 3 else {}
    return {**ways, "shots": problem.shots, "queries": problem.queries, **pictures}


def in_words(protocol: Facts) -> str:
    """A protocol as one phrase: `5-way 1-shot, 15 queries, 28 px`.

    Any other entry gives its name and its value (`noise 0.3`); the name alone if the value is True,
    and nothing if it is False or None.
    """
    said = [
        " ".join(f"{protocol[name]}-{one}" for name, one in _COUNTS.items() if name in protocol)
    ]
    for name, value in protocol.items():
        if name in _COUNTS or value is None or value is False:
            continue
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        said.append(
            name if value is True else
            f"{shown} queries" if name == "queries" else
            f"{shown} px" if name == "size" else
            f"{name} {shown}"
        )  # fmt: skip
    return ", ".join(part for part in said if part)


_COUNTS = {"ways": "way", "shots": "shot"}


def identity_of(value: object) -> str:
    """The name of the value's class, and twelve hexadecimal digits of a digest of its content."""
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(len(part).to_bytes(8, "little") + part)
    return f"{class_name(type(value))} {digest.hexdigest()[:12]}"


def class_name(kind: object) -> str:
    """`module.Class`, with the module's name as `module_name` gives it."""
    module = module_name(getattr(kind, "__module__", "") or "")
    return f"{module}.{getattr(kind, '__qualname__', type(kind).__qualname__)}"


def module_name(name: str) -> str:
    """The name of a module; for a script the name of its file, whether it is run or imported."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if "." in name or file is None or Path(file).name == "__init__.py":
        return name
    return Path(file).stem


def _parts(value: object) -> Iterator[bytes]:
    """The value as a series of byte strings. `identity_of` adds the length of each: without it, two
    values that are cut in different places could have the same digest."""
    if isinstance(value, str | bytes | bool | int | float | complex | None):
        yield f"{type(value).__name__} {value!r}".encode()
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        yield f"array {array.dtype.str} {array.shape}".encode()
        yield np.ascontiguousarray(array).tobytes()
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key in value:
            yield from _parts(key)
            yield from _parts(value[key])
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__} {len(value)}".encode()
        for item in value:
            yield from _parts(item)
    elif isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        yield class_name(value).encode()
        for cell in getattr(value, "__closure__", None) or ():
            yield from _parts(cell.cell_contents)
    else:
        yield class_name(type(value)).encode()
        if dataclasses.is_dataclass(value):
            held = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        else:
            held = getattr(value, "__dict__", {})
        yield from _parts(held)
