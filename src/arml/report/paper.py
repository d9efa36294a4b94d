"""What the ARML paper reports, as data, so that tables can show it apart from what was measured.

[1] Huaxiu Yao, Xian Wu, Zhiqiang Tao, Yaliang Li, Bolin Ding, Ruirui Li, Zhenhui Li. "Automated
    Relational Meta-learning". ICLR 2020.

`data/paper.json` holds its tables as they are printed: for each table and row, the figure and the
half-width of its 95% interval (null where there is none), by family; accuracies are percentages.
"""

from functools import cache
from importlib.resources import files
from json import loads
from statistics import fmean
from typing import Any, NamedTuple


class Reported(NamedTuple):
    """A mean and the half-width of its 95% interval, as the paper prints them."""

    mean: float
    ci95: float | None


@cache
def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    text = files("arml").joinpath("data/paper.json").read_text(encoding="utf-8")
    tables: dict[str, dict[str, dict[str, Any]]] = loads(text)
    return tables


def reported_by_family(table: str, row: str) -> dict[str, Reported]:
    """The paper's figures in one row of one of its tables, by family (`all` where it has none).

    Empty where the paper has no such table or row. Tables are named as in `paper.json`; what
    `ablations-art-multi` has is 5-way 5-shot.
    """
    return {name: Reported(*pair) for name, pair in _tables().get(table, {}).get(row, {}).items()}


def rows_of(table: str) -> list[str]:
    """The names of the rows of one of the paper's tables."""
    return list(_tables().get(table, {}))


def overall(table: str, row: str) -> Reported | None:
    """The paper's figure over all families: printed, or else the mean of what it prints of each
    family, which has no interval."""
    found = reported_by_family(table, row)
    if "all" in found:
        return found["all"]
    each = [value.mean for name, value in found.items() if not name.startswith("average ")]
    return Reported(round(fmean(each), 2), None) if each else None


_ALGORITHMS = {"arml-official": "arml", "arml-paper": "arml"}


def reported(recipe: str) -> Reported | None:
    """The paper's figure for the algorithm of a recipe such as `regression2d/maml`.

    None where the paper has no figure for it: an algorithm that it did not run, a variant of one
    (an ablation, first-order MAML), or another problem.
    """
    problem, _, algorithm = recipe.rpartition("/")
    if problem != "regression2d":
        return None
    return overall(problem, _ALGORITHMS.get(algorithm, algorithm))
