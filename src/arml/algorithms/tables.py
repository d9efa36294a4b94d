"""Tables of any width: a network over cells chooses the kernel of each task.

Every cell is a token: its value and its rank, as the support set measures them, and the mean of the
column over other examples with a similar label. Tokens attend over columns, then over rows, where
queries attend only to support rows [1]. The tokens give a weight to each column and a position to
each row. These and a few numbers of the task make a kernel, and ridge regression with this kernel
predicts [3]. Classes are one-hot vectors, so their number is free, and no class has its own output.
Numbers have the variance of a Gaussian process. As the ridge grows, the classifier becomes the
nearest class mean. The numbers of a task (mixture of kernels, ridge,
temperature) and the scales inside the layers are blends of templates: a task reads the vertices of
a graph of meta-knowledge, as in ARML [2], and each vertex owns a template.

    K = a_1 sum_c w_c z_c z'_c + a_2 exp(-sum_c v_c (z_c - z'_c)^2 / 2)
      + a_3 exp(-sum_c u_c |r_c - r'_c|) + a_4 exp(-|g - g'|^2 / 2)                      (1)
    f(x) = mean(y) + k(x) (K + l I)^-1 (y - mean(y))                                     (2)

with z the standardised values, r the ranks, w, v, u the columns' weights and g the rows' positions.

An input is the cells of a row, `[columns, 3]`: value, whether it is there, kind (1 for the
indicator of a category). Rows and columns without any cell are ignored.

[1] Pfefferle, Hog, Purucker and Hutter, nanoTabPFN, arXiv 2511.03634.
[2] Yao et al., Automated Relational Meta-learning, ICLR 2020.
[3] Bertinetto, Henriques, Torr and Vedaldi, Meta-learning with Differentiable Closed-form Solvers,
    ICLR 2019: ridge regression as the head.
[4] Rao et al., MSA Transformer, ICML 2021: tied axial attention.

Differences
- nanoTabPFN has one learned output for each class, so a task has at most as many classes as in its
  training. Here labels enter only by their similarity: permuting the classes permutes the
  outputs.
- The attention maps are tied [4]: one map of columns serves all rows, and one map of rows serves
  all columns. There are no positions, so permuting columns or rows permutes the tokens.
- No token attends to a missing cell, and no value of it reaches the kernel: it is at distance one
  from all values, along a separate axis.
- The tokens of the examples contain labels, and those of queries do not. With more rows the
  positions of the examples show their labels more exactly, until the other kernels are not used.
  So beyond `FULL_ROWS` rows, the most in meta-training, a_4 falls with their square.
- ARML's vertices shape the initialisation of a network; here they shape the kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from arml.algorithms.method import Method
from arml.core.checks import Options, Size
from arml.core.episodes import Examples, Problem, Task
from arml.core.learner import Adapted, Distribution, Loss, MetaLearner, Network
from arml.core.losses import loss_of
from arml.nn.heads import mask_absent
from arml.nn.networks import MLP, Linear, linear, mlp

MAX_DEVIATIONS = 4.0
"""A value is pulled towards the others when it is more standard deviations than this away."""
COLUMN_NUMBERS = 11
"""Numbers that describe a column."""
PLACE_SIZE = 16
"""The dimension of a row's position."""
FULL_ROWS = 40
"""Examples beyond which the places count less."""
INITIAL_NUMBERS = (1.0, 0.5, 0.5, 0.0, -1.5, 1.5, 0.0)
"""Initial numbers of a task: four shares of kernels, log ridge, log temperature, log noise."""
DEGREES_OF_FREEDOM = 4
"""Degrees of freedom of the predictive distribution of a number: Student's t."""
MASKED_LOGIT = -1e9
"""The logit of a cell that may not be attended to."""

Tokens = Float[Array, "rows columns d"]
_Places = Float[Array, "rows place"]


# Cells, in units of the support set.


class _Cells(NamedTuple):
    """Cells of rows, in units of the support set; zero where they are missing."""

    score: Float[Array, "rows columns"]
    """Value in standard deviations of the support set, pulled in beyond `MAX_DEVIATIONS`."""
    rank: Float[Array, "rows columns"]
    """Share of the support set below the value, from -1.73 to 1.73."""
    there: Bool[Array, "rows columns"]
    kind: Float[Array, "rows columns"]

    @property
    def rows(self) -> Bool[Array, " rows"]:
        """Which rows are examples."""
        return jnp.any(self.there, axis=1)


def count_of(there: Bool[Array, "..."], axis: int | tuple[int, ...] | None = None) -> Array:
    """The number of entries that are `there`, at least one."""
    return jnp.maximum(jnp.sum(there, axis=axis), 1).astype(jnp.float32)


def _mean_of(x: Float[Array, "n *d"], there: Bool[Array, "n *_"]) -> Float[Array, "*d"]:
    """The mean over the first axis of the entries that are `there`; zero if none is."""
    there = there.reshape(there.shape + (1,) * (x.ndim - there.ndim))
    return jnp.sum(jnp.where(there, x, 0.0), axis=0) / count_of(there, 0)


def _measured(support: Float[Array, "n columns 3"]) -> Callable[[Array], _Cells]:
    """The function from inputs `[rows, columns, 3]` to their cells, in units of these inputs."""
    known = support[..., 1] > 0.5
    values = jnp.where(known, support[..., 0], 0.0)
    mean = _mean_of(values, known)
    deviation = jnp.sqrt(_mean_of(jnp.square(values - mean), known))
    # A column without spread has no information: its scores are zero, not huge.
    flat = deviation <= 1e-6 * (jnp.abs(mean) + 1e-6)
    unit = jnp.where(flat, 1e12, deviation)

    def cells(x: Array) -> _Cells:
        there = x[..., 1] > 0.5
        value = jnp.where(there, x[..., 0], mean)
        score = (value - mean) / unit
        score = score / jnp.sqrt(1 + jnp.square(score / MAX_DEVIATIONS))
        below = jnp.where(known, jnp.sign(value[:, None] - values[None]), 0.0)
        rank = jnp.sum(below, axis=1) / count_of(known, 0) * 1.73
        score, rank, kind = (jnp.where(there, part, 0.0) for part in (score, rank, x[..., 2]))
        return _Cells(score, rank, there, kind)

    return cells


def standard_targets(
    y: Float[Array, " n"], rows: Bool[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, ""], Float[Array, ""]]:
    """The targets of a regression in their own standard deviations, zero for rows that are not
    there; their mean; and their standard deviation, 1 if all are equal."""
    mean = _mean_of(y, rows)
    off = jnp.where(rows, y - mean, 0.0)
    deviation = jnp.sqrt(_mean_of(jnp.square(off), rows))
    deviation = jnp.where(deviation > 1e-6 * (jnp.abs(mean) + 1e-6), deviation, 1.0)
    return off / deviation, mean, deviation


def similar_labels(y: Array, rows: Bool[Array, " n"], classes: bool) -> Float[Array, "n n"]:
    """How similar the labels of two different examples are: 1 in the same class and 0 otherwise;
    for standardised targets a share from 0 to 1."""
    if classes:
        near = (y[:, None] == y[None]).astype(jnp.float32)
    else:
        near = jnp.exp(-2 * jnp.square(y[:, None] - y[None]))
    return jnp.where(rows[:, None] & rows[None] & ~jnp.eye(len(y), dtype=bool), near, 0.0)


def expected(
    values: Float[Array, "n columns"], there: Bool[Array, "n columns"], alike: Float[Array, "n n"]
) -> Float[Array, "n columns"]:
    """The mean of each column over all other examples, for each example, weighted by the similarity
    of the labels. It is zero if no other label is similar."""
    weight = alike @ there.astype(values.dtype)
    return jnp.where(there, alike @ values / jnp.maximum(weight, 1e-6), 0.0)


def described(
    cells: _Cells, alike: Float[Array, "n n"], classes: Float[Array, ""]
) -> Float[Array, "columns described"]:
    """Numbers that describe each column on the support set: how well other examples with the same
    label predict it (by score and by rank), gaps, ties, shape, how much other columns repeat it;
    and how many rows, columns and classes there are."""
    score, rank, there, kind = cells
    n = count_of(cells.rows)
    count = count_of(there, 0)
    mean = partial(_mean_of, there=there)
    flat = score / jnp.sqrt(mean(jnp.square(score)) + 1e-6)
    repeats = jnp.abs(flat.T @ flat) / n
    columns = count_of(jnp.any(there, axis=0))
    ties = (score[:, None] == score[None]) & there[:, None] & there[None]
    each = jnp.stack(
        [
            mean(score * expected(score, there, alike)),
            mean(rank * expected(rank, there, alike)),
            count / n,
            mean(kind),
            count_of(ties, (0, 1)) / jnp.square(count),
            mean(score**3) / 3,
            mean(score**4) / 10,
            jnp.sum(repeats, axis=1) / columns,
        ],
        axis=1,
    )
    counts = jnp.stack([jnp.log(n + 1.0), jnp.log(columns), jnp.log(classes)]) / 3
    return jnp.concatenate([each, jnp.broadcast_to(counts, (len(each), 3))], axis=1)


# Attention over the columns and over the rows.


class Remembered(NamedTuple):
    """The part of the support set that queries need in one layer."""

    columns: Float[Array, "heads columns columns"]
    """The map of columns."""
    keys: Float[Array, "n columns heads e"]
    values: Float[Array, "n columns heads e"]
    there: Bool[Array, "n columns"]


def standard(x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """Layer normalisation without parameters: the layers after it have their own."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-5)


class Layer(eqx.Module):
    """Attention over columns, over rows, and a small network in each cell. Every sum leaves out
    missing cells."""

    across: Linear
    """Queries, keys and values of the attention over columns."""
    across_out: Linear
    down: Linear
    """The same over rows."""
    down_out: Linear
    alike: Float[Array, " heads"]
    """How much more a row attends to rows with a similar label."""
    wide: Linear
    narrow: Linear
    heads: int = eqx.field(static=True)

    def __call__(
        self,
        h: Tokens,
        there: Bool[Array, "rows columns"],
        film: Float[Array, "2 d"],
        *,
        alike: Float[Array, "rows n"] | None = None,
        support: Remembered | None = None,
    ) -> tuple[Tokens, Remembered]:
        """The cells after one layer, and the part of them that queries will need.

        `alike` is the similarity of the labels of two support rows. For queries, `support` is the
        part of the support set that they need. `film` scales and shifts the input of the
        small network.
        """
        seen = there.astype(h.dtype)
        q, k, v = self._split(self.across(standard(h)), seen)
        columns, rows = jnp.any(there, axis=0), jnp.any(there, axis=1)
        across = _map("rche,rdhe->hcd", q, k, columns, rows)
        across = across if support is None else support.columns
        mixed = jnp.einsum("hcd,rdhe->rche", across, v)
        weight = jnp.einsum("hcd,rd->rch", across, seen)
        h = h + self.across_out(self._merge(mixed, weight))
        q, k, v = self._split(self.down(standard(h)), seen)
        own = Remembered(across, k, v, there)
        others = own if support is None else support
        rows, columns = (jnp.any(others.there, axis=i) for i in (1, 0))
        bias = 0.0 if alike is None else self.alike[:, None, None] * alike
        down = _map("rche,nche->hrn", q, others.keys, rows, columns, bias)
        mixed = jnp.einsum("hrn,nche->rche", down, others.values)
        weight = jnp.einsum("hrn,nc->rch", down, others.there.astype(h.dtype))
        h = h + self.down_out(self._merge(mixed, weight))
        inside = standard(h) * (1 + film[0]) + film[1]
        return h + self.narrow(jax.nn.gelu(self.wide(inside))), own

    def _split(
        self, x: Float[Array, "rows columns three_d"], seen: Float[Array, "rows columns"]
    ) -> list[Float[Array, "rows columns heads e"]]:
        x = x * seen[..., None]
        return [p.reshape(*x.shape[:2], self.heads, -1) for p in jnp.split(x, 3, axis=-1)]

    def _merge(
        self, x: Float[Array, "rows columns heads e"], weight: Float[Array, "rows columns heads"]
    ) -> Tokens:
        """The mean over the cells that were attended to."""
        x = x / jnp.maximum(weight, 1e-6)[..., None]
        return x.reshape(*x.shape[:2], -1)


def _map(
    product: str,
    q: Array,
    k: Array,
    allowed: Bool[Array, " m"],
    summed: Bool[Array, " cells"],
    bias: Float[Array, "heads n m"] | float = 0.0,
) -> Float[Array, "heads n m"]:
    """Softmax over the `allowed` keys. Each product of a query and a key is a sum over the cells
    that are there, `summed`, and is scaled to the size of one cell's."""
    logits = jnp.einsum(product, q, k)
    scale = (q.shape[-1] * count_of(summed)) ** -0.5
    return jax.nn.softmax(jnp.where(allowed, logits * scale + bias, MASKED_LOGIT), axis=-1)


def layer(d: int, heads: int, *, key: PRNGKeyArray) -> Layer:
    """A layer of width `d` with Glorot weights."""
    shapes = (d, 3 * d), (d, d), (d, 3 * d), (d, d), (d, 2 * d), (2 * d, d)
    keys = jax.random.split(key, len(shapes))
    parts = (linear(*shape, key=k) for shape, k in zip(shapes, keys, strict=True))
    across, across_out, down, down_out, wide, narrow = parts
    alike = jnp.ones(heads, jnp.float32)
    return Layer(across, across_out, down, down_out, alike, wide, narrow, heads)


# The kernel, and the learner.


class Kernel(NamedTuple):
    """The kernel of a task, with the parts of its support set that queries need."""

    measure: Callable[[Array], _Cells]
    cells: _Cells
    columns: Float[Array, "columns described"]
    films: Float[Array, "layers 2 d"]
    remembered: list[Remembered]
    places: Float[Array, "n place"]
    weights: Float[Array, "3 columns"]
    """w, v and u of Eq. (1)."""
    numbers: Float[Array, " numbers"]

    def between(self, cells: _Cells, places: _Places) -> Float[Array, "rows n"]:
        """K between rows and the support set, all four parts positive definite. Eq. (1). A missing
        cell is at distance one, along a separate axis, from each cell that is there."""
        shares, others = jax.nn.softmax(self.numbers[:4]), self.cells
        linear, smooth, steps = self.weights
        here, there = (c.there.astype(jnp.float32) for c in (cells, others))
        apart = squares(cells.score, others.score, smooth) + squares(here, there, smooth)
        ranked = jnp.abs(cells.rank[:, None] - others.rank) + jnp.square(here[:, None] - there)
        far = squares(places, self.places, jnp.ones(places.shape[1]))
        mixed: Array = (
            shares[0] * (cells.score * linear) @ others.score.T
            + shares[1] * jnp.exp(-apart / 2)
            + shares[2] * jnp.exp(-ranked @ steps)
            + shares[3] * jnp.exp(-far / 2)
        )
        return mixed

    def itself(self, cells: _Cells) -> Float[Array, " rows"]:
        """K between each row and itself."""
        shares = jax.nn.softmax(self.numbers[:4])
        return shares[0] * jnp.square(cells.score) @ self.weights[0] + 1 - shares[0]


def squares(
    x: Float[Array, "rows d"], y: Float[Array, "n d"], weights: Float[Array, " d"]
) -> Float[Array, "rows n"]:
    """sum_d w_d (x_d - y_d)^2, by matrix products: their rounding matters little to a kernel."""
    own = jnp.square(x) @ weights
    other = jnp.square(y) @ weights
    return jnp.maximum(own[:, None] + other - 2 * (x * weights) @ y.T, 0.0)


class Solved(NamedTuple):
    """A task's kernel, and the solution of its ridge regression."""

    kernel: Kernel
    ridge: Float[Array, ""]
    factor: Float[Array, "n n"]
    """Cholesky factor of K + l I."""
    dual: Float[Array, "n outputs"]
    mean: Float[Array, " outputs"]
    """The mean of the labels."""
    deviation: Float[Array, ""]
    """The standard deviation of the targets; 1 for classes."""


class Tables(MetaLearner):
    """Reads the cells of a support set, makes a kernel of them, and solves a ridge regression."""

    embed: Linear
    """Maps the numbers of a cell to its token."""
    describe: Linear
    """Maps the description of a column to a part of its tokens."""
    code: MLP
    """Maps the description of a column to a code. The mean code is that of the task."""
    vertices: Float[Array, "vertices d"]
    scales: Float[Array, "vertices layers 2 d"]
    """The templates of the layers."""
    settings: Float[Array, "vertices numbers"]
    """The templates of a task's numbers."""
    layers: tuple[Layer, ...]
    place: Linear
    weigh: Linear
    ways: int = eqx.field(static=True)
    """Classes; 0 for regression."""
    loss: Loss = eqx.field(static=True)

    def kernel(self, support: Examples) -> Kernel:
        """The kernel of a task, made from its support set."""
        measure = _measured(support.x)
        cells = measure(support.x)
        if self.ways:
            label, number = support.y, jnp.zeros(())
            classes = count_of(jnp.zeros(self.ways, bool).at[label].max(cells.rows))
        else:
            label, classes = standard_targets(support.y[:, 0], cells.rows)[0], jnp.ones(())
            number = label[:, None]
        alike = similar_labels(label, cells.rows, classes=self.ways > 0)
        columns = described(cells, alike, classes)
        known = jnp.any(cells.there, axis=0)
        code = _mean_of(self.code(columns), known)  # the task, as its columns describe it
        # Eq. (6) of [2] for one prototype; that of `SoftClusters` belongs to a graph with edges.
        reading = jax.nn.softmax(-jnp.sum(jnp.square(code - self.vertices), axis=1) / 2)
        films = jnp.einsum("v,vlfd->lfd", reading, self.scales)
        like = [expected(part, cells.there, alike) for part in (cells.score, cells.rank)]
        h = self._tokens(cells, columns, [*like, number + 0 * cells.score])
        remembered = []
        for one, film in zip(self.layers, films, strict=True):
            h, own = one(h, cells.there, film, alike=alike)
            remembered.append(own)
        tokens = standard(_mean_of(h, cells.there[..., None]))
        weights = jnp.where(known, jnp.exp(self.weigh(tokens).T), 0.0) / count_of(known)
        many = jnp.maximum(jnp.sum(cells.rows) / FULL_ROWS, 1.0)
        numbers = (reading @ self.settings).at[3].add(-2 * jnp.log(many))
        places = self._places(h, cells)
        return Kernel(measure, cells, columns, films, remembered, places, weights, numbers)

    def _tokens(
        self,
        cells: _Cells,
        columns: Float[Array, "columns described"],
        like: list[Float[Array, "rows columns"]] | None = None,
    ) -> Tokens:
        """`like` are the numbers of examples that know labels; None for queries."""
        score, rank, there, kind = cells
        support = jnp.full_like(score, like is not None)
        like = like or [jnp.zeros_like(score)] * 3
        each = jnp.stack([score, rank, jnp.abs(score), kind, support, *like], axis=-1)
        return jnp.where(there[..., None], self.embed(each) + self.describe(columns), 0.0)

    def _places(self, h: Tokens, cells: _Cells) -> _Places:
        return self.place(standard(_mean_of(h.swapaxes(0, 1), cells.there.T[..., None])))

    def solve(self, support: Examples) -> Solved:
        """Learn ONE task: its kernel, and the ridge regression in it."""
        kernel = self.kernel(support)
        rows = kernel.cells.rows
        own = kernel.between(kernel.cells, kernel.places)
        own = jnp.where(rows[:, None] & rows, own, 0.0)
        ridge = jnp.exp(kernel.numbers[4]) + 1e-3
        factor = jnp.linalg.cholesky(own + ridge * jnp.eye(len(own), dtype=own.dtype))
        if self.ways:
            labels = jnp.where(rows[:, None], jax.nn.one_hot(support.y, self.ways), 0.0)
            mean = jnp.sum(labels, axis=0) / count_of(rows)
            off, deviation = jnp.where(rows[:, None], labels - mean, 0.0), jnp.ones(())
        else:
            target, middle, deviation = standard_targets(support.y[:, 0], rows)
            off, mean = target[:, None], middle[None]
        dual = jax.scipy.linalg.cho_solve((factor, True), off)  # Eq. (2)
        return Solved(kernel, ridge, factor, dual, mean, deviation)

    def similar(self, kernel: Kernel, x: Array) -> Float[Array, "rows n"]:
        """k(x) of inputs `[rows, columns, 3]`; zero for empty rows of the support set."""
        cells = kernel.measure(x)
        h = self._tokens(cells, kernel.columns)
        for one, film, kept in zip(self.layers, kernel.films, kernel.remembered, strict=True):
            h, _ = one(h, cells.there, film, support=kept)
        return jnp.where(kernel.cells.rows, kernel.between(cells, self._places(h, cells)), 0.0)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        solved = self.solve(support)
        if not self.ways:
            return Adapted(lambda x: self._distribution(solved, x)[0][:, None])
        kernel, mean = solved.kernel, solved.mean
        sharpness, prior = jnp.exp(kernel.numbers[5]), kernel.numbers[6]

        def logits(x: Array) -> Float[Array, "rows ways"]:
            shares = prior * jnp.log(jnp.maximum(mean, 1e-6))
            return mask_absent(mean > 0, sharpness * self.similar(kernel, x) @ solved.dual + shares)

        return Adapted(logits)

    def spread(self, support: Examples) -> Distribution | None:
        return None if self.ways else partial(self._distribution, self.solve(support))

    def _distribution(self, solved: Solved, x: Array) -> tuple[Array, Array]:
        """The centre and the scale of the prediction of each input `[rows]`."""
        kernel, deviation = solved.kernel, solved.deviation
        k = self.similar(kernel, x)
        known = jax.scipy.linalg.solve_triangular(solved.factor, k.T, lower=True)
        variance = kernel.itself(kernel.measure(x)) - jnp.sum(jnp.square(known), axis=0)
        variance = jnp.maximum(variance, 0.0) + solved.ridge
        scale = jnp.exp(kernel.numbers[6]) * jnp.sqrt(variance) * deviation
        return (solved.mean + deviation * k @ solved.dual)[:, 0], scale

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The cross-entropy of the queries, or the negative log-likelihood of their targets, in
        standard deviations of the support set, under Student's t."""
        if self.ways:
            return super().meta_loss(task, key=key)
        solved = self.solve(task.support)
        centre, scale = self._distribution(solved, task.query.x)
        off = (task.query.y[:, 0] - centre) / scale
        tail = (DEGREES_OF_FREEDOM + 1) / 2 * jnp.log1p(jnp.square(off) / DEGREES_OF_FREEDOM)
        return jnp.mean(tail + jnp.log(scale / solved.deviation))


@dataclass(frozen=True, kw_only=True)
class TablesOptions(Options):
    """Tables: attention over cells chooses the kernel of each task; any columns and classes."""

    width: Size = 32
    """Numbers of a token."""
    depth: Size = 2
    """Layers of attention."""
    heads: Size = 2
    """Heads of attention; they divide the width."""
    vertices: Size = 8
    """Vertices of the meta-knowledge graph, each with a template; one means no graph."""

    def check(self) -> None:
        super().check()
        if self.width % self.heads:
            raise ValueError(
                f"heads must divide the width of {self.width}, got {self.heads}: change one"
            )

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> Tables:
        """The learner. It does not use `net`."""
        if problem.kind == "regression" and problem.outputs != 1:
            raise ValueError(
                f"expected one target for tables, got {problem.outputs}: train a learner for each"
            )
        keys = jax.random.split(key, 9)
        d, v = self.width, self.vertices
        numbers = jnp.asarray(INITIAL_NUMBERS) + 0.1 * jax.random.normal(
            keys[0], (v, len(INITIAL_NUMBERS))
        )
        return Tables(
            embed=linear(8, d, key=keys[1]),
            describe=linear(COLUMN_NUMBERS, d, key=keys[2]),
            code=mlp((COLUMN_NUMBERS, 2 * d, d), key=keys[3]),
            vertices=0.5 * jax.random.normal(keys[4], (v, d)),
            scales=0.1 * jax.random.normal(keys[5], (v, self.depth, 2, d)),
            settings=numbers.astype(jnp.float32),
            layers=tuple(
                layer(d, self.heads, key=k) for k in jax.random.split(keys[6], self.depth)
            ),
            place=linear(d, PLACE_SIZE, key=keys[7]),
            weigh=linear(d, 3, key=keys[8]),
            ways=problem.outputs if problem.kind == "classification" else 0,
            loss=loss_of(problem),
        )


METHODS = (
    Method(
        name="tables",
        title="Tables",
        options_class=TablesOptions,
        paper="arml, after nanoTabPFN (2025) and ARML (ICLR 2020)",
        year=2026,
        inputs=("tables",),
        descends=False,
        exceptions={
            "test_lapack_gets_one_matrix_at_a_time": (
                "a task has one Cholesky factor, and a batch of them has no other to wait for"
            )
        },
    ),
)
