"""The registry of methods: the entries in `METHODS` of each module of this folder, and those that
others register. A registered method passes the contract tests, has a recipe for each setting, and
is trained, scored and reported like any other.

Two differences from their papers hold for all methods, and their docstrings do not repeat them.
Rates and weights of losses are for mean losses, not for sums. And all methods of a setting have the
same base network with the same initial weights, the same normalisation, tasks in each step, queries
and outer optimiser, except where a method's entry names others.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from arml.algorithms.method import Changes, Method
from arml.core.registry import Registry

__all__ = ["ALGORITHMS", "Changes", "Method"]


def _own() -> Iterator[Method]:
    for module in iter_modules(__path__):
        yield from getattr(import_module(f"{__name__}.{module.name}"), "METHODS", ())


ALGORITHMS: Registry[Method] = Registry("method", Method, sorted(_own(), key=lambda m: m.year))
"""Every method by name, in the order of publication."""
