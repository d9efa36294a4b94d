"""Few-shot learning on heterogeneous tasks: ARML and the methods it is compared with, in JAX."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arml.algorithms import ALGORITHMS
    from arml.core.checks import Options
    from arml.core.episodes import Examples, Problem, Task, TaskDistribution
    from arml.core.inner import GradientDescent, InnerOptions, with_steps
    from arml.core.learner import Adapted, Conditioned, Loss, MetaLearner
    from arml.core.losses import loss_of
    from arml.core.tracing import trace
    from arml.experiment import Experiment, Run, build, outer, register, run
    from arml.experiment.recipes import RECIPES, recipe
    from arml.experiment.scoring import score
    from arml.nn.networks import Linear, linear
    from arml.nn.parts import network
    from arml.predict.estimators import FewShotClassifier as FewShotClassifier
    from arml.predict.estimators import FewShotRegressor as FewShotRegressor
    from arml.predict.learner import FewShotLearner, load, load_predictor
    from arml.predict.predictor import Predictor
    from arml.results.scores import Difference, Scores, compare
    from arml.training.evaluate import evaluate
    from arml.training.fit import Fitted, Moment, fit
    from arml.training.step import OuterOptions

__version__ = "0.1.0"

_HOMES = {
    "arml.algorithms": ("ALGORITHMS",),
    "arml.core.episodes": ("Examples", "Problem", "Task", "TaskDistribution"),
    # These need an extra, so that `from arml import *` leaves them out.
    "arml.predict.estimators": ("FewShotClassifier", "FewShotRegressor"),
    "arml.results.scores": ("Difference", "Scores", "compare"),
    "arml.training.evaluate": ("evaluate",),
    "arml.training.fit": ("Fitted", "Moment", "fit"),
    "arml.training.step": ("OuterOptions",),
    "arml.experiment": ("Experiment", "Run", "build", "outer", "register", "run"),
    "arml.core.checks": ("Options",),
    "arml.core.losses": ("loss_of",),
    "arml.core.inner": ("GradientDescent", "InnerOptions", "with_steps"),
    "arml.core.learner": ("Adapted", "Conditioned", "Loss", "MetaLearner"),
    "arml.core.tracing": ("trace",),
    "arml.predict.learner": ("FewShotLearner", "load", "load_predictor"),
    "arml.predict.predictor": ("Predictor",),
    "arml.nn.networks": ("Linear", "linear"),
    "arml.nn.parts": ("network",),
    "arml.experiment.recipes": ("RECIPES", "recipe"),
    "arml.experiment.scoring": ("score",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ALGORITHMS",
    "RECIPES",
    "Adapted",
    "Conditioned",
    "Difference",
    "Examples",
    "Experiment",
    "FewShotLearner",
    "Fitted",
    "GradientDescent",
    "InnerOptions",
    "Linear",
    "Loss",
    "MetaLearner",
    "Moment",
    "Options",
    "OuterOptions",
    "Predictor",
    "Problem",
    "Run",
    "Scores",
    "Task",
    "TaskDistribution",
    "__version__",
    "build",
    "compare",
    "evaluate",
    "fit",
    "linear",
    "load",
    "load_predictor",
    "loss_of",
    "network",
    "outer",
    "recipe",
    "register",
    "run",
    "score",
    "trace",
    "with_steps",
]


def __getattr__(name: str) -> Any:
    # Lazily, so that `import arml` does not load JAX.
    if name not in _HOME:
        raise AttributeError(f"module 'arml' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    extra = _HOMES["arml.predict.estimators"] if find_spec("sklearn") else ()
    return sorted([*__all__, *extra])
