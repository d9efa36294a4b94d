"""An experiment is pure data; `run` carries it out in a folder, and takes it up where it stopped.

The folder holds `config.json`, `split.json` (image tasks), `metrics.jsonl`, `checkpoints/` and,
after evaluation, `result.json`. A step depends on the seed and its own number alone, so a resumed
run is the same run, bit for bit.
"""

from arml.experiment.building import build, outer
from arml.experiment.loaded import Portable, Run, problem_of
from arml.experiment.options import Experiment, from_json, to_json
from arml.experiment.parts import NETWORKS, PARTS, TASKS, register
from arml.experiment.running import Watch, fresh, run
from arml.training.fit import NotFiniteError

__all__ = [
    "NETWORKS",
    "PARTS",
    "TASKS",
    "Experiment",
    "NotFiniteError",
    "Portable",
    "Run",
    "Watch",
    "build",
    "fresh",
    "from_json",
    "outer",
    "problem_of",
    "register",
    "run",
    "to_json",
]
