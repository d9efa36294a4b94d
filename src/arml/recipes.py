"""Recipes: an experiment by name, with what it takes and what it should come to."""

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import NamedTuple

from arml.algorithms import ALGORITHMS
from arml.algorithms.maml import MAMLOptions
from arml.algorithms.mt_net import MTNetOptions
from arml.episodes import Problem
from arml.experiment import Experiment
from arml.nn.networks import Conv4Options, MLPOptions
from arml.tasks.options import FoldersOptions, FunctionsOptions
from arml.train import OuterOptions

REGRESSION = Problem("regression", (2,), 1, shots=10, queries=10)
IMAGES = Problem("classification", (28, 28, 3), 5, shots=1, queries=15)


def regression2d(
    algorithm: str, *, outer: OuterOptions | None = None, low: float = 0.0, init: str = "authors"
) -> Experiment:
    """The paper's 2-D regression: 10-shot, batch 25, 5 inner steps, 70,000 outer steps, two hidden
    layers of 40. `low=-5` is the range of inputs in the authors' code."""
    return Experiment(
        f"regression2d{'-wide' if low < 0 else ''}/{algorithm}",
        ALGORITHMS[algorithm].options(REGRESSION),
        FunctionsOptions(low=low),
        MLPOptions(init="he" if init == "he" else "authors"),
        outer or OuterOptions(),
    )


def folders(algorithm: str, *, outer: OuterOptions | None = None) -> Experiment:
    """Image folders of one's own: Conv-4 with 32 filters, batch 4, 5 inner steps."""
    return Experiment(
        f"folders/{algorithm}",
        ALGORITHMS[algorithm].options(IMAGES),
        FoldersOptions(),
        Conv4Options(),
        outer or OuterOptions(schedule="cosine"),
        steps=20_000,
        batch=4,
        interval=20,
        checkpoint_every=100,
        validate_every=500,
        validation_tasks=200,
        scan=False,
        chunk=1,
    )


class Recipe(NamedTuple):
    """An experiment, and what to expect of it."""

    description: str
    make: Callable[[], Experiment]
    minutes: float | None = None
    """Training time on 2 CPU cores, as measured; None where it depends on the data."""
    expected: float | None = None
    """The test score that it came to here, mean over seeds (`results/`)."""


# At Adam's full step learned inner rates double in one step, and the loss is soon not finite; even
# so, the odd steep task overflows unless both gradients are bounded.
SLOW_RATES = OuterOptions(rates_factor=0.01, clip=10.0)
# MT-Net's warps make a steep task steeper: its gradient was not finite after 167 steps (seed 0).
BOUNDED = OuterOptions(clip=10.0)
# theta moves all the way towards the tasks at first, and not at all at the end.
TOWARDS = OuterOptions(outer_rate=1.0, optimiser="sgd", schedule="linear")
BEST = OuterOptions(clip=10.0, schedule="cosine", warmup=1_000)

PROBLEMS: tuple[tuple[str, str, str, Callable[[str], Experiment]], ...] = (
    ("regression2d", "regression", "2-D regression of six families", regression2d),
    ("folders", "classification", "Your own images (--data FOLDER_OR_ZIP...)", folders),
)
RECIPES: dict[str, Recipe] = {
    # Every algorithm as it stands, on every problem that it is made for ...
    **{
        f"{problem}/{name}": Recipe(f"{about}. {known.description}", partial(make, name))
        for problem, kind, about, make in PROBLEMS
        for name, known in ALGORITHMS.items()
        if kind in known.kinds
    },
    # ... but for what these say.
    "regression2d/maml": Recipe(
        "2-D regression of six families, MAML.", lambda: regression2d("maml"), 2.5, 1.08
    ),
    "regression2d/meta-sgd": Recipe(
        "2-D regression of six families, Meta-SGD.",
        lambda: replace(
            regression2d("meta-sgd", outer=SLOW_RATES),
            algorithm=MAMLOptions(learn_rates=True, inner_clip=1_000.0),
        ),
        3,
        0.91,
    ),
    "regression2d/arml": Recipe(
        "2-D regression of six families, ARML as it measured best.",
        lambda: regression2d("arml", outer=BEST, init="he"),
        7,
        0.161,
    ),
    "regression2d/arml-official": Recipe(
        "2-D regression of six families, ARML as the authors' code has it.",
        lambda: regression2d("arml-official"),
        5.5,
        0.229,
    ),
    "regression2d/arml-paper": Recipe(
        "2-D regression of six families, ARML as the paper's text has it.",
        lambda: regression2d("arml-paper"),
        5,
        0.236,
    ),
    "regression2d-wide/maml": Recipe(
        "The same with inputs U[-5, 5], MAML.", lambda: regression2d("maml", low=-5.0), 2.5, 1.64
    ),
    "regression2d-wide/arml-official": Recipe(
        "The same with inputs U[-5, 5], ARML as the authors' code has it.",
        lambda: regression2d("arml-official", low=-5.0),
        5.5,
        0.562,
    ),
    "regression2d/mt-net": Recipe(
        "2-D regression of six families, MT-Net.",
        lambda: replace(
            regression2d("mt-net", outer=BOUNDED),
            algorithm=MTNetOptions(inner_clip=1_000.0),
        ),
    ),
    "regression2d/reptile": Recipe(
        "2-D regression of six families, Reptile.",
        lambda: regression2d("reptile", outer=TOWARDS),
    ),
    "folders/reptile": Recipe(
        "Your own images (--data FOLDER_OR_ZIP...), Reptile.",
        lambda: folders("reptile", outer=TOWARDS),
    ),
    "folders/protonet-20way": Recipe(
        "Your own images (--data FOLDER_OR_ZIP...), ProtoNet trained on 20 ways as by its authors.",
        lambda: replace(
            folders("protonet"),
            recipe="folders/protonet-20way",
            tasks=FoldersOptions(train_ways=20),
        ),
    ),
}


def recipe(name: str) -> Experiment:
    """The experiment of that name.

    **Raises** `ValueError` with the known names for another.
    """
    if name not in RECIPES:
        close = get_close_matches(name, RECIPES, 1, 0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown recipe {name!r}: expected one of {', '.join(RECIPES)}{hint}")
    return RECIPES[name].make()
