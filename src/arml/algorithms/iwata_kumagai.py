"""Meta-learning from tasks with heterogeneous attribute spaces: each column, label and row has a
vector. Means over sets infer each kind of vector from the others, so that a task may have any
number of columns, labels and rows.

    v_i = g(mean_n f(x_ni)),  c_j = g(mean_n f(y_nj))                                       (1)
    u_n = g(mean_i f[v_i, x_ni] + mean_j f[c_j, y_nj])                                      (2)
    v_i <- g(mean_n f[u_n, x_ni]),  c_j <- g(mean_n f[u_n, y_nj])                           (3)
    z(x) = g(mean_i f[v_i, x_i])                                                            (4)

with other networks f and g in each place.

[1] Iwata and Kumagai, Meta-learning from Tasks with Heterogeneous Attribute Spaces, NeurIPS 2020.

Differences
- The distance of z to the class means of the support set tells classes apart, with a learned scale;
  then c_j is not inferred a second time. In regression a network predicts from z and c.
- Values are the cells as `arml.nn.cells` measures them; every mean leaves out missing cells.
- The equations are numbered for this file.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from arml.algorithms.method import Method
from arml.core.checks import Options, at_least
from arml.core.episodes import Examples, Problem
from arml.core.learner import Adapted, Loss, MetaLearner, Network
from arml.core.losses import loss_of
from arml.nn.cells import Cells, mean_of, measure, one_target, standard_targets
from arml.nn.networks import MLP, mlp
from arml.nn.prototypes import among, class_means, squared_distances


class SetNetwork(eqx.Module):
    """g(mean f): maps a set of vectors to one."""

    inside: MLP
    outside: MLP

    def each(self, x: Float[Array, "n m inputs"], there: Bool[Array, "n m"]) -> Float[Array, "n d"]:
        """The mean of f over the entries of the second axis that are `there`, before g."""
        return jax.vmap(mean_of)(self.inside(x), there)

    def __call__(
        self, x: Float[Array, "n m inputs"], there: Bool[Array, "n m"]
    ) -> Float[Array, "n d"]:
        return self.outside(self.each(x, there))


class IwataKumagai(MetaLearner):
    """Infers vectors of columns, labels and rows, and predicts with those of the columns."""

    columns: SetNetwork
    labels: SetNetwork
    rows: SetNetwork
    row_labels: MLP
    refined: SetNetwork
    place: SetNetwork
    scale: Float[Array, ""] | None
    """Log of the distances' scale; None for regression."""
    refined_labels: SetNetwork | None
    answer: MLP | None
    """From z and c to a number; None for classification."""
    ways: int = eqx.field(static=True)
    """Classes; 0 for regression."""
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        by = measure(support.x)
        cells = by(support.x)
        there, rows = cells.there, cells.rows
        if self.ways:
            y = jnp.where(rows[:, None], jax.nn.one_hot(support.y, self.ways), 0.0)
            known = jnp.any(y > 0, axis=0)
            mean, deviation = jnp.zeros(()), jnp.ones(())
        else:
            y, mean, deviation = standard_targets(support.y[:, 0], rows)
            y, known = y[:, None], jnp.ones(1, bool)
        x = _numbers(cells)
        every = known[:, None] & rows
        v = self.columns(x.swapaxes(0, 1), there.T)  # Eq. (1)
        c = self.labels(y.T[..., None], every)  # Eq. (1)
        of_cells = self.rows.each(_beside(v[None], x), there)
        of_labels = self.row_labels(_beside(c[None], y[..., None]))
        count = jnp.maximum(jnp.sum(known), 1).astype(x.dtype)
        of_labels = jnp.sum(jnp.where(known[:, None], of_labels, 0.0), axis=1) / count
        u = self.rows.outside(of_cells + of_labels)  # Eq. (2)
        v = self.refined(_beside(u[None], x.swapaxes(0, 1)), there.T)  # Eq. (3)

        def place(cells: Cells) -> Float[Array, "rows d"]:
            return self.place(_beside(v[None], _numbers(cells)), cells.there)  # Eq. (4)

        if self.scale is not None:
            features = place(cells)
            scale = jnp.exp(self.scale)
            # A row without cells is not an example of any class.
            means, present = class_means(features, jnp.where(rows, support.y, -1), self.ways)
            return Adapted(
                lambda q: among(present, -scale * squared_distances(place(by(q)), means))
            )
        assert self.refined_labels is not None
        answer = self.answer
        assert answer is not None
        c = self.refined_labels(_beside(u[None], y.T[..., None]), every)  # Eq. (3)
        return Adapted(lambda q: mean + deviation * answer(_beside(c, place(by(q)))))


def _numbers(cells: Cells) -> Float[Array, "rows columns 3"]:
    return jnp.stack([cells.score, cells.rank, cells.kind], axis=-1)


def _beside(a: Array, b: Array) -> Array:
    """Both, one after the other, in the last axis."""
    shape = jnp.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    return jnp.concatenate([jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (a, b)], axis=-1)


@dataclass(frozen=True, kw_only=True)
class IwataKumagaiOptions(Options):
    """Iwata-Kumagai: vectors of columns, labels and rows, inferred from each other."""

    width: int = 32
    """Numbers of a vector, and units of the networks."""

    def check(self) -> None:
        """Raise `ValueError` if an option is out of range."""
        at_least(self, ("width",), 1)

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> IwataKumagai:
        """The learner; it uses nothing of `net`."""
        one_target(problem)
        keys = iter(jax.random.split(key, 16))
        d = self.width

        def sets(inputs: int) -> SetNetwork:
            return SetNetwork(mlp((inputs, d, d), key=next(keys)), mlp((d, d, d), key=next(keys)))

        classes = problem.kind == "classification"
        return IwataKumagai(
            columns=sets(3),
            labels=sets(1),
            rows=sets(d + 3),
            row_labels=mlp((d + 1, d, d), key=next(keys)),
            refined=sets(d + 3),
            place=sets(d + 3),
            scale=jnp.zeros(()) if classes else None,
            refined_labels=None if classes else sets(d + 1),
            answer=None if classes else mlp((2 * d, d, 1), key=next(keys)),
            ways=problem.outputs if classes else 0,
            loss=loss_of(problem),
        )


METHODS = (
    Method(
        name="iwata-kumagai",
        title="Iwata-Kumagai",
        options_class=IwataKumagaiOptions,
        paper="Iwata and Kumagai, NeurIPS 2020",
        inputs=(2,),
        descends=False,
    ),
)
