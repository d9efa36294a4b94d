"""The figures of the ARML paper as data: tables show them apart from our measurements.

[1] Huaxiu Yao, Xian Wu, Zhiqiang Tao, Yaliang Li, Bolin Ding, Ruirui Li, Zhenhui Li. "Automated
    Relational Meta-learning". ICLR 2020.

`data/paper.json` holds its tables as they are printed: for each table and row, the figure and the
half-width of its 95% interval (null where there is none), by family; accuracies are percentages. It
also holds the names of rows and tables, and the recipes of this package whose figure the paper has.
"""

from functools import cache
from importlib.resources import files
from json import loads
from statistics import fmean
from typing import NamedTuple

from arml.results.files import Json


class Reported(NamedTuple):
    """A mean and the half-width of its 95% interval, as the paper prints them."""

    mean: float
    ci95: float | None


@cache
def _paper() -> Json:
    text = files("arml").joinpath("data/paper.json").read_text(encoding="utf-8")
    return loads(text)


def _tables() -> dict[str, dict[str, Json]]:
    return _paper()["tables"]


def names() -> dict[str, str]:
    """The names that the paper gives its rows, in its order."""
    return _paper()["methods"]


def titles() -> dict[str, str]:
    """Titles of the paper's tables of data that the package does not carry."""
    return _paper()["titles"]


def reported_by_family(table: str, row: str) -> dict[str, Reported]:
    """The paper's figures in one row of one of its tables, by family (`all` where it has none).

    Empty if the paper has no such table or row. Tables are named as in `paper.json`;
    `ablations-art-multi` is 5-way 5-shot.
    """
    return {name: Reported(*pair) for name, pair in _tables().get(table, {}).get(row, {}).items()}


def rows_of(table: str) -> list[str]:
    """The names of the rows of one of the paper's tables."""
    return list(_tables().get(table, {}))


def overall(table: str, row: str) -> Reported | None:
    """The paper's figure over all families, or else the mean of its figures of each family, which
    has no interval."""
    found = reported_by_family(table, row)
    if "all" in found:
        return found["all"]
    each = [value.mean for name, value in found.items() if not name.startswith("average ")]
    return Reported(round(fmean(each), 2), None) if each else None


def reported(recipe: str) -> Reported | None:
    """The paper's figure for a recipe; None if the paper lacks this method, variant or problem."""
    place = _paper()["recipes"].get(recipe)
    return None if place is None else overall(*place)
