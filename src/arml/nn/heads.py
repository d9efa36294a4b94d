"""Heads made from a task's examples: a classifier that chooses the nearest class mean, and ridge
regression.

-s |f - c_k|^2 = 2 s c_k . f - s |c_k|^2 - s |f|^2, and the last term is the same for every class.
So a head with weights w_k = 2 s c_k and biases b_k = -s |c_k|^2 predicts as ProtoNet does before
the first inner step. A head that all tasks share knows nothing of the classes there.

With Mahalanobis distances (`arml.nn.covariance`) the head is quadratic in the features, and is
meant for learners without inner steps. With one covariance W for all classes, the pooled one within
classes, the distances (f - c_k)^T (W + I)^-1 (f - c_k) give a linear head again: regularised linear
discriminant analysis with equal priors [4].

[1] Triantafillou et al., Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few
    Examples, ICLR 2020, section 3 (Proto-MAML).
[2] Bertinetto, Henriques, Torr and Vedaldi, Meta-learning with Differentiable Closed-form Solvers,
    ICLR 2019 (R2-D2).
[3] Harrison, Sharma and Pavone, Meta-learning Priors for Efficient Online Bayesian Regression,
    WAFR 2018 (ALPaCA).
[4] Friedman, Regularized Discriminant Analysis, Journal of the American Statistical Association,
    1989.
"""

import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from arml.core.episodes import Examples
from arml.nn.covariance import Precisions, mahalanobis, precisions, shrunk, solved
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
    precisions: Precisions
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
    return Quadratic(scale, means, precisions(features, y, ways), present)


def discriminant(
    scale: float | Array, features: Float[Array, "n d"], y: Int[Array, " n"], ways: int
) -> Linear:
    """The linear head that a support set gives: -s (f - c_k)^T (W + I)^-1 (f - c_k), without the
    term that all classes share. W divides by the examples less the classes; at one shot it is 0."""
    means, present = class_means(features, y, ways)
    # A product, and not means[y], which ONNX files have no operator for.
    own = jax.nn.one_hot(y, ways, dtype=features.dtype) @ means
    free = len(features) - jnp.sum(present, dtype=features.dtype)
    spread = (features - own) / jnp.sqrt(jnp.maximum(free, 1))  # W = A^T A
    centre = jnp.mean(features, axis=0)
    away = means - centre
    directions = shrunk(spread, away)
    biases = -scale * jnp.sum((away + 2 * centre) * directions, axis=1)
    return Linear(2 * scale * directions.T, jnp.where(present, biases, ABSENT))


class MahalanobisHead(eqx.Module):
    """Gives a network the quadratic head of its features of the support set."""

    scale: float | Float[Array, ""]
    """s: a float is a constant, an array is learned."""
    ways: int = eqx.field(static=True)

    def __call__(self, net: BaseNetwork, support: Examples) -> BaseNetwork:
        return replace(net, head=quadratic(self.scale, net.body(support.x), support.y, self.ways))


class RidgeHead(eqx.Module):
    """Gives a network the head that ridge regression finds on its features of the support set [2].

    It is the mean of the posterior of a Bayesian head [3]. The head that all tasks share, W_0, is
    the mean of the prior; each unit has a variance of its own, in units of the noise's. With
    F = [features, 1] the solution is that of a system as large as the support set:

        W = W_0 + V F^T (F V F^T + r I)^-1 (y - F W_0),  V = diag(variances).

    r is 1, plus `ROUNDING` times the trace of F V F^T, so that float32 can solve the system.
    """

    log_variances: Float[Array, " units"]
    """Of the weights of each unit, and last of the bias."""

    def __call__(self, net: BaseNetwork, support: Examples) -> BaseNetwork:
        inputs, system, missed = self._system(net, support)
        shared: PyTree = net.head
        solution, _ = solved(system, missed)
        change = (inputs * jnp.exp(self.log_variances)).T @ solution
        return replace(net, head=Linear(shared.weight + change[:-1], shared.bias + change[-1]))

    def log_evidence(
        self, net: BaseNetwork, support: Examples, log_noise: Float[Array, ""]
    ) -> Float[Array, ""]:
        """log N(y; F W_0, noise (F V F^T + r I)): how well the network explains the support set
        before its head learns from it; a sum over outputs, without the constant."""
        _, system, missed = self._system(net, support)
        solution, volume = solved(system, missed)
        misfit, volume = jnp.sum(missed * solution), volume + len(system) * log_noise
        return -(misfit * jnp.exp(-log_noise) + missed.shape[1] * volume) / 2

    def _system(
        self, net: BaseNetwork, support: Examples
    ) -> tuple[Float[Array, "n units"], Float[Array, "n n"], Float[Array, "n outputs"]]:
        """F, F V F^T + r I, and y - F W_0."""
        features = net.body(support.x)
        inputs = jnp.concatenate([features, jnp.ones_like(features[:, :1])], axis=1)
        kernel = (inputs * jnp.exp(self.log_variances)) @ inputs.T
        # Large features would make the identity less than the rounding of the kernel.
        noise = 1 + ROUNDING * jnp.trace(kernel)
        system = kernel + noise * jnp.eye(len(inputs), dtype=inputs.dtype)
        return inputs, system, support.y - net.head(features)


ROUNDING = 1e-6
"""Noise that a ridge head adds, as a share of the sum of the kernel's eigenvalues."""


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


def ridge_head(net: BaseNetwork, variance: float) -> RidgeHead:
    """The head for a network, with learned variances, which all start at `variance`."""
    if not isinstance(net.head, Linear):
        raise ValueError(
            "a ridge head needs a network whose head is an arml.linear, got "
            f"{type(net.head).__name__}: give arml.network such a head"
        )
    return RidgeHead(jnp.full(len(net.head.weight) + 1, math.log(variance), jnp.float32))
