"""Checks of options that many of them share."""

import math
from collections.abc import Iterable
from typing import Any


class Options:
    """The options of a method, of tasks or of a network: subclasses are frozen dataclasses whose
    fields have defaults, with a method `build`."""

    def check(self) -> None:
        """Raise `ValueError` in one line if an option is invalid."""


def at_least(
    options: Any, names: Iterable[str], least: int | float, *, strict: bool = False
) -> None:
    """Refuse options that are not finite numbers of `least` or more; above it if `strict`.

    **Arguments**

    - `options`: what has the attributes `names`, each a number or a tuple of numbers.

    **Raises** `ValueError` in one line.
    """
    wanted = f"at least {least:g}" if least else "0 or more"
    wanted = f"above {least:g}" if strict else wanted
    for name in names:
        value = getattr(options, name)
        for number in value if isinstance(value, tuple) else (value,):
            if not math.isfinite(number):
                raise ValueError(f"{name} must be {wanted}, got {number}: give a finite number")
            if number < least or (strict and number == least):
                raise ValueError(f"{name} must be {wanted}, got {number}: raise it")


def classes_only(method: str, problem: Any) -> None:
    """Refuse a regression problem for a method that compares classes.

    **Raises** `ValueError` in one line.
    """
    if problem.kind != "classification":
        raise ValueError(
            f"{method} needs classification tasks, for it compares classes, and these are "
            "regression: choose another algorithm (`arml list` names them)"
        )
