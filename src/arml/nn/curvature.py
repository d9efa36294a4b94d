"""The curvature of a base network's negative log-likelihood: its Fisher information, with one block
for each layer. The expectation over labels is exact, under the network's predictions.

A block is Kronecker-factored [1], with the sums over positions of a convolution as in [2]. A
layer's inputs end with a constant 1, whose weight is the bias. The statistics of the normalisation
are constants here, so that each example has its own gradient.

[1] Martens and Grosse, Optimizing Neural Networks with Kronecker-factored Approximate Curvature,
    ICML 2015.
[2] Grosse and Martens, A Kronecker-factored Approximate Fisher Matrix for Convolution Layers,
    ICML 2016.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from arml.core.compilation import unbatched
from arml.core.losses import single
from arml.nn import networks
from arml.nn.convolution import patches
from arml.nn.networks import BaseNetwork, Conv2d, Linear, Statistics

Root = Callable[[Float[Array, "n outputs"]], Float[Array, "k n outputs"]]
"""Maps outputs to a square root of their own Fisher information: `F_n = sum_k r_kn r_kn^T`."""


def gaussian_root(outputs: Float[Array, "n targets"]) -> Float[Array, "targets n targets"]:
    """The root for a Gaussian of unit variance around the outputs: F = I."""
    n, targets = outputs.shape
    root = jnp.eye(targets, dtype=outputs.dtype)
    return jnp.broadcast_to(root[:, None], (targets, n, targets))


def categorical_root(logits: Float[Array, "n ways"]) -> Float[Array, "ways n ways"]:
    """The root for classes: sqrt(p_c) (e_c - p), the gradient of log p(c) times the root of the
    probability of class c; F = diag(p) - p p^T."""
    log_p = jax.nn.log_softmax(logits)
    scores = jnp.eye(logits.shape[1], dtype=logits.dtype)[:, None] - jnp.exp(log_p)
    return jnp.exp(log_p / 2).T[:, :, None] * scores


ROOTS: dict[str, Root] = {"regression": gaussian_root, "classification": categorical_root}
"""The root for each kind of problem."""


class _Layer(NamedTuple):
    """The inputs of one layer, each with a 1 at its end, and the gradients of the log-likelihood by
    the outputs, one for each column `k` of the root. A dense layer has one position."""

    inputs: Float[Array, "n positions inputs"]
    gradients: Float[Array, "k n positions outputs"]


class _Tapped(eqx.Module):
    """Layer number `index`. It passes its inputs and outputs to `see`, and adds `tap` to its
    outputs, so that the gradient of `tap` is the gradient of the outputs."""

    layer: Callable[[Array], Array]
    tap: Array | float
    index: int = eqx.field(static=True)
    see: Callable[[int, Array, Array], None] = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        z = self.layer(x)
        self.see(self.index, x, z)
        return z + self.tap


def _run(
    net: BaseNetwork, x: Array, statistics: tuple[Statistics, ...], taps: Sequence[Array | float]
) -> tuple[Array, list[Array], list[Array]]:
    """The outputs, and each layer's inputs and outputs."""
    seen: dict[int, tuple[Array, Array]] = {}

    def see(index: int, x: Array, z: Array) -> None:
        if index in seen:
            raise ValueError(
                "LLAMA needs a network that uses each layer once: do not share layers in it"
            )
        seen[index] = x, z

    every = enumerate(zip(networks.layers(net), taps, strict=True))
    tapped = networks.with_layers(net, [_Tapped(layer, tap, i, see) for i, (layer, tap) in every])
    outputs = tapped.head(tapped.body.run(x, statistics)[0])
    pairs = [seen[i] for i in range(len(taps))]
    return outputs, [x for x, _ in pairs], [z for _, z in pairs]


def traced_layers(
    net: BaseNetwork, x: Float[Array, "n *features"], statistics: tuple[Statistics, ...], root: Root
) -> list[_Layer]:
    """The inputs of the layers of `net` and the gradients by their outputs, on `x`. The layers of
    the blocks come first, in order, and then the head. The network must use each layer once.

    **Arguments**

    - `statistics`: each block's statistics, from `net.body.run`.
    - `root`: the likelihood, as the root of its Fisher information.
    """
    untapped = [0.0] * len(networks.layers(net))
    shapes = jax.eval_shape(lambda: _run(net, x, statistics, untapped)[2])
    taps = [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]

    outputs, pull, inputs = jax.vjp(lambda t: _run(net, x, statistics, t)[:2], taps, has_aux=True)
    gradients = jax.vmap(lambda r: pull(r)[0])(root(outputs))
    return [
        _Layer(_rows(layer, read), g.reshape(*g.shape[:2], -1, g.shape[-1]))
        for layer, read, g in zip(networks.layers(net), inputs, gradients, strict=True)
    ]


def _rows(layer: Linear | Conv2d, x: Array) -> Float[Array, "n positions inputs"]:
    """The vectors that a layer multiplies by its weights, each with a 1 at its end."""
    n = len(x)
    if isinstance(layer, Conv2d):
        x = patches(x, *layer.kernel.shape[:2])
    x = x.reshape(n, -1, x.shape[-1])
    return jnp.concatenate([x, jnp.ones((*x.shape[:2], 1), x.dtype)], axis=-1)


def factors(layer: _Layer) -> tuple[Float[Array, "inputs inputs"], Float[Array, "outputs outputs"]]:
    """The Kronecker factors A and G of a layer's mean Fisher information A (x) G. A is the mean
    over examples of the sum over positions of a a^T; G is the mean over both of g g^T."""
    n, positions, _ = layer.inputs.shape
    a = layer.inputs.reshape(n * positions, -1)
    g = layer.gradients.reshape(-1, layer.gradients.shape[-1])
    return a.T @ a / n, g.T @ g / (n * positions)


def log_det(layer: _Layer, precision: float) -> Float[Array, ""]:
    """log det(n A (x) G + precision I), with the `n` examples of the layer. Only its first
    derivatives are correct."""
    n = len(layer.inputs)
    a, g = map(_eigenvalues, factors(layer))
    return jnp.sum(jnp.log(n * a[:, None] * g + precision))


def _eigenvalues(matrix: Float[Array, "d d"]) -> Float[Array, " d"]:
    """The eigenvalues of a positive semi-definite matrix. Their first derivative is that of v^T M v
    with v held fixed, which is finite even where eigenvalues coincide."""
    held = jax.lax.stop_gradient(matrix)
    vectors = jax.lax.stop_gradient(unbatched(jnp.linalg.eigh)(single(held))[1])
    vectors = vectors.astype(matrix.dtype)
    return jnp.maximum(jnp.sum(vectors * (matrix @ vectors), axis=0), 0.0)
