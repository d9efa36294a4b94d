"""ARML's task encoder: embed, structure, read the meta-knowledge graph, summarise.

Equation numbers are those of Yao et al., Automated Relational Meta-learning, ICLR 2020.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from arml.core.episodes import Examples
from arml.core.learner import Code, Embedding, Encoder
from arml.nn.autoencoders import Summary
from arml.nn.embeddings import Embed
from arml.nn.graphs import MetaKnowledgeGraph, Reading
from arml.nn.prototypes import ClassMeans, Structure


class Trace(NamedTuple):
    """Each step of a task's encoding, for those who look inside."""

    embeddings: Float[Array, "n d"]
    prototypes: Float[Array, "prototypes d"]
    reading: Reading | None
    raw: Float[Array, " code"]
    """q, the code of the task before it reads the graph; where the reading is the code, a."""
    enriched: Float[Array, " code"] | None
    """t, the code of its reading."""
    penalties: tuple[Float[Array, ""], Float[Array, ""] | float]
    """L_q and L_t; where the reading is the code, the surprise of the prototypes, and 0."""


class Relational(Encoder):
    """ARML's task encoder: embed, structure, read the meta-knowledge graph, summarise.

    `sequence` chooses the input of the first autoencoder: the prototypes, or the samples. Without
    autoencoders (`summarise` is None) the code is the reading itself, which templates need: how
    much the task's prototypes read each vertex, on average. The vertices then learn to stand where
    prototypes are.
    """

    embed: Embed
    """E of the paper."""
    embed_values: Embed | None
    """F of Eq. (3); None where it is E."""
    structure: Structure
    sequence: Callable[[Array, Array], Float[Array, "m features"]] = eqx.field(static=True)
    summarise: Summary | None
    graph: MetaKnowledgeGraph | None
    summarise_reading: Summary | None
    mu_1: float
    mu_2: float
    own: bool = False
    """Whether the code is the reading followed by the task's mean prototype."""

    def trace(self, support: Examples) -> Trace:
        """The encoding of one support set, step by step."""
        embeddings = self.embed(support)
        values = embeddings if self.embed_values is None else self.embed_values(support)
        prototypes = self.structure(embeddings, values, support.y)  # Eq. (2), (3)
        if self.summarise is None:
            return self._read(embeddings, prototypes)
        raw, loss_q = self.summarise(self.sequence(embeddings, prototypes))  # Eq. (8)
        if self.graph is None or self.summarise_reading is None:
            return Trace(embeddings, prototypes, None, raw, None, (loss_q, 0.0))
        reading = self.graph(prototypes)  # Eq. (4) to (7)
        enriched, loss_t = self.summarise_reading(reading.prototypes)  # Eq. (9)
        return Trace(embeddings, prototypes, reading, raw, enriched, (loss_q, loss_t))

    def _read(self, embeddings: Float[Array, "n d"], prototypes: Float[Array, "k d"]) -> Trace:
        assert self.graph is not None
        reading = self.graph(prototypes)
        links = self.graph.links(reading.prototypes) if self.graph.propagate else reading.links
        surprise = self.graph.surprise(jax.lax.stop_gradient(prototypes))
        code = jnp.mean(links, axis=0)  # Eq. (6)
        if self.own:
            code = jnp.concatenate([code, jnp.tanh(jnp.mean(prototypes, axis=0))])
        return Trace(embeddings, prototypes, reading, code, None, (surprise, 0.0))

    def __call__(self, support: Examples) -> tuple[Float[Array, " code"], Float[Array, ""]]:
        trace = self.trace(support)
        loss_q, loss_t = trace.penalties
        penalty = self.mu_1 * loss_t + self.mu_2 * loss_q  # Eq. (11)
        if trace.enriched is None:
            return trace.raw, penalty
        return jnp.concatenate([trace.raw, trace.enriched]), penalty

    def embedding(self) -> Embedding:
        """In classification E reads x alone, so any labels serve."""
        return lambda x: self.embed(Examples(x, jnp.zeros(len(x), jnp.int32)))

    @property
    def code_is_reading(self) -> bool:
        """Whether the code is the reading: how much the task reads each vertex."""
        return self.summarise is None

    def reading(self) -> Callable[[Examples], Trace]:
        return self.trace

    def chosen(self, found: Trace, code: Code) -> Trace:
        assert found.reading is not None
        links = found.reading.links
        read = jnp.broadcast_to(code[: links.shape[1]], links.shape)
        return found._replace(raw=code, reading=found.reading._replace(links=read))

    def by_class(self) -> bool:
        return isinstance(self.structure, ClassMeans)

    def links(self) -> Float[Array, "vertices vertices"] | None:
        return None if self.graph is None else self.graph.connect(self.graph.vertices)

    def reversed(self) -> "Reversed":
        return Reversed(self)


class Reversed(Encoder):
    """ARML's encoder, which gets samples and class prototypes in reverse order. The network adapts
    to the support set in its own order."""

    encode: Relational

    def __call__(self, support: Examples) -> tuple[Float[Array, " code"], Float[Array, ""]]:
        x, y = support
        if isinstance(self.encode.structure, ClassMeans):
            y = self.encode.structure.ways - 1 - y
        return self.encode(Examples(x[::-1], y[::-1]))


def of_prototypes(embeddings: Array, prototypes: Array) -> Array:
    """The first autoencoder reads the prototypes, as in the paper's text."""
    return prototypes


def of_samples(embeddings: Array, prototypes: Array) -> Array:
    """The first autoencoder reads the samples' embeddings, as in the authors' code for
    regression."""
    return embeddings


def of_labelled_prototypes(embeddings: Array, prototypes: Array) -> Array:
    """The first autoencoder reads each prototype together with its class as a one-hot vector, as in
    the authors' code for images."""
    return jnp.concatenate([prototypes, jnp.eye(len(prototypes), dtype=prototypes.dtype)], axis=1)


SEQUENCES = {
    "prototypes": of_prototypes,
    "samples": of_samples,
    "labelled prototypes": of_labelled_prototypes,
}
