"""Pictures and tables that `arml adapt` and `arml predict` read."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arml.cli.errors import UsageError


class Eye(NamedTuple):
    """How pictures become the inputs of a learner."""

    size: int
    """Pixels a side."""
    read: Callable[[np.ndarray], np.ndarray]
    """Converts pixels to its inputs."""


def eye_of(owner: Any, model: Path | None) -> Eye | None:
    """How pictures become the inputs of a learner or predictor; None if it is one of tables."""
    if len(owner.problem.features) == 3:
        if model is not None:
            raise UsageError("expected no --model, because this learner reads pixels: leave it out")
        return Eye(owner.problem.features[0], lambda pixels: pixels)
    if owner.portable.inputs is None:
        return None
    from arml.datasets.extractor import remade

    extractor = remade(owner.portable.inputs, model)
    return Eye(extractor.size, extractor)


def number(text: str, path: Path) -> float:
    from arml.datasets.own import NUMBER

    if not NUMBER.fullmatch(text.strip()):
        raise ValueError(
            f"{path}: expected numbers to predict, got {text!r}: choose another --target"
        )
    return float(text)


def check_columns(path: Path, x: np.ndarray) -> None:
    if len(x) > 1 and np.all(x == x[0]):
        raise ValueError(f"{path}: expected inputs that differ, got {len(x)} equal rows")


def in_order(
    x: np.ndarray, found: Sequence[str], columns: Sequence[str] | None, path: Path
) -> np.ndarray:
    """The columns of a query table in the order of the support table's, if that is known."""
    if columns is None:
        return x
    if sorted(found) != sorted(columns):
        raise ValueError(
            f"{path}: expected the columns of the support table, {', '.join(columns)}, got "
            f"{', '.join(found)}: rename or remove some"
        )
    return x[:, [found.index(name) for name in columns]]


def query_table(
    query: Sequence[Path], target: str | None, columns: Sequence[str] | None
) -> tuple[np.ndarray, Sequence[int]]:
    """The inputs of the query table, and the line of each."""
    from arml.datasets.own import read_table

    if len(query) != 1:
        raise UsageError(f"expected one CSV file as the query, got {len(query)} files: give one")
    table = read_table(query[0], target=target)
    return in_order(table.x, table.columns, columns, query[0]), table.lines
