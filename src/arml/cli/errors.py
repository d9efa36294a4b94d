"""Errors of the command line, in a module that is imported quickly."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


class UsageError(ValueError):
    """A command line that cannot be understood."""


def named(what: str, name: str, known: Mapping[str, T]) -> T:
    """The entry of that name. **Raises** `UsageError` with the names for an unknown one."""
    if name in known:
        return known[name]
    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise UsageError(f"unknown {what} {name!r}: expected one of {', '.join(known)}{hint}")
