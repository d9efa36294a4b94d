"""Our extensions of ARML: each vertex has a modulation of the network, a task reads the vertices
directly, and the head is made from the task's examples (in `arml-layers` it is learned). In
classification a task reads the vertices by the base network's features, in regression by an
embedding of the pairs (x, y).

**Modulations of vertices.** In `arml.py` one dense layer makes all gates from the task's code. Here
each vertex has templates [2] (a scale and a shift of every unit), or layers that make these from
the task's mean prototype. With `weights` it also has an offset of every weight, a mixture of
initialisations as in [3]. The code is the reading: the mean weight of each vertex for the task's
prototypes (Eq. 6 of [1]). There are no autoencoders and no messages. The vertices follow the
prototypes by soft k-means, and so separate where tasks differ.

**Reading by evidence.** The embedding of prototypes is learned, and is hardly informative early in
training. If the head is Bayesian (`arml.nn.heads.RidgeHead`, [4]), the probability of a support set
under a vertex's network has a closed form, before any step of learning. By Bayes' rule

    a_v = p_v p(y | x, theta_v)^rho / sum_u p_u p(y | x, theta_u)^rho,

where the prior p_v is the reading by the prototypes, theta_v is the shared initialisation with the
modulation of vertex v, and rho is learned. Gradients pass through a_v. The task's own code, and so
p_v and theta_v, depend on the same y, which counts the examples twice. A learned rho can correct
this. A task blends the weights of the networks, where a mixture would blend their predictions.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020.
[2] Triantafillou, Larochelle, Zemel and Dumoulin, Learning a Universal Template for Few-shot
    Dataset Generalization, ICML 2021 (FLUTE). Its templates belong to named data sets; here they
    belong to vertices, and families need no names.
[3] Jerfel, Grant, Griffiths and Heller, Reconciling Meta-learning and Continual Learning with
    Online Mixtures of Tasks, NeurIPS 2019.
[4] Harrison, Sharma and Pavone, Meta-learning Priors for Efficient Online Bayesian Regression,
    WAFR 2018.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, Int, PRNGKeyArray, PyTree
from msgspec import Meta

from arml.algorithms.arml import (
    ARML,
    ARML_PAPER,
    MetaKnowledgeGraph,
    Prototypes,
    Reading,
    Structure,
    drawn_vertices,
    keys_of,
    sample_mean,
    standard_normal,
    unlinked,
)
from arml.algorithms.conditioned import Embedder, Head, the_learned_head
from arml.algorithms.method import Changes
from arml.core.checks import AboveZero, Size, classes_only
from arml.core.episodes import Examples, Problem
from arml.core.inner import InnerOptions
from arml.core.learner import Code, Embedding, Network, Penalty
from arml.nn.embeddings import Embed, embedding_of
from arml.nn.heads import (
    PrototypeHead,
    RidgeHead,
    Samples,
    class_means,
    headless,
    units,
)
from arml.nn.modulation import film
from arml.nn.networks import BaseNetwork, filmed, uniform, widths, with_body

# The encoder: a task's code is its weight of each vertex.


class Spread(eqx.Module):
    """One prototype for the task: for each feature, the share of its variance that lies between
    classes (the correlation ratio, from 0 to 1). It shows which features separate the classes. It
    needs two shots or more, because it compares with the spread within classes."""

    ways: int = eqx.field(static=True)

    def __call__(self, e: Samples, f: Samples, y: Int[Array, " n"]) -> Float[Array, "1 d"]:
        means, _ = class_means(e, y, self.ways)
        within = jnp.mean(jnp.square(e - means[y]), axis=0)
        total = jnp.var(e, axis=0)
        # A feature that hardly varies has a share of about zero.
        least = 0.01 * jnp.mean(total) + 1e-12
        return ((total - within) / (total + least))[None]


def already_embedded(support: Examples) -> Float[Array, "n d"]:
    """No embedding, because the inputs are features already."""
    return support.x


def surprise(graph: MetaKnowledgeGraph, prototypes: Prototypes) -> Float[Array, ""]:
    """The negative log-likelihood of the prototypes under a mixture of Gaussians of standard
    deviation gamma_s around the vertices, without its constant; the mean over prototypes. Its
    gradient is that of soft k-means: a vertex moves towards the prototypes that read it."""
    mixture = jax.nn.logsumexp(graph.exponents(prototypes), axis=1)
    return -jnp.mean(mixture - jnp.log(len(graph.vertices)))


class VertexTrace(NamedTuple):
    """Each step of a task's encoding, for figures and tests."""

    embeddings: Float[Array, "n d"]
    prototypes: Prototypes
    reading: Reading
    """Its `links` have the weights by evidence in each row, if the learner reads by evidence."""
    weights: Float[Array, " vertices"]
    """a: the task's weight of each vertex."""
    surprise: Float[Array, ""]


class VertexReader(Embedder):
    """The code is the reading: the mean weight of each vertex for the task's prototypes. The
    vertices learn to be where prototypes are."""

    embed: Embed
    structure: Structure
    graph: MetaKnowledgeGraph
    mu: float
    """Weight of the prototypes' surprise in the outer loss."""
    own: bool = False
    """Whether the task's mean prototype follows in the code."""

    def trace(self, support: Examples) -> VertexTrace:
        embeddings = self.embed(support)
        prototypes = self.structure(embeddings, embeddings, support.y)
        reading = self.graph(prototypes)
        unexplained = surprise(self.graph, jax.lax.stop_gradient(prototypes))
        weights = jnp.mean(reading.links, axis=0)
        return VertexTrace(embeddings, prototypes, reading, weights, unexplained)

    def __call__(self, support: Examples) -> tuple[Float[Array, " code"], Float[Array, ""]]:
        found = self.trace(support)
        code = found.weights
        if self.own:
            code = jnp.concatenate([code, jnp.tanh(jnp.mean(found.prototypes, axis=0))])
        return code, self.mu * found.surprise


# The modulations of the vertices, which a task blends with its weights.


class Templates(eqx.Module):
    """Each vertex has a scale and a shift of the units of each block: tau_v, which starts at zero.
    A task blends them: tau = sum_v a_v tau_v. With `weights` a vertex instead has a linear layer
    from the task's own code, tau_v = W_v code + b_v, and the code follows the reading a. With
    `offsets` a vertex also has a shift of every weight of the network, theta + sum_v a_v D_v: a
    mixture of initialisations, as in [3], in one graph.
    """

    biases: tuple[Float[Array, "vertices _"], ...]
    """tau_v, or b_v: of each block, the scales of its units less one, then their shifts."""
    weights: tuple[Float[Array, "vertices d _"], ...] | None = None
    offsets: PyTree = None
    """Arrays like the network's weights, with a first axis of vertices; zero at first. Or None."""

    @classmethod
    def drawn(
        cls,
        net: BaseNetwork,
        vertices: int,
        features: tuple[int, ...],
        *,
        code: int = 0,
        offsets: bool = False,
        key: PRNGKeyArray,
    ) -> "Templates":
        """Templates for inputs of shape `features` and an own code of `code` numbers. The weights
        are small, as in `UnitModulation`."""
        sizes = [2 * n for n in widths(net.body, features)]
        biases, weights, zeros = (jnp.zeros((vertices, n), jnp.float32) for n in sizes), None, None
        if code:
            init, keys = uniform(code**-0.5), jax.random.split(key, len(sizes))
            pairs = zip(keys, sizes, strict=True)
            weights = tuple(init(k, (vertices, code, n), jnp.float32) for k, n in pairs)
        if offsets:
            zeros = jax.tree.map(
                lambda a: jnp.zeros((vertices, *a.shape), a.dtype),
                eqx.filter(net, eqx.is_inexact_array),
            )
        return cls(tuple(biases), weights, zeros)

    def __call__(self, net: BaseNetwork, code: Float[Array, " both"]) -> BaseNetwork:
        reading, own = self.parts(code)
        taus = tuple(reading @ each for each in self._taus(own))
        return _made(net, taus, jax.tree.map(lambda a: jnp.tensordot(reading, a, 1), self.offsets))

    def parts(
        self, code: Float[Array, " both"]
    ) -> tuple[Float[Array, " vertices"], Float[Array, " d"]]:
        reading, own = jnp.split(code, [len(self.biases[0])])
        return reading, own

    def for_each(
        self, net: BaseNetwork, own: Float[Array, " d"], function: Callable[[BaseNetwork], Array]
    ) -> Float[Array, "vertices ..."]:
        """The values of a function of the network that each vertex makes alone."""

        def of(taus: tuple[Array, ...], offsets: PyTree) -> Array:
            return function(_made(net, taus, offsets))

        return jax.vmap(of)(self._taus(own), self.offsets)

    def _taus(self, own: Float[Array, " d"]) -> tuple[Float[Array, "vertices _"], ...]:
        if self.weights is None:
            return self.biases
        pairs = zip(self.weights, self.biases, strict=True)
        return tuple(jnp.einsum("d,vdu->vu", own, weight) + bias for weight, bias in pairs)


def _made(net: BaseNetwork, taus: tuple[Float[Array, " _"], ...], offsets: PyTree) -> BaseNetwork:
    """The network with these offsets, if there are any, and with a FiLM of each block."""
    net = eqx.apply_updates(net, offsets)
    return replace(net, body=filmed(net.body, map(film, taus)))


# The learner.


class ExtendedARML(ARML):
    """ARML whose vertices have modulations. Its head may be made from the task's examples, and
    `choose` may replace the weights of the vertices by those of the evidence."""

    choose: "Choose | None" = None

    def look(self, support: Examples) -> Examples:
        """The encoder's input: in classification the base network's features, without a gradient
        to them."""
        if self.problem.kind == "regression":
            return support
        return Examples(jax.lax.stop_gradient(self.net.body(support.x)), support.y)

    def coded(self, support: Examples) -> tuple[Code, Penalty]:
        code, penalty = self.encode(self.look(support))
        return (code if self.choose is None else self.choose(self, support, code)), penalty

    def embedding(self) -> Callable[[Array], Embedding] | None:
        if self.problem.kind == "regression":
            return super().embedding()
        return lambda support_x: self.net.body.given(support_x)

    def reading(self) -> Callable[[Examples], VertexTrace]:  # type: ignore[override]
        encode: PyTree = self.encode

        def read(support: Examples) -> VertexTrace:
            trace: VertexTrace = encode.trace(self.look(support))
            if self.choose is None:
                return trace
            weights = self.coded(support)[0][: len(trace.weights)]
            links = jnp.broadcast_to(weights, trace.reading.links.shape)
            return trace._replace(weights=weights, reading=trace.reading._replace(links=links))

        return read


Choose = Callable[[ExtendedARML, Examples, Code], Code]
"""Replaces the reading at the beginning of a code."""


# Reading by evidence: the probability of the examples under the network of each vertex.


class Evidence(eqx.Module):
    """Replaces the reading in a code by the reading by evidence. The vertices have layers
    (`Templates`), and the head is a `RidgeHead`."""

    log_noise: Float[Array, ""]
    """Logarithm of a variance that weighs the misfit against the volume. The query loss trains it,
    so it does not estimate the noise."""
    log_power: Float[Array, ""]
    """Logarithm of rho. If rho is below one, an uncertain task still reads several vertices."""

    @classmethod
    def initial(cls) -> "Evidence":
        """Noise of 1 and a power below one, so at first a task reads all vertices."""
        return cls(jnp.zeros((), jnp.float32), jnp.full((), -1.0, jnp.float32))

    def __call__(self, learner: ExtendedARML, support: Examples, code: Code) -> Code:
        modulate: PyTree = learner.modulate
        head: PyTree = learner.head
        placed, own = modulate.parts(code)
        each = modulate.for_each(
            learner.net, own, lambda net: head.log_evidence(net, support, self.log_noise)
        )
        exponents = jnp.log(placed + 1e-9) + jnp.exp(self.log_power) * each  # finite
        return jnp.concatenate([jax.nn.softmax(exponents), own])


def without_vertex(learner: ExtendedARML, vertex: int) -> ExtendedARML:
    """The learner without one vertex and its templates."""
    graph: PyTree = learner.encode

    def cut(rows: Array) -> Array:
        return jnp.delete(rows, vertex, axis=0)

    fewer: ExtendedARML = eqx.tree_at(
        lambda m: (m.encode.graph.vertices, m.modulate),
        learner,
        (cut(graph.graph.vertices), jax.tree.map(cut, learner.modulate)),
    )
    return fewer


# Options.


def near_the_middle(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Around one half. Vertices that start close together move apart in the directions in which
    tasks differ. If they start far apart, all tasks read the nearest one."""
    return 0.5 + 0.05 * jax.random.normal(key, shape, dtype)


HEAD_SCALE = 0.05
"""Initial scale of the distances to prototypes, and initial variance of the weights of a ridge
head, in units of the noise's variance. Both are learned."""


@dataclass(frozen=True, kw_only=True)
class ExtendedARMLOptions(InnerOptions):
    """ARML whose vertices have modulations of the network."""

    head: Literal["learned", "prototypes", "ridge"] = "learned"
    """Head that a task starts from: one that all tasks share; one made from the task's prototypes;
    or, in regression, the solution of ridge regression on the features."""
    vertices: Annotated[int, Meta(ge=1, le=1_000)] = 4
    """Vertices of the graph."""
    read_by: Literal["place", "evidence"] = "place"
    """Weights of the vertices: from the distances to the prototypes (`place`), or also from the
    probability of the support set under the network of each vertex (`evidence`: for regression,
    the gates `layers` and `weights`, and the head `ridge`)."""
    gate: Literal["templates", "layers", "weights"] = "templates"
    """Modulation of the network. `templates`: each vertex has a scale and a shift of every unit.
    In regression `layers`: each vertex has layers that make scales and shifts from the mean
    prototype; `weights`: also an offset of every weight."""
    mu: Annotated[float, Meta(ge=0, le=1_000)] = 0.1
    """Weight of the negative log-likelihood of the prototypes given the vertices."""
    gamma_s: AboveZero = 1.0
    """Scale of the distances between prototypes and vertices, Eq. (6) of ARML's paper."""
    width: Size = 64
    """Dimension of the embedding and of the vertices in regression."""
    hidden: tuple[Size, ...] = ()
    """Hidden layers of the embedding in regression; it is linear if empty."""

    def check(self) -> None:
        super().check()
        allowed = self.own and self.head == "ridge"
        if self.read_by == "evidence" and not allowed:
            raise ValueError(
                "read_by evidence is for regression, with a gate of layers or weights and the head "
                f"ridge, got {self.gate} and {self.head}: give --gate layers --head ridge, or "
                "--read-by place"
            )

    @property
    def own(self) -> bool:
        """Whether the modulation reads the task's own code beside the reading."""
        return self.gate != "templates"

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> ExtendedARML:
        if self.head == "prototypes":
            classes_only("a head of prototypes", problem)
        if problem.kind == "classification" and (self.head == "ridge" or self.own):
            raise ValueError(
                f"the head {self.head} with the gate {self.gate} needs regression tasks, and these "
                "are classification: use the head prototypes and the gate templates"
            )
        if problem.kind == "classification" and self.head == "learned" and not self.inner_steps:
            raise ValueError(
                "a learned head needs inner steps, because the classes of a task have a random "
                "order; got inner_steps 0: give --head prototypes or --inner-steps 5"
            )
        body, keys = with_body(net, "ARML, extended,"), keys_of(key)
        features, learned = problem.features, body
        head: Head = the_learned_head
        if self.head == "ridge":
            head = RidgeHead.of(body, HEAD_SCALE)
        elif self.head != "learned":
            learned, head = headless(body), PrototypeHead(jnp.float32(HEAD_SCALE), problem.outputs)
        own = self.width if self.own else 0
        modulate = Templates.drawn(
            learned,
            self.vertices,
            features,
            code=own,
            offsets=self.gate == "weights",
            key=keys["gate"],
        )
        # Learned rates have the structure of the network that descends.
        start = modulate(learned, jnp.zeros(own + self.vertices, jnp.float32))
        start = replace(start, head=body.head)
        return ExtendedARML(
            net=learned,
            encode=self.encoder(body, problem, keys),
            modulate=modulate,
            inner=self.descent(start),
            problem=problem,
            head=head,
            choose=Evidence.initial() if self.read_by == "evidence" else None,
        )

    def encoder(
        self, net: BaseNetwork, problem: Problem, keys: dict[str, PRNGKeyArray]
    ) -> VertexReader:
        embed: Embed
        structure: Structure = sample_mean
        init: Callable[..., Array]
        if problem.kind == "classification":
            embed, structure = already_embedded, Spread(problem.outputs)
            width, init = units(net.body, problem.features), near_the_middle
        else:
            width, init = self.width, standard_normal
            embed = embedding_of(
                problem, width, window=3, pooled=True, hidden=self.hidden, key=keys["embed"]
            )
        return VertexReader(
            embed=embed,
            structure=structure,
            graph=MetaKnowledgeGraph(
                vertices=drawn_vertices(init, self.vertices, width, key=keys["vertices"]),
                relate=unlinked,
                connect=unlinked,
                propagate=(),
                gamma_s=self.gamma_s,
            ),
            mu=self.mu,
            own=self.own,
        )


# Presets.


def extended(problem: Problem) -> ExtendedARMLOptions:
    """Our presets.

    In classification each vertex has a modulation of the whole network. A task reads the vertices
    by the spread of its features within and between classes, and the nearest prototype classifies.
    With one example of each class there is no spread, and all tasks read the same vertices. For
    regression every vertex has a network, ridge regression finds its head, and the evidence sets
    the weights of the vertices.
    """
    if problem.kind == "classification":
        return ExtendedARMLOptions(inner_rate=0.05, inner_steps=0, head="prototypes", gamma_s=0.5)
    return replace(
        with_own_layers(problem),
        inner_steps=0,
        head="ridge",
        gate="weights",
        read_by="evidence",
        vertices=8,
        gamma_s=64**0.5,  # distances are large in many dimensions: less would read one vertex
    )


def with_own_layers(problem: Problem) -> ExtendedARMLOptions:
    """In regression each vertex has layers that map the task's mean embedding to a modulation. A
    blend of a few templates could not express the coefficients of a function."""
    return ExtendedARMLOptions(inner_bound=100.0, hidden=(128, 128), gate="layers")


HE_AND_CLIP: Changes = {"network": {"init": "he"}, "outer": {"clip": 10.0}}
_EXTENDED_ARML = replace(
    ARML_PAPER,
    name="arml",
    kind="arml",
    options_class=ExtendedARMLOptions,
    title="ARML, extended",
    about="ARML, extended by us: templates for pictures and vectors, evidence for regression.",
    paper=f"ours, after {ARML_PAPER.paper}",
    preset=extended,
    variants={},
    settings={
        "regression": {
            "network": {"init": "he"},
            "outer": {"clip": 10.0, "outer_rate": 0.002, "warmup": 0.02, "schedule": "cosine"},
        }
    },
    tune=("gamma_s", "mu"),
    descends=False,
)
METHODS = (
    _EXTENDED_ARML,
    replace(
        _EXTENDED_ARML,
        name="arml-layers",
        title="ARML, own layers",
        about="ARML for regression whose vertices have layers, without evidence.",
        kinds=("regression",),
        preset=with_own_layers,
        descends=True,
        settings={"regression": HE_AND_CLIP},
    ),
)
