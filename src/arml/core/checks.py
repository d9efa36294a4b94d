"""Options, the types of their values, and checks that many of them share. Nothing here needs JAX.

The type of an option has its bounds, which hold for values from Python, from the command line and
from files.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta

MAX_COUNT = 100_000
"""The largest size or count, unless the type of an option states another: a larger number is a
mistake or an attack."""
Whole = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Size = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Steps = Annotated[int, Meta(ge=0, le=10**9)]
Period = Annotated[int, Meta(ge=1, le=10**9)]
"""A number of steps between two events."""
NonNegative = Annotated[float, Meta(ge=0)]
AboveZero = Annotated[float, Meta(gt=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
_MAX_NUMBERS = 2**30
"""The largest count of numbers in a learner: 4 GiB in float32."""


class Options:
    """The options of a method, of tasks or of a network: subclasses are frozen dataclasses whose
    fields have defaults, with a method `build`.

        @dataclasses.dataclass(frozen=True)
        class LineOptions(arml.Options):
            scale: float = 1.0

            def build(self, problem, *, key):
                return arml.nn.linear(problem.features[0], problem.outputs, key=key)

        arml.register("network", "line", LineOptions)

    Bounds belong to the type: `Annotated[float, msgspec.Meta(gt=0)]`.
    """

    if TYPE_CHECKING:  # every subclass is a dataclass
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    build: ClassVar[Callable[..., Any]]

    def check(self) -> None:
        """Raise `ValueError` in one line if an option is invalid."""
        check_types(self)


def check_options(options: Any) -> None:
    """Raise `ValueError` in one line if a field has no value of its type, or if the options' own
    `check` raises, or for an object that is not options. Every entry to a training calls it,
    because nothing else checks options that are made in Python."""
    if isinstance(options, type) or not hasattr(options, "check"):
        name = getattr(options, "__name__", type(options).__name__)
        raise ValueError(f"expected options, or a mapping that changes the usual ones, got {name}")
    check_types(options)
    options.check()


def check_types(options: object) -> None:
    """Raise `ValueError` in one line if a field of a dataclass has no value of its type."""
    cls: Any = type(options)
    for name, kind in _types(cls).items():
        value = getattr(options, name)
        if expected := _lacking(kind, value):
            raise ValueError(f"{name} must be {expected}, got {value!r}")


@cache
def _types(cls: type) -> dict[str, object]:
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:  # of a class inside a function
        return {}
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _lacking(kind: Any, value: object) -> str:
    """The values that the type allows, in words, if `value` is not one of them; else empty. Types
    that command-line options do not have allow everything."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    number: Any = None if isinstance(value, bool) else value
    if origin is Annotated:
        beyond = (_beyond(bounds, number) for bounds in arguments[1:] if isinstance(bounds, Meta))
        return _lacking(arguments[0], value) or next(filter(None, beyond), "")
    if origin is Literal:
        return "" if value in arguments else f"one of {', '.join(map(repr, arguments))}"
    if origin in (Union, UnionType):
        found = [_lacking(argument, value) for argument in arguments if argument is not NoneType]
        absent = value is None and NoneType in arguments
        return " or ".join(found) if all(found) and not absent else ""
    if origin is tuple and arguments:
        if not isinstance(value, tuple):
            return "a tuple"
        kinds = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        if len(kinds) != len(value):
            return f"a tuple of {len(kinds)}"
        wrong = next(filter(None, map(_lacking, kinds, value)), "")
        return f"a tuple, each {wrong}" if wrong else ""
    expected, right = {
        float: ("a finite number", isinstance(number, Real) and math.isfinite(number)),
        int: ("a whole number", isinstance(number, Integral)),
        bool: ("True or False", isinstance(value, bool)),
        str: ("a text", isinstance(value, str)),
    }.get(origin, ("", True))
    return "" if right else expected


def _beyond(bounds: Meta, value: int | float) -> str:
    """The bound that a number breaks, in words; empty if none."""
    if bounds.ge is not None and value < bounds.ge:
        return f"at least {bounds.ge:g}" if bounds.ge else "0 or more"
    if bounds.gt is not None and value <= bounds.gt:
        return f"above {bounds.gt:g}"
    return f"at most {bounds.le:,}" if bounds.le is not None and value > bounds.le else ""


def check_size(numbers: int) -> None:
    """Raise `ValueError` if a learner has too many numbers for the memory."""
    if numbers > _MAX_NUMBERS:
        raise ValueError(
            f"expected a learner of at most {_MAX_NUMBERS:,} numbers, got {numbers:,}: lower its "
            "sizes (hidden, width, filters, vertices)"
        )


def classes_only(method: str, problem: Any) -> None:
    """Raise `ValueError` in one line if a method that compares classes is given the `Problem` of
    regression tasks."""
    if problem.kind != "classification":
        raise ValueError(
            f"{method} needs classification tasks, because it compares classes; these are "
            "regression: choose another method, or another option if that is one"
        )
