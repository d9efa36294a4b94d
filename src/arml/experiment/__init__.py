"""An experiment is pure data; `run` trains it in a folder, or continues where it stopped.

The folder holds `config.json`, `split.json` (image tasks), `metrics.jsonl`, `checkpoints/` and,
after evaluation, `result.json`. A step depends only on the seed and on its own number, so a resumed
run gives the same weights as one that was never stopped, bit for bit.
"""

from arml.experiment.building import build as build
from arml.experiment.building import outer as outer
from arml.experiment.loaded import Portable as Portable
from arml.experiment.loaded import Run as Run
from arml.experiment.loaded import problem_of as problem_of
from arml.experiment.options import Experiment as Experiment
from arml.experiment.options import from_json as from_json
from arml.experiment.options import to_json as to_json
from arml.experiment.parts import NETWORKS as NETWORKS
from arml.experiment.parts import PARTS as PARTS
from arml.experiment.parts import TASKS as TASKS
from arml.experiment.parts import register as register
from arml.experiment.running import Watch as Watch
from arml.experiment.running import fresh as fresh
from arml.experiment.running import run as run
from arml.training.fit import NotFiniteError as NotFiniteError
