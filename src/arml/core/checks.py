"""Options, and the checks that many of them share. Nothing here needs JAX."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

MOST = 100_000
"""The largest whole number that an option may be, unless its check states another."""
_LARGEST = 2**30
"""The largest count of numbers in a learner: 4 GiB in float32."""


class Options:
    """The options of a method, of tasks or of a network: subclasses are frozen dataclasses whose
    fields have defaults, with a method `build`.

        @dataclasses.dataclass(frozen=True)
        class LineOptions(arml.Options):
            scale: float = 1.0

            def build(self, problem, *, key):
                return arml.linear(problem.features[0], problem.outputs, key=key)

        arml.register("network", "line", LineOptions)
    """

    if TYPE_CHECKING:  # every subclass is a dataclass
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    build: ClassVar[Callable[..., Any]]
    LEAST: ClassVar[Mapping[str, int | float | tuple[int | float, int | float]]] = {}
    """The least value of options, or their least and largest; a subclass adds its own."""
    POSITIVE: ClassVar[tuple[str, ...]] = ()
    """Options that must be above zero; a subclass adds its own."""
    GONE: ClassVar[Mapping[str, object]] = {}
    """Options of earlier versions, with the value at which files that name them still load."""
    RENAMED: ClassVar[Mapping[str, str]] = {}
    """New names of options, by those that files of earlier versions have."""

    def check(self) -> None:
        """Raise `ValueError` in one line if an option is invalid."""
        for kind in type(self).__mro__:
            for name, bounds in vars(kind).get("LEAST", {}).items():
                least, most = bounds if isinstance(bounds, tuple) else (bounds, None)
                at_least(self, (name,), least, most=most)
            at_least(self, vars(kind).get("POSITIVE", ()), 0, strict=True)


def check_options(options: Any) -> None:
    """Raise `ValueError` in one line if a field has no value of its type, if a number is not
    finite, or if the options' own `check` raises. Every entry to a training calls it, because
    nothing else checks options that are made in Python."""
    check_types(options)
    options.check()


def check_types(options: Any) -> None:
    """Raise `ValueError` in one line if a field of a dataclass has no value of its type."""
    cls: Any = type(options)
    for name, kind in _types(cls).items():
        value = getattr(options, name)
        if expected := _lacking(kind, value):
            raise ValueError(f"{name} must be {expected}, got {value!r}")


@cache
def _types(cls: type) -> dict[str, Any]:
    try:
        hints = get_type_hints(cls)
    except NameError:  # of a class inside a function
        return {}
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _lacking(kind: Any, value: object) -> str:
    """The values that the type allows, in words, if `value` is none of them; else empty. Types that
    options of the command line do not have allow everything."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    number: Any = None if isinstance(value, bool) else value
    if origin is Literal:
        return "" if value in arguments else f"one of {', '.join(map(repr, arguments))}"
    if origin in (Union, UnionType):
        found = [_lacking(argument, value) for argument in arguments if argument is not NoneType]
        absent = value is None and NoneType in arguments
        return " or ".join(found) if all(found) and not absent else ""
    if origin is tuple and arguments[1:] == (...,):
        if not isinstance(value, tuple):
            return "a tuple"
        wrong = next(filter(None, (_lacking(arguments[0], item) for item in value)), "")
        return f"a tuple, each {wrong}" if wrong else ""
    expected, right = {
        float: ("a finite number", isinstance(number, Real) and math.isfinite(number)),
        int: ("a whole number", isinstance(number, Integral)),
        bool: ("True or False", isinstance(value, bool)),
        str: ("a text", isinstance(value, str)),
    }.get(origin, ("", True))
    return "" if right else expected


def at_least(
    options: object,
    names: Iterable[str],
    least: int | float,
    *,
    strict: bool = False,
    most: int | float | None = None,
) -> None:
    """Raise `ValueError` in one line if an option is not finite or is less than `least`; with
    `strict`, also if it equals `least`.

    A number above `most` raises, too. Whole numbers are sizes and counts: without a `most`, one
    above `MOST` is a mistake or an attack.

    **Arguments**

    - `options`: an object with the attributes `names`, each a number, None (which is not checked)
      or a tuple of these.
    """
    bound = f"above {least:g}" if strict else f"at least {least:g}" if least else "0 or more"
    for name in names:
        value = getattr(options, name)
        numbers = value if isinstance(value, tuple) else (value,)
        for number in (number for number in numbers if number is not None):
            if not math.isfinite(number):
                raise ValueError(f"{name} must be {bound}, got {number}: give a finite number")
            if number < least or (strict and number == least):
                raise ValueError(f"{name} must be {bound}, got {number}")
            highest = MOST if most is None and isinstance(number, int) else most
            if highest is not None and number > highest:
                raise ValueError(f"{name} must be at most {highest:,}, got {number:,}")


def check_size(numbers: int) -> None:
    """Raise `ValueError` if a learner has so many numbers that it would not fit in memory."""
    if numbers > _LARGEST:
        raise ValueError(
            f"expected a learner of at most {_LARGEST:,} numbers, got {numbers:,}: lower its sizes "
            "(hidden, width, filters, vertices)"
        )


def classes_only(method: str, problem: Any) -> None:
    """Raise `ValueError` in one line if a method that compares classes is given the `Problem` of
    regression tasks."""
    if problem.kind != "classification":
        raise ValueError(
            f"{method} needs classification tasks, because it compares classes; these are "
            "regression: choose another method, or another option if that is one"
        )
