"""Prototypes: the vertices of a task's own graph, made from the embeddings of its support set.

Each structure maps two embeddings of the samples, E and F, both `[n, d]`, and their labels to
prototypes `[K, d]`. E and F differ only for the soft clusters.

The functions below the structures serve classifiers by prototypes: class means, where a task may
lack some of the classes, and logits from distances.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from arml.core.episodes import Task
from arml.core.learner import Embedding, MetaLearner
from arml.core.losses import cross_entropy
from arml.nn.networks import Body, Linear

ABSENT = -1e9
"""The logit of a class without support examples: it is finite, so that gradients are finite, too. A
learner that was built for 20 classes may get a task with 5."""

Samples = Float[Array, "n d"]
"""Embeddings of samples."""
Labels = Shaped[Array, "n *targets"]
"""Classes or targets."""
Structure = Callable[[Samples, Samples, Labels], Float[Array, "prototypes d"]]


class Embedded(MetaLearner):
    """A learner that compares embeddings by a body, which no task adapts."""

    body: eqx.AbstractVar[Body]

    def embedding(self) -> Callable[[Array], Embedding]:
        """The body before a task conditions it."""
        return self.body.given


class ClassMeans(eqx.Module):
    """The mean embedding E of each class, in class order. Eq. (2)."""

    ways: int = eqx.field(static=True)

    def __call__(self, e: Samples, f: Samples, y: Int[Array, " n"]) -> Float[Array, "ways d"]:
        return class_means(e, y, self.ways)[0]  # Eq. (2)


class SoftClusters(eqx.Module):
    """Sums of the embeddings F, weighted by an assignment that is learned from E. Eq. (3).

    They are weighted sums, not means: the prototypes grow with the number of shots, as in the
    paper's formula and in the authors' code. With more examples than in its training, a learner
    gets larger prototypes than it ever saw, and diverges; `most` bounds them.
    """

    assign: Linear
    most: int | None = eqx.field(static=True, default=None)
    """If there are more samples than this, the sums are scaled down as if there were this many."""

    def assignment(self, e: Samples) -> Float[Array, "n prototypes"]:
        """Each sample's weights over the clusters; rows sum to one."""
        return jax.nn.softmax(self.assign(e), axis=-1)  # Eq. (3): P, transposed

    def __call__(self, e: Samples, f: Samples, y: Labels) -> Float[Array, "prototypes d"]:
        sums = self.assignment(e).T @ f  # Eq. (3)
        return sums if self.most is None or len(e) <= self.most else sums * (self.most / len(e))


class Spread(eqx.Module):
    """One prototype for the task: for each feature, the share of its variance that lies between
    classes (the correlation ratio, from 0 to 1). It shows which features tell the classes apart.
    This needs the spread within classes, and so two shots or more: class means do not show it."""

    ways: int = eqx.field(static=True)

    def __call__(self, e: Samples, f: Samples, y: Int[Array, " n"]) -> Float[Array, "1 d"]:
        means, _ = class_means(e, y, self.ways)
        within = jnp.mean(jnp.square(e - means[y]), axis=0)
        total = jnp.var(e, axis=0)
        # A feature that hardly varies has a share of about zero.
        least = 0.01 * jnp.mean(total) + 1e-12
        return ((total - within) / (total + least))[None]


def sample_mean(e: Samples, f: Samples, y: Labels) -> Float[Array, "1 d"]:
    """One prototype, the mean of all samples (ablation I)."""
    return jnp.mean(f, axis=0, keepdims=True)


def each_sample(e: Samples, f: Samples, y: Labels) -> Samples:
    """Every sample is a vertex of the task's graph (ablation II)."""
    return f


def class_means(
    e: Samples, y: Int[Array, " n"], ways: int
) -> tuple[Float[Array, "ways d"], Bool[Array, " ways"]]:
    """The mean of each class, in class order, and which classes have examples; the mean of a class
    without examples is zero."""
    member = jax.nn.one_hot(y, ways, axis=0, dtype=e.dtype)
    count = jnp.sum(member, axis=1)
    return member @ e / jnp.maximum(count, 1)[:, None], count > 0


def among(
    present: Bool[Array, " ways"], logits: Float[Array, "*n ways"]
) -> Float[Array, "*n ways"]:
    """The logits, with `ABSENT` for the classes that are not `present`."""
    return jnp.where(present, logits, ABSENT)


def squared_distances(x: Samples, centres: Float[Array, "ways d"]) -> Float[Array, "n ways"]:
    """||x - c||^2, computed from the differences: |x|^2 - 2 x.c + |c|^2 loses precision in float32
    when the two are close."""
    return jnp.sum(jnp.square(x[:, None] - centres), axis=-1)


def units(body: Body, features: tuple[int, ...]) -> int:
    """The number of features that `body` makes from one input of shape `features`."""
    one = jax.ShapeDtypeStruct((1, *features), jnp.float32)
    return jax.eval_shape(lambda x: body(x), one).shape[-1]


def prototype_names(structure: Structure, count: int) -> list[str]:
    """The name of each prototype. Classes and samples are numbered within their task."""
    if structure is sample_mean:
        return ["all samples"]
    if type(structure) is Spread:
        return ["spread"]
    kinds: dict[type, str] = {ClassMeans: "class", SoftClusters: "cluster"}
    kind = kinds.get(type(structure), "sample")
    return [f"{kind} {i}" for i in range(count)]


def auxiliary_loss(body: Body, head: Linear | None, task: Task) -> Float[Array, ""] | float:
    """TADAM's auxiliary classification [1]: a linear head on the shared body's features classifies
    the images of a task among all training classes, whose numbers only training tasks have.

    It is the mean cross-entropy of the support and query images; 0 without a head or classes.

    [1] Oreshkin, Rodriguez and Lacoste, TADAM: Task dependent adaptive metric for improved few-shot
        learning, NeurIPS 2018, section 3.4.
    """
    if head is None or task.classes is None:
        return 0.0
    features, embed = body.embedded(task.support.x)
    features = jnp.concatenate([features, embed(task.query.x)])
    classes = task.classes[jnp.concatenate([task.support.y, task.query.y])]
    return cross_entropy(head(features), classes)
