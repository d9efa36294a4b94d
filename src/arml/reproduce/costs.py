"""How long a row takes: seconds on one core of a quiet machine, for plans and for the time left.

Measured on two cores of a server CPU with the paper's networks and batches; a step on images grows
with the pixels and with the support set.
"""

from typing import Any

from arml.experiment import Experiment, to_json

STARTING = 25.0
"""Seconds to start a process and to compile small networks; frozen features are made in less."""
COMPILING_IMAGES = 40.0
VECTORS: dict[str, float] = {
    "maml": 0.0021,
    "anil": 0.0021,
    "reptile": 0.003,
    "mt-net": 0.007,
    "mumomaml": 0.0056,
    "hsml": 0.005,
    "bmaml": 0.033,
    "llama": 0.015,
    "platipus": 0.006,
    "versa": 0.0064,
    "arml": 0.005,
}
"""Seconds a step of 2-D regression, batch 25."""
METRIC = ("protonet", "tapnet", "tadam", "versa")
"""Methods without an inner loop: a fifth of the time."""
PARTICLES: dict[str, float] = {"bmaml": 5.0, "llama": 3.0}
"""Several networks, or a curvature: as many times the time."""


def seconds(experiment: Experiment, *, tasks: int) -> float:
    """Training and scoring on `tasks` test tasks."""
    algorithm = to_json(experiment)["algorithm"]
    kind = algorithm["kind"]
    options: Any = experiment.tasks
    size = getattr(options, "size", None)
    if not experiment.steps:
        return STARTING
    if size is None:
        step = VECTORS.get(kind, 0.005) * experiment.batch / 25
        layers = algorithm["layers"] if kind == "arml" else 1
        return STARTING + experiment.steps * step * (1 + 0.15 * (layers - 1))
    step = (0.7 if options.shots == 1 else 2.5) * (size / 32) ** 2 * experiment.batch / 4
    step *= 0.2 if kind in METRIC else PARTICLES.get(kind, 1.0)
    # A task is scored with one forward pass a step and no outer gradient: a tenth of its training.
    scored = tasks + experiment.validation_tasks * experiment.steps / experiment.validate_every
    return COMPILING_IMAGES + step * (experiment.steps + 0.1 * scored / experiment.batch)
