"""The registry: every algorithm by name. What is registered passes the contract tests and can be
named by a recipe.

An algorithm's options are a frozen dataclass with `check()` and
`build(net, problem, *, key) -> MetaLearner`, which refuses a problem that it is not made for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from arml.algorithms.anil import ANILOptions
from arml.algorithms.arml import ARMLOptions
from arml.algorithms.arml_presets import best, official, paper
from arml.algorithms.bmaml import BMAMLOptions, bmaml
from arml.algorithms.hsml import HSMLOptions, hsml
from arml.algorithms.llama import LLAMAOptions
from arml.algorithms.maml import MAMLOptions
from arml.algorithms.mt_net import MTNetOptions
from arml.algorithms.mumomaml import MUMOMAMLOptions, mumomaml
from arml.algorithms.platipus import PLATIPUSOptions, platipus
from arml.algorithms.protonet import ProtoNetOptions
from arml.algorithms.reptile import ReptileOptions
from arml.algorithms.tadam import TADAMOptions
from arml.algorithms.tapnet import TapNetOptions
from arml.algorithms.versa import VERSAOptions
from arml.core.episodes import Problem
from arml.core.inner import usual_rate

OPTIONS: dict[str, Any] = {
    "maml": MAMLOptions,
    "anil": ANILOptions,
    "reptile": ReptileOptions,
    "mt-net": MTNetOptions,
    "mumomaml": MUMOMAMLOptions,
    "hsml": HSMLOptions,
    "bmaml": BMAMLOptions,
    "llama": LLAMAOptions,
    "platipus": PLATIPUSOptions,
    "protonet": ProtoNetOptions,
    "tapnet": TapNetOptions,
    "tadam": TADAMOptions,
    "versa": VERSAOptions,
    "arml": ARMLOptions,
}
"""The kinds of options that a configuration file may hold."""


class Algorithm(NamedTuple):
    """One entry of the registry."""

    description: str
    options: Callable[[Problem], Any]
    """Its options for a problem."""
    kinds: tuple[str, ...] = ("regression", "classification")
    """The kinds of problems that it is made for; it refuses others."""
    descends: bool = True
    """Whether it adapts by gradient steps."""
    dead: tuple[str, ...] = ()
    """Meta-parameters that no gradient reaches, as the beginnings of their paths."""


ALGORITHMS: dict[str, Algorithm] = {
    "maml": Algorithm(
        "MAML: one shared initialisation, second order.",
        lambda problem: MAMLOptions(inner_rate=usual_rate(problem)),
    ),
    "first-order-maml": Algorithm(
        "First-order MAML: without the second derivatives.",
        lambda problem: MAMLOptions(inner_rate=usual_rate(problem), first_order=True),
    ),
    "meta-sgd": Algorithm(
        "Meta-SGD: MAML that learns a step size for each parameter.",
        lambda problem: MAMLOptions(inner_rate=usual_rate(problem), learn_rates=True),
    ),
    "anil": Algorithm(
        "ANIL: a task adapts the head alone, on shared features.",
        lambda problem: ANILOptions(inner_rate=usual_rate(problem)),
    ),
    "reptile": Algorithm(
        "Reptile: the initialisation moves towards where each task's own steps lead.",
        lambda problem: ReptileOptions(),
    ),
    "mt-net": Algorithm(
        "MT-Net: MAML in a learned metric, on units that a learned mask draws.",
        lambda problem: MTNetOptions(inner_rate=usual_rate(problem)),
    ),
    "mumomaml": Algorithm(
        "MUMOMAML: a code of the support set modulates each hidden unit of the initialisation.",
        mumomaml,
    ),
    "hsml": Algorithm(
        "HSML: a tree of task clusters tailors the initialisation, one gate a parameter.", hsml
    ),
    "bmaml": Algorithm(
        "BMAML: particles that a task moves together, as samples of its posterior.", bmaml
    ),
    "llama": Algorithm(
        "LLAMA: MAML whose outer loss has the curvature at the adapted weights.",
        lambda problem: LLAMAOptions(inner_rate=usual_rate(problem)),
    ),
    "platipus": Algorithm(
        "PLATIPUS: MAML from initialisations sampled around the task's own.", platipus
    ),
    "protonet": Algorithm(
        "ProtoNet: the nearest class mean in a learned embedding.",
        lambda problem: ProtoNetOptions(),
        kinds=("classification",),
        descends=False,
    ),
    "tapnet": Algorithm(
        "TapNet: the nearest reference vector in a subspace computed for the task.",
        lambda problem: TapNetOptions(),
        kinds=("classification",),
        descends=False,
    ),
    "tadam": Algorithm(
        "TADAM: ProtoNet with an embedding that depends on the task, and a scaled metric.",
        lambda problem: TADAMOptions(),
        kinds=("classification",),
        descends=False,
        # Its output is multiplied by gamma_0 and beta_0, which start at zero: no gradient reaches
        # it at the first step, and from the second on it does.
        dead=(".ten",),
    ),
    "versa": Algorithm(
        "VERSA: a network that returns a Gaussian over the task's linear head.",
        lambda problem: VERSAOptions(),
        descends=False,
    ),
    "arml": Algorithm("ARML as it measured best: the preset `best`.", best),
    "arml-official": Algorithm(
        "ARML as the authors' code has it.",
        official,
        # Rows of the adjacency are normalised apart, and one layer reads the neighbours only.
        dead=(".encode.graph.connect",),
    ),
    "arml-paper": Algorithm("ARML as the paper's text has it.", paper),
}
