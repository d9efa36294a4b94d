"""Our extensions of ARML: vertices own modulations of the network, a task reads them directly, and
the head is made from the task's examples.

**Vertices own modulations.** In `arml.py` one dense layer makes all gates from the task's code.
Here each vertex owns templates [2] (a scale and a shift of every unit), or layers that make these
from the task's mean prototype; with `weights` it also owns an offset of every weight, a mixture of
initialisations as in [3]. The code is the reading: how much the task's prototypes read each vertex,
on average (Eq. 6 of [1]). There are no autoencoders and no messages. The vertices follow the
prototypes by soft k-means, so that they separate where tasks differ.

**Reading by evidence.** The places of prototypes are learned, and tell little early in training. If
the head is Bayesian (`arml.nn.heads.RidgeHead`, [4]), the probability of a support set under a
vertex's network is known in closed form, before any step of learning. By Bayes' rule

    a_v = p_v p(y | x, theta_v)^rho / sum_u p_u p(y | x, theta_u)^rho,

where the prior p_v is the reading by places, theta_v is the shared initialisation with the
modulation of vertex v, and rho is learned. Gradients pass through a_v. The task's own code, and so
p_v and theta_v, depend on the same y, which counts the examples twice; a learned rho can make up
for it. A task blends the weights of the networks, where a mixture would blend their predictions.

**Reading by fit.** Vertices that were grown after training are read by how well their network fits
the support set (`BestFit`).

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
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, Int, PRNGKeyArray, PyTree

from arml.algorithms.arml import (
    ClassMeans,
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
from arml.algorithms.conditioned import (
    Conditioned,
    ConditionedOptions,
    Encoder,
    Head,
    Modulate,
    the_learned_head,
)
from arml.core.checks import at_least, classes_only, regression_only
from arml.core.episodes import Examples, Problem
from arml.core.inner import GradientDescent, Shared
from arml.core.learner import Adapted, Code, Embedding, Loss, Network, Penalty
from arml.nn.embeddings import Embed, embedding_of
from arml.nn.modulation import film
from arml.nn.networks import BaseNetwork, Film, filmed, uniform, widths, with_body
from arml.nn.prototypes import Samples, class_means, units

# The encoder: a task's code is how much it reads each vertex.


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


def the_inputs(net: Network, support: Examples) -> Examples:
    """The encoder reads the support set itself."""
    return support


def the_features(net: PyTree, support: Examples) -> Examples:
    """The encoder reads the base network's own features, so it needs no embedding of its own. No
    gradient passes through them."""
    return Examples(jax.lax.stop_gradient(net.body(support.x)), support.y)


def already_embedded(support: Examples) -> Float[Array, "n d"]:
    """No embedding: the inputs are features already."""
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
    """Its `links` have the chosen weights in each row, if the learner reads by evidence or fit."""
    weights: Float[Array, " vertices"]
    """a: how much the task reads each vertex."""
    surprise: Float[Array, ""]


class VertexReader(Encoder):
    """The code is the reading: how much the task's prototypes read each vertex, on average. The
    vertices learn to stand where prototypes are."""

    embed: Embed
    structure: Structure
    graph: MetaKnowledgeGraph
    mu: float
    """Weight of the prototypes' surprise in the outer loss."""
    own: bool = False
    """Whether the task's mean prototype follows in the code."""

    def trace(self, support: Examples) -> VertexTrace:
        """The encoding of one support set, step by step."""
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

    def embedding(self) -> Embedding:
        """In classification the embedding reads x alone, so any labels serve."""
        return lambda x: self.embed(Examples(x, jnp.zeros(len(x), jnp.int32)))


# What the vertices own. A task blends it by how much it reads each vertex.


class Templates(eqx.Module):
    """Gamma and B, `[vertices, units]` for each block."""

    scales: tuple[Float[Array, "vertices _"], ...]
    shifts: tuple[Float[Array, "vertices _"], ...]

    def __call__(self, net: BaseNetwork, reading: Float[Array, " vertices"]) -> BaseNetwork:
        films = tuple(
            Film(Shared(1 + reading @ scale), Shared(reading @ shift))
            for scale, shift in zip(self.scales, self.shifts, strict=True)
        )
        return replace(net, body=filmed(net.body, films))


def templates(net: Network, vertices: int, *, features: tuple[int, ...]) -> Templates:
    """The templates of `vertices` vertices for the blocks of `net`, all zero; `features` is the
    shape of one input."""
    body = with_body(net, "a modulation by templates").body
    zeros = tuple(jnp.zeros((vertices, n), jnp.float32) for n in widths(body, features))
    return Templates(zeros, zeros)


class OwnLayers(eqx.Module):
    """Each vertex owns a linear layer for each block, from the task's own code to FiLM. A task
    blends the layers as it does templates: tau = sum_v a_v (W_v code + b_v) scales and shifts.

    Its input is the reading a, followed by the task's own code. With `offsets` a vertex also owns a
    shift of every weight of the network, theta + sum_v a_v D_v: a mixture of initialisations, as in
    [2], in one graph.

    [2] Jerfel, Grant, Griffiths and Heller, Reconciling Meta-learning and Continual Learning with
        Online Mixtures of Tasks, NeurIPS 2019.
    """

    weights: tuple[Float[Array, "vertices d _"], ...]
    biases: tuple[Float[Array, "vertices _"], ...]
    offsets: PyTree = None
    """Arrays like the network's weights, with a first axis of vertices; zero at first. Or None."""

    def __call__(self, net: BaseNetwork, code: Float[Array, " both"]) -> BaseNetwork:
        reading, own = self.parts(code)
        taus = tuple(reading @ each for each in self._taus(own))
        return _made(net, taus, jax.tree.map(lambda a: jnp.tensordot(reading, a, 1), self.offsets))

    def parts(
        self, code: Float[Array, " both"]
    ) -> tuple[Float[Array, " vertices"], Float[Array, " d"]]:
        """The reading, and the task's own code."""
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
        return tuple(
            jnp.einsum("d,vdu->vu", own, weight) + bias
            for weight, bias in zip(self.weights, self.biases, strict=True)
        )


def _made(net: BaseNetwork, taus: tuple[Float[Array, " _"], ...], offsets: PyTree) -> BaseNetwork:
    """The network with these offsets, if there are any, and with a FiLM of each block."""
    net = eqx.apply_updates(net, offsets)
    return replace(net, body=filmed(net.body, map(film, taus)))


def own_layers(
    net: Network,
    vertices: int,
    code: int,
    *,
    features: tuple[int, ...],
    offsets: bool = False,
    key: PRNGKeyArray,
) -> OwnLayers:
    """The layers of `vertices` vertices from a code of `code` numbers, with small weights as in
    `unit_modulation`."""
    units = [2 * n for n in widths(with_body(net, "a modulation by layers").body, features)]
    init, keys = uniform(code**-0.5), jax.random.split(key, len(units))
    weights = [init(k, (vertices, code, n), jnp.float32) for k, n in zip(keys, units, strict=True)]
    biases = tuple(jnp.zeros((vertices, n), jnp.float32) for n in units)
    zeros = jax.tree.map(
        lambda a: jnp.zeros((vertices, *a.shape), a.dtype), eqx.filter(net, eqx.is_inexact_array)
    )
    return OwnLayers(tuple(weights), biases, zeros if offsets else None)


# The learner.


class ExtendedARML(Conditioned):
    """ARML whose vertices own modulations. `choose` may weigh the vertices anew by how well their
    networks explain the support set."""

    net: Network
    encode: VertexReader
    modulate: Modulate
    inner: GradientDescent
    loss: Loss = eqx.field(static=True)
    look: Callable[[PyTree, Examples], Examples] = the_inputs
    """The part of the support set that the encoder reads."""
    head: Head = the_learned_head
    choose: "Choose | None" = None

    def coded(self, support: Examples) -> tuple[Code, Penalty]:
        code, penalty = self.encode(self.look(self.net, support))
        return code if self.choose is None else self.choose(self, support, code), penalty

    def adapt_from(self, code: Code, penalty: Penalty, support: Examples) -> Adapted:
        start = self.head(self.modulate(self.net, code), support)
        adapted = self.inner(lambda net: self.loss(net(support.x), support.y), start)
        return Adapted(adapted.given(support.x), penalty, adapted)

    def embedding(self) -> Callable[[Array], Embedding]:
        if self.look is the_inputs:
            return lambda support_x: self.encode.embedding()
        net: PyTree = self.net
        return lambda support_x: net.body.given(support_x)

    def reading(self) -> Callable[[Examples], VertexTrace]:
        def read(support: Examples) -> VertexTrace:
            found = self.encode.trace(self.look(self.net, support))
            if self.choose is None:
                return found
            weights = self.coded(support)[0][: len(found.weights)]
            links = jnp.broadcast_to(weights, found.reading.links.shape)
            return found._replace(weights=weights, reading=found.reading._replace(links=links))

        return read


Choose = Callable[[ExtendedARML, Examples, Code], Code]
"""Replaces the reading at the beginning of a code."""


# Reading by how well the networks of the vertices explain the examples.


NEVER = 1e-9
"""Added to the reading by places, so that its logarithm is finite."""


class Evidence(eqx.Module):
    """Replaces the reading in a code by the reading by evidence. The vertices own layers
    (`OwnLayers`), and the head is a `RidgeHead`."""

    log_noise: Float[Array, ""]
    """Logarithm of a variance that weighs the misfit against the volume. The query loss trains it,
    so it is no estimate of the noise."""
    log_power: Float[Array, ""]
    """Logarithm of rho. Below one, an unsure network does not commit itself to one vertex."""

    def __call__(self, learner: ExtendedARML, support: Examples, code: Code) -> Code:
        modulate: PyTree = learner.modulate
        head: PyTree = learner.head
        placed, own = modulate.parts(code)

        def explained(net: PyTree) -> Float[Array, ""]:
            evidence: Array = head.log_evidence(net, support, self.log_noise)
            return evidence

        each = modulate.for_each(learner.net, own, explained)
        exponents = jnp.log(placed + NEVER) + jnp.exp(self.log_power) * each
        return jnp.concatenate([jax.nn.softmax(exponents), own])


def evidence() -> Evidence:
    """With noise of 1, and a power below one, so that at first all vertices are read."""
    return Evidence(jnp.zeros((), jnp.float32), jnp.full((), -1.0, jnp.float32))


class BestFit(eqx.Module):
    """A task reads ONE of the grown vertices, or all others by their places. It takes the choice
    whose adapted network explains its support set best, as in a mixture of initialisations [2]. The
    grown vertices are the last ones.

    The place of a vertex tells families apart only if their prototypes differ. How well its network
    fits the support set tells more, and costs some adaptations for each vertex. In regression the
    misfit is the product of two errors: of all examples after adaptation to all, and of the
    examples of each fold after adaptation to the others, because a flexible network fits any
    examples that it adapts to. `handicaps` are added to the logarithms of the grown vertices'
    misfits.
    """

    handicaps: Float[Array, " grown"]

    @property
    def grown(self) -> int:
        """How many vertices were grown."""
        return len(self.handicaps)

    def readings(self, placed: Float[Array, " vertices"]) -> Float[Array, "choices vertices"]:
        """The readings from which a task chooses."""
        count = len(placed)
        old = count - self.grown
        ones = jnp.eye(count, dtype=placed.dtype)[old:]
        if not old:
            return ones
        by_place = jnp.where(jnp.arange(count) < old, placed, 0)
        return jnp.concatenate([(by_place / (jnp.sum(by_place) + 1e-30))[None], ones])

    def misfits(
        self, learner: ExtendedARML, support: Examples, code: Code
    ) -> tuple[Float[Array, "choices vertices"], Float[Array, " choices"]]:
        """The readings, and the logarithm of how badly each explains the support set."""
        still: ExtendedARML = jax.tree.map(
            lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, learner
        )
        count = len(jax.tree.leaves(learner.modulate)[0])
        readings = self.readings(jax.lax.stop_gradient(code[:count]))
        n = len(support.x)
        parts = next((k for k in (5, 4, 3, 2) if n % k == 0), 1)
        folds = jnp.arange(n).reshape(-1, parts).T

        def error(reading: Array, given: Examples, asked: Examples) -> Float[Array, ""]:
            own = still.encode(still.look(still.net, given))[0][count:]
            adapted = still.adapt_from(jnp.concatenate([reading, own]), 0.0, given)
            return jnp.maximum(learner.loss(adapted.predict(asked.x), asked.y), 1e-12)

        def misfit(reading: Float[Array, " vertices"]) -> Float[Array, ""]:
            whole = jnp.log(error(reading, support, support))
            if jnp.issubdtype(support.y.dtype, jnp.integer) or parts == 1:
                return whole

            def left_out(i: Array) -> Float[Array, ""]:
                others = jnp.delete(folds, i, axis=0, assume_unique_indices=True).reshape(-1)
                given, asked = (Examples(support.x[r], support.y[r]) for r in (others, folds[i]))
                return error(reading, given, asked)

            return whole + jnp.log(jnp.mean(jax.vmap(left_out)(jnp.arange(parts))))

        found = jax.vmap(misfit)(readings)
        return readings, found + jnp.zeros_like(found).at[-self.grown :].set(self.handicaps)

    def __call__(self, learner: ExtendedARML, support: Examples, code: Code) -> Code:
        readings, misfits = self.misfits(learner, support, code)
        return jnp.concatenate([readings[jnp.argmin(misfits)], code[readings.shape[1] :]])


def best_fit(grown: int) -> BestFit | None:
    """For `grown` vertices without handicaps; None if none was grown."""
    return BestFit(jnp.zeros(grown, jnp.float32)) if grown else None


def without_vertex(learner: ExtendedARML, vertex: int) -> ExtendedARML:
    """The learner without one vertex and its templates."""
    graph: PyTree = learner.encode

    def cut(rows: Array) -> Array:
        return jnp.delete(rows, vertex, axis=0)

    count, choose = len(graph.graph.vertices), learner.choose
    if isinstance(choose, BestFit) and vertex >= count - choose.grown:
        left = jnp.delete(choose.handicaps, vertex - (count - choose.grown))
        choose = BestFit(left) if len(left) else None
    fewer = eqx.tree_at(
        lambda m: (m.encode.graph.vertices, m.modulate),
        learner,
        (cut(graph.graph.vertices), jax.tree.map(cut, learner.modulate)),
    )
    smaller: ExtendedARML = replace(fewer, choose=choose)
    return smaller


# Options.


def near_the_middle(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Around one half. Vertices that start close together move apart in the directions in which
    tasks differ. If they start far apart, all tasks read the nearest one."""
    return 0.5 + 0.05 * jax.random.normal(key, shape, dtype)


VERTICES: dict[str, Callable[..., Array]] = {
    "normal": standard_normal,
    "middle": near_the_middle,
}
LAYERS = ("layers", "weights")
"""Modulations that read the task's own code."""


@dataclass(frozen=True, kw_only=True)
class ExtendedARMLOptions(ConditionedOptions):
    """ARML with vertices that own modulations of the network."""

    reads: Literal["inputs", "features"] = "inputs"
    """The encoder's input: the inputs, by an embedding of its own, or the base network's
    features."""
    structure: Literal["mean", "classes", "spread"] = "mean"
    """The prototypes: the mean of all samples, one for each class, or the share of each feature's
    variance that lies between classes."""
    vertices: int = 4
    """Vertices of the graph."""
    grown: int = 0
    """How many of the vertices were grown later; a task reads these by how well they fit."""
    read_by: Literal["place", "evidence"] = "place"
    """How a task reads the vertices: by the places of its prototypes, or also by how well the
    network of each vertex explains its support set. The latter is for vertices that own layers, and
    for the head ridge."""
    gate: Literal["templates", "layers", "weights"] = "templates"
    """What a vertex owns: a scale and a shift of every unit; layers that make these from the mean
    prototype; or also an offset of every weight."""
    mu: float = 0.1
    """Weight of the negative log-likelihood of the prototypes given the vertices."""
    gamma_s: float = 1.0
    """Scale of the distances between prototypes and vertices, Eq. (6) of ARML's paper."""
    width: int = 64
    """Dimension of the embedding, and of the vertices; with reads features theirs."""
    hidden: tuple[int, ...] = ()
    """Hidden layers of the embedding of vectors; without any it is linear."""
    vertex_init: Literal["normal", "middle"] = "normal"
    """Initial vertices: standard normal, or close together around one half, in the middle of the
    range of shares."""

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        super().check()
        at_least(self, ("width", "hidden"), 1)
        at_least(self, ("vertices",), 1, most=1_000)
        at_least(self, ("mu",), 0, most=1_000)
        at_least(self, ("gamma_s",), 0, strict=True)
        at_least(self, ("grown",), 0, most=self.vertices - 1)
        if self.gate in LAYERS and self.reads == "features":
            raise ValueError(
                f"the gate {self.gate} needs reads inputs, got features: use the gate templates"
            )
        if self.read_by == "evidence":
            for name, wanted in (("gate", LAYERS), ("head", ("ridge",)), ("grown", (0,))):
                if (value := getattr(self, name)) not in wanted:
                    raise ValueError(
                        f"read_by evidence needs {name} {' or '.join(map(str, wanted))}, got "
                        f"{value}: give --{name} {wanted[0]}, or --read-by place"
                    )

    def check_problem(self, problem: Problem) -> None:
        """Raise `ValueError` in one line if an option does not suit `problem`."""
        if self.read_by == "evidence":
            regression_only("reading by evidence", problem, instead="read by place")
        if self.reads == "features":
            classes_only("reading the network's features", problem)
        if self.structure != "mean" and problem.kind != "classification":
            raise ValueError(
                "class prototypes need classification tasks, and these are regression: "
                "use the structure mean"
            )

    @property
    def grows(self) -> bool:
        """Whether its graph can get more vertices after training."""
        return self.read_by == "place"

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> ExtendedARML:
        """The learner, with freshly drawn weights, for the base network `net`."""
        self.check_problem(problem)
        keys, own = keys_of(key), self.gate in LAYERS
        return self.conditioned(
            ExtendedARML,
            net,
            problem,
            encode=self.encoder(net, problem, keys),
            modulate=lambda learned: self.modulation(learned, problem, key=keys["gate"]),
            code=self.vertices + (self.width if own else 0),
            look=the_inputs if self.reads == "inputs" else the_features,
            choose=evidence() if self.read_by == "evidence" else best_fit(self.grown),
        )

    def encoder(
        self, net: Network, problem: Problem, keys: dict[str, PRNGKeyArray]
    ) -> VertexReader:
        """The task encoder."""
        structures: dict[str, Structure] = {
            "mean": sample_mean,
            "classes": ClassMeans(problem.outputs),
            "spread": Spread(problem.outputs),
        }
        width = self.width
        embed: Embed = already_embedded
        if self.reads == "features":
            width = units(with_body(net, "reading features").body, problem.features)
        else:
            embed = embedding_of(
                problem, width, window=3, pooled=True, hidden=self.hidden, key=keys["embed"]
            )
        init = VERTICES[self.vertex_init]
        return VertexReader(
            embed=embed,
            structure=structures[self.structure],
            graph=MetaKnowledgeGraph(
                vertices=drawn_vertices(init, self.vertices, width, key=keys["vertices"]),
                relate=unlinked,
                connect=unlinked,
                propagate=(),
                gamma_s=self.gamma_s,
            ),
            mu=self.mu,
            own=self.gate in LAYERS,
        )

    def modulation(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> Modulate:
        """What the vertices own."""
        if self.gate == "templates":
            return templates(net, self.vertices, features=problem.features)
        sizes, weights = (self.vertices, self.width), self.gate == "weights"
        return own_layers(net, *sizes, features=problem.features, offsets=weights, key=key)
