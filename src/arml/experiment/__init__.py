"""An experiment is pure data; `run` carries it out in a folder, and takes it up where it stopped.

The folder holds `config.json`, `split.json` (image tasks), `metrics.jsonl`, `checkpoints/` and,
after evaluation, `result.json`. A step depends on the seed and its own number alone, so a resumed
run is the same run, bit for bit.
"""

from arml.experiment.loaded import Portable, Trained, load, load_learner, problem_of
from arml.experiment.options import Experiment, from_json, to_json
from arml.experiment.parts import NETWORKS, PARTS, TASKS, register
from arml.experiment.running import (
    NotFiniteError,
    Watch,
    build,
    fresh,
    run,
)

__all__ = [
    "NETWORKS",
    "PARTS",
    "TASKS",
    "Experiment",
    "NotFiniteError",
    "Portable",
    "Trained",
    "Watch",
    "build",
    "fresh",
    "from_json",
    "load",
    "load_learner",
    "problem_of",
    "register",
    "run",
    "to_json",
]
