"""The figures of the ARML paper as data, apart from everything that is measured here.

[1] Huaxiu Yao, Xian Wu, Zhiqiang Tao, Yaliang Li, Bolin Ding, Ruirui Li, Zhenhui Li. "Automated
    Relational Meta-learning". ICLR 2020.

`paper.json` holds its tables as they are printed: for each table and row, the figure and the
half-width of its 95% interval (null where there is none), by family; accuracies are percentages. It
also holds the names of methods and tables.
"""

import json
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple


class Reported(NamedTuple):
    """A mean and the half-width of its 95% interval, as the paper prints them."""

    mean: float
    ci95: float | None


@cache
def _paper() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "paper.json").read_text(encoding="utf-8"))


def names() -> dict[str, str]:
    """The names that the paper gives its rows, in its order."""
    return _paper()["methods"]


def rows_of(table: str) -> list[str]:
    """The names of the rows of one of the paper's tables."""
    return list(_paper()["tables"].get(table, {}))


def overall(table: str, row: str) -> Reported | None:
    """The figure of a row over all families, or else the mean of the figures of each family, which
    has no interval; None if the paper has no such table or row. `ablations-art-multi` is 5-way
    5-shot."""
    found = _paper()["tables"].get(table, {}).get(row, {})
    if "all" in found:
        return Reported(*found["all"])
    each = [pair[0] for name, pair in found.items() if not name.startswith("average ")]
    return Reported(round(fmean(each), 2), None) if each else None
