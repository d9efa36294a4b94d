"""The public names: `arml/__init__.py` reads here where each is defined."""

from arml.algorithms import ALGORITHMS as ALGORITHMS
from arml.algorithms.arml import ARML as ARML
from arml.algorithms.maml import MAML as MAML
from arml.algorithms.protonet import ProtoNet as ProtoNet
from arml.core.checks import Options as Options
from arml.core.compilation import unbatched as unbatched
from arml.core.episodes import Examples as Examples
from arml.core.episodes import Problem as Problem
from arml.core.episodes import Task as Task
from arml.core.episodes import TaskDistribution as TaskDistribution
from arml.core.inner import GradientDescent as GradientDescent
from arml.core.inner import InnerOptions as InnerOptions
from arml.core.inner import with_steps as with_steps
from arml.core.learner import Adapted as Adapted
from arml.core.learner import Loss as Loss
from arml.core.learner import MetaLearner as MetaLearner
from arml.core.losses import loss_of as loss_of
from arml.experiment.contract import check as check
from arml.experiment.options import Experiment as Experiment
from arml.experiment.options import register as register
from arml.experiment.recipes import RECIPES as RECIPES
from arml.experiment.recipes import build as build
from arml.experiment.recipes import recipe as recipe
from arml.experiment.running import Run as Run
from arml.experiment.running import run as run
from arml.nn.networks import Linear as Linear
from arml.nn.networks import linear as linear
from arml.nn.networks import network as network
from arml.predict.estimators import FewShotClassifier as FewShotClassifier
from arml.predict.estimators import FewShotRegressor as FewShotRegressor
from arml.predict.learner import FewShotLearner as FewShotLearner
from arml.predict.loading import adapt as adapt
from arml.predict.loading import load as load
from arml.predict.loading import load_predictor as load_predictor
from arml.predict.predictor import Predictor as Predictor
from arml.results.comparisons import Comparison as Comparison
from arml.results.comparisons import compare as compare
from arml.results.scores import Scores as Scores
from arml.tasks.options import Splits as Splits
from arml.training.evaluate import evaluate as evaluate
from arml.training.fit import Fitted as Fitted
from arml.training.fit import OuterOptions as OuterOptions
from arml.training.fit import fit as fit

__version__: str
