"""A prior over tables: random mechanisms that make rows, from which tasks of any meaning are drawn.

    arml train tables/tables --plugin benchmarks/table_prior.py --run runs/tables
    arml train tables-regression/tables --plugin benchmarks/table_prior.py --run runs/numbers

So the learners that ship were trained (`benchmarks/ship_tables.py`). Real tables did not help.

A few hidden causes pass through two layers of random functions. The columns are nodes of that
network, so they depend on each other, and some repeat others. Columns are warped, scaled, rounded,
cut into the indicators of categories or replaced by noise, and some cells are missing. In some
tables all functions are linear. The target comes from one of four mechanisms: clusters of the
causes, another node of the network, random trees over the columns, or a linear function of them.

[1] Hollmann, Müller, Eggensperger and Hutter, TabPFN: A Transformer That Solves Small Tabular
    Classification Problems in a Second, ICLR 2023: structural causal models as a prior over tables.
[2] Grinsztajn, Oyallon and Varoquaux, Why Do Tree-based Models Still Outperform Deep Learning on
    Typical Tabular Data?, NeurIPS 2022: irrelevant columns and functions that are not smooth.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from msgspec import Meta

import arml
from arml.core.checks import MAX_COUNT, Size, check_types
from arml.core.episodes import Examples, Problem, Task, TaskDistribution
from arml.tasks.splits import Splits, splits_of

VERSION = 2
"""The version of the prior: another version draws other tasks from the same key."""
MOST_SHOTS = 20
"""The most examples of a class in a balanced task."""
MECHANISMS = ("clusters", "network", "trees", "linear")
CAUSES, HIDDEN, DEPTH, TREES = 6, 10, 4, 3
PLAIN = 0.4
"""The share of tables whose functions are all linear: many real tables are nearly linear."""
NOISE = 0.15
"""The largest share of labels that are replaced by random ones."""


class Rows(NamedTuple):
    """Rows of one table."""

    x: Float[Array, "rows columns 3"]
    """Value, present (0 or 1), and kind (0 a number, 1 the indicator of a category)."""
    label: Int[Array, " rows"]
    """The class of each row."""
    target: Float[Array, " rows"]
    """The number to predict of each row, standardised over these rows."""
    mechanism: Int[Array, ""]


class Draws:
    """Random numbers from ONE call of the generator, because each call is slow, and slow to
    compile."""

    def __init__(self, key: PRNGKeyArray, n: int) -> None:
        self._left = jax.random.uniform(key, (n,), minval=1e-6, maxval=1 - 1e-6)

    def uniform(self, *shape: int) -> Float[Array, "..."]:
        """Numbers in (0, 1) that were not used before."""
        n = math.prod(shape)
        assert n <= len(self._left), "draw more numbers"
        taken, self._left = self._left[:n], self._left[n:]
        return taken.reshape(shape)

    def normal(self, *shape: int) -> Float[Array, "..."]:
        """Standard normal numbers."""
        return jax.scipy.special.ndtri(self.uniform(*shape))

    def gumbel(self, *shape: int) -> Float[Array, "..."]:
        """Gumbel noise: the largest of logits with it is a draw of their softmax."""
        return -jnp.log(-jnp.log(self.uniform(*shape)))


def draw_rows(key: PRNGKeyArray, rows: int, columns: int, ways: int) -> Rows:
    """`rows` rows of ONE random table of 2 to `columns` columns and 2 to `ways` classes."""
    each_row = CAUSES + 2 * HIDDEN + 2 * columns + 3 * ways + 2
    draws = Draws(key, rows * each_row + 64 * (columns + ways + HIDDEN) + 1_000)
    sizes = draws.uniform(3)
    used = jnp.floor(2 * jnp.power((columns + 0.99) / 2, sizes[0])).astype(jnp.int32)
    classes = 2 + jnp.floor((ways - 1) * jnp.power(sizes[1], 2.5)).astype(jnp.int32)
    mechanism = jnp.floor(len(MECHANISMS) * sizes[2]).astype(jnp.int32)
    nodes, group = _nodes(draws, rows, ways, classes)
    x, clean = _columns(draws, nodes, columns, used)
    label, target = _targets(draws, mechanism, nodes, group, clean, classes, ways)
    label = _flipped(draws, label, classes)
    return Rows(x, label, _standard(target), mechanism)


def _standard(x: Float[Array, "rows *n"]) -> Float[Array, "rows *n"]:
    return (x - jnp.mean(x, axis=0)) / (jnp.std(x, axis=0) + 1e-6)


def _nodes(
    draws: Draws, rows: int, ways: int, classes: Int[Array, ""]
) -> tuple[Float[Array, "rows nodes"], Int[Array, " rows"]]:
    """Hidden causes and two layers of functions of them, standardised; and the cluster of each
    row."""
    several = draws.uniform(7)
    # A cluster is a class or half of one; their centres may be near or far.
    halves = jnp.where(several[0] < 0.3, 2, 1)
    sizes = 0.5 * draws.normal(2 * ways)
    open_ = jnp.arange(2 * ways) < classes * halves
    sizes = jnp.where(open_, sizes, -jnp.inf)
    group = jnp.argmax(sizes + draws.gumbel(rows, 2 * ways), axis=1)
    centres, spread, active = (
        draws.normal(2 * ways, CAUSES),
        draws.normal(CAUSES),
        draws.uniform(CAUSES),
    )
    raw = draws.normal(rows, CAUSES + 2 * HIDDEN)
    kind = draws.uniform(CAUSES)
    noise = raw[:, :CAUSES]
    noise = jnp.where(
        kind < 0.5,
        noise,
        jnp.where(
            kind < 0.8,
            jax.scipy.stats.norm.cdf(noise) * 3.4 - 1.7,
            noise * jnp.exp(0.5 * jnp.abs(noise)) / 1.8,
        ),
    )
    distance = 0.5 + 4 * several[1]
    causes = noise * jnp.exp(0.4 * spread) + distance * centres[group]
    first, second = draws.normal(CAUSES, HIDDEN), draws.normal(HIDDEN, HIDDEN)
    bias, which = draws.normal(2, HIDDEN), draws.uniform(2, HIDDEN)
    which = jnp.where(several[6] < PLAIN, 0.0, which)  # the identity everywhere
    used = (active < 0.6) | (jnp.arange(CAUSES) < 2)
    causes = _standard(causes)
    level = 0.2 * several[2:4]
    one = (
        _layer(jnp.where(used, causes, 0.0) @ _sparse(first), bias[0], which[0], several[4])
        + level[0] * raw[:, CAUSES : CAUSES + HIDDEN]
    )
    two = (
        _layer(_standard(one) @ _sparse(second), bias[1], which[1], several[5])
        + level[1] * raw[:, CAUSES + HIDDEN :]
    )
    return _standard(jnp.concatenate([causes, one, two], axis=1)), group // halves


def _sparse(weights: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Weights of which few are large, so that each unit depends on few others."""
    return weights * jnp.abs(weights)


def _layer(
    x: Float[Array, "rows n"],
    bias: Float[Array, " n"],
    which: Float[Array, " n"],
    odd: Float[Array, ""],
) -> Float[Array, "rows n"]:
    """A random function of each unit; if `odd` is small, mostly a smooth one."""
    x = x / (jnp.sqrt(jnp.mean(jnp.square(x), axis=0)) + 1e-6)
    functions = jnp.stack(
        [
            x,
            jnp.tanh(x + bias),
            jax.nn.relu(x + bias),
            jnp.abs(x + bias),
            jnp.sin(2 * x + bias),
            jnp.sign(x + bias),
            jnp.square(x + bias),
        ]
    )
    place = jnp.floor(len(functions) * jnp.power(which, 2 - 1.5 * odd)).astype(jnp.int32)
    return jnp.take_along_axis(functions, place[None, None], axis=0)[0]


def _columns(
    draws: Draws, nodes: Float[Array, "rows nodes"], columns: int, used: Int[Array, ""]
) -> tuple[Float[Array, "rows columns 3"], Float[Array, "rows columns"]]:
    """The cells of the table, and its columns before they were warped and lost cells."""
    rows, known = nodes.shape
    table = draws.uniform(9)
    each = draws.uniform(12, columns)
    place = jnp.arange(columns)
    category = each[6] < jnp.where(table[5] < 0.45, 0.0, table[5])
    # Neighbouring columns may be the values of one category: each row has one of them.
    first = jax.lax.cummax(jnp.where(each[10] < 0.6, 0, place))
    category = category[first]
    first = jnp.where(category, first, place)
    # Some tables show mostly the causes, others their consequences.
    source = jnp.floor(known * jnp.power(each[0], jnp.where(table[0] < 0.4, 2.0, 1.0))).astype(
        jnp.int32
    )[first]
    clean = nodes[:, source]
    noise = draws.normal(rows, columns)
    blur = jnp.where(table[8] < 0.3, 1.5, 0.5) * table[1]
    blurred = clean + noise * (blur * each[1])
    irrelevant = each[2] < jnp.where(table[2] < 0.6, 0.0, 1.5 * (table[2] - 0.6))
    irrelevant = irrelevant[first]
    blurred = jnp.where(irrelevant, noise, blurred)
    warp = jnp.floor(each[3] * jnp.where(table[3] < 0.5, 1.4, 4.0)).astype(jnp.int32)
    bounded = jnp.clip(blurred, -4, 4)
    warped = jnp.stack([blurred, jnp.exp(bounded), bounded * jnp.abs(bounded), jnp.tanh(bounded)])
    value = jnp.take_along_axis(warped, warp[None, None], axis=0)[0]
    steps = jnp.floor(1 + 6 * each[4])
    value = jnp.where(each[5] < 0.5 * table[4], jnp.round(value * steps) / steps, value)
    # A category of one column is an interval of its node; one of several columns cuts the rows.
    low = 1.2 * jnp.asarray(noise[0]) - 0.6
    alone = (blurred > low) & (blurred < low + jnp.where(each[7] < 0.5, 9.0, 1.5))
    several = jnp.sum((first[:, None] == first) & (place < used), axis=1)
    rank = jnp.argsort(jnp.argsort(blurred, axis=0), axis=0).astype(value.dtype)
    share = jnp.power((rank + 0.5) / rows, jnp.exp(2 * each[11] - 1))
    level = jnp.floor(several.astype(value.dtype) * share)[:, first].astype(jnp.int32)
    inside = jnp.where(several > 1, level == place - first, alone)
    value = jnp.where(category, inside.astype(value.dtype), value)
    scale = jnp.where(category, 1.0, jnp.exp(2 * (each[8] - 0.5)))
    value = value * scale + jnp.where(category, 0.0, 4 * (each[9] - 0.5))
    rate = jnp.where(table[6] < 0.7, 0.0, 0.4 * table[7] * each[1])
    present = (draws.uniform(rows, columns) >= rate)[:, first]
    present &= place < used
    x = jnp.stack(
        [value, jnp.ones_like(value), jnp.broadcast_to(category.astype(value.dtype), value.shape)],
        axis=-1,
    )
    return jnp.where(present[..., None], x, 0.0), jnp.where(
        irrelevant | (place >= used), 0.0, clean
    )


def _targets(
    draws: Draws,
    mechanism: Int[Array, ""],
    nodes: Float[Array, "rows nodes"],
    group: Int[Array, " rows"],
    clean: Float[Array, "rows columns"],
    classes: Int[Array, ""],
    ways: int,
) -> tuple[Int[Array, " rows"], Float[Array, " rows"]]:
    """The class and the number of each row, by the mechanism that was drawn; all are computed."""
    rows, columns = clean.shape
    some = draws.uniform(5)
    # A node of the network: its values, cut at random shares of the rows, or a contest of nodes.
    node = nodes[:, -1 - jnp.floor(some[0] * HIDDEN).astype(jnp.int32)]
    weights = draws.normal(HIDDEN + columns, ways)
    contest = nodes[:, -HIDDEN:] @ weights[:HIDDEN]
    sizes = jnp.exp(0.5 * draws.normal(ways))
    cuts = jnp.cumsum(jnp.where(jnp.arange(ways) < classes, sizes, 0.0))
    cuts = cuts / cuts[-1]
    place = jnp.argsort(jnp.argsort(node)).astype(jnp.float32) / rows
    binned = jnp.sum(place[:, None] >= cuts[:-1], axis=1)
    binned = jnp.minimum(binned, classes - 1)
    # Oblivious trees over the columns: one column and one threshold for each level.
    open_ = jnp.where(jnp.std(clean, axis=0) > 0, 0.0, -20.0)
    asked = jnp.argmax(open_ + draws.gumbel(TREES, DEPTH, columns), axis=-1)
    row = jnp.floor(rows * draws.uniform(TREES, DEPTH)).astype(jnp.int32)
    answers = clean[:, asked] > clean[row, asked] + 1e-6
    deep = 2 + jnp.floor(some[1] * (DEPTH - 1)).astype(jnp.int32)
    answers = answers & (jnp.arange(DEPTH) < deep)
    leaf = jnp.sum(jnp.where(answers, 2 ** jnp.arange(DEPTH), 0), axis=-1)
    values = draws.normal(TREES, 2**DEPTH, ways)
    grown = jnp.sum(values[jnp.arange(TREES), leaf] * jnp.array([1.0, 0.6, 0.4])[:, None], axis=1)
    fewer = weights[HIDDEN:] * jnp.exp(weights[HIDDEN:, :1])
    line = clean @ fewer
    noise = draws.gumbel(rows, ways)

    def contested(scores: Float[Array, "rows ways"]) -> Int[Array, " rows"]:
        sure = jnp.exp(1.0 + 3 * some[2])
        scores = sure * _standard(scores) + noise
        return jnp.argmax(jnp.where(jnp.arange(ways) < classes, scores, -jnp.inf), axis=1)

    by_network = jnp.where(some[3] < 0.5, binned, contested(contest))
    label = jnp.stack([group, by_network, contested(grown), contested(line)])[mechanism]
    blur = 0.5 * some[4] * noise[:, 0]
    mixed = _standard(contest[:, 0]) + 0.5 * _standard(weights[group % ways, 0])
    target = jnp.stack([mixed, node, grown[:, 0], line[:, 0]])[mechanism]
    return label.astype(jnp.int32), _standard(target) + blur


def _flipped(
    draws: Draws, label: Int[Array, " rows"], classes: Int[Array, ""]
) -> Int[Array, " rows"]:
    """The labels, of which some are replaced by random ones; none in half of the tables."""
    rate = NOISE * jnp.maximum(2 * draws.uniform() - 1, 0.0)
    other = jnp.floor(draws.uniform(*label.shape) * classes.astype(jnp.float32)).astype(jnp.int32)
    return jnp.where(draws.uniform(*label.shape) < rate, other, label)


# Tasks of these tables.


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

    def protocol(self) -> dict[str, Any]:
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
    """Classes of small synthetic tables."""

    predict: Literal["classes", "numbers"] = "classes"
    """The kind of target."""
    columns: Annotated[int, Meta(ge=2, le=MAX_COUNT)] = 20
    """The most columns of a table; a category has a column for each of its values."""
    ways: Annotated[int, Meta(ge=2, le=1_000)] = 10
    """The most classes of a task."""
    rows: Size = 40
    """The most rows of a support set."""
    questions: Size = 20
    """Queries of a task."""

    @property
    def problem(self) -> Problem:
        """The problem of these tasks."""
        features = (self.columns, 3)
        if self.predict == "numbers":
            return Problem("regression", features, 1, self.rows, self.questions, inputs="tables")
        each = self.rows // self.ways, self.questions // self.ways
        return Problem("classification", features, self.ways, *each, inputs="tables")

    @property
    def metric(self) -> str:
        """The score of these tasks."""
        return "mse" if self.predict == "numbers" else "accuracy"

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid, before any data is read."""
        check_types(self)
        if self.predict == "classes" and min(self.rows, self.questions) < self.ways:
            raise ValueError(
                f"rows and questions must be at least the {self.ways} ways, got {self.rows} and "
                f"{self.questions}: raise them, or lower the ways"
            )

    def build(self, split: Path, *, progress: object = None) -> Splits:
        """The tasks: one distribution for all splits, with different keys."""
        self.check()
        return splits_of(SyntheticTables(self.problem))


@dataclass(frozen=True)
class NumbersOptions(TablesOptions):
    """Numbers of small synthetic tables."""

    predict: Literal["classes", "numbers"] = "numbers"


for _name, _options in (("tables", TablesOptions), ("tables-regression", NumbersOptions)):
    arml.register("tasks", _name, _options, usual=_options().problem)
