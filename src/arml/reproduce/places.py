"""Where methods are compared: a problem, its shots, and an algorithm's experiment on it."""

from dataclasses import replace
from typing import NamedTuple

from arml.experiment.options import Experiment
from arml.experiment.recipes import Recipe, known_recipe, recipe, reshaped
from arml.reproduce.scales import Scale
from arml.tasks.vectors import VectorsOptions


class Place(NamedTuple):
    """A problem and its number of shots."""

    problem: str
    """One of `settings.PROBLEMS`."""
    title: str
    shots: int | None = None
    """Of images; None if the problem fixes them."""
    steps: int | None = None
    """Outer steps; None for those of the recipe."""
    traits: tuple[str, ...] = ()
    """Further traits of the setting: methods may have options for each trait."""

    @property
    def kind(self) -> str:
        """The name of its table in the entries of methods: its data set, or `benchmarks` for the
        two of the paper."""
        return "benchmarks" if self.problem.endswith("-multi") else self.problem


PLACES: dict[str, Place] = {
    "regression2d": Place("regression2d", "2-D regression, 10-shot"),
    "starter-1shot": Place("starter", "Starter set, 5-way 1-shot", 1),
    "starter-5shot": Place("starter", "Starter set, 5-way 5-shot", 5),
    "starter-art-1shot": Place(
        "starter-art",
        "Starter set and its filters, 5-way 1-shot",
        1,
        traits=("many families",),  # as Art-Multi, which it stands in for
    ),
    "plain-multi-1shot": Place("plain-multi", "Plain-Multi, 5-way 1-shot", 1),
    "plain-multi-5shot": Place("plain-multi", "Plain-Multi, 5-way 5-shot", 5, 40_000),
    "art-multi-1shot": Place("art-multi", "Art-Multi, 5-way 1-shot", 1),
    "art-multi-5shot": Place("art-multi", "Art-Multi, 5-way 5-shot", 5, 40_000),
    "mini-imagenet": Place("mini-imagenet", "miniImageNet, 5-way 1-shot", 1),
    "tiered-imagenet": Place("tiered-imagenet", "tieredImageNet, 5-way 1-shot", 1),
}


def known(place: str, algorithm: str) -> Recipe:
    """The recipe of a method, or of a variant, on the place's problem.

    **Raises** `ValueError` for a method that is not made for this problem.
    """
    return known_recipe(f"{PLACES[place].problem}/{algorithm}")


def experiment(place: str, algorithm: str, scale: Scale, *, side: bool = False) -> Experiment:
    """One algorithm at one place, within the scale's budget; its recipe is the run's name."""
    at = PLACES[place]
    made = known(place, algorithm).make(*at.traits)
    if at.shots is not None:
        made = reshaped(made, shots=at.shots)
    made = replace(made, steps=at.steps or made.steps)
    fitted = scale.budget(made, side)
    shortened = f"-{fitted.steps}" if fitted.steps != made.steps else ""
    return replace(fitted, recipe=f"{place}{shortened}/{algorithm}")


def frozen(place: str) -> Experiment:
    """The nearest class mean of the package's pictures, in the features of the model that ships. It
    makes no step, so it needs no budget."""
    shots = PLACES[place].shots
    assert shots is not None
    tasks = VectorsOptions(data=("starter",), shots=shots)
    return replace(
        recipe("features/frozen-protonet"), recipe=f"{place}/frozen-protonet", tasks=tasks
    )


def varied(base: Experiment, name: str, **options: object) -> Experiment:
    """The same experiment with other options of its algorithm, and with a name of its own."""
    algorithm = replace(base.algorithm, **options)
    if algorithm == base.algorithm:
        return base
    return replace(base, recipe=f"{base.recipe}-{name}", algorithm=algorithm)
