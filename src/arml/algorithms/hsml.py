"""HSML: a tree clusters tasks softly, and gates tailor the shared initialisation to the clusters of
a task. A recurrent autoencoder makes a code from the support set, the code climbs from the leaves
to the root, and code and root set one gate for each parameter.

[1] Yao, Wei, Huang and Li, Hierarchically Structured Meta-learning, ICML 2019.
[2] The authors' code, huaxiuyao/HSML (TensorFlow 1).

Differences
- The authors' image code divides losses by the shots and sums them: its inner rate .01 is
  .01 * ways here, and its reconstruction weight .01 is .01 * shots / (ways * queries).
- A distance chooses leaves, and a linear score chooses upper clusters: `tree_type` 1 of the
  authors' code, its default. Its other type has distances on every level.
- Each sample's label follows its embedding as a one-hot vector. In the authors' code this vector is
  inverted: zero at the class and one elsewhere.
- Support sets of pictures and vectors are in order of class, and the order of the classes is drawn
  for each task. The authors shuffle the samples. The recurrent code depends on the order, but the
  accuracy hardly does: with features of the starter pictures (5-shot, one training of 2,000 steps,
  1,000 validation tasks) shuffling changes it by 0.00 ± 0.01 points.
- The encoder reads all support samples; in the authors' 5-shot runs it reads the first ten.
- The authors do not classify vectors. Here these are embedded linearly, as the authors embed the
  pairs of their regression.
- The offset of the batch normalisation is neither gated nor adapted.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.algorithms.conditioned import Conditioned, Embedder
from arml.algorithms.method import Method
from arml.core.checks import AboveZero, NonNegative, Size
from arml.core.episodes import Examples, Problem
from arml.core.inner import InnerOptions, usual_rate
from arml.core.learner import Network
from arml.nn.autoencoders import GRUAutoencoder, Summary
from arml.nn.embeddings import embedding_of
from arml.nn.heads import squared_distances
from arml.nn.modulation import Gate, stacked
from arml.nn.networks import Initialiser, Linear, glorot

Lower = Float[Array, "lower d"]
Assignment = Callable[[Lower], Float[Array, "lower upper"]]
"""The share of each lower node that goes to each upper one; rows sum to one."""


class Distances(eqx.Module):
    """p_k = softmax_k(-||h - c_k||^2 / (2 spread)), where c_k is the centre of cluster k."""

    centres: Float[Array, "upper d"]
    spread: float

    def __call__(self, lower: Lower) -> Float[Array, "lower upper"]:
        squares = squared_distances(lower, self.centres)
        return jax.nn.softmax(-squares / (2 * self.spread), axis=-1)


class Affinity(eqx.Module):
    """p_k = softmax_k(w_k h + b_k)."""

    dense: Linear

    def __call__(self, lower: Lower) -> Float[Array, "lower upper"]:
        return jax.nn.softmax(self.dense(lower), axis=-1)


def all_of_it(lower: Lower) -> Float[Array, "lower 1"]:
    """Everything goes to the root."""
    return jnp.ones((len(lower), 1), lower.dtype)


class Level(eqx.Module):
    """Upper node k is the sum of p_k tanh(W_k h + b_k) over the lower nodes h."""

    assign: Assignment
    weight: Float[Array, "upper d e"]
    bias: Float[Array, "upper e"]

    def __call__(self, lower: Lower) -> Float[Array, "upper e"]:
        messages = jnp.tanh(jnp.einsum("ld,ude->lue", lower, self.weight) + self.bias)
        return jnp.einsum("lu,lue->ue", self.assign(lower), messages)


class ClusterTree(eqx.Module):
    """Soft hierarchical clustering, level by level from the leaves to the root."""

    levels: tuple[Level, ...]

    @classmethod
    def drawn(
        cls, width: int, clusters: tuple[int, ...], *, spread: float, key: PRNGKeyArray
    ) -> "ClusterTree":
        """A tree over codes of `width` numbers, with `clusters` nodes in each level, leaves first.
        All weights are Glorot-uniform, centres and biases as single rows, as in [2]."""
        key_centres, *keys = jax.random.split(key, len(clusters) + 2)
        centres = _each(glorot, clusters[0], (1, width), key_centres)[:, 0]
        levels = []
        for i, (count, level_key) in enumerate(zip((*clusters, 1), keys, strict=True)):
            key_scores, key_score_bias, key_weight, key_bias = jax.random.split(level_key, 4)
            assign: Assignment = all_of_it
            if i == 0:
                assign = Distances(centres, spread)
            elif i < len(clusters):
                weight = _each(glorot, count, (width, 1), key_scores)[..., 0].T
                bias = _each(glorot, count, (1, 1), key_score_bias)[:, 0, 0]
                assign = Affinity(Linear(weight, bias))
            levels.append(
                Level(
                    assign,
                    _each(glorot, count, (width, width), key_weight),
                    _each(glorot, count, (1, width), key_bias)[:, 0],
                )
            )
        return cls(tuple(levels))

    def __call__(self, code: Float[Array, " d"]) -> Float[Array, " e"]:
        nodes = code[None]
        for level in self.levels:
            nodes = level(nodes)
        return nodes[0]


def _each(init: Initialiser, count: int, shape: tuple[int, ...], key: PRNGKeyArray) -> Array:
    """`count` arrays of one shape, each drawn with its own fans."""
    return jnp.stack([init(k, shape, jnp.float32) for k in jax.random.split(key, count)])


class TreeEncoder(Embedder):
    """Embed, summarise, climb."""

    embed: Callable[[Examples], Float[Array, "n d"]]
    ways: int = eqx.field(static=True)
    """Classes of the labels that follow the embeddings; 0 for none."""
    summarise: Summary
    tree: ClusterTree
    mu: float

    def __call__(self, support: Examples) -> tuple[Float[Array, " code"], Float[Array, ""]]:
        samples = self.embed(support)
        if self.ways:
            labels = jax.nn.one_hot(support.y, self.ways, dtype=samples.dtype)
            samples = jnp.concatenate([samples, labels], axis=1)
        code, error = self.summarise(samples)  # g and its reconstruction loss
        return jnp.concatenate([code, self.tree(code)]), self.mu * error  # [g; h]


@dataclass(frozen=True, kw_only=True)
class HSMLOptions(InnerOptions):
    """HSML: a tree of task clusters tailors the initialisation, one gate a parameter. The defaults
    are the authors' on their regression of 1-D functions."""

    clusters: tuple[Size, ...] = (4, 2)
    """Clusters of each level of the tree, leaves first; a root joins the last."""
    spread: AboveZero = 2.0
    """Scale s of the squared distances to the leaves' centres."""
    embedding: Size = 20
    """Dimension of a sample's embedding."""
    width: Size = 40
    """Dimension of the code and of the tree's nodes."""
    window: Size = 5
    """Window of the image embedding's convolutions."""
    mu: NonNegative = 0.01
    """Weight of the reconstruction."""

    def check(self) -> None:
        super().check()
        if not self.clusters:
            raise ValueError("clusters must name at least one level, got none: try (4, 2)")

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> Conditioned:
        """The learner, with freshly drawn weights, for the base network `net`: [g; h] sets a gate
        of every parameter."""
        key_embed, key_summary, key_tree, key_gate = jax.random.split(key, 4)
        ways = problem.outputs if problem.kind == "classification" else 0
        encode = TreeEncoder(
            embed=embedding_of(problem, self.embedding, window=self.window, key=key_embed),
            ways=ways,
            summarise=GRUAutoencoder.drawn(self.embedding + ways, self.width, key=key_summary),
            tree=ClusterTree.drawn(self.width, self.clusters, spread=self.spread, key=key_tree),
            mu=self.mu,
        )
        return Conditioned(
            net=net,
            encode=encode,
            modulate=Gate(stacked(net, 2 * self.width, key=key_gate)),
            inner=self.descent(net),
            problem=problem,
        )


def hsml(problem: Problem) -> HSMLOptions:
    if problem.kind == "regression":
        return HSMLOptions()
    rate = usual_rate(problem)
    mu = 0.01 * problem.shots / problem.query  # their losses are sums over images / shots
    if not problem.spatial:
        return HSMLOptions(inner_rate=rate, mu=mu)
    return HSMLOptions(inner_rate=rate, mu=mu, spread=10.0, embedding=64, width=128)


METHODS = (
    Method(
        name="hsml",
        options_class=HSMLOptions,
        paper="Yao, Wei, Huang and Li, ICML 2019",
        preset=hsml,
        tune=("inner_rate", "mu"),
    ),
)
