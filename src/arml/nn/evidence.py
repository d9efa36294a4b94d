"""Reading by evidence: a task reads the vertices of the meta-knowledge graph by how well the
network of each explains its examples.

Where a prototype lies is learned, and says little until it is. If the head of the network is
Bayesian (`arml.nn.heads.RidgeHead`), the probability of a support set under a vertex's network is
known in closed form, before any step of learning. By Bayes' rule

    a_v = p_v p(y | x, theta_v)^rho / sum_u p_u p(y | x, theta_u)^rho,

where the prior p_v is the reading by places (Eq. 6 of ARML's paper), theta_v is what the vertex
makes of the shared initialisation, and rho is learned. Gradients pass through a_v.

[1] Harrison, Sharma and Pavone, Meta-learning Priors for Efficient Online Bayesian Regression,
    WAFR 2018: the head, and its evidence as a measure of fit.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from arml.core.episodes import Examples
from arml.core.learner import Code, Conditioned

NEVER = 1e-9
"""Added to the reading by places, so that its logarithm is finite."""


class Evidence(eqx.Module):
    """Replaces the reading in a code by the reading by evidence. The vertices own layers
    (`arml.nn.templates.OwnLayers`), and the head is a `RidgeHead`."""

    log_noise: Float[Array, ""]
    """Logarithm of the variance of the noise."""
    log_power: Float[Array, ""]
    """Logarithm of rho. Below one, an unsure network does not commit itself to one vertex."""

    def __call__(self, learner: Conditioned, support: Examples, code: Code) -> Code:
        modulate: PyTree = learner.modulate
        head: PyTree = learner.head
        placed, own = modulate.parts(code)

        def explained(net: PyTree) -> Float[Array, ""]:
            return head.log_evidence(net, support, self.log_noise)

        each = modulate.for_each(learner.net, own, explained)
        exponents = jnp.log(placed + NEVER) + jnp.exp(self.log_power) * each
        return jnp.concatenate([jax.nn.softmax(exponents), own])


def evidence() -> Evidence:
    """With noise of 1, and a power below one, so that at first all vertices are read."""
    return Evidence(jnp.zeros((), jnp.float32), jnp.full((), -1.0, jnp.float32))


def check_evidence(options: Any, *, gates: Sequence[str]) -> None:
    """Raise `ValueError` in one line if the options of a learner leave no evidence to read by: the
    gate is none of `gates`, the head is not ridge, or vertices were grown."""
    for name, allowed in (("gate", gates), ("head", ("ridge",)), ("grown", (0,))):
        if (value := getattr(options, name)) not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise ValueError(
                f"read_by evidence needs {name} {wanted}, got {value}: change it, or read by place"
            )
