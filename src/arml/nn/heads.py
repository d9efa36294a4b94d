"""Heads made from a task's prototypes: a classifier that chooses the nearest class mean.

-s |f - c_k|^2 = 2 s c_k . f - s |c_k|^2 - s |f|^2, and the last term is the same for every class.
So a head with weights w_k = 2 s c_k and biases b_k = -s |c_k|^2 predicts as ProtoNet does before
the first inner step. A head that all tasks share knows nothing of the classes there.

With Mahalanobis distances (`arml.nn.covariance`) the head is quadratic in the features, and is
meant for learners without inner steps.

[1] Triantafillou et al., Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few
    Examples, ICLR 2020, section 3 (Proto-MAML).
"""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from arml.core.episodes import Examples
from arml.nn.covariance import covariances, inverses, mahalanobis
from arml.nn.networks import BaseNetwork, Linear
from arml.nn.prototypes import ABSENT, among, class_means


class PrototypeHead(eqx.Module):
    """Gives a network a head made from its features of the support set."""

    scale: float | Float[Array, ""]
    """s: a float is a constant, an array is learned."""
    ways: int = eqx.field(static=True)

    def __call__(self, net: BaseNetwork, support: Examples) -> BaseNetwork:
        means, present = class_means(net.body(support.x), support.y, self.ways)
        biases = -self.scale * jnp.sum(jnp.square(means), axis=1)
        head = Linear(2 * self.scale * means.T, jnp.where(present, biases, ABSENT))
        return replace(net, head=head)


class Quadratic(eqx.Module):
    """logits_k = -s (f - c_k)^T Q_k^-1 (f - c_k)."""

    scale: float | Float[Array, ""]
    """s."""
    means: Float[Array, "ways d"]
    """c_k."""
    precisions: Float[Array, "ways d d"]
    """Q_k^-1."""
    present: Bool[Array, " ways"]
    """Whether the task has examples of a class."""

    def __call__(self, features: Float[Array, "n d"]) -> Float[Array, "n ways"]:
        distances = mahalanobis(features, self.means, self.precisions)
        return among(self.present, -self.scale * distances)


def quadratic(
    scale: float | Array, features: Float[Array, "n d"], y: Int[Array, " n"], ways: int
) -> Quadratic:
    """The head that compares features with the class means of a support set."""
    means, present = class_means(features, y, ways)
    return Quadratic(scale, means, inverses(covariances(features, y, ways)), present)


class MahalanobisHead(eqx.Module):
    """Gives a network the quadratic head of its features of the support set."""

    scale: float | Float[Array, ""]
    """s: a float is a constant, an array is learned."""
    ways: int = eqx.field(static=True)

    def __call__(self, net: BaseNetwork, support: Examples) -> BaseNetwork:
        return replace(net, head=quadratic(self.scale, net.body(support.x), support.y, self.ways))


EXCEPTIONS = {
    "test_adaptation_lowers_the_support_loss": (
        "at one shot the prototypes are the examples, and the support loss starts at rounding"
    )
}
"""Exceptions from the contract tests, for methods whose head starts from prototypes."""


def to_be_made(features: Float[Array, "*n units"]) -> Float[Array, "*n outputs"]:
    """Stands for a head that each task makes."""
    raise AssertionError("a network without a head predicts nothing")


def headless(net: BaseNetwork) -> BaseNetwork:
    """The network without its head: a task's prototypes will make one, so no head is learned."""
    return replace(net, head=to_be_made)


def prototype_head(scale: float, ways: int) -> PrototypeHead:
    """The head with a learned scale, which starts at `scale`."""
    return PrototypeHead(jnp.asarray(scale, jnp.float32), ways)


def mahalanobis_head(scale: float, ways: int) -> MahalanobisHead:
    """The quadratic head with a learned scale, which starts at `scale`."""
    return MahalanobisHead(jnp.asarray(scale, jnp.float32), ways)
