"""Reading by evidence: a task reads the vertices of the meta-knowledge graph by how well the
network of each explains its examples.

The places of prototypes are learned, and tell little early in training. If the head of the network
is Bayesian (`arml.nn.heads.RidgeHead`), the probability of a support set under a vertex's network
is known in closed form, before any step of learning. By Bayes' rule

    a_v = p_v p(y | x, theta_v)^rho / sum_u p_u p(y | x, theta_u)^rho,

where the prior p_v is the reading by places (Eq. 6 of ARML's paper), theta_v is the shared
initialisation with the modulation of vertex v, and rho is learned. Gradients pass through a_v.

Differences from Bayes' rule: the task's own code, and so p_v and theta_v, depend on the same y,
which counts the examples twice; a learned rho can make up for it. A task blends the weights of the
networks, where a mixture would blend their predictions.

[1] Harrison, Sharma and Pavone, Meta-learning Priors for Efficient Online Bayesian Regression,
    WAFR 2018: the head, and its evidence as a measure of fit.
"""

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
    """Logarithm of a variance that weighs the misfit against the volume. The query loss trains it,
    so it is no estimate of the noise."""
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
