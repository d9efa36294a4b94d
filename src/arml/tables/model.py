"""Tables of any width: a network over cells chooses the kernel of each task.

Every cell is a token: its value and its rank, as the support set measures them, and the mean of the
column over other examples with a similar label. Tokens attend over columns, then over rows, where
queries see the support set only [1]. The tokens give a weight for each column and a place for each
row. These and a few numbers of the task make a kernel, and ridge regression with this kernel
predicts. Classes are one-hot vectors, so that their number may be any, and no class has an output
of its own. Numbers have the variance of a Gaussian process. As the ridge grows, the classifier
becomes the nearest class mean. The numbers of a task (mixture of kernels, ridge, temperature) and
the scales inside the layers are blends of templates: a task reads the vertices of a graph of
meta-knowledge, as in ARML [2], and each vertex owns a template.

    K = a_1 sum_c w_c z_c z'_c + a_2 exp(-sum_c v_c (z_c - z'_c)^2 / 2)
      + a_3 exp(-sum_c u_c |r_c - r'_c|) + a_4 exp(-|g - g'|^2 / 2)                      (1)
    f(x) = mean(y) + k(x) (K + l I)^-1 (y - mean(y))                                     (2)

with z the standardised values, r the ranks, w, v, u the columns' weights and g the rows' places.

[1] Pfefferle, Hog, Purucker and Hutter, nanoTabPFN, arXiv 2511.03634.
[2] Yao et al., Automated Relational Meta-learning, ICLR 2020.
[3] Bertinetto, Henriques, Torr and Vedaldi, Meta-learning with Differentiable Closed-form Solvers,
    ICLR 2019: ridge regression as the head.

Differences
- nanoTabPFN has one learned output for each class, so a task has at most as many classes as in its
  training. Here labels enter only by how alike they are: permuting the classes permutes the
  outputs.
- No token attends to a missing cell, and no value of it reaches the kernel: it is at distance one
  from all values, along an axis of its own.
- The tokens of the examples know labels, and those of queries do not. The more rows there are, the
  more exactly the places of the examples tell their labels, until the other kernels are not used.
  So beyond `ROWS` rows, the most that were seen in meta-training, a_4 falls with their square.
- ARML's vertices shape the initialisation of a network; here they shape the kernel.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.algorithms.method import Method
from arml.core.checks import Options, at_least
from arml.core.episodes import Examples, Problem, Task
from arml.core.learner import Adapted, Loss, MetaLearner, Network, Spread
from arml.core.losses import loss_of
from arml.nn.attention import Layer, Tokens, layer, standard
from arml.nn.cells import (
    DESCRIBED,
    Cells,
    alike_classes,
    alike_numbers,
    count_of,
    described,
    expected,
    mean_of,
    measure,
    one_target,
    standard_targets,
)
from arml.nn.kernels import Places, Read, Solved, mixture
from arml.nn.networks import MLP, Linear, linear, mlp
from arml.nn.prototypes import among

PLACE = 16
"""Dimension of a row's place."""
ROWS = 40
"""Examples beyond which the places count less."""
NUMBERS = (1.0, 0.5, 0.5, 0.0, -1.5, 1.5, 0.0)
"""Initial numbers of a task: four shares of kernels, log ridge, log temperature, log noise."""
FREEDOM = 4
"""Degrees of freedom of the predictive distribution of a number: Student's t."""


class Tables(MetaLearner):
    """Reads the cells of a support set, makes a kernel of them, and solves a ridge regression."""

    embed: Linear
    """From the numbers of a cell to its token."""
    describe: Linear
    """From the description of a column to a part of its tokens."""
    code: MLP
    """From the description of a column to a code; the mean code is the task's."""
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

    def reads(self, support: Examples) -> Float[Array, " vertices"]:
        """How much the task of a support set reads each vertex; the sum is one."""
        return self.read(support).reading

    def read(self, support: Examples) -> Read:
        """The kernel of a task, made from its support set."""
        by = measure(support.x)
        cells = by(support.x)
        label = support.y
        if not self.ways:
            label = standard_targets(support.y[:, 0], cells.rows)[0]
        alike = (alike_classes if self.ways else alike_numbers)(label, cells.rows)
        columns = described(cells, alike, self._classes(support.y, cells))
        known = jnp.any(cells.there, axis=0)
        code = mean_of(self.code(columns), known)  # the task, as its columns describe it
        reading = jax.nn.softmax(-jnp.sum(jnp.square(code - self.vertices), axis=1) / 2)
        films = jnp.einsum("v,vlfd->lfd", reading, self.scales)
        h = self._tokens(cells, columns, alike, label)
        remembered = []
        for one, film in zip(self.layers, films, strict=True):
            h, own = one(h, cells.there, film, alike=alike)
            remembered.append(own)
        tokens = standard(mean_of(h, cells.there[..., None]))
        weights = jnp.where(known, jnp.exp(self.weigh(tokens).T), 0.0) / count_of(known)
        places, numbers = self._places(h, cells), reading @ self.settings
        many = jnp.maximum(jnp.sum(cells.rows) / ROWS, 1.0)
        numbers = numbers.at[3].add(-2 * jnp.log(many))
        return Read(reading, by, cells, columns, films, remembered, places, weights, numbers)

    def _classes(self, y: Array, cells: Cells) -> Float[Array, ""]:
        """How many classes the task has; 1 for regression."""
        if not self.ways:
            return jnp.ones(())
        there = jnp.zeros(self.ways, bool).at[y].max(cells.rows)
        return jnp.maximum(jnp.sum(there), 1).astype(jnp.float32)

    def _tokens(
        self,
        cells: Cells,
        columns: Float[Array, "columns described"],
        alike: Float[Array, "n n"] | None = None,
        label: Array | None = None,
    ) -> Tokens:
        score, rank, there, kind = cells
        like = [jnp.zeros_like(score)] * 3
        if alike is not None and label is not None:
            number = jnp.zeros_like(score) if self.ways else label[:, None] + 0 * score
            like = [expected(score, there, alike), expected(rank, there, alike), number]
        support = jnp.full_like(score, alike is not None)
        each = jnp.stack([score, rank, jnp.abs(score), kind, support, *like], axis=-1)
        return jnp.where(there[..., None], self.embed(each) + self.describe(columns), 0.0)

    def _places(self, h: Tokens, cells: Cells) -> Places:
        return self.place(standard(mean_of(h.swapaxes(0, 1), cells.there.T[..., None])))

    def kernel(self, read: Read, cells: Cells, places: Places) -> Float[Array, "rows n"]:
        """K between rows and the support set. Eq. (1)."""
        shares = jax.nn.softmax(read.numbers[:4])
        return mixture(shares, read.weights, (cells, places), (read.cells, read.places))

    def solve(self, support: Examples) -> Solved:
        """Learn ONE task: its kernel, and the ridge regression in it."""
        read = self.read(support)
        rows = read.cells.rows
        own = jnp.where(rows[:, None] & rows, self.kernel(read, read.cells, read.places), 0.0)
        ridge = jnp.exp(read.numbers[4]) + 1e-3
        factor = jnp.linalg.cholesky(own + ridge * jnp.eye(len(own), dtype=own.dtype))
        if self.ways:
            labels = jnp.where(rows[:, None], jax.nn.one_hot(support.y, self.ways), 0.0)
            mean = jnp.sum(labels, axis=0) / count_of(rows)
            off, deviation = jnp.where(rows[:, None], labels - mean, 0.0), jnp.ones(())
        else:
            target, middle, deviation = standard_targets(support.y[:, 0], rows)
            off, mean = target[:, None], middle[None]
        dual = jax.scipy.linalg.cho_solve((factor, True), off)  # Eq. (2)

        def seen(x: Array) -> tuple[Cells, Array]:
            cells = read.measure(x)
            h = self._tokens(cells, read.columns)
            for one, film, kept in zip(self.layers, read.films, read.remembered, strict=True):
                h, _ = one(h, cells.there, film, support=kept)
            return cells, self._places(h, cells)

        def similar(x: Array) -> Float[Array, "rows n"]:
            return jnp.where(rows, self.kernel(read, *seen(x)), 0.0)

        def itself(x: Array) -> Float[Array, " rows"]:
            shares = jax.nn.softmax(read.numbers[:4])
            return shares[0] * jnp.square(read.measure(x).score) @ read.weights[0] + 1 - shares[0]

        return Solved(similar, itself, factor, ridge, dual, mean, deviation, read.numbers)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        solved = self.solve(support)
        if not self.ways:
            return Adapted(
                lambda x: solved.mean + solved.deviation * solved.similar(x) @ solved.dual
            )
        sharpness, prior = jnp.exp(solved.numbers[5]), solved.numbers[6]

        def logits(x: Array) -> Float[Array, "rows ways"]:
            shares = prior * jnp.log(jnp.maximum(solved.mean, 1e-6))
            return among(solved.mean > 0, sharpness * solved.similar(x) @ solved.dual + shares)

        return Adapted(logits)

    def spread(self, support: Examples) -> Spread | None:
        if self.ways:
            return None

        solved = self.solve(support)

        def predict(x: Array) -> tuple[Array, Array]:
            k = solved.similar(x)
            known = jax.scipy.linalg.solve_triangular(solved.factor, k.T, lower=True)
            variance = solved.itself(x) - jnp.sum(jnp.square(known), axis=0)
            variance = jnp.maximum(variance, 0.0) + solved.ridge
            scale = jnp.exp(solved.numbers[6]) * jnp.sqrt(variance) * solved.deviation
            return (solved.mean + solved.deviation * k @ solved.dual)[:, 0], scale

        return predict

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The cross-entropy of the queries, or the negative log-likelihood of their targets, in
        standard deviations of the support set, under Student's t."""
        predict = self.spread(task.support)
        if predict is None:
            return super().meta_loss(task, key=key)
        centre, scale = predict(task.query.x)
        off = (task.query.y[:, 0] - centre) / scale
        rows = measure(task.support.x)(task.support.x).rows
        unit = standard_targets(task.support.y[:, 0], rows)[2]
        tail = (FREEDOM + 1) / 2 * jnp.log1p(jnp.square(off) / FREEDOM)
        return jnp.mean(tail + jnp.log(scale / unit))


@dataclass(frozen=True, kw_only=True)
class TablesOptions(Options):
    """Tables: attention over cells chooses the kernel of each task; any columns, classes."""

    width: int = 32
    """Numbers of a token."""
    depth: int = 2
    """Layers of attention."""
    heads: int = 2
    """Heads of attention; they divide the width."""
    vertices: int = 8
    """Vertices of the meta-knowledge graph, each with a template; one for no graph."""

    def check(self) -> None:
        """Raise `ValueError` if an option is out of range."""
        at_least(self, ("width", "depth", "heads", "vertices"), 1)
        if self.width % self.heads:
            raise ValueError(
                f"heads must divide the width of {self.width}, got {self.heads}: change one"
            )

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> Tables:
        """The learner; it uses nothing of `net`."""
        one_target(problem)
        keys = jax.random.split(key, 9)
        d, v = self.width, self.vertices
        numbers = jnp.asarray(NUMBERS) + 0.1 * jax.random.normal(keys[0], (v, len(NUMBERS)))
        return Tables(
            embed=linear(8, d, key=keys[1]),
            describe=linear(DESCRIBED, d, key=keys[2]),
            code=mlp((DESCRIBED, 2 * d, d), key=keys[3]),
            vertices=0.5 * jax.random.normal(keys[4], (v, d)),
            scales=0.1 * jax.random.normal(keys[5], (v, self.depth, 2, d)),
            settings=numbers.astype(jnp.float32),
            layers=tuple(
                layer(d, self.heads, key=k) for k in jax.random.split(keys[6], self.depth)
            ),
            place=linear(d, PLACE, key=keys[7]),
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
        inputs=(2,),
        descends=False,
        exceptions={
            "test_lapack_gets_one_matrix_at_a_time": (
                "a task has one Cholesky factor, and a batch of them has no other to wait for"
            )
        },
    ),
)
