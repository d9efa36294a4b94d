"""The public names: `arml/__init__.py` reads here where each is defined."""

from . import nn as nn
from .algorithms import ALGORITHMS as ALGORITHMS
from .algorithms.arml import ARML as ARML
from .algorithms.maml import MAML as MAML
from .algorithms.protonet import ProtoNet as ProtoNet
from .core.checks import Options as Options
from .core.episodes import Examples as Examples
from .core.episodes import Problem as Problem
from .core.episodes import Task as Task
from .core.episodes import TaskDistribution as TaskDistribution
from .core.inner import GradientDescent as GradientDescent
from .core.inner import InnerOptions as InnerOptions
from .core.inner import with_steps as with_steps
from .core.learner import Adapted as Adapted
from .core.learner import Loss as Loss
from .core.learner import MetaLearner as MetaLearner
from .experiment.options import Experiment as Experiment
from .experiment.options import register as register
from .experiment.recipes import RECIPES as RECIPES
from .experiment.recipes import build as build
from .experiment.recipes import recipe as recipe
from .experiment.running import Run as Run
from .experiment.running import run as run
from .experiment.scoring import evaluate as evaluate
from .nn.networks import network as network
from .predict.base import Predictor as Predictor
from .predict.base import TaskLearner as TaskLearner
from .predict.estimators import FewShotClassifier as FewShotClassifier
from .predict.estimators import FewShotRegressor as FewShotRegressor
from .predict.kinds import Inputs as Inputs
from .predict.learner import FewShotLearner as FewShotLearner
from .predict.loading import adapt as adapt
from .predict.loading import load as load
from .predict.loading import load_predictor as load_predictor
from .report.verdicts import Verdicts as Verdicts
from .report.verdicts import compare as compare
from .results.comparisons import Comparison as Comparison
from .results.scores import Scores as Scores
from .tables.cells import StringInputs as StringInputs
from .tasks.splits import Splits as Splits
from .training.fit import Fitted as Fitted
from .training.fit import OuterOptions as OuterOptions
from .training.fit import fit as fit

MOVED_NAMES: dict[str, str]
__version__: str
