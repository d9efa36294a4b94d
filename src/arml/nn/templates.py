"""Templates: every vertex of the meta-knowledge graph owns a modulation of the base network. A task
blends them by how much it reads each vertex.

h <- h (1 + sum_v a_v Gamma_v) + sum_v a_v B_v after each normalisation, where a is the task's
reading (the mean over its prototypes of Eq. 6). A vertex has one number of Gamma and one of B for
each unit. All start at zero, so at first the base network is not modulated.

The idea is from FLUTE [1], whose templates belong to named data sets. Here they belong to vertices,
and families need no names.

[1] Triantafillou, Larochelle, Zemel and Dumoulin, Learning a Universal Template for Few-shot
    Dataset Generalization, ICML 2021.
"""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from arml.core.episodes import Examples
from arml.core.inner import Shared
from arml.core.learner import Code, Conditioned, Network
from arml.nn.modulation import film
from arml.nn.networks import BaseNetwork, Film, filmed, uniform, widths, with_body


class Templates(eqx.Module):
    """Gamma and B, `[vertices, units]` for each block."""

    scales: tuple[Float[Array, "vertices _"], ...]
    shifts: tuple[Float[Array, "vertices _"], ...]

    def __call__(self, net: BaseNetwork, reading: Float[Array, " vertices"]) -> BaseNetwork:
        films = tuple(
            Film(Shared(1 + reading @ scale), Shared(reading @ shift))
            for scale, shift in zip(self.scales, self.shifts, strict=True)
        )
        return replace(net, body=filmed(net.body, films))


def templates(net: Network, vertices: int, *, features: tuple[int, ...]) -> Templates:
    """The templates of `vertices` vertices for the blocks of `net`, all zero; `features` is the
    shape of one input."""
    body = with_body(net, "a modulation by templates").body
    zeros = tuple(jnp.zeros((vertices, n), jnp.float32) for n in widths(body, features))
    return Templates(zeros, zeros)


class OwnLayers(eqx.Module):
    """Each vertex owns a linear layer for each block, from the task's own code to FiLM. A task
    blends the layers as it does templates: tau = sum_v a_v (W_v code + b_v) scales and shifts.

    Its input is the reading a, followed by the task's own code. With `offsets` a vertex also owns a
    shift of every weight of the network, theta + sum_v a_v D_v: a mixture of initialisations, as in
    [2], in one graph.

    [2] Jerfel, Grant, Griffiths and Heller, Reconciling Meta-learning and Continual Learning with
        Online Mixtures of Tasks, NeurIPS 2019.
    """

    weights: tuple[Float[Array, "vertices d _"], ...]
    biases: tuple[Float[Array, "vertices _"], ...]
    offsets: PyTree = None
    """Arrays like the network's weights, with a first axis of vertices; zero at first. Or None."""

    def __call__(self, net: BaseNetwork, code: Float[Array, " both"]) -> BaseNetwork:
        reading, own = self.parts(code)
        taus = tuple(reading @ each for each in self._taus(own))
        return _made(net, taus, jax.tree.map(lambda a: jnp.tensordot(reading, a, 1), self.offsets))

    def parts(
        self, code: Float[Array, " both"]
    ) -> tuple[Float[Array, " vertices"], Float[Array, " d"]]:
        """The reading, and the task's own code."""
        reading, own = jnp.split(code, [len(self.biases[0])])
        return reading, own

    def for_each(
        self, net: BaseNetwork, own: Float[Array, " d"], function: Callable[[BaseNetwork], Array]
    ) -> Float[Array, "vertices ..."]:
        """The values of a function of the network that each vertex makes alone."""

        def of(taus: tuple[Array, ...], offsets: PyTree) -> Array:
            return function(_made(net, taus, offsets))

        return jax.vmap(of)(self._taus(own), self.offsets)

    def _taus(self, own: Float[Array, " d"]) -> tuple[Float[Array, "vertices _"], ...]:
        return tuple(
            jnp.einsum("d,vdu->vu", own, weight) + bias
            for weight, bias in zip(self.weights, self.biases, strict=True)
        )


def _made(net: BaseNetwork, taus: tuple[Float[Array, " _"], ...], offsets: PyTree) -> BaseNetwork:
    """The network with these offsets, if there are any, and with a FiLM of each block."""
    net = eqx.apply_updates(net, offsets)
    return replace(net, body=filmed(net.body, map(film, taus)))


def own_layers(
    net: Network,
    vertices: int,
    code: int,
    *,
    features: tuple[int, ...],
    offsets: bool = False,
    key: PRNGKeyArray,
) -> OwnLayers:
    """The layers of `vertices` vertices from a code of `code` numbers, with small weights as in
    `unit_modulation`."""
    units = [2 * n for n in widths(with_body(net, "a modulation by layers").body, features)]
    init, keys = uniform(code**-0.5), jax.random.split(key, len(units))
    weights = [init(k, (vertices, code, n), jnp.float32) for k, n in zip(keys, units, strict=True)]
    biases = tuple(jnp.zeros((vertices, n), jnp.float32) for n in units)
    zeros = jax.tree.map(
        lambda a: jnp.zeros((vertices, *a.shape), a.dtype), eqx.filter(net, eqx.is_inexact_array)
    )
    return OwnLayers(tuple(weights), biases, zeros if offsets else None)


class BestFit(eqx.Module):
    """A task reads ONE of the grown vertices, or all others by their places. It takes the choice
    whose adapted network explains its support set best, as in a mixture of initialisations [2]. The
    grown vertices are the last ones.

    The place of a vertex tells families apart only if their prototypes differ. How well its network
    fits the support set tells more, and costs some adaptations for each vertex. In regression the
    misfit is the product of two errors: of all examples after adaptation to all, and of the
    examples of each fold after adaptation to the others, because a flexible network fits any
    examples that it adapts to. `handicaps` are added to the logarithms of the grown vertices'
    misfits.
    """

    handicaps: Float[Array, " grown"]

    @property
    def grown(self) -> int:
        """How many vertices were grown."""
        return len(self.handicaps)

    def readings(self, placed: Float[Array, " vertices"]) -> Float[Array, "choices vertices"]:
        """The readings from which a task chooses."""
        count = len(placed)
        old = count - self.grown
        ones = jnp.eye(count, dtype=placed.dtype)[old:]
        if not old:
            return ones
        by_place = jnp.where(jnp.arange(count) < old, placed, 0)
        return jnp.concatenate([(by_place / (jnp.sum(by_place) + 1e-30))[None], ones])

    def misfits(
        self, learner: Conditioned, support: Examples, code: Code
    ) -> tuple[Float[Array, "choices vertices"], Float[Array, " choices"]]:
        """The readings, and the logarithm of how badly each explains the support set."""
        still: Conditioned = jax.tree.map(
            lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, learner
        )
        count = len(jax.tree.leaves(learner.modulate)[0])
        readings = self.readings(jax.lax.stop_gradient(code[:count]))
        n = len(support.x)
        parts = next((k for k in (5, 4, 3, 2) if n % k == 0), 1)
        folds = jnp.arange(n).reshape(-1, parts).T

        def error(reading: Array, given: Examples, asked: Examples) -> Float[Array, ""]:
            own = still.encode(still.look(still.net, given))[0][count:]
            adapted = still.adapt_from(jnp.concatenate([reading, own]), 0.0, given)
            return jnp.maximum(learner.loss(adapted.predict(asked.x), asked.y), 1e-12)

        def misfit(reading: Float[Array, " vertices"]) -> Float[Array, ""]:
            whole = jnp.log(error(reading, support, support))
            if jnp.issubdtype(support.y.dtype, jnp.integer) or parts == 1:
                return whole

            def left_out(i: Array) -> Float[Array, ""]:
                others = jnp.delete(folds, i, axis=0, assume_unique_indices=True).reshape(-1)
                given, asked = (Examples(support.x[r], support.y[r]) for r in (others, folds[i]))
                return error(reading, given, asked)

            return whole + jnp.log(jnp.mean(jax.vmap(left_out)(jnp.arange(parts))))

        found = jax.vmap(misfit)(readings)
        return readings, found + jnp.zeros_like(found).at[-self.grown :].set(self.handicaps)

    def __call__(self, learner: Conditioned, support: Examples, code: Code) -> Code:
        readings, misfits = self.misfits(learner, support, code)
        return jnp.concatenate([readings[jnp.argmin(misfits)], code[readings.shape[1] :]])


def best_fit(grown: int) -> BestFit | None:
    """For `grown` vertices without handicaps; None if none was grown."""
    return BestFit(jnp.zeros(grown, jnp.float32)) if grown else None


def without_vertex(learner: Conditioned, vertex: int) -> Conditioned:
    """The learner without one vertex and its templates."""
    graph: PyTree = learner.encode

    def cut(rows: Array) -> Array:
        return jnp.delete(rows, vertex, axis=0)

    count, choose = len(graph.graph.vertices), learner.choose
    if isinstance(choose, BestFit) and vertex >= count - choose.grown:
        left = jnp.delete(choose.handicaps, vertex - (count - choose.grown))
        choose = BestFit(left) if len(left) else None
    fewer = eqx.tree_at(
        lambda m: (m.encode.graph.vertices, m.modulate),
        learner,
        (cut(graph.graph.vertices), jax.tree.map(cut, learner.modulate)),
    )
    return replace(fewer, choose=choose)
