"""Figures of a look inside a method of one's own: one for each list or table of numbers in it."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from arml.report.style import BLUES, COLOURS, styled
from arml.results.files import JsonView

COMMON = ("families", "tasks", "tasks_by_family", "kind", "format", "recipe", "step")
"""Entries that every explanation has."""


class Numbers(NamedTuple):
    """A table of numbers; names of its rows where it has them."""

    values: np.ndarray
    names: tuple[str, ...] = ()


def numbers(value: object) -> Numbers | None:
    """A list of numbers, a table of them, or either by name, as a table; None for anything else."""
    names: tuple[str, ...] = ()
    if isinstance(value, Mapping):
        names, value = tuple(value), list(value.values())
    if not isinstance(value, list) or not value:
        return None
    try:
        values = np.asarray(value, np.float64)
    except (TypeError, ValueError):  # texts, or rows of different lengths
        return None
    if not values.size or values.ndim > 2:
        return None
    if values.ndim == 1:
        values = values[:, None] if names else values[None]
    return Numbers(values, names)


@styled
def numbers_figure(name: str, found: Numbers) -> Figure:
    """Bars for a single row or column, a heat map for more."""
    values, names = found
    rows, columns = values.shape
    one = min(rows, columns) == 1
    figure = Figure(figsize=(6.4, 2.6 if one else 1.4 + 0.3 * min(rows, 20)), layout="constrained")
    axes = figure.subplots()
    axes.set_title(name.replace("_", " "), loc="left")
    if one:
        axes.bar(range(values.size), values.ravel(), color=COLOURS[0])
        axes.axhline(0.0, color="#888888", linewidth=1)
    else:
        figure.colorbar(axes.imshow(values, cmap=BLUES, aspect="auto"), ax=axes)
    if names and columns == 1:
        axes.set_xticks(range(rows), names)
    elif names and not one:
        axes.set_yticks(range(rows), names)
    return figure


def own_figures(explain: JsonView) -> list[tuple[str, Figure, str, str]]:
    """For each entry that holds numbers: its name, a figure, an alternative text and a caption."""
    tables = {name: numbers(value) for name, value in explain.items() if name not in COMMON}
    return [
        (
            name,
            numbers_figure(name, found),
            f"{name}: {found.values.shape[0]} by {found.values.shape[1]} numbers, from "
            f"{found.values.min():.3g} to {found.values.max():.3g}",
            f"{name.replace('_', ' ')}, as the method's own `inside` returned it.",
        )
        for name, found in tables.items()
        if found is not None
    ]
