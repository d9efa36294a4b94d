"""`tables`: tasks of small tables with different columns and classes, synthetic or a user's own.

An example is `[columns, 3]`. Each cell has a value, a flag that is 1 if the value is there, and a
kind (0 a number, 1 the indicator of a category). A table with fewer columns than the bound has
empty columns; a task with fewer examples than the bound has empty rows in its support set.
Synthetic tables are drawn on the device (`arml.tasks.prior`); a user's own are read from CSV files
and put on the device.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from arml.core.checks import at_least
from arml.core.episodes import Problem, Task, TaskDistribution
from arml.datasets.folders import Progress
from arml.datasets.splits import PARTS
from arml.datasets.tables import TableSet, load_tables
from arml.results.files import Json
from arml.tasks.draws import of_classes, of_numbers
from arml.tasks.options import DataOptions, Splits, splits_of
from arml.tasks.prior import MECHANISMS, draw_rows

VERSION = 2
"""The version of the prior: another version draws other tasks from the same key."""


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
        there = jnp.ones(len(rows.label), bool)
        return _task(draw_key, known, rows.x, rows.label, rows.target, there, rows.mechanism)

    def protocol(self) -> Json:
        return _protocol(self.problem, "synthetic")


class RealTables(TaskDistribution):
    """A user's own tables: a task has some rows, columns and classes of one table."""

    tables: TableSet
    problem: Problem = eqx.field(static=True)
    families: tuple[str, ...] = eqx.field(static=True)
    stated: str = eqx.field(static=True)
    whole: bool = eqx.field(static=True)
    """Take all columns: for scores, not for training."""

    def sample(self, key: PRNGKeyArray) -> Task:
        """Draw ONE task."""
        table_key, row_key, column_key, class_key, draw_key = jax.random.split(key, 5)
        known, tables = self.problem, self.tables
        number = jax.random.randint(table_key, (), 0, len(self.families))
        x, y, there = tables.x[number], tables.y[number], tables.rows[number]
        columns = known.features[0]
        if not self.whole:
            u = jax.random.uniform(column_key, (columns + 1,))
            share = jnp.where(u[0] < 0.5, 1.0, 0.3 + 0.7 * 2 * (u[0] - 0.5))
            x = jnp.where((u[1:] <= share)[:, None], x, 0.0)
        label = y.astype(jnp.int32)
        if known.kind == "classification":
            # A random choice of as many classes as a task may have, numbered anew.
            present = jnp.zeros(tables.classes, bool).at[label].max(there, mode="drop")
            order = jnp.argsort(
                jnp.where(present, jax.random.uniform(class_key, (tables.classes,)), 9.0)
            )
            place = jnp.argsort(order)
            label = place[label]
            there = there & (label < known.outputs)
        # A random choice of as many rows as a task may have.
        order = jnp.argsort(jnp.where(there, jax.random.uniform(row_key, there.shape), 9.0))
        some = order[: min(known.support + known.query, len(order))]
        return _task(draw_key, known, x[some], label[some], y[some], there[some], number)

    def protocol(self) -> Json:
        return _protocol(self.problem, f"{len(self.families)} tables")

    def identity(self) -> str:
        return self.stated


def _task(
    key: PRNGKeyArray,
    known: Problem,
    x: Float[Array, "rows columns 3"],
    label: Int[Array, " rows"],
    target: Float[Array, " rows"],
    there: Array,
    family: Int[Array, ""],
) -> Task:
    if known.kind == "regression":
        drawn = of_numbers(key, x, target, there, support=known.support, query=known.query)
    else:
        drawn = of_classes(key, x, label, there, support=known.support, query=known.query)
    return Task(*drawn, family.astype(jnp.int32))


def _protocol(problem: Problem, source: str) -> Json:
    most = f"{problem.support} rows, {problem.features[0]} columns"
    if problem.kind == "classification":
        most += f", {problem.outputs} ways"
    return {"tables": source, "at most": most, "queries": problem.query}


@dataclass(frozen=True)
class TablesOptions(DataOptions):
    """Small tables with different columns and classes: synthetic ones, or your own (--data)."""

    data: tuple[str, ...] = ()
    """CSV files, or folders of such files; none for synthetic tables. The last column is the
    target. The tables of a sub-folder have one origin: they are in the same part of the split."""
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
    split_seed: int = 0
    """Seeds the split of your own tables into 64% train, 16% validation and 20% test."""

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
        """The tasks. Those of synthetic tables are one distribution for all splits, with different
        keys."""
        self.check()
        if not self.data:
            return splits_of(SyntheticTables(self.problem))
        loaded = load_tables(
            self.data,
            split,
            predict=self.predict,
            columns=self.columns,
            seed=self.split_seed,
        )
        kept = {k: v for k, v in vars(self).items() if k not in ("data", "split_seed")}
        parts = (
            RealTables(
                tables=(of := loaded.part(part)).values,
                problem=self.problem,
                families=of.names,
                stated=json.dumps(["TablesOptions", kept, part, of.digests], sort_keys=True),
                whole=part != "train",
            )
            for part in PARTS
        )
        train, validation, test = parts
        return Splits(train, validation, test, loaded.sources)
