"""An experiment is pure data; `run` trains it in a folder, or continues where it stopped.

The folder holds `config.json`, `split.json` (image tasks), `metrics.jsonl`, `checkpoints/` and,
after evaluation, `result.json`. A step depends only on the seed and on its own number, so a resumed
run gives the same weights as one that was never stopped, bit for bit.
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
