"""Checks that many options share."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arml.core.episodes import Problem


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

    def check(self) -> None:
        """Raise `ValueError` in one line if an option is invalid."""


MOST = 100_000
"""The largest whole number that an option may be, unless its check states another."""
LONGEST = 100
"""The largest count of numbers in one option."""
LARGEST = 2**30
"""The largest count of numbers in a learner: 4 GiB in float32."""


def at_least(
    options: object,
    names: Iterable[str],
    least: int | float,
    *,
    strict: bool = False,
    most: int = MOST,
) -> None:
    """Raise `ValueError` in one line if an option is not finite or is less than `least`; with
    `strict`, also if it equals `least`.

    Whole numbers are sizes and counts: one above `most` is a mistake or an attack, and raises, too.
    So does a share above a `most` of 1.

    **Arguments**

    - `options`: an object with the attributes `names`, each a number or a tuple of numbers.
    """
    wanted = f"at least {least:g}" if least else "0 or more"
    wanted = f"above {least:g}" if strict else wanted
    for name in names:
        value = getattr(options, name)
        if isinstance(value, tuple) and len(value) > LONGEST:
            raise ValueError(
                f"{name} must be at most {LONGEST} numbers, got {len(value)}: give fewer"
            )
        for number in value if isinstance(value, tuple) else (value,):
            if not math.isfinite(number):
                raise ValueError(f"{name} must be {wanted}, got {number}: give a finite number")
            if number < least or (strict and number == least):
                raise ValueError(f"{name} must be {wanted}, got {number}: raise it")
            if number > most and (isinstance(number, int) or most == 1):
                raise ValueError(f"{name} must be at most {most:,}, got {number:,}: lower it")


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


def regression_only(method: str, problem: "Problem", *, instead: str) -> None:
    """Raise `ValueError` in one line if a method that predicts numbers is given classes; `instead`
    is what to do."""
    if problem.kind != "regression":
        raise ValueError(
            f"{method} needs regression tasks, because it solves for numbers; these are "
            f"classification: {instead}"
        )
