"""Learners of few weights with their initial values, for tests of what a user does with them."""

from dataclasses import replace
from typing import Any

import arml
from arml.algorithms import ALGORITHMS
from arml.experiment.options import Experiment
from arml.experiment.recipes import build
from arml.nn.networks import Conv4Options, MLPOptions


def untrained(
    algorithm: str, *features: int, kind: str = "classification", ways: int = 3, **options: Any
) -> arml.FewShotLearner:
    """A learner of tasks of `ways` classes, or of numbers."""
    inputs = {1: "vectors", 2: "tables", 3: "pictures"}[len(features)]
    outputs = ways if kind == "classification" else 1
    problem = arml.Problem(kind, features, outputs, 5, 5, inputs=inputs)
    network = Conv4Options(4) if len(features) == 3 else MLPOptions((8,), "he")
    chosen = replace(ALGORITHMS[algorithm].options(problem), **options)
    experiment = Experiment("own", chosen, network=network)
    return arml.FewShotLearner(build(experiment, problem), problem, experiment)
