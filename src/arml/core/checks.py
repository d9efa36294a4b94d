"""Options, and the checks that many of them share. Nothing here needs JAX."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from arml.core.episodes import Problem

MOST = 100_000
"""The largest whole number that an option may be, unless its check states another."""
LARGEST = 2**30
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

    def check(self) -> None:
        """Raise `ValueError` in one line if an option is invalid."""
        for kind in type(self).__mro__:
            for name, bounds in vars(kind).get("LEAST", {}).items():
                least, most = bounds if isinstance(bounds, tuple) else (bounds, MOST)
                at_least(self, (name,), least, most=most)
            at_least(self, vars(kind).get("POSITIVE", ()), 0, strict=True)


def at_least(
    options: object,
    names: Iterable[str],
    least: int | float,
    *,
    strict: bool = False,
    most: int | float = MOST,
) -> None:
    """Raise `ValueError` in one line if an option is not finite or is less than `least`; with
    `strict`, also if it equals `least`.

    Whole numbers are sizes and counts: one above `most` is a mistake or an attack, and raises, too.
    So does a share above a `most` of 1.

    **Arguments**

    - `options`: an object with the attributes `names`, each a number or a tuple of numbers.
    """
    bound = f"above {least:g}" if strict else f"at least {least:g}" if least else "0 or more"
    for name in names:
        value = getattr(options, name)
        numbers = value if isinstance(value, tuple) else (value,)
        for number in numbers:
            if not math.isfinite(number):
                raise ValueError(f"{name} must be {bound}, got {number}: give a finite number")
            if number < least or (strict and number == least):
                raise ValueError(f"{name} must be {bound}, got {number}")
            if number > most and (isinstance(number, int) or most == 1):
                raise ValueError(f"{name} must be at most {most:,}, got {number:,}")


def check_size(numbers: int) -> None:
    """Raise `ValueError` if a learner has so many numbers that it would not fit in memory."""
    if numbers > LARGEST:
        raise ValueError(
            f"expected a learner of at most {LARGEST:,} numbers, got {numbers:,}: lower its sizes "
            "(hidden, width, filters, vertices)"
        )


def classes_only(method: str, problem: "Problem") -> None:
    """Raise `ValueError` in one line if a method that compares classes is given regression."""
    if problem.kind != "classification":
        raise ValueError(
            f"{method} needs classification tasks, because it compares classes; these are "
            "regression: choose another method, or another option if that is one"
        )
