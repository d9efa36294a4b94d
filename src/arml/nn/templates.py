"""Templates: every vertex of the meta-knowledge graph owns a modulation of the base network, and a
task blends them by how much it reads each vertex.

h <- h (1 + sum_v a_v Gamma_v) + sum_v a_v B_v after each normalisation, with a the task's reading
(the mean over its prototypes of Eq. 6); a vertex has one number of Gamma and one of B for each
unit. All start at zero: the base network is as it is until the templates have learned something.

The idea is that of FLUTE [1], whose templates belong to named data sets. Here they belong to
vertices, and nobody names the families.

[1] Triantafillou, Larochelle, Zemel and Dumoulin, Learning a Universal Template for Few-shot
    Dataset Generalization, ICML 2021.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.inner import Shared
from arml.core.learner import Network
from arml.nn.modulation import film
from arml.nn.networks import BaseNetwork, Film, uniform
from arml.nn.parts import filmed, widths, with_body


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
    """Each vertex owns a linear layer for each block, from the task's own code to FiLM. The layers
    are blended as templates are: tau = sum_v a_v (W_v code + b_v), and tau scales and shifts.

    Its input is the reading a, followed by the task's own code.
    """

    weights: tuple[Float[Array, "vertices d _"], ...]
    biases: tuple[Float[Array, "vertices _"], ...]

    def __call__(self, net: BaseNetwork, code: Float[Array, " both"]) -> BaseNetwork:
        reading, own = jnp.split(code, [len(self.biases[0])])
        films = tuple(
            film(jnp.einsum("v,d,vdu->u", reading, own, weight) + reading @ bias)
            for weight, bias in zip(self.weights, self.biases, strict=True)
        )
        return replace(net, body=filmed(net.body, films))


def own_layers(
    net: Network, vertices: int, code: int, *, features: tuple[int, ...], key: PRNGKeyArray
) -> OwnLayers:
    """The layers of `vertices` vertices from a code of `code` numbers; small, as those of
    `unit_modulation`."""
    units = [2 * n for n in widths(with_body(net, "a modulation by layers").body, features)]
    init, keys = uniform(code**-0.5), jax.random.split(key, len(units))
    weights = [init(k, (vertices, code, n), jnp.float32) for k, n in zip(keys, units, strict=True)]
    biases = tuple(jnp.zeros((vertices, n), jnp.float32) for n in units)
    return OwnLayers(tuple(weights), biases)
