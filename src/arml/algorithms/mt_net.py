"""MT-Net: MAML that learns a metric for its gradients, and which units to adapt. A square matrix T,
which no task adapts, follows each layer: gradients through T have a learned metric. Each task
adapts only the units that a learned random mask draws.

[1] Lee and Choi, Gradient-Based Meta-Learning with Learned Layerwise Metric and Subspace, ICML
    2018.
[2] The authors' code, yoonholee/MT-net.

Differences
- The weights and the bias of a unit share its mask, with one logit for each unit, as in the code's
  `share_M`.
- The mask is also drawn at test, as in the code: one mask for each task, without averaging over
  masks. So a prediction depends on the key.
- On 2-D regression the norms of inner (1,000) and outer gradients (10) have bounds, because the
  warps make steep tasks steeper. On miniImageNet there is no bound; the authors bound each element
  of the outer gradient to 10.
- Offsets of the batch normalisation have no masks, because no task adapts them.
"""

import dataclasses
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from arml.algorithms.method import Method
from arml.core.episodes import Examples, Problem
from arml.core.inner import GradientDescent, InnerOptions, Shared, adaptable, usual_rate
from arml.core.learner import Adapted, Learner, Network
from arml.nn.networks import Conv2d, Linear, layers, with_layers


class Warped(eqx.Module):
    """T(W x + b), T square and shared by all tasks: on images a 1x1 convolution."""

    layer: Linear | Conv2d
    warp: Shared

    def __call__(self, x: Float[Array, "n *features"]) -> Float[Array, "n *space units"]:
        return self.layer(x) @ self.warp.value


def is_warped(node: object) -> bool:
    return isinstance(node, Warped)


def draw_mask(logits: Float[Array, " units"], *, key: PRNGKeyArray) -> Float[Array, " units"]:
    """Ones and zeros, P(1) = sigmoid(logit): a hard Gumbel-softmax over (logit, 0) of temperature
    1, whose gradient is the soft one's (straight through)."""
    # The difference of two Gumbel variables is logistic.
    noise = jax.random.logistic(key, logits.shape, logits.dtype)
    soft = jax.nn.sigmoid(logits + noise)
    hard = (logits + noise > 0).astype(soft.dtype)
    return hard + (soft - jax.lax.stop_gradient(soft))  # the bracket is exactly zero


class MTNet(Learner):
    """W' = W - rate * m o grad L_support(W), repeated, in a network of T(W x + b)."""

    net: Network
    logits: tuple[Float[Array, " _"], ...]
    """The logits of the masks: for each layer, one for each unit."""
    inner: GradientDescent

    def rates(self, key: PRNGKeyArray) -> PyTree:
        """One task's rates, a pytree like `adaptable(net)`: a layer's mask `[units]` times the
        rate broadcasts against its kernel, weight and bias."""
        keys = jax.random.split(key, len(self.logits))
        drawn = (draw_mask(z, key=k) for z, k in zip(self.logits, keys, strict=True))

        def mask(node: PyTree) -> PyTree:
            if not is_warped(node):  # every task adapts all parameters outside the layers
                return jnp.ones_like(node)
            own = next(drawn)
            return jax.tree.map(lambda _: own, node)

        masks = jax.tree.map(mask, adaptable(self.net), is_leaf=is_warped)
        rate = self.inner.rate
        if isinstance(rate, float | int):
            return jax.tree.map(lambda mask: rate * mask, masks)
        return jax.tree.map(jnp.multiply, rate, masks)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        inner = dataclasses.replace(self.inner, rate=self.rates(key))  # one mask for all steps
        adapted = inner(lambda net: self.loss(net(support.x), support.y), self.net)
        return Adapted(adapted.given(support.x), net=adapted)


@dataclass(frozen=True, kw_only=True)
class MTNetOptions(InnerOptions):
    """MT-Net: MAML in a learned metric, on units that a learned mask draws."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> MTNet:
        """The learner. It adds no random weights, so the key goes unused: each T is the identity,
        and every unit is adapted with probability one half."""
        found = layers(net)
        if not found:
            raise ValueError(
                "MT-Net needs a network with layers of arml.nn.linear or arml.nn.conv2d, got "
                f"{type(net).__name__} without any: build it from these"
            )
        eyes = (Shared(jnp.eye(layer.bias.size, dtype=layer.bias.dtype)) for layer in found)
        net = with_layers(net, map(Warped, found, eyes))
        return MTNet(
            net=net,
            logits=tuple(jnp.zeros_like(layer.bias) for layer in found),
            inner=self.descent(net),
            problem=problem,
        )


METHODS = (
    Method(
        name="mt-net",
        options_class=MTNetOptions,
        paper="Lee and Choi, ICML 2018",
        preset=lambda problem: MTNetOptions(inner_rate=usual_rate(problem)),
        settings={"regression": {"algorithm": {"inner_clip": 1_000.0}, "outer": {"clip": 10.0}}},
    ),
)
