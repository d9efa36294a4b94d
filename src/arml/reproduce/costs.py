"""How long a row takes: seconds on one core, for plans and for the time left.

The costs of methods are means of the laptop study's runs (`results/laptop`: one or two runs at a
time on two shared cores of server CPUs); a machine that does nothing else is faster by up to a
half. A step on images grows with the pixels and with the support set.
"""

from arml.algorithms import ALGORITHMS
from arml.experiment.options import Experiment

STARTING = 25.0
"""Seconds to start a process and to compile small networks; frozen features are made in less."""
COMPILING_IMAGES = 40.0


def seconds(experiment: Experiment, *, tasks: int) -> float:
    """Training and scoring on `tasks` test tasks."""
    cost = ALGORITHMS.of(experiment.algorithm).cost(experiment.algorithm)
    size = getattr(experiment.tasks, "size", None)
    if not experiment.steps:
        return STARTING
    if size is None:
        return STARTING + experiment.steps * cost.step * experiment.batch / 25
    step = (
        (0.8 if getattr(experiment.tasks, "shots", 1) == 1 else 2.1)
        * (size / 32) ** 2
        * experiment.batch
        / 4
    )
    step *= cost.images
    # A task is scored with one forward pass a step and no outer gradient: a tenth of its training.
    scored = tasks + experiment.validation_tasks * experiment.steps / experiment.validate_every
    return COMPILING_IMAGES + step * (experiment.steps + 0.1 * scored / experiment.batch)
