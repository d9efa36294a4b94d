"""BMAML: an ensemble of initialisations, the particles. A task moves them together by Stein
variational gradient descent (SVGD), so that they become samples of its posterior: each particle
follows the gradients of all, and a kernel keeps them apart. The outer loss is the chaser loss: the
distance from the particles after a few steps on the support set (the follower) to the particles
after more steps on all data (the leader).

[1] Yoon, Kim, Dia, Kim, Bengio and Ahn, Bayesian Model-Agnostic Meta-Learning, NeurIPS 2018.
[2] The authors' code, jsikyoon/bmaml (sinusoid regression only).

Differences
- The kernel's derivative is exact. The authors' code has half of it: the factor 2 is missing.
- The bandwidth's median is over the pairs of particles; the authors' code also counts the distance
  of zero from each particle to itself. It has a floor of 1e-6, for particles that coincide.
- The step on the log posterior is `inner_rate` divided by the number of labels, so that the rate is
  for the mean loss. The follower's labels are those of the support set, the leader's those of both
  sets. Likelihood, prior and kernel share the factor, so the posterior is not tempered. As in [1],
  a particle's own gradient has the weight 1/particles.
- There are 5 particles. The follower takes 5 steps, as the other methods do, and the leader one
  more. [2] has 10 particles, 1 step, three hidden layers, 10 tasks and a decay of .98.
- On regression the outer gradient has a bound (.03: its norm is near .01 and has spikes of thirty
  times that) and the outer rate falls: with neither, three of three trainings diverged.
- The step on the log precision of the weights is divided by the number of weights instead: divided
  by the number of labels, it would overshoot in the larger networks.
- The precision of the noise starts at 2, where the likelihood's gradient is that of the mean
  squared error, and not at 100. All targets share it.
- Classification has the cross-entropy as its likelihood, and no precision of noise.
- With `acts="head"` the particles are heads; they share the body, which the chaser loss trains. [1]
  does so on images, but has no code for it; here it is the default for images.
- The first particle is the given base network. The weights of the others are drawn from a normal of
  the same root mean square, array by array; vectors (zero biases) start as they are.
- The leader's queries are also normalised as the network does it.
- The training loss is the chaser loss. It does not measure quality: the validation score does.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from arml.algorithms.method import Method
from arml.core.checks import Size
from arml.core.episodes import Examples, Problem, Task
from arml.core.inner import GradientDescent, InnerOptions, Rule, join, split, usual_rate
from arml.core.learner import Adapted, Learner, Network
from arml.core.losses import combine_of
from arml.nn.networks import with_body

WEIGHT_PRECISION_PRIOR, NOISE_PRECISION_PRIOR = (2.0, 2.0), (2.0, 0.2)
"""Shape and rate of the precisions' Gamma priors: of the weights, and of the noise."""


Flat = Float[Array, "particles numbers"]
_Outputs = Callable[[PyTree], Float[Array, "n outputs"]]
"""Maps one particle's weights to its outputs for some fixed inputs."""


class Particle(eqx.Module):
    """Weights, the log precision of their prior, and that of the noise (regression)."""

    weights: PyTree
    log_lambda: Float[Array, "..."]
    log_gamma: Float[Array, "..."] | None


def stein(particles: Flat, gradients: Flat) -> Flat:
    """SVGD's direction for each particle, from the gradient of the log density at each:
    phi(theta_m) = 1/M sum_j [k(theta_j, theta_m) grad_j + d k(theta_j, theta_m) / d theta_j]."""
    m = len(particles)
    if m == 1:  # no pairs, no median; a kernel of one
        return gradients
    # From inner products, because an array of all pairs of particles is slow. They are centred, so
    # that close particles lose no precision; and the diagonal is exactly zero.
    centred = particles - jnp.mean(particles, axis=0)
    products = centred @ centred.T
    norms = jnp.diagonal(products)
    squares = norms[:, None] + norms - 2 * products
    median = jnp.median(jax.lax.stop_gradient(squares)[jnp.triu_indices(m, 1)])
    bandwidth = jnp.maximum(median / math.log(m), 1e-6)
    kernel = jnp.exp(-squares / bandwidth)
    apart = jnp.sum(kernel, axis=1, keepdims=True) * centred - kernel @ centred
    repulsion = apart * (2 / bandwidth)
    return (kernel @ gradients + repulsion) / m


class SVGD(Rule):
    """A step of all particles `[particles, numbers]`."""

    rate: Float[Array, " numbers"]

    def __call__(self, part: PyTree, gradient: PyTree, step: int | Array) -> PyTree:
        """The particles after one step; `gradient` is of minus the log densities."""
        return part + self.rate * stein(part, -gradient)


@dataclass(frozen=True, kw_only=True)
class BMAMLOptions(InnerOptions):
    """BMAML: particles that a task moves together, as samples of its posterior. `learn_rates`
    learns one rate for each parameter, the same for all particles."""

    particles: Size = 5
    """Initialisations, each meta-learned by itself."""
    acts: Literal["all", "head"] = "all"
    """The kind of particles: whole networks, or heads on a shared body (images)."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> "BMAML":
        """The learner; `net` is its first particle, and the key draws the others."""
        head = self.acts == "head"
        weights, rest = split(with_body(net, "BMAML of heads").head if head else net)
        others = jax.random.split(key, self.particles)[1:]
        drawn = [weights, *(redrawn(weights, key=k) for k in others)]
        gamma = jnp.array(math.log(2.0)) if problem.kind == "regression" else None
        particles = [Particle(w, jnp.zeros(()), gamma) for w in drawn]
        return BMAML(
            particles=jax.tree.map(lambda *arrays: jnp.stack(arrays), *particles),
            net=eqx.tree_at(lambda n: n.head, net, rest) if head else rest,
            inner=self.descent(particles[0]),
            options=self,
            problem=problem,
        )


class BMAML(Learner):
    """theta_m' = theta_m + rate * phi(theta_m), repeated; the prediction is the particles' mean."""

    particles: Particle
    """Stacked: each array has the particles as its first axis."""
    net: PyTree
    """The part that the particles share: the base network without their own weights."""
    inner: GradientDescent
    """The rate, the follower's steps and how they are differentiated."""
    options: BMAMLOptions = eqx.field(static=True)

    def given(self, support_x: Array) -> Callable[[Array], _Outputs]:
        """A function from inputs to the function that maps a particle's weights to outputs. The
        features of a shared body are computed once for all particles."""
        if self.options.acts == "all":
            return lambda x: lambda weights: join(weights, self.net).given(support_x)(x)
        body = self.net.body.given(support_x)

        def read(x: Array) -> _Outputs:
            features = body(x)
            return lambda weights: join(weights, self.net.head)(features)

        return read

    def log_posterior(
        self, particle: Particle, outputs: Float[Array, "n outputs"], y: Shaped[Array, "n *targets"]
    ) -> Float[Array, ""]:
        """log p(theta, lambda, gamma | support), up to a constant."""
        weights = ravel_pytree(particle.weights)[0]
        spread = weights.size * particle.log_lambda - jnp.exp(particle.log_lambda) * (
            weights @ weights
        )
        prior = spread / 2 + log_gamma_prior(particle.log_lambda, *WEIGHT_PRECISION_PRIOR)
        total = y.size * self.loss(outputs, y)
        if particle.log_gamma is None:
            return prior - total
        fit = y.size * particle.log_gamma - jnp.exp(particle.log_gamma) * total
        return prior + fit / 2 + log_gamma_prior(particle.log_gamma, *NOISE_PRECISION_PRIOR)

    def move(
        self, particles: Particle, outputs: _Outputs, y: Shaped[Array, "n *targets"], steps: int
    ) -> Particle:
        """The particles after `steps` of SVGD on the examples that `outputs` reads."""
        one = jax.tree.map(lambda a: a[0], particles)
        flat, unravel = ravel_pytree(one)
        share = jnp.full_like(flat, 1 / y.size)
        weights = ravel_pytree(one.weights)[0].size  # they come first
        share = share.at[weights].set(1 / weights)
        rate = self.inner.rate
        if not (isinstance(rate, float | int) or eqx.is_array(rate)):
            rate = ravel_pytree(rate)[0]

        def log_posterior(flat: Array) -> Array:
            particle = unravel(flat)
            return self.log_posterior(particle, outputs(particle.weights), y)

        inner = replace(self.inner, rate=SVGD(rate * share), steps=steps)
        every = jax.vmap(lambda particle: ravel_pytree(particle)[0])(particles)
        # The sum, because its gradient at a particle is that of the particle's own.
        every = inner(lambda every: -jnp.sum(jax.vmap(log_posterior)(every)), every)
        moved: Particle = jax.vmap(unravel)(every)
        return moved

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        read = self.given(support.x)
        follower = self.move(self.particles, read(support.x), support.y, self.inner.steps)
        return Adapted(lambda x: combine_of(self.problem)(jax.vmap(read(x))(follower.weights)))

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The chaser loss: the squared distance of the follower's weights to the leader's, summed
        over particles. The leader's weights are held fixed."""
        read = self.given(task.support.x)
        on_support, on_query = read(task.support.x), read(task.query.x)

        def on_both(weights: PyTree) -> Array:
            return jnp.concatenate([on_support(weights), on_query(weights)])

        follower = self.move(self.particles, on_support, task.support.y, self.inner.steps)
        y = jnp.concatenate([task.support.y, task.query.y])
        leader = jax.lax.stop_gradient(self.move(follower, on_both, y, 1))  # one more step
        away = jax.tree.map(jnp.subtract, follower.weights, leader.weights)
        import optax  # here, because it is slow to load

        chaser: Array = optax.tree.norm(away, squared=True)
        return chaser


def log_gamma_prior(log: Float[Array, ""], shape: float, rate: float) -> Float[Array, ""]:
    """The log density at `log` of the logarithm of a Gamma variable, up to a constant."""
    return shape * log - rate * jnp.exp(log)


def redrawn(weights: PyTree, *, key: PRNGKeyArray) -> PyTree:
    """Arrays drawn from normals of the same root mean squares; biases, which are vectors, stay."""
    import optax  # here, because it is slow to load

    def scaled(old: Array, normal: Array) -> Array:
        return old if old.ndim < 2 else jnp.sqrt(jnp.mean(jnp.square(old))) * normal

    return jax.tree.map(scaled, weights, optax.tree.random_like(key, weights))


def bmaml(problem: Problem) -> BMAMLOptions:
    """Particles are whole networks on vectors, and heads on images."""
    acts: Literal["all", "head"] = "head" if problem.spatial else "all"
    return BMAMLOptions(inner_rate=usual_rate(problem), acts=acts)


METHODS = (
    Method(
        name="bmaml",
        options_class=BMAMLOptions,
        paper="Yoon, Kim, Dia, Kim, Bengio and Ahn, NeurIPS 2018",
        preset=bmaml,
        settings={"regression": {"outer": {"clip": 0.03, "schedule": "cosine"}}},
    ),
)
