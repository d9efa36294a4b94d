"""The registry: every algorithm by name. What is registered passes the contract tests and can be
named by a recipe.

An algorithm's options are a frozen dataclass with `check()` and
`build(net, problem, *, key) -> MetaLearner`, which refuses a problem that it is not made for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from arml.algorithms.arml import ARMLOptions, best, official, paper
from arml.algorithms.maml import MAMLOptions
from arml.episodes import Problem

OPTIONS: dict[str, Any] = {"maml": MAMLOptions, "arml": ARMLOptions}
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
        "MAML: one shared initialisation, second order.", lambda problem: MAMLOptions()
    ),
    "first-order-maml": Algorithm(
        "First-order MAML: without the second derivatives.",
        lambda problem: MAMLOptions(first_order=True),
    ),
    "meta-sgd": Algorithm(
        "Meta-SGD: MAML that learns a step size for each parameter.",
        lambda problem: MAMLOptions(learn_rates=True),
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
