"""Classifiers by prototypes (class means), with one of several distances (`CLASSIFIERS`), and heads
made from a task's examples: of the nearest prototype, and of ridge regression.

-s |f - c_k|^2 = 2 s c_k . f - s |c_k|^2 - s |f|^2, and the last term is the same for every class.
So a head with weights w_k = 2 s c_k and biases b_k = -s |c_k|^2 predicts as ProtoNet does before
the first inner step [1]. A head that all tasks share does not depend on the task's classes then.

Let W be the pooled covariance within classes. The distances (f - c_k)^T (W + I)^-1 (f - c_k) also
give a linear head: regularised linear discriminant analysis with equal priors [4]. With a
covariance for each class the head is quadratic. It is for learners without inner steps [5].
Distances count less in directions in which the examples of a class differ.

[1] Triantafillou et al., Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few
    Examples, ICLR 2020, section 3 (Proto-MAML).
[2] Bertinetto, Henriques, Torr and Vedaldi, Meta-learning with Differentiable Closed-form Solvers,
    ICLR 2019 (R2-D2).
[3] Harrison, Sharma and Pavone, Meta-learning Priors for Efficient Online Bayesian Regression,
    WAFR 2018 (ALPaCA).
[4] Friedman, Regularized Discriminant Analysis, Journal of the American Statistical Association,
    1989.
[5] Bateni, Goyal, Masrani, Wood and Sigal, Improved Few-Shot Visual Classification, CVPR 2020
    (Simple CNAPS). One example has no covariance. For a class with one example Q_k is the identity
    here, which gives the plain distance. The paper uses the covariance of the task, but its largest
    directions are those that separate the classes. Covariances divide by the number of examples.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from arml.core.compilation import unbatched
from arml.core.episodes import Examples
from arml.core.learner import Embedding, Learner
from arml.core.losses import single
from arml.nn.networks import BaseNetwork, Body, Linear

ABSENT_LOGIT = -1e9
"""The logit of a class without support examples, for example if a learner that was built for 20
classes gets a task with 5. It is finite, so gradients are also finite."""

Samples = Float[Array, "n d"]
"""Embeddings of samples."""
Labels = Shaped[Array, "n *targets"]
"""The classes or the targets of samples."""
Classifier = Callable[[Float[Array, "m d"]], Float[Array, "m ways"]]
"""Maps features to logits."""


class Embedded(Learner):
    """A learner that compares embeddings by a body. Tasks do not adapt the body."""

    body: eqx.AbstractVar[Body]

    def embedding(self) -> Callable[[Array], Embedding]:
        """The body, before any task conditions it."""
        return self.body.given


def class_means(
    e: Samples, y: Int[Array, " n"], ways: int
) -> tuple[Float[Array, "ways d"], Bool[Array, " ways"]]:
    """The mean of each class, in class order, and a mask of the classes that have examples. The
    mean of a class without examples is zero."""
    member = jax.nn.one_hot(y, ways, axis=0, dtype=e.dtype)
    count = jnp.sum(member, axis=1)
    return member @ e / jnp.maximum(count, 1)[:, None], count > 0


def mask_absent(
    present: Bool[Array, " ways"], logits: Float[Array, "*n ways"]
) -> Float[Array, "*n ways"]:
    """The logits, with `ABSENT_LOGIT` for the classes that are not `present`."""
    return jnp.where(present, logits, ABSENT_LOGIT)


def squared_distances(x: Samples, centres: Float[Array, "ways d"]) -> Float[Array, "n ways"]:
    """||x - c||^2, computed from the differences. The form |x|^2 - 2 x.c + |c|^2 loses precision in
    float32 if x and c are close."""
    return jnp.sum(jnp.square(x[:, None] - centres), axis=-1)


def units(body: Body, features: tuple[int, ...]) -> int:
    """The number of features that `body` makes from one input of shape `features`."""
    one = jax.ShapeDtypeStruct((1, *features), jnp.float32)
    count: int = jax.eval_shape(lambda x: body(x), one).shape[-1]
    return count


class PrototypeHead(eqx.Module):
    """Gives a network the head of the prototypes: the class means of the support set's features."""

    scale: Float[Array, ""]
    """The factor s of the distances."""
    ways: int = eqx.field(static=True)

    def __call__(self, net: BaseNetwork, support: Examples) -> BaseNetwork:
        features = net.body(support.x)
        means, present = class_means(features, support.y, self.ways)
        biases = -self.scale * jnp.sum(jnp.square(means), axis=1)
        head = Linear(2 * self.scale * means.T, jnp.where(present, biases, ABSENT_LOGIT))
        return replace(net, head=head)


def nearest_mean(
    scale: float | Array, features: Float[Array, "n d"], y: Int[Array, " n"], ways: int
) -> Classifier:
    """The classifier of a support set with logits_k = -s ||f - c_k||^2."""
    means, present = class_means(features, y, ways)
    return lambda f: mask_absent(present, -scale * squared_distances(f, means))


def discriminant(
    scale: float | Array, features: Float[Array, "n d"], y: Int[Array, " n"], ways: int
) -> Linear:
    """The linear head of a support set with logits_k = -s (f - c_k)^T (W + I)^-1 (f - c_k), without
    the term that all classes share. W divides by examples minus classes. With one shot it is 0."""
    means, present = class_means(features, y, ways)
    # A product instead of means[y], because ONNX has no operator for that.
    own = jax.nn.one_hot(y, ways, dtype=features.dtype) @ means
    free = len(features) - jnp.sum(present, dtype=features.dtype)
    spread = (features - own) / jnp.sqrt(jnp.maximum(free, 1))  # W = A^T A
    centre = jnp.mean(features, axis=0)
    away = means - centre
    directions = shrunk_rows(spread, away)
    biases = -scale * jnp.sum((away + 2 * centre) * directions, axis=1)
    return Linear(2 * scale * directions.T, jnp.where(present, biases, ABSENT_LOGIT))


def quadratic(
    scale: float | Array, features: Float[Array, "n d"], y: Int[Array, " n"], ways: int
) -> Classifier:
    """The classifier of a support set with logits_k = -s (f - c_k)^T Q_k^-1 (f - c_k), where
    Q_k = l_k S_k + (1 - l_k) S + I and l_k = n_k / (n_k + 1). S_k is the covariance of class k, and
    S that of all examples. [5], Eq. (2)"""
    means, present = class_means(features, y, ways)
    member = jax.nn.one_hot(y, ways, axis=0, dtype=features.dtype)
    away, apart = features - jnp.mean(features, axis=0), features - means[y]

    def precision(own: Float[Array, " n"]) -> Float[Array, "d d"]:
        count = jnp.sum(own)
        share = count / (count + 1)
        within = (own[:, None] * apart).T @ apart / jnp.maximum(count, 1)
        covariance = share * within + (1 - share) * away.T @ away / len(away)
        identity = jnp.eye(features.shape[1], dtype=features.dtype)
        return solved(jnp.where(count > 1, covariance, 0) + identity, identity)[0]

    precisions = jax.vmap(precision)(member)

    def logits(f: Float[Array, "m d"]) -> Float[Array, "m ways"]:
        away = f[:, None] - means
        distances = jnp.einsum("nkd,kde,nke->nk", away, precisions, away)
        return mask_absent(present, -scale * distances)

    return logits


Metric = Literal["squared", "pooled", "mahalanobis"]
CLASSIFIERS: dict[Metric, Callable[..., Classifier]] = {
    "squared": nearest_mean,
    "pooled": discriminant,
    "mahalanobis": quadratic,
}
"""For each distance, a function that makes the classifier of a support set from the scale of the
distances, the features, the classes and the number of classes."""


# Linear systems.


def solved(
    matrix: Float[Array, "d d"], right: Float[Array, "d k"]
) -> tuple[Float[Array, "d k"], Float[Array, ""]]:
    """The solution X of A X = B for a positive definite A, and the logarithm of A's determinant."""
    solution, volume, _ = _factored(single(matrix), single(right))
    return solution.astype(right.dtype), volume.astype(right.dtype)


@jax.custom_jvp
def _factored(matrix: Array, right: Array) -> tuple[Array, Array, Array]:
    """The solution, the logarithm of the determinant, and the inverse, from one Cholesky factor.
    Their derivatives are products with the inverse."""

    def found(one: Array, right: Array) -> tuple[Array, Array, Array]:
        factor = jnp.linalg.cholesky(one)
        both = jnp.concatenate([right, jnp.eye(len(one), dtype=one.dtype)], axis=1)
        both = jax.scipy.linalg.cho_solve((factor, True), both)
        width = right.shape[1]
        return both[:, :width], 2 * jnp.sum(jnp.log(jnp.diag(factor))), both[:, width:]

    return unbatched(found)(matrix, right)


@_factored.defjvp
def _factored_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
    (matrix, _), (moved, shifted) = primals, tangents
    solution, volume, inverted = _factored(*primals)
    wanted = shifted - moved @ solution
    first = inverted @ wanted
    # Refined once, because float32 loses digits in the inverse.
    change = first + inverted @ (wanted - matrix @ first)
    changes = (change, jnp.sum(inverted.T * moved), -inverted @ moved @ inverted)
    return (solution, volume, inverted), changes


@jax.jit
def shrunk_rows(spread: Float[Array, "n d"], right: Float[Array, "k d"]) -> Float[Array, "k d"]:
    """The rows of B (A^T A + I)^-1, from the smaller of two systems. If A has fewer rows than
    columns, the inverse is computed as I - A^T (A A^T + I)^-1 A."""
    few = len(spread) < spread.shape[1]
    system = spread @ spread.T if few else spread.T @ spread
    system = system + jnp.eye(len(system), dtype=spread.dtype)
    if few:
        return right - solved(system, spread @ right.T)[0].T @ spread
    return solved(system, right.T)[0].T


# Ridge regression.


def ridge(
    features: Float[Array, "n d"], targets: Float[Array, "n outputs"], strength: Float[Array, ""]
) -> Linear:
    """The linear head of ridge regression [2], W = F^T (F F^T + strength I)^-1 Y with
    F = [features, 1]. The system is as large as the support set (Woodbury)."""
    inputs = jnp.concatenate([features, jnp.ones_like(features[:, :1])], axis=1)
    system = inputs @ inputs.T + strength * jnp.eye(len(inputs), dtype=inputs.dtype)
    weight = inputs.T @ solved(system, targets)[0]
    return Linear(weight[:-1], weight[-1])


class RidgeHead(eqx.Module):
    """Gives a network the head of ridge regression on the features of the support set [2].

    It is the mean of the posterior of a Bayesian head [3]. The head that all tasks share, W_0, is
    the mean of the prior. Each unit has its own variance, divided by the variance of the noise.
    With F = [features, 1] the system to solve is as large as the support set:

        W = W_0 + V F^T (F V F^T + r I)^-1 (y - F W_0),  V = diag(variances).

    r is 1, plus `NOISE_SHARE` times the trace of F V F^T, so that float32 can solve the system.
    """

    log_variances: Float[Array, " units"]
    """The variances of the weights of each unit, and last that of the bias, as logarithms."""

    @classmethod
    def of(cls, net: BaseNetwork, variance: float) -> "RidgeHead":
        """The head for a network, with variances that start at `variance`."""
        if not isinstance(net.head, Linear):
            raise ValueError(
                "a ridge head needs a network whose head is an arml.nn.linear, got "
                f"{type(net.head).__name__}: give arml.network a ridge head"
            )
        return cls(jnp.full(len(net.head.weight) + 1, math.log(variance), jnp.float32))

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
        before its head learns from it. It is a sum over outputs, without the constant."""
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
        # With large features the identity would be smaller than the rounding errors of the kernel.
        noise = 1 + NOISE_SHARE * jnp.trace(kernel)
        system = kernel + noise * jnp.eye(len(inputs), dtype=inputs.dtype)
        return inputs, system, support.y - net.head(features)


NOISE_SHARE = 1e-6
"""The noise that a ridge head adds, as a share of the trace of the kernel."""


def to_be_made(features: Float[Array, "*n units"]) -> Float[Array, "*n outputs"]:
    """The head of a network whose head is made for each task."""
    raise AssertionError("a network without a head predicts nothing")


def headless(net: BaseNetwork) -> BaseNetwork:
    """The network without its head, because each task makes one from its prototypes."""
    return replace(net, head=to_be_made)
