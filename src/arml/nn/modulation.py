"""Modulation: the task's code tailors the shared initialisation, theta_0i = g(code) o theta_0.

`Gate` and `FiLM` act on weights. One dense layer makes the gates of all weights, and `granularity`
defines the weights that share a gate. `UnitModulation` acts on hidden units, before activation.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from arml.core.inner import Shared, adaptable, join, split
from arml.core.learner import Network
from arml.nn.networks import BaseNetwork, Film, Linear, filmed, linear, uniform, widths, with_body

N = TypeVar("N")
"""A base network."""
Shape = tuple[int, ...]
Granularity = Callable[[Shape], Shape]


def each_parameter(shape: Shape) -> Shape:
    """A separate gate for every parameter."""
    return shape


def each_filter(shape: Shape) -> Shape:
    """One gate for each output unit: a filter, or a column of a dense layer (ablation VII)."""
    return shape[-1:]


GRANULARITIES = {"parameter": each_parameter, "filter": each_filter}


def _gates(values: Float[Array, " total"], part: PyTree, granularity: Granularity) -> PyTree:
    """Split a vector into a pytree of gates that broadcast against the arrays of `part`."""
    leaves, structure = jax.tree.flatten(part)
    shapes = [granularity(leaf.shape) for leaf in leaves]
    ends = list(accumulate(map(math.prod, shapes)))
    pieces = zip(jnp.split(values, ends[:-1]), shapes, strict=True)
    return jax.tree.unflatten(structure, [piece.reshape(shape) for piece, shape in pieces])


class Gate(eqx.Module):
    """theta_0i = sigma(W_g code + b_g) o theta_0. Eq. (10); `activation` is sigma."""

    dense: Linear
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jax.nn.sigmoid)
    granularity: Granularity = eqx.field(static=True, default=each_parameter)

    def gates(self, net: PyTree, code: Float[Array, " code"]) -> PyTree:
        """The gates, a pytree like `adaptable(net)`."""
        values = self.activation(self.dense(code))
        return _gates(values, adaptable(net), self.granularity)

    def __call__(self, net: N, code: Float[Array, " code"]) -> N:
        part, rest = split(net)
        gates = self.gates(net, code)
        tailored: N = join(jax.tree.map(jnp.multiply, gates, part), rest)  # Eq. (10)
        return tailored


class FiLM(eqx.Module):
    """theta_0i = (1 + gamma) o theta_0 + beta. Both are linear in the code (Perez et al., 2018).

    It starts near the identity, so the shared initialisation is learned first.
    """

    scale: Linear
    shift: Linear
    granularity: Granularity = eqx.field(static=True, default=each_parameter)

    def __call__(self, net: N, code: Float[Array, " code"]) -> N:
        part, rest = split(net)
        scale = _gates(self.scale(code), part, self.granularity)
        shift = _gates(self.shift(code), part, self.granularity)
        tailored: N = join(jax.tree.map(lambda p, g, b: (1 + g) * p + b, part, scale, shift), rest)
        return tailored


def stacked(
    net: PyTree, code: int, *, granularity: Granularity = each_parameter, key: PRNGKeyArray
) -> Linear:
    """A dense layer from a code of `code` numbers to the gates of all arrays of `net`. The weights
    for each array are drawn separately, because their fan-out differs."""
    leaves = jax.tree.leaves(adaptable(net))
    layers = [
        linear(code, math.prod(granularity(leaf.shape)), key=k)
        for leaf, k in zip(leaves, jax.random.split(key, len(leaves)), strict=True)
    ]
    weight = jnp.concatenate([layer.weight for layer in layers], axis=1)
    return Linear(weight, jnp.concatenate([layer.bias for layer in layers]))


def shrunk(dense: Linear) -> Linear:
    """The layer with weights and biases times 0.01: FiLM then starts near the identity."""
    return Linear(0.01 * dense.weight, 0.01 * dense.bias)


def film(tau: Float[Array, " twice"]) -> Film:
    """The modulation z (1 + gamma) + beta, where gamma and beta are the halves of tau."""
    gamma, beta = jnp.split(tau, 2)
    return Film(Shared(1 + gamma), Shared(beta))


def gate(activation: Callable[[Array], Array]) -> Callable[[Array], Film]:
    """The modulation z activation(tau)."""
    return lambda tau: Film(Shared(activation(tau)), Shared(jnp.zeros_like(tau)))


UNITS = {"sigmoid": gate(jax.nn.sigmoid), "tanh": gate(jnp.tanh), "film": film}
"""Modulations of units by name."""


class UnitModulation(eqx.Module):
    """One linear layer for each block, from the task's code to tau, which modulates its units.

    `scale` multiplies the code. With Adam, an outer step moves tau by up to the outer rate times
    `scale` times the sum of the code's absolute values, even if the gradient is small.
    """

    layers: tuple[Linear, ...]
    modulation: Callable[[Array], Film] = eqx.field(static=True)
    scale: float = eqx.field(static=True, default=1.0)

    @classmethod
    def drawn(
        cls,
        net: Network,
        code: int,
        modulation: Callable[[Array], Film],
        *,
        features: tuple[int, ...],
        scale: float = 1.0,
        key: PRNGKeyArray,
    ) -> "UnitModulation":
        """Layers from a code of `code` numbers to each block's tau. Their weights are small, so all
        units start with nearly the same modulation. `features` is the shape of one input."""
        units = widths(with_body(net, "a modulation of units").body, features)
        each, init = 2 if modulation is film else 1, uniform(code**-0.5)
        pairs = zip(units, jax.random.split(key, len(units)), strict=True)
        layers = tuple(linear(code, each * n, init=init, key=k) for n, k in pairs)
        return cls(layers, modulation, scale)

    def __call__(self, net: BaseNetwork, code: Float[Array, " code"]) -> BaseNetwork:
        films = tuple(self.modulation(layer(self.scale * code)) for layer in self.layers)
        return replace(net, body=filmed(net.body, films))
