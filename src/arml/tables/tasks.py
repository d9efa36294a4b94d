"""`tables`: tasks of small synthetic tables with different columns and classes.

An example is `[columns, 3]`. Each cell has a value, a flag that is 1 if the value is there, and a
kind (0 a number, 1 the indicator of a category). A table with fewer columns than the bound has
empty columns; a task with fewer examples than the bound has empty rows in its support set.
All are drawn on the device (`arml.tables.prior`). Real tables did not help in training.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from arml.core.checks import at_least
from arml.core.episodes import Examples, Problem, Task, TaskDistribution
from arml.datasets.folders import Progress
from arml.experiment.options import TaskFamily
from arml.results.files import Json
from arml.tables.prior import MECHANISMS, draw_rows
from arml.tasks.options import Splits, splits_of

VERSION = 2
"""The version of the prior: another version draws other tasks from the same key."""
MOST_SHOTS = 20
"""The most examples of a class in a balanced task."""


class SyntheticTables(TaskDistribution):
    """Tables of the prior. A support set has at least one example of each of its classes."""

    problem: Problem = eqx.field(static=True)
    families: tuple[str, ...] = eqx.field(static=True, default=MECHANISMS, init=False)
    version: int = eqx.field(static=True, default=VERSION, init=False)

    def sample(self, key: PRNGKeyArray) -> Task:
        """Draw ONE task."""
        rows_key, draw_key = jax.random.split(key)
        known = self.problem
        ways = known.outputs if known.kind == "classification" else 4
        rows = draw_rows(rows_key, known.support + known.query, known.features[0], ways)
        there = jnp.any(rows.x[..., 1] > 0, axis=1)
        sizes = known.support, known.query
        if known.kind == "classification":
            drawn = _of_classes(draw_key, rows.x, rows.label, there, *sizes)
        else:
            drawn = _of_numbers(draw_key, rows.x, rows.target, there, *sizes)
        return Task(*drawn, rows.mechanism.astype(jnp.int32))

    def protocol(self) -> Json:
        known = self.problem
        most = f"{known.support} rows, {known.features[0]} columns"
        if known.kind == "classification":
            most += f", {known.outputs} ways"
        return {"tables": "synthetic", "at most": most, "queries": known.query}


def _of_classes(
    key: PRNGKeyArray,
    x: Float[Array, "rows columns 3"],
    label: Int[Array, " rows"],
    there: Bool[Array, " rows"],
    support: int,
    query: int,
) -> tuple[Examples, Examples]:
    """A support set of at most `support` rows, and `query` queries of the classes that it has.

    About 60% of the tasks are balanced: they have the same number of examples of each class, from 1
    to `MOST_SHOTS`. In the others the classes are as frequent as in the table, with at least one
    example of each. If a task takes fewer rows than `support`, the rest of the support set is empty
    rows, which learners ignore. A row that is not `there` is not drawn.
    """
    rows = len(label)
    order, u = jnp.split(jax.random.uniform(key, (rows + 2,)), (rows,))
    same = (label[:, None] == label) & there
    rank = jnp.sum(same & (order[None] < order[:, None]), axis=1)
    exists = jnp.zeros(rows, bool).at[label].max(there, mode="drop")
    classes = jnp.maximum(jnp.sum(exists), 1)
    limit = jnp.clip(support // classes, 1, MOST_SHOTS)
    each = jnp.floor(jnp.power(limit.astype(jnp.float32) + 0.99, u[0])).astype(jnp.int32)
    balanced = u[1] < 0.6
    # First one row of each class, then the other rows in random order.
    first = jnp.where(rank == 0, order - 1, order)
    turn = jnp.argsort(jnp.argsort(jnp.where(there, first, 9.0)))
    chosen = there & jnp.where(balanced, rank < each, turn < jnp.minimum(each * classes, support))
    queue = jnp.argsort(jnp.where(chosen, order - 9.0, jnp.where(there, order, 9.0)))
    taken = queue[:support]
    kept = chosen[taken]
    own = jnp.sum(kept)
    left = jnp.maximum(jnp.sum(there) - own, 1)
    # If the table has too few rows, some are asked twice.
    asked = queue[own + jnp.arange(query) % left]
    shown = jnp.where(kept[:, None, None], x[taken], 0.0)
    return Examples(shown, jnp.where(kept, label[taken], 0)), Examples(x[asked], label[asked])


def _of_numbers(
    key: PRNGKeyArray,
    x: Float[Array, "rows columns 3"],
    target: Float[Array, " rows"],
    there: Bool[Array, " rows"],
    support: int,
    query: int,
) -> tuple[Examples, Examples]:
    """A support set and queries of a regression: the support set has 4 to `support` rows."""
    u = jax.random.uniform(key, (len(target) + 1,))
    queue = jnp.argsort(jnp.where(there, u[1:], 9.0))
    size = jnp.floor(4 * jnp.power((support + 0.99) / 4, u[0]))
    size = jnp.minimum(size.astype(jnp.int32), jnp.maximum(jnp.sum(there) - 1, 1))
    kept = jnp.arange(support) < size
    taken = queue[:support]
    left = jnp.maximum(jnp.sum(there) - size, 1)
    asked = queue[size + jnp.arange(query) % left]
    shown = Examples(
        jnp.where(kept[:, None, None], x[taken], 0.0), jnp.where(kept, target[taken], 0.0)[:, None]
    )
    return shown, Examples(x[asked], target[asked][:, None])


@dataclass(frozen=True)
class TablesOptions:
    """Small synthetic tables with different columns and classes."""

    predict: Literal["classes", "numbers"] = "classes"
    """The kind of target."""
    columns: int = 20
    """The most columns of a table; a category has a column for each of its values."""
    ways: int = 10
    """The most classes of a task."""
    rows: int = 40
    """The most rows of a support set."""
    questions: int = 20
    """Queries of a task."""

    @property
    def problem(self) -> Problem:
        """The problem of these tasks."""
        features = (self.columns, 3)
        if self.predict == "numbers":
            return Problem("regression", features, 1, self.rows, self.questions)
        each = self.rows // self.ways, self.questions // self.ways
        return Problem("classification", features, self.ways, *each)

    @property
    def metric(self) -> str:
        """The score of these tasks."""
        return "mse" if self.predict == "numbers" else "accuracy"

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid, before any data is read."""
        at_least(self, ("columns",), 2)
        at_least(self, ("ways",), 2, most=1_000)
        at_least(self, ("rows", "questions"), 1)
        if self.predict == "classes" and min(self.rows, self.questions) < self.ways:
            raise ValueError(
                f"rows and questions must be at least the {self.ways} ways, got {self.rows} and "
                f"{self.questions}: raise them, or lower the ways"
            )

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """The tasks: one distribution for all splits, with different keys."""
        self.check()
        return splits_of(SyntheticTables(self.problem))


TASKS = (TaskFamily(name="tables", options_class=TablesOptions, usual=TablesOptions().problem),)
