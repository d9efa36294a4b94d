"""Recipes: an experiment by name, with what it takes and what it should come to."""

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

from arml.algorithms import ALGORITHMS
from arml.algorithms.arml import ARMLOptions
from arml.algorithms.maml import MAMLOptions
from arml.algorithms.mt_net import MTNetOptions
from arml.core.episodes import Problem
from arml.experiment import Experiment
from arml.nn.networks import Conv4Options, MLPOptions
from arml.tasks.options import FoldersOptions, FunctionsOptions, StarterOptions, StoreOptions
from arml.tasks.vectors import VectorsOptions
from arml.training.step import OuterOptions

REGRESSION = Problem("regression", (2,), 1, shots=10, queries=10)
IMAGES = Problem("classification", (28, 28, 3), 5, shots=1, queries=15)
STARTER = Problem("classification", (32, 32, 3), 5, shots=1, queries=15)
VECTORS = Problem("classification", (512,), 5, shots=1, queries=15)
BENCHMARK = Problem("classification", (84, 84, 3), 5, shots=1, queries=15)


# At Adam's full step learned inner rates double in one step, and the loss is soon not finite; even
# so, the odd steep task overflows unless both gradients are bounded.
SLOW_RATES = OuterOptions(rates_factor=0.01, clip=10.0)
# theta moves all the way towards the tasks at first, and not at all at the end.
TOWARDS = OuterOptions(outer_rate=1.0, optimiser="sgd", schedule="linear")

REGRESSION_SETTINGS: dict[str, dict[str, Any]] = {
    "meta-sgd": {
        "algorithm": MAMLOptions(learn_rates=True, inner_clip=1_000.0),
        "outer": SLOW_RATES,
    },
    # Nothing keeps its inner steps from growing unstable: a few ripples had losses of 100,000.
    "first-order-maml": {
        "algorithm": MAMLOptions(first_order=True, inner_clip=1_000.0),
        "outer": OuterOptions(clip=10.0),
    },
    "reptile": {"outer": TOWARDS},
    # The warps make a steep task steeper: the gradient was not finite after 167 steps (seed 0).
    "mt-net": {"algorithm": MTNetOptions(inner_clip=1_000.0), "outer": OuterOptions(clip=10.0)},
    "arml": {
        "network": MLPOptions(init="he"),
        "outer": OuterOptions(clip=10.0, schedule="cosine", warmup=1_000),
    },
}
"""Where an algorithm's experiment on 2-D regression is another than its defaults."""
IMAGE_SETTINGS: dict[str, dict[str, Any]] = {"reptile": {"outer": TOWARDS}}
"""The same for images."""


def regression2d(algorithm: str, *, low: float = 0.0) -> Experiment:
    """The paper's 2-D regression: 10-shot, batch 25, 5 inner steps, 70,000 outer steps, two hidden
    layers of 40. `low=-5` is the range of inputs in the authors' code."""
    experiment = Experiment(
        f"regression2d{'-wide' if low < 0 else ''}/{algorithm}",
        ALGORITHMS[algorithm].options(REGRESSION),
        FunctionsOptions(low=low),
        MLPOptions(),
        OuterOptions(),
    )
    return replace(experiment, **REGRESSION_SETTINGS.get(algorithm, {}))


def folders(algorithm: str) -> Experiment:
    """Image folders of one's own: Conv-4 with 32 filters, batch 4, 5 inner steps."""
    return small_images("folders", algorithm, IMAGES, FoldersOptions())


def starter(algorithm: str, *, art: bool = False) -> Experiment:
    """The pictures that the package carries, `art` through the two filters too; otherwise the same
    as `folders`."""
    problem = "starter-art" if art else "starter"
    return small_images(problem, algorithm, STARTER, StarterOptions(art=art))


def small_images(name: str, algorithm: str, problem: Problem, tasks: Any) -> Experiment:
    """Images of about 28 px: what both kinds share."""
    options = ALGORITHMS[algorithm].options(problem)
    # Better on validation tasks for all that were tried but ARML's text (results/starter); its code
    # was not tried, and has the same gates.
    rate = 0.001 if algorithm in ("arml-official", "arml-paper") else 0.003
    outer = OuterOptions(outer_rate=rate, schedule="cosine")
    return images(f"{name}/{algorithm}", options, tasks, outer, steps=20_000, validate_every=500)


def images(
    name: str, options: Any, tasks: Any, outer: OuterOptions, *, steps: int, validate_every: int
) -> Experiment:
    """What all experiments on images share: Conv-4 with 32 filters, batch 4."""
    if name.endswith("/arml"):
        # At the full step the encoder embeds all pictures alike before the network learns from it.
        outer = replace(outer, encoder_factor=0.03)
    experiment = Experiment(
        name,
        options,
        tasks,
        Conv4Options(),
        outer,
        steps=steps,
        batch=4,
        interval=20,
        checkpoint_every=100,
        validate_every=validate_every,
        validation_tasks=200,
        scan=False,
        chunk=1,
    )
    return replace(experiment, **IMAGE_SETTINGS.get(name.partition("/")[2], {}))


def features(algorithm: str) -> Experiment:
    """Vectors that `arml features` made: a hidden layer of 64, batch 16, 5 inner steps.

    A vector may have a thousand numbers, so ARML's gates are one a unit and not one a weight.
    """
    options = ALGORITHMS[algorithm].options(VECTORS)
    if isinstance(options, ARMLOptions):
        options = replace(options, granularity="filter")
    experiment = Experiment(
        f"features/{algorithm}",
        options,
        VectorsOptions(),
        MLPOptions(hidden=(64,), init="he"),
        OuterOptions(clip=10.0, schedule="cosine"),
        steps=5_000,
        batch=16,
        chunk=16,
        interval=50,
        checkpoint_every=500,
        validate_every=500,
    )
    return replace(experiment, **IMAGE_SETTINGS.get(algorithm, {}))


def frozen_protonet() -> Experiment:
    """The nearest class mean of frozen features: nothing is trained."""
    experiment = replace(features("protonet"), recipe="features/frozen-protonet", steps=0)
    return replace(experiment, network=MLPOptions(hidden=()), outer=OuterOptions())


def protonet_20way() -> Experiment:
    """ProtoNet trained on more ways than it is tested on, as its authors do."""
    tasks = FoldersOptions(train_ways=20)
    return replace(folders("protonet"), recipe="folders/protonet-20way", tasks=tasks)


def prepared(algorithm: str, *, store: str, steps: int) -> Experiment:
    """A benchmark that `arml data prepare` made, as in the paper: 5-way 1-shot, 15 queries, 84 px,
    Conv-4 with 32 filters, batch 4, 5 inner steps, Adam with a constant rate.

    `steps` is the authors' number of outer steps for Plain- and Art-Multi, and MAML's for
    miniImageNet.
    """
    options = ALGORITHMS[algorithm].options(BENCHMARK)
    if store == "art-multi" and isinstance(options, ARMLOptions):
        options = replace(options, vertices=8)  # the paper's; Plain-Multi has 4
    tasks = StoreOptions(store=store)
    name = f"{store}/{algorithm}"
    return images(name, options, tasks, OuterOptions(), steps=steps, validate_every=1_000)


def reshaped(experiment: Experiment, **shape: int) -> Experiment:
    """The experiment with other `ways`, `shots` or `queries` of its tasks, as far as these have
    them; each at least one. What its algorithm's preset makes of them (inner rates, weights of
    reconstructions) follows; what the recipe has otherwise than the preset stays.

    **Raises** `TypeError` for what the tasks do not have.
    """
    changed = replace(experiment, tasks=replace(experiment.tasks, **shape))
    before, after = preset(experiment), preset(changed)
    if type(experiment.algorithm) is not type(before):
        return changed
    own, old = vars(experiment.algorithm), vars(before)
    moved = {k: v for k, v in vars(after).items() if v != old[k] and own[k] == old[k]}
    return replace(changed, algorithm=replace(experiment.algorithm, **moved))


def preset(experiment: Experiment) -> Any:
    """The options that the recipe's algorithm has for tasks of this shape; None where its name
    says neither."""
    setting, _, algorithm = experiment.recipe.partition("/")
    if setting not in PROBLEMS or algorithm not in ALGORITHMS:
        return None
    base, tasks = PROBLEMS[setting].problem, experiment.tasks
    ways = getattr(tasks, "ways", base.outputs)
    problem = replace(base, outputs=ways, shots=tasks.shots, queries=tasks.queries)
    return ALGORITHMS[algorithm].options(problem)


class Recipe(NamedTuple):
    """An experiment, and what to expect of it."""

    description: str
    make: Callable[[], Experiment]
    minutes: float | None = None
    """Training time as measured on one or two CPU cores; None where it depends on the data."""
    expected: float | None = None
    """The test score that it came to here, mean over seeds (`results/`)."""


class Setting(NamedTuple):
    """What the recipes of one data set share."""

    problem: Problem
    description: str
    make: Callable[[str], Experiment]
    """An algorithm's experiment on it."""


PROBLEMS: dict[str, Setting] = {
    "regression2d": Setting(REGRESSION, "2-D regression of six families", regression2d),
    "regression2d-wide": Setting(
        REGRESSION,
        "2-D regression of six families, inputs U[-5, 5]",
        partial(regression2d, low=-5.0),
    ),
    "starter": Setting(STARTER, "The pictures in the package, three families", starter),
    "starter-art": Setting(
        STARTER,
        "The pictures in the package, also blurred and in pencil, nine families",
        partial(starter, art=True),
    ),
    "folders": Setting(IMAGES, "Your own images (--data FOLDER_OR_ZIP...)", folders),
    "features": Setting(VECTORS, "Frozen features of images (--data FEATURES...)", features),
    **{
        store: Setting(BENCHMARK, about, partial(prepared, store=store, steps=steps))
        for store, about, steps in (
            ("plain-multi", "Plain-Multi, four families", 50_000),
            ("art-multi", "Art-Multi, twelve families", 60_000),
            ("mini-imagenet", "miniImageNet", 60_000),
            ("tiered-imagenet", "tieredImageNet", 60_000),
        )
    },
}
"""Data sets, by the first part of a recipe's name."""
MEASURED: dict[str, tuple[float, float]] = {
    "regression2d/maml": (5, 1.12),
    "regression2d/meta-sgd": (7, 1.12),
    "regression2d/arml": (18, 0.164),
    "regression2d/arml-official": (16, 0.221),
    "regression2d/arml-paper": (12, 0.228),
    "regression2d/mt-net": (12, 0.726),
    "regression2d/hsml": (13, 0.205),
    "regression2d/mumomaml": (16, 0.248),
    "regression2d/reptile": (3.5, 2.59),
    "regression2d/anil": (1, 1.23),
    "regression2d/first-order-maml": (3, 2.54),
    "regression2d/bmaml": (40, 2.58),
    "regression2d/versa": (8, 0.300),
    "regression2d/llama": (18, 1.02),
    "regression2d-wide/maml": (2.5, 1.64),
    "regression2d-wide/arml-official": (5.5, 0.562),
}
"""Minutes and test score of the recipes that have results."""

RECIPES: dict[str, Recipe] = {
    **{
        f"{name}/{algorithm}": Recipe(
            f"{setting.description}. {known.description}",
            partial(setting.make, algorithm),
            *MEASURED.get(f"{name}/{algorithm}", ()),
        )
        for name, setting in PROBLEMS.items()
        for algorithm, known in ALGORITHMS.items()
        if setting.problem.kind in known.kinds
    },
    "features/frozen-protonet": Recipe(
        f"{PROBLEMS['features'].description}. The nearest class mean; nothing is trained.",
        frozen_protonet,
    ),
    "folders/protonet-20way": Recipe(
        f"{PROBLEMS['folders'].description}. ProtoNet trained on more ways than it is tested on.",
        protonet_20way,
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
