"""Recipes: one function for each row of the tables. A recipe is an experiment by name."""

from collections.abc import Callable
from dataclasses import replace

from arml.algorithms.arml import PRESETS
from arml.algorithms.maml import MAMLOptions
from arml.episodes import Problem
from arml.experiment import Experiment
from arml.nn.networks import Conv4Options, MLPOptions
from arml.tasks.options import FoldersOptions, FunctionsOptions
from arml.train import OuterOptions

REGRESSION = Problem("regression", (2,), 1, shots=10, queries=10)
IMAGES = Problem("classification", (28, 28, 3), 5, shots=1, queries=15)


def regression2d(name: str, algorithm: object, *, low: float = 0.0) -> Experiment:
    """The paper's 2-D regression: 10-shot, batch 25, 5 inner steps, 70,000 outer steps."""
    return Experiment(f"regression2d/{name}", algorithm, FunctionsOptions(low=low))


def regression2d_best() -> Experiment:
    """Ours, on the same base network and budget: see `arml.algorithms.arml.best`."""
    return replace(
        regression2d("arml", PRESETS["best"](REGRESSION)),
        network=MLPOptions(init="he"),
        outer=OuterOptions(outer_rate=2e-3, schedule="cosine", clip=10.0),
    )


def folders(name: str, algorithm: object) -> Experiment:
    """Image folders of one's own: Conv-4 with 32 filters, batch 4."""
    return Experiment(
        f"folders/{name}",
        algorithm,
        FoldersOptions(),
        Conv4Options(),
        steps=20_000,
        batch=4,
        interval=20,
        checkpoint_every=200,
        validate_every=1_000,
        validation_tasks=200,
        scan=False,
        chunk=4,
    )


RECIPES: dict[str, Callable[[], Experiment]] = {
    "regression2d/maml": lambda: regression2d("maml", MAMLOptions()),
    "regression2d/meta-sgd": lambda: regression2d("meta-sgd", MAMLOptions(learn_rates=True)),
    "regression2d/arml": regression2d_best,
    "regression2d/arml-official": lambda: regression2d(
        "arml-official", PRESETS["official"](REGRESSION)
    ),
    "regression2d/arml-paper": lambda: regression2d("arml-paper", PRESETS["paper"](REGRESSION)),
    "regression2d-wide/maml": lambda: replace(
        regression2d("maml", MAMLOptions(), low=-5.0), recipe="regression2d-wide/maml"
    ),
    "regression2d-wide/arml-official": lambda: replace(
        regression2d("arml-official", PRESETS["official"](REGRESSION), low=-5.0),
        recipe="regression2d-wide/arml-official",
    ),
    "folders/maml": lambda: folders("maml", MAMLOptions(inner_rate=0.05)),
    "folders/arml": lambda: folders("arml", PRESETS["best"](IMAGES)),
}


def recipe(name: str) -> Experiment:
    """The experiment of that name.

    **Raises** `ValueError` with the known names for another.
    """
    if name not in RECIPES:
        raise ValueError(f"unknown recipe {name!r}: expected one of {', '.join(RECIPES)}")
    return RECIPES[name]()
