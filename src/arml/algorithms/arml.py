"""ARML: a task becomes a graph of prototypes, which reads a learned graph of meta-knowledge. The
reading tailors the shared initialisation.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020. Equation
    numbers are this paper's.
[2] The authors' code, huaxiuyao/ARML (TensorFlow 1). The preset `official` behaves like it.

Differences
- Rates and the reconstruction weights are for mean losses. The authors' image code divides losses
  by the shots and sums them: its inner rate .01 is .05 here (5 ways), and its weight .01 is
  .01 * shots / (ways * queries).
- `paper`: the text's image step sizes (inner .001, outer .01) are the code's, swapped; we use those
  of the code. The text does not give the weights mu_1 and mu_2. It has Frobenius norms where the
  code has means, so the code's .01 is divided by the number of entries of a mean.
- `paper`: the text's one-layer GCN has the symmetric normalisation of the paper that it cites. The
  authors' code normalises by row, so that the edges between vertices have no effect.
- `paper`: E and F are two layers "with 40 neurons". They have ReLU, as the base network has, which
  the paper describes in the same words. The authors' code has one linear layer for both.
- Ablation IV (`vertices=0`) also loses the links of ablation III: links only direct the messages of
  the super-graph, and the first code q is made from the prototypes alone.
- The text does not give the number of soft clusters; there are two, as in its figure and the code.
- We add heads made from the task's prototypes (`arml.nn.heads`), vertices that own templates
  (`arml.nn.templates`), and an encoder that reads the spread of the network's own features.
  The preset `arml` has all three for classification, with squared distances. Its vertices start
  close together and follow the prototypes by soft k-means, so that they separate where tasks
  differ.
- We add for regression a head that ridge regression finds (`arml.nn.heads`), and a reading by
  evidence: a task reads the vertices by how well the network of each explains its support set
  (`arml.nn.evidence`). The preset `arml` has both for regression, and takes no gradient step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from arml.algorithms.conditioned import ConditionedOptions
from arml.core.checks import at_least, classes_only, regression_only
from arml.core.episodes import Problem
from arml.core.learner import Conditioned, Modulate, Network, the_inputs
from arml.nn import embeddings, graphs, modulation, prototypes
from arml.nn.autoencoders import (
    Summary,
    gru_autoencoder,
    mean_square,
    mlp_autoencoder,
    squared_frobenius,
)
from arml.nn.evidence import evidence
from arml.nn.networks import glorot, linear, truncated_normal, with_body
from arml.nn.relational import SEQUENCES, Relational
from arml.nn.templates import best_fit, own_layers, templates


@dataclass(frozen=True, kw_only=True)
class ARMLOptions(ConditionedOptions):
    """ARML's parts. `official` and `paper` both have these defaults on 2-D regression."""

    reads: Literal["inputs", "features"] = "inputs"
    """The encoder's input: the inputs, by an embedding of its own, or the base network's
    features."""
    structure: Literal["classes", "clusters", "mean", "samples", "spread"] = "clusters"
    """The kind of prototypes: one for each class, soft cluster, or sample (II); or a single one for
    the task: the mean of all samples (I), or the share of each feature's variance that lies between
    classes (spread)."""
    clusters: int = 2
    """Number of soft clusters."""
    links: Literal["relations", "none"] = "relations"
    """Edges between prototypes: learned relations, or none (III)."""
    vertices: int = 6
    """Vertices of the meta-knowledge graph; 0 removes the graph, and with it the links (IV)."""
    grown: int = 0
    """How many of the vertices were grown later; a task reads these by how well they fit
    (`arml.nn.templates`)."""
    read_by: Literal["place", "evidence"] = "place"
    """How a task reads the vertices: by the places of its prototypes, Eq. (6); or also by how well
    the network of each vertex explains its support set (`arml.nn.evidence`). The latter is for
    vertices that own layers, and for the head ridge."""
    propagation: Literal["gcn", "sage", "gat"] = "gcn"
    """Message passing on the super-graph."""
    normalise: Literal["row", "symmetric"] = "symmetric"
    """Normalisation of the GCN's adjacency."""
    layers: int = 1
    """Layers of message passing; with templates it may be 0: the task reads without messages."""
    summary: Literal["gru", "mlp"] = "gru"
    """Autoencoders of the prototypes: recurrent, or element by element (VI)."""
    sequence: Literal["prototypes", "samples", "labelled prototypes"] = "prototypes"
    """The input of the first autoencoder."""
    error: Literal["mean", "frobenius"] = "mean"
    """Reconstruction error: mean square, or squared Frobenius norm."""
    mu_1: float = 0.01
    """Weight of the second reconstruction, L_t; 0 for ablation V."""
    mu_2: float = 0.01
    """Weight of the first reconstruction, L_q; 0 for ablation V. With templates, weight of the
    negative log-likelihood of the prototypes given the vertices."""
    gate: Literal["sigmoid", "tanh", "film", "templates", "layers", "weights"] = "sigmoid"
    """Modulation of the initialisation; tanh is VIII, film is IX. With templates each vertex owns a
    FiLM of all units; with layers, a layer that makes a FiLM from the mean prototype; with weights,
    also an offset of every weight. These three have no autoencoder."""
    granularity: Literal["parameter", "filter", "unit"] = "parameter"
    """One gate for each parameter, for each filter (VII), or for each hidden unit. The last acts
    before the activation and not on weights: batch normalisation cancels the scale of a filter."""
    gamma_r: float = 1.0
    """Scale of the distances between prototypes, Eq. (4)."""
    gamma_o: float = 1.0
    """Scale of the distances between vertices, Eq. (5)."""
    gamma_s: float = 2**0.5
    """Scale of the distances between prototypes and vertices, Eq. (6)."""
    width: int = 40
    """Dimension d of embeddings, prototypes, vertices and of each of the two codes."""
    hidden: tuple[int, ...] = ()
    """Hidden layers of the embedding of vectors; without any it is linear."""
    activation: Literal["none", "relu"] = "none"
    """Activation of the embedding of vectors; images have ReLU."""
    own_values: bool = False
    """An embedding F of its own for the values that the soft clusters sum, Eq. (3)."""
    pictures: Literal["authors", "pooled"] = "authors"
    """Embedding of images: the authors' network, or filters pooled over the picture."""
    window: int = 3
    """Window of the convolutions in the authors' image embedding."""
    vertex_init: Literal["glorot", "normal", "middle"] = "glorot"
    """Initial vertices: the authors' (Glorot-uniform, as single rows); standard normal, as large as
    pooled embeddings; or close together around one half, in the middle of the range of shares."""
    message_init: Literal["authors", "glorot"] = "glorot"
    """Weights of the message passing: the authors' truncated normal of 1, or Glorot's."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> Conditioned:
        """The learner, with freshly drawn weights, for the base network `net`."""
        self.check_problem(problem)
        keys = dict(zip(KEYS, jax.random.split(key, len(KEYS)), strict=True))
        code = self.vertices if self.owns else self.width * (2 if self.vertices else 1)
        return self.conditioned(
            net,
            problem,
            encode=self.encoder(net, problem, keys),
            modulate=lambda learned: self.modulation(learned, code, problem, keys),
            code=code + (self.width if self.gate in LAYERS else 0),
            look=the_inputs if self.reads == "inputs" else embeddings.BodyFeatures(),
            choose=evidence() if self.read_by == "evidence" else best_fit(self.grown),
        )

    def modulation(
        self, net: Network, code: int, problem: Problem, keys: dict[str, PRNGKeyArray]
    ) -> Modulate:
        """The modulation of the initialisation `net` by a code of `code` numbers."""
        if self.gate == "templates":
            return templates(net, code, features=problem.features)
        if self.gate in LAYERS:
            sizes, weights, key = (code, self.width), self.gate == "weights", keys["gate"]
            return own_layers(net, *sizes, features=problem.features, offsets=weights, key=key)
        if self.granularity == "unit":
            act, scale, key = modulation.UNITS[self.gate], code**-0.5, keys["gate"]
            return modulation.unit_modulation(
                net, code, act, features=problem.features, scale=scale, key=key
            )
        granularity = modulation.GRANULARITIES[self.granularity]
        dense = modulation.stacked(net, code, granularity=granularity, key=keys["gate"])
        if self.gate == "film":
            shift = modulation.stacked(net, code, granularity=granularity, key=keys["shift"])
            return modulation.FiLM(modulation.shrunk(dense), modulation.shrunk(shift), granularity)
        activation = {"sigmoid": jax.nn.sigmoid, "tanh": jnp.tanh}[self.gate]
        return modulation.Gate(dense, activation, granularity)

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        super().check()
        at_least(self, ("clusters", "width", "window", "hidden"), 1)
        at_least(self, ("vertices", "layers", "mu_1", "mu_2"), 0, most=1_000)
        at_least(self, ("vertices" if self.owns else "layers",), 1)
        at_least(self, ("gamma_r", "gamma_o", "gamma_s"), 0, strict=True)
        at_least(self, ("grown",), 0, most=max(0, self.vertices - 1) if self.owns else 0)
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

    @property
    def owns(self) -> bool:
        """Whether each vertex owns a modulation of the network."""
        return self.gate in ("templates", *LAYERS)

    @property
    def grows(self) -> bool:
        """Whether its graph can get more vertices after training."""
        return self.owns and self.read_by == "place"

    def check_problem(self, problem: Problem) -> None:
        """Raise `ValueError` in one line if an option does not suit `problem`."""
        if self.read_by == "evidence":
            regression_only("reading by evidence", problem, instead="read by place")
        if self.reads == "features":
            classes_only("reading the network's features", problem)
        if self.structure in ("classes", "spread") and problem.kind != "classification":
            raise ValueError(
                "class prototypes need classification tasks, and these are regression: "
                "use the structure clusters, mean or samples"
            )
        if self.sequence == "labelled prototypes" and self.structure != "classes":
            raise ValueError(
                "labelled prototypes need one prototype for each class: use the structure classes, "
                f"not {self.structure}"
            )
        if self.own_values and self.structure != "clusters":
            raise ValueError(
                f"own_values needs the structure clusters, got {self.structure}: use clusters, or "
                "leave own_values out"
            )

    def encoder(self, net: Network, problem: Problem, keys: dict[str, PRNGKeyArray]) -> Relational:
        """The task encoder."""
        body = with_body(net, "reading features").body if self.reads == "features" else None
        width = self.width if body is None else prototypes.units(body, problem.features)
        error = {"mean": mean_square, "frobenius": squared_frobenius}[self.error]
        summarise = partial(SUMMARIES[self.summary], code=self.width, error=error)
        labels = problem.outputs if self.sequence == "labelled prototypes" else 0
        structures: dict[str, prototypes.Structure] = {
            "classes": prototypes.ClassMeans(problem.outputs),
            "spread": prototypes.Spread(problem.outputs),
            "clusters": prototypes.SoftClusters(linear(width, self.clusters, key=keys["clusters"])),
            "mean": prototypes.sample_mean,
            "samples": prototypes.each_sample,
        }
        has_graph, key = self.vertices > 0, keys["embed"]
        embed = embeddings.the_inputs_themselves if body else self.embedding(problem, key=key)
        other = jax.random.fold_in(key, 1)
        return Relational(
            embed=embed,
            embed_values=self.embedding(problem, key=other) if self.own_values else None,
            structure=structures[self.structure],
            sequence=SEQUENCES[self.sequence],
            summarise=None if self.owns else summarise(width + labels, key=keys["summary"]),
            graph=self.graph(width, keys) if has_graph else None,
            summarise_reading=(
                summarise(width, key=keys["reading"]) if has_graph and not self.owns else None
            ),
            mu_1=self.mu_1,
            mu_2=self.mu_2,
            own=self.gate in LAYERS,
        )

    def embedding(self, problem: Problem, *, key: PRNGKeyArray) -> embeddings.Embed:
        """The embedding E of samples: of images, of vectors, or of pairs (x, y)."""
        return embeddings.embedding_of(
            problem,
            self.width,
            window=self.window,
            pooled=self.pictures == "pooled",
            hidden=self.hidden,
            activation=jax.nn.relu if self.activation == "relu" else embeddings.linear_units,
            key=key,
        )

    def graph(self, width: int, keys: dict[str, PRNGKeyArray]) -> graphs.MetaKnowledgeGraph:
        """The meta-knowledge graph, whose vertices have `width` numbers."""
        init = graphs.STARTS[self.vertex_init]
        rows = jax.random.split(keys["vertices"], self.vertices)
        relate: graphs.Links = graphs.unlinked
        connect: graphs.Links = graphs.unlinked
        if self.layers:  # messages travel along links
            connect = graphs.Relations(linear(width, 1, key=keys["connect"]), self.gamma_o)
        if self.layers and self.links == "relations":
            relate = graphs.Relations(linear(width, 1, key=keys["relate"]), self.gamma_r)
        return graphs.MetaKnowledgeGraph(
            vertices=jnp.concatenate([init(k, (1, width), jnp.float32) for k in rows]),
            relate=relate,
            connect=connect,
            propagate=tuple(
                graphs.message_passing(
                    self.propagation,
                    width,
                    init=MESSAGES[self.message_init],
                    normalise=NORMALISATIONS[self.normalise],
                    key=k,
                )
                for k in jax.random.split(keys["propagate"], self.layers)
            ),
            gamma_s=self.gamma_s,
        )


LAYERS = ("layers", "weights")  # gates that read the task's own code
MESSAGES = {"authors": truncated_normal(1.0), "glorot": glorot}
NORMALISATIONS = {"row": graphs.by_row, "symmetric": graphs.symmetric}
SUMMARIES: dict[str, Callable[..., Summary]] = {"gru": gru_autoencoder, "mlp": mlp_autoencoder}
KEYS = (
    *("embed", "clusters", "summary", "reading", "vertices"),
    *("relate", "connect", "propagate", "gate", "shift"),
)
