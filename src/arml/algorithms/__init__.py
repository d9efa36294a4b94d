"""The registry: every algorithm by name. What is registered passes the contract tests and can be
named by a recipe.

An algorithm's options are a frozen dataclass with `check()` and
`build(net, problem, *, key) -> MetaLearner`, which refuses a problem that it is not made for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from arml.algorithms.anil import ANILOptions
from arml.algorithms.arml import ARMLOptions, best, official, paper
from arml.algorithms.hsml import HSMLOptions, hsml
from arml.algorithms.maml import MAMLOptions
from arml.algorithms.mt_net import MTNetOptions
from arml.algorithms.mumomaml import MUMOMAMLOptions, mumomaml
from arml.algorithms.reptile import ReptileOptions
from arml.episodes import Problem
from arml.inner import usual_rate

OPTIONS: dict[str, Any] = {
    "maml": MAMLOptions,
    "anil": ANILOptions,
    "reptile": ReptileOptions,
    "mt-net": MTNetOptions,
    "mumomaml": MUMOMAMLOptions,
    "hsml": HSMLOptions,
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
    "arml": Algorithm("ARML as it measured best: the preset `best`.", best),
    "arml-official": Algorithm(
        "ARML as the authors' code has it.",
        official,
        # Rows of the adjacency are normalised apart, and one layer reads the neighbours only.
        dead=(".encode.graph.connect",),
    ),
    "arml-paper": Algorithm("ARML as the paper's text has it.", paper),
}
