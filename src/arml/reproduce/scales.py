"""The budget of a study: the paper's own, some hours on a laptop, or two minutes."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, TypeVar

from arml.core.learner import MethodOptions, NetworkOptions
from arml.experiment.options import Experiment
from arml.experiment.parts import metric_of
from arml.experiment.recipes import shape_of
from arml.results.files import JsonView

Budget = Callable[[Experiment, bool], Experiment]


class Amounts(NamedTuple):
    """How much is run of a table."""

    seeds: int
    tasks: int
    """Test tasks."""
    explained: int
    """Test tasks that are explained."""


@dataclass(frozen=True)
class Scale:
    """A budget for experiments, and the tables that are run with it."""

    name: str
    budget: Budget
    """Called with an experiment of the paper, and whether it belongs to a side table. Returns the
    experiment to run."""
    tables: tuple[str, ...]
    """In the order in which they are run."""
    vectors: Amounts
    images: Amounts
    repeated_seeds: int
    """Seeds of the rows on images that are trained again, for the spread over seeds."""


def with_seeds(scale: Scale, seeds: int) -> Scale:
    """The scale with this number of seeds for every row, except rows that always have one seed."""
    vectors, images = (each._replace(seeds=seeds) for each in (scale.vectors, scale.images))
    return replace(scale, vectors=vectors, images=images, repeated_seeds=seeds)


Part = TypeVar("Part", MethodOptions, NetworkOptions)


def whole(experiment: Experiment, side: bool) -> Experiment:
    """The paper's budget."""
    return experiment


def hours(experiment: Experiment, side: bool) -> Experiment:
    """The main tables of 2-D regression have all steps, and its side tables a seventh of them. On
    images all methods have the same few steps: 400 at one shot, and 200 at more shots, where a step
    takes longer."""
    if metric_of(experiment.tasks) == "mse":
        return replace(experiment, steps=10_000) if side else experiment
    steps = 400 if shape_of(experiment.tasks).shots == 1 else 200
    return replace(
        experiment, steps=steps, interval=10, checkpoint_every=50, validate_every=steps // 2
    )


TINY: JsonView = {"inner_steps": 1, "width": 4, "hidden": (), "particles": 2, "layers": 1}
TINY_NETWORK: JsonView = {"hidden": (8,), "filters": 2}


def _small(options: Part, sizes: JsonView) -> Part:
    """The options with those of the sizes that they have."""
    known = {field.name for field in fields(options)}
    # Some rows compare numbers of layers of message passing.
    keep = {"layers"} if "propagation" in known else set()
    return replace(options, **{k: v for k, v in sizes.items() if k in known - keep})


def tiny(experiment: Experiment, side: bool) -> Experiment:
    """Twenty steps of tiny networks: a test that everything works, not a result."""
    vectors = len(shape_of(experiment.tasks).features) == 1
    every = {"interval": 10, "checkpoint_every": 10, "validate_every": 20, "validation_tasks": 10}
    return replace(
        experiment,
        algorithm=_small(experiment.algorithm, TINY),
        network=_small(experiment.network, TINY_NETWORK),
        outer=replace(experiment.outer, warmup=0),
        steps=20,
        batch=4,
        chunk=10 if vectors else 1,
        **every,  # type: ignore[arg-type]
    )


LOCAL = (
    "regression2d",
    "starter-1shot",
    "ablations-regression2d",
    "evidence-regression2d",
    "edges-regression2d",
    "vertices-regression2d",
    "propagation-regression2d",
    "mu-regression2d",
    "order-regression2d",
    "structure-regression2d",
    "ablations-starter-1shot",
    "starter-art-1shot",
    "vertices-starter-art-1shot",
    "structure-starter-art-1shot",
    "order-starter-1shot",
    "normalisation-starter-1shot",
    "starter-5shot",
)
"""Tables that need only the data in the package; cheap and decisive ones come first."""
BENCHMARKS = (
    "plain-multi-1shot",
    "plain-multi-5shot",
    "art-multi-1shot",
    "art-multi-5shot",
    "mini-imagenet",
    "tiered-imagenet",
    "ablations-plain-multi-5shot",
    "ablations-art-multi-5shot",
    "vertices-art-multi-5shot",
    "structure-art-multi-1shot",
    "edges-plain-multi-5shot",
    "order-plain-multi-5shot",
    "normalisation-plain-multi-5shot",
)
"""Tables that need `arml data prepare`."""

SCALES: dict[str, Scale] = {
    "smoke": Scale(
        "smoke",
        tiny,
        ("regression2d", "ablations-regression2d", "order-regression2d"),
        vectors=Amounts(seeds=2, tasks=40, explained=40),
        images=Amounts(seeds=1, tasks=10, explained=20),
        repeated_seeds=1,
    ),
    "laptop": Scale(
        "laptop",
        hours,
        LOCAL,
        vectors=Amounts(seeds=5, tasks=4_000, explained=1_000),
        images=Amounts(seeds=1, tasks=1_000, explained=200),
        repeated_seeds=3,
    ),
    "paper": Scale(
        "paper",
        whole,
        (*LOCAL, *BENCHMARKS),
        vectors=Amounts(seeds=3, tasks=4_000, explained=1_000),
        images=Amounts(seeds=1, tasks=4_000, explained=1_000),
        repeated_seeds=1,
    ),
}
