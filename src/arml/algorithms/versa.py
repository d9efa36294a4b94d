"""VERSA: a network reads a task's support set and returns, in one pass, a Gaussian over the weights
of a linear head on shared features. The loss is minus the logarithm of the mean probability over
samples of the head. The weights of a class depend on the examples of that class only, so one
learner serves any number of classes.

[1] Gordon, Bronskill, Bauer, Nowozin and Turner, Meta-Learning Probabilistic Inference for
    Prediction, ICLR 2019.
[2] The authors' code, Gordonjo/versa (TensorFlow 1).
[3] Seitzer, Tavakoli, Antic and Martius, On the Pitfalls of Heteroscedastic Uncertainty Estimation
    with Probabilistic Neural Networks, ICLR 2022.

Differences
- Samples are drawn as logits, not as weights (local reparameterisation), as in the authors' code.
  But all queries share one random number for each sample and class: a prediction does not depend on
  other queries. The loss, a mean over queries, has the same expectation.
- A prediction is the logarithm of the mean probability; the authors' code scores by the logsumexp
  of the logits, whose largest class may be another.
- In classification, the networks of the means have no last bias, because softmax cancels it.
- Features are those of the base network without its head, and there is no dropout. The authors have
  8 tasks (1-shot) and 2.5e-4. Loss and prediction take 10 samples of the head, as theirs do.
- Regression is ours, because [1] has only view reconstruction. The mean of phi(f(x), y) over the
  support set replaces the class mean, where phi has two layers as in its encoder of views. The head
  has one row for each target. The likelihood is Gaussian with a learned noise, so the mean over all
  samples has a closed form. A prediction is the mean of the Gaussian, and takes no samples.
- The regression's likelihood is weighted as in [3] (beta of 1/2). Without weights its squared error
  on the 2-D functions was more than four times as large.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.algorithms.method import Method
from arml.core.checks import Options, Size
from arml.core.episodes import Examples, Problem, Task
from arml.core.learner import Adapted, Learner, Network
from arml.core.losses import log_mean_probability
from arml.nn.heads import Embedded, class_means, mask_absent, units
from arml.nn.networks import MLP, Body, mlp, with_body


class GaussianHead(NamedTuple):
    """Independent Gaussians over the weights and biases of a linear head."""

    weight_mean: Float[Array, "outputs d"]
    weight_log_variance: Float[Array, "outputs d"]
    bias_mean: Float[Array, " outputs"]
    bias_log_variance: Float[Array, " outputs"]

    def outputs(
        self, h: Float[Array, "m d"]
    ) -> tuple[Float[Array, "m outputs"], Float[Array, "m outputs"]]:
        """The mean and the variance of each output, if the weights are drawn from the Gaussians."""
        mean = h @ self.weight_mean.T + self.bias_mean
        spread = jnp.square(h) @ jnp.exp(self.weight_log_variance).T
        return mean, spread + jnp.exp(self.bias_log_variance)


def elu_layers(net: MLP, x: Float[Array, "n inputs"]) -> Float[Array, "n outputs"]:
    """The layers of `net`, each with ELU after it."""
    for layer in net.layers:
        x = jax.nn.elu(layer(x))
    return x


class Inference(eqx.Module):
    """Three dense layers with ELU between them."""

    hidden: MLP
    weight: Float[Array, "width outputs"]
    bias: Float[Array, " outputs"] | None

    @classmethod
    def drawn(
        cls, inputs: int, width: int, outputs: int, bias: bool, key: PRNGKeyArray
    ) -> "Inference":
        *hidden, last = mlp((inputs, width, width, outputs), key=key).layers
        return cls(MLP(tuple(hidden)), last.weight, last.bias if bias else None)

    def __call__(self, x: Float[Array, "n inputs"]) -> Float[Array, "n outputs"]:
        x = elu_layers(self.hidden, x) @ self.weight
        return x if self.bias is None else x + self.bias


class Amortised(eqx.Module):
    """Four networks. They map each row, which represents a class or a whole task, to the rows of
    the head for it."""

    weight_mean: Inference
    weight_log_variance: Inference
    bias_mean: Inference
    bias_log_variance: Inference

    @classmethod
    def drawn(
        cls, inputs: int, d: int, rows: int, width: int, *, bias: bool, key: PRNGKeyArray
    ) -> "Amortised":
        """The networks that map each row of `inputs` numbers to `rows` rows of a head, of `d`
        weights each. With `bias` the last layers of those of the means have a bias."""
        keys = jax.random.split(key, 4)
        return cls(
            Inference.drawn(inputs, width, rows * d, bias, keys[0]),
            Inference.drawn(inputs, width, rows * d, True, keys[1]),
            Inference.drawn(inputs, width, rows, bias, keys[2]),
            Inference.drawn(inputs, width, rows, True, keys[3]),
        )

    def __call__(self, pooled: Float[Array, "n inputs"], d: int) -> GaussianHead:
        return GaussianHead(
            self.weight_mean(pooled).reshape(-1, d),
            self.weight_log_variance(pooled).reshape(-1, d),
            self.bias_mean(pooled).reshape(-1),
            self.bias_log_variance(pooled).reshape(-1),
        )


@dataclass(frozen=True, kw_only=True)
class VERSAOptions(Options):
    """VERSA: a network that returns a Gaussian over the task's linear head."""

    samples: Size = 10
    """Samples of the head, in training and at test; regression needs none."""
    width: Size = 256
    """Width of the hidden layers of the networks that make the head."""

    def build(
        self, net: Network, problem: Problem, *, key: PRNGKeyArray
    ) -> "VERSA | VERSARegression":
        body = with_body(net, "VERSA").body
        d, width = units(body, problem.features), self.width
        if problem.kind == "classification":
            return VERSA(
                body=body,
                amortise=Amortised.drawn(d, d, 1, width, bias=False, key=key),
                options=self,
                problem=problem,
            )
        phi_key, head_key = jax.random.split(key)
        return VERSARegression(
            body=body,
            phi=mlp((d + problem.outputs, width, width), key=phi_key),
            amortise=Amortised.drawn(width, d, problem.outputs, width, bias=True, key=head_key),
            log_noise=jnp.zeros((), jnp.float32),
            problem=problem,
        )


class VERSA(Embedded):
    """p(y | x) = 1/L sum_l softmax(logits_l), where logits_l are drawn from the Gaussian that the
    head gives. The cross-entropy of log p is minus the logarithm of the mean probability."""

    body: Body
    amortise: Amortised
    options: VERSAOptions = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        features, embed = self.body.embedded(support.x)
        means, present = class_means(features, support.y, self.problem.outputs)
        head = self.amortise(means, features.shape[1])
        noise = jax.random.normal(
            key, (self.options.samples, 1, self.problem.outputs), features.dtype
        )

        def predict(x: Float[Array, "m *features"]) -> Float[Array, "m ways"]:
            mean, variance = head.outputs(embed(x))
            # The constant keeps the root's gradient finite where a variance underflows.
            logits = mean + jnp.sqrt(variance + 1e-12) * noise
            return log_mean_probability(mask_absent(present, logits))

        return Adapted(predict)


class VERSARegression(Learner):
    """p(y | x) = N(mean, variance + noise) of the outputs of the head's Gaussian."""

    body: Body
    phi: MLP
    amortise: Amortised
    log_noise: Float[Array, ""]
    """Logarithm of the noise's variance."""

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        embed, head = self.head(support)
        return Adapted(lambda x: head.outputs(embed(x))[0])

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Minus the query set's log-likelihood without its constant, each target weighted by the
        root of its variance [3]."""
        embed, head = self.head(task.support)
        mean, variance = head.outputs(embed(task.query.x))
        variance = variance + jnp.exp(self.log_noise)
        surprise = 0.5 * (jnp.log(variance) + jnp.square(task.query.y - mean) / variance)
        return jnp.mean(jnp.sqrt(jax.lax.stop_gradient(variance)) * surprise)

    def head(self, support: Examples) -> tuple[Callable[[Array], Array], GaussianHead]:
        """The embedding of queries, and the Gaussian over the head that reads it."""
        features, embed = self.body.embedded(support.x)
        pairs = jnp.concatenate([features, support.y], axis=1)
        pooled = jnp.mean(elu_layers(self.phi, pairs), axis=0, keepdims=True)
        return embed, self.amortise(pooled, features.shape[1])


METHODS = (
    Method(
        name="versa",
        options_class=VERSAOptions,
        paper="Gordon, Bronskill, Bauer, Nowozin and Turner, ICLR 2019",
        descends=False,
    ),
)
