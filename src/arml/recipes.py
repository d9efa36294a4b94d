"""Recipes: one function for each row of the tables. A recipe is an experiment by name."""

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import NamedTuple

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
        outer=OuterOptions(schedule="cosine", warmup=1_000, rates_factor=0.01, clip=10.0),
    )


def folders(name: str, algorithm: object) -> Experiment:
    """Image folders of one's own: Conv-4 with 32 filters, batch 4."""
    return Experiment(
        f"folders/{name}",
        algorithm,
        FoldersOptions(),
        Conv4Options(),
        OuterOptions(schedule="cosine"),
        steps=20_000,
        batch=4,
        interval=20,
        checkpoint_every=100,
        validate_every=500,
        validation_tasks=200,
        scan=False,
        chunk=4,
    )


RECIPES: dict[str, Callable[[], Experiment]] = {
    "regression2d/maml": lambda: regression2d("maml", MAMLOptions()),
    "regression2d/meta-sgd": lambda: replace(
        regression2d("meta-sgd", MAMLOptions(learn_rates=True)),
        # At Adam's full step the rates double in one step, and the loss is soon not finite;
        # without clipping, a few steep tasks undo what was learned.
        outer=OuterOptions(rates_factor=0.01, clip=10.0),
    ),
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


class About(NamedTuple):
    """What to expect of a recipe."""

    description: str
    minutes: float | None
    """Training time on 2 CPU cores, as measured; None where it depends on the data."""


ABOUT: dict[str, About] = {
    "regression2d/maml": About("2-D regression of six families, MAML.", 2.5),
    "regression2d/meta-sgd": About("2-D regression of six families, Meta-SGD.", 2.5),
    "regression2d/arml": About("2-D regression of six families, ARML as it measured best.", 10),
    "regression2d/arml-official": About(
        "2-D regression of six families, ARML as the authors' code has it.", 6
    ),
    "regression2d/arml-paper": About(
        "2-D regression of six families, ARML as the paper's text has it.", 6
    ),
    "regression2d-wide/maml": About("The same with inputs U[-5, 5], MAML.", 2.5),
    "regression2d-wide/arml-official": About(
        "The same with inputs U[-5, 5], ARML as the authors' code has it.", 6
    ),
    "folders/maml": About("Your own images (--data FOLDER_OR_ZIP...), MAML.", None),
    "folders/arml": About("Your own images (--data FOLDER_OR_ZIP...), ARML.", None),
}


def recipe(name: str) -> Experiment:
    """The experiment of that name.

    **Raises** `ValueError` with the known names for another.
    """
    if name not in RECIPES:
        close = get_close_matches(name, RECIPES, 1, 0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown recipe {name!r}: expected one of {', '.join(RECIPES)}{hint}")
    return RECIPES[name]()
