"""The search space of a sweep: options of an experiment, each with its possible values."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from arml.algorithms import ALGORITHMS
from arml.experiment.options import Experiment
from arml.experiment.recipes import RECIPES

PARTS = ("algorithm", "outer", "network")
"""The parts whose options can be searched. The options of the tasks cannot: scores on different
tasks cannot be compared."""

Scalar = bool | int | float | str
Value = Scalar | tuple[int, ...]
"""A value of an option; the search proposes scalars."""


@dataclass(frozen=True)
class Dimension:
    """An option, `part.name`, and its values: from `low` to `high`, or one of `choices`."""

    path: str
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    choices: tuple[Scalar, ...] = ()

    @property
    def log(self) -> bool:
        """Whether the range spans a factor of ten, and so is searched on a logarithmic scale."""
        return 0 < self.low <= self.high / 10

    def suggest(self, trial: Any) -> Value:
        """A value that Optuna's `trial` proposes."""
        if self.choices:
            return trial.suggest_categorical(self.path, self.choices)
        if self.whole:
            return trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.path, self.low, self.high, log=self.log)

    def __str__(self) -> str:
        if self.choices:
            return f"{self.path}={','.join(map(str, self.choices))}"
        return f"{self.path}={self.low:g}..{self.high:g}"


def usual(experiment: Experiment) -> tuple[Dimension, ...]:
    """The dimensions that are searched by default: the step sizes and weights that the method
    names, and the outer rate, each from a tenth of its value to ten times it."""
    values = {"outer.outer_rate": experiment.outer.outer_rate}
    known = RECIPES.get(experiment.recipe)
    own = (known.method if known else ALGORITHMS.of(experiment.algorithm)).tune or ()
    values = {f"algorithm.{name}": getattr(experiment.algorithm, name, 0) for name in own} | values
    return tuple(Dimension(path, now / 10, now * 10) for path, now in values.items() if now)


def dimension(text: str, experiment: Experiment) -> Dimension:
    """The dimension that `PART.NAME=LOW..HIGH` or `PART.NAME=A,B,C` names.

    **Raises** `ValueError` in one line for an unknown option and for invalid values.
    """
    path, equals, values = text.partition("=")
    part, _, name = path.partition(".")
    options = getattr(experiment, part, None) if part in PARTS else None
    known = {field.name: field.type for field in dataclasses.fields(options)} if options else {}
    if name not in known:
        raise ValueError(
            f"expected an option of {', '.join(PARTS)} to search, such as algorithm.inner_rate, "
            f"got {path!r}" + (f": {part} has {', '.join(known)}" if known else "")
        )
    now = getattr(options, name)
    low, dots, high = values.partition("..")
    if not equals or not values or isinstance(now, tuple):
        raise ValueError(f"expected {path}=LOW..HIGH or {path}=A,B,C, got {text!r}: change it")
    if not dots:
        found = Dimension(path, choices=tuple(_value(one, now, text) for one in values.split(",")))
        allowed = get_args(known[name]) or found.choices
        if not {*found.choices} <= {*allowed}:
            raise ValueError(
                f"expected values of {', '.join(map(str, allowed))}, got {text!r}: change it"
            )
    else:
        ends = [_value(end, now, text) for end in (low, high)]
        first, last = (float(end) if isinstance(end, int | float) else math.nan for end in ends)
        if isinstance(now, bool) or not -math.inf < first < last < math.inf:
            raise ValueError(
                f"expected a range of numbers from low to high, got {text!r}: change it"
            )
        found = Dimension(path, first, last, isinstance(now, int))
    for one in found.choices or ends:
        chosen(experiment, {path: one}).check()
    return found


def _value(text: str, like: Scalar, given: str) -> Scalar:
    """`text` as a value of the type of `like`."""
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text.strip().lower()]
        return type(like)(text.strip())
    except (KeyError, ValueError):
        raise ValueError(
            f"expected values of the type {type(like).__name__}, got {text!r} in {given!r}"
        ) from None


def chosen(experiment: Experiment, values: Mapping[str, Value]) -> Experiment:
    """The experiment with these values of the options at these paths."""
    for path, value in values.items():
        part, _, name = path.partition(".")
        options = replace(getattr(experiment, part), **{name: value})
        experiment = replace(experiment, **{part: options})
    return experiment


def check_apart(dimensions: Sequence[Dimension]) -> None:
    """Raise `ValueError` if an option is searched twice, or none is."""
    paths = [dimension.path for dimension in dimensions]
    if not paths:
        raise ValueError("expected options to search, got none: give --search PART.NAME=LOW..HIGH")
    if twice := {path for path in paths if paths.count(path) > 1}:
        raise ValueError(f"expected each option once, got {', '.join(sorted(twice))} twice")
