"""An experiment is pure data; `run` carries it out in a folder, and takes it up where it stopped.

The folder holds `config.json`, `split.json` (image tasks), `metrics.jsonl`, `checkpoints/` and,
after evaluation, `result.json`. A step depends on the seed and its own number alone, so a resumed
run is the same run, bit for bit.
"""

from arml.experiment.options import NETWORKS, PARTS, TASKS, Experiment, from_json, to_json
from arml.experiment.running import Trained, Watch, build, fresh, load, run

__all__ = [
    "NETWORKS",
    "PARTS",
    "TASKS",
    "Experiment",
    "Trained",
    "Watch",
    "build",
    "fresh",
    "from_json",
    "load",
    "run",
    "to_json",
]
