"""PLATIPUS: a distribution over initialisations. A task's prior is a Gaussian around the
initialisation after one gradient step on the support set. Each sample from it adapts as in MAML,
and a prediction is the mean over samples. Training samples instead from a posterior that uses the
query set, and adds the divergence of this posterior from the prior to the loss.

[1] Finn, Xu and Levine, Probabilistic Model-Agnostic Meta-Learning, NeurIPS 2018 (no official
    code).
[2] cnguyen10/few_shot_meta_learning, Platipus.py: initial values, and the divergence's weight.

Differences
- `log_sigma` and `log_v` are the logarithms of the standard deviations of the prior and of the
  posterior, one for each adapted parameter; all start at -4 ([2]: drawn from -4 to -3).
- The means mu_q and mu_p take one gradient step, as in [1]; [2] takes all inner steps.
- All gradients, including those of mu_q and mu_p, are of mean losses. The outer loss of regression
  is the Gaussian negative log-likelihood with standard deviation `noise`, without its constant: the
  mean squared error divided by 2 noise^2.
- The data term is a mean over queries, with one sampled initialisation; the divergence is a sum
  over parameters, times `kl_weight`. The bound itself has the weight 1 / queries, with which the
  divergence outweighs the data; we use 1e-6, as [2] does.
- [2] advises to start from a trained MAML. Here mu starts at the base network.
- gamma, the rate of the one step, starts at .01 as in [2], but on 2-D regression at the inner rate,
  .001. A prediction is the mean over 10 samples, 5 on images.
- Outer gradients have no bound, except in the recipes for features, where it is a norm of 10.
- Arrays that tasks share (offsets of the normalisation) have no distribution.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from arml.algorithms.method import Method
from arml.core.checks import AboveZero, NonNegative, Size
from arml.core.episodes import Examples, Problem, Task
from arml.core.inner import GradientDescent, InnerOptions, adaptable, join, split, usual_rate
from arml.core.learner import Adapted, Learner, Network
from arml.core.losses import combine_of

LOG_SD = -4.0
"""Initial value of `log_sigma` and `log_v`."""


def draw(mean: PyTree, log_sd: PyTree, *, key: PRNGKeyArray) -> PyTree:
    """A sample of N(mean, exp(log_sd)^2), array by array."""
    import optax  # here, because it is slow to load

    noise = optax.tree.random_like(key, mean)
    return jax.tree.map(lambda m, s, e: m + jnp.exp(s) * e, mean, log_sd, noise)


def divergence(
    mean: PyTree, log_sd: PyTree, other: PyTree, log_sd_other: PyTree
) -> Float[Array, ""]:
    """KL(N(mean, sd^2) || N(other, sd_other^2)), summed over all parameters, in nats."""

    def one(m: Array, s: Array, other: Array, s_other: Array) -> Array:
        scaled = jnp.square((m - other) * jnp.exp(-s_other))
        return jnp.sum(s_other - s + (jnp.exp(2 * (s - s_other)) + scaled - 1) / 2)

    return jax.tree.reduce(jnp.add, jax.tree.map(one, mean, log_sd, other, log_sd_other))


@dataclass(frozen=True, kw_only=True)
class PLATIPUSOptions(InnerOptions):
    """PLATIPUS: MAML from initialisations sampled around the task's own."""

    prior_rate: NonNegative = 0.01
    """Initial value of gamma_p and gamma_q, the learned steps of the two means."""
    kl_weight: NonNegative = 1e-6
    """Weight of the divergence."""
    samples: Size = 10
    """Initialisations that a prediction averages over."""
    noise: AboveZero = 0.3
    """Standard deviation of the targets' noise (regression)."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> "PLATIPUS":
        log_sd = jax.tree.map(lambda a: jnp.full_like(a, LOG_SD), adaptable(net))
        return PLATIPUS(
            net=net,
            log_sigma=log_sd,
            log_v=log_sd,
            gamma_p=jnp.array(self.prior_rate),
            gamma_q=jnp.array(self.prior_rate),
            inner=self.descent(net),
            options=self,
            problem=problem,
        )


class PLATIPUS(Learner):
    """theta ~ N(mu - gamma_p grad L_support(mu), sigma^2), then MAML from theta."""

    net: Network
    """mu, the mean initialisation."""
    log_sigma: PyTree
    """Logarithms of the prior's deviations, a pytree like `adaptable(net)`."""
    log_v: PyTree
    """Logarithms of the deviations of the posterior from which training samples."""
    gamma_p: Float[Array, ""]
    gamma_q: Float[Array, ""]
    inner: GradientDescent
    options: PLATIPUSOptions = eqx.field(static=True)

    def query_loss(self, net: Network, support: Examples, examples: Examples) -> Float[Array, ""]:
        """The mean loss of `net` on the examples, for a task with this support set."""
        return self.loss(net.given(support.x)(examples.x), examples.y)

    def centre(self, support: Examples, examples: Examples, rate: Array) -> PyTree:
        """mu after one step on the examples."""
        step = GradientDescent(rate, 1, self.inner.first_order)
        return adaptable(step(lambda net: self.query_loss(net, support, examples), self.net))

    def descend(self, theta: PyTree, support: Examples) -> Network:
        """MAML from the initialisation theta: the network phi."""
        start = join(theta, split(self.net)[1])
        adapted: Network = self.inner(lambda net: self.loss(net(support.x), support.y), start)
        return adapted

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        mu_p = self.centre(support, support, self.gamma_p)
        rest = split(self.net)[1]

        def one(key: PRNGKeyArray) -> PyTree:
            theta = draw(mu_p, self.log_sigma, key=key)
            return adaptable(self.descend(theta, support))

        phis = jax.vmap(one)(jax.random.split(key, self.options.samples))

        def predict(x: Float[Array, "m *features"]) -> Float[Array, "m outputs"]:
            return combine_of(self.problem)(
                jax.vmap(lambda phi: join(phi, rest).given(support.x)(x))(phis)
            )

        return Adapted(predict)

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The negative variational bound, with a weighted divergence."""
        support, query = task.support, task.query
        mu_q = self.centre(support, query, self.gamma_q)
        mu_p = self.centre(support, support, self.gamma_p)
        phi = self.descend(draw(mu_q, self.log_v, key=key), support)
        data = self.query_loss(phi, support, query)
        if self.problem.kind == "regression":
            data = 1 / (2 * self.options.noise**2) * data
        kl = divergence(mu_q, self.log_v, mu_p, self.log_sigma)
        return data + self.options.kl_weight * kl


def platipus(problem: Problem) -> PLATIPUSOptions:
    """The steps of the means are at most as long as those of the inner loop, because the regression
    is too steep for longer ones. Images have half the samples, because each costs more."""
    rate = usual_rate(problem)
    return PLATIPUSOptions(
        inner_rate=rate,
        prior_rate=min(rate, PLATIPUSOptions.prior_rate),
        samples=5 if problem.spatial else PLATIPUSOptions.samples,
    )


METHODS = (
    Method(
        name="platipus",
        options_class=PLATIPUSOptions,
        paper="Finn, Xu and Levine, NeurIPS 2018",
        preset=platipus,
        tune=("inner_rate", "prior_rate", "kl_weight"),
    ),
)
