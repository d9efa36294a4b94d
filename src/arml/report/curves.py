"""The style of every figure, and learning curves.

Colours are safe for colour-blind readers: a single-hue scale, and Okabe and Ito's palette with a
line style for each colour. The same numbers give the same SVG, byte for byte.
"""

import io
from collections.abc import Sequence
from math import ceil
from pathlib import Path

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import (
    EngFormatter,
    LogLocator,
    NullFormatter,
    PercentFormatter,
    StrMethodFormatter,
)

from arml.results.files import Json, JsonView, write_bytes
from arml.results.folder import RunFiles, recipe_of

# Starts at a visible tint, not at white, so that an empty cell does not look like a missing one.
BLUE_COLOURS: Colormap = LinearSegmentedColormap.from_list(
    "arml-blues", ["#eef4fa", "#b5d2ea", "#5fa2d0", "#2069a8", "#0a2f63"]
)
LINE_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
LINE_DASHES: list[str | tuple[int, tuple[float, ...]]] = [
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.5, 1.5)),
]
STYLE_FILE = Path(__file__).parent / "templates" / "arml.mplstyle"
styled = matplotlib.style.context(STYLE_FILE, after_reset=True)
"""Draws in our style and leaves the settings of the program unchanged."""


def heat(
    axes: Axes,
    values: np.ndarray,
    rows: Sequence[str],
    numbers: Sequence[Sequence[str]] | None = None,
    *,
    norm: Normalize,
    columns: Sequence[str] = (),
    cmap: Colormap = BLUE_COLOURS,
) -> AxesImage:
    """A heat map, darker = higher, with the `numbers` in its cells. The columns are vertices if
    they have no names."""
    columns = columns or [f"V{i}" for i in range(values.shape[1])]
    image = axes.imshow(values, cmap=cmap, norm=norm, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    # White lines between the cells keep equal neighbours apart.
    axes.set_xticks(np.arange(0.5, len(columns) - 1), minor=True)
    axes.set_yticks(np.arange(0.5, len(rows) - 1), minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    for i, row in enumerate(numbers or ()):
        for j, text in enumerate(row):
            colour = "white" if norm(values[i, j]) > 0.56 else "#12263a"
            axes.text(j, i, text, ha="center", va="center", color=colour, size=7.5, linespacing=1.1)
    return image


@styled
def render(figure: Figure, kind: str) -> bytes:
    """The figure as a file of `kind` "svg" or "png" (200 dots an inch)."""
    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        # A second pass of the layout would move parts a little, and the files would differ.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    buffer = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=200, metadata=metadata, facecolor="white")
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path | str) -> list[Path]:
    """Write `path` with the suffixes .png and .svg, each atomically; returns both paths.
    **Raises:** `RunError` if they cannot be written."""
    files = [Path(f"{path}.{kind}") for kind in ("png", "svg")]
    for file in files:
        write_bytes(file, render(figure, file.suffix[1:]))
    return files


CURVE_BINS = 80
"""Points of a training curve: losses of single steps are averaged within this many bins."""


def series_of(metrics: Sequence[JsonView], *names: str) -> np.ndarray:
    """`[records, 1 + names]`: the step and the numbers of the records that have the first name."""
    rows = [[one.get(k) for k in ("step", *names)] for one in metrics if names[0] in one]
    return np.array(rows, np.float64).reshape(-1, 1 + len(names))  # None becomes NaN


def _binned(series: np.ndarray) -> np.ndarray:
    """Means of consecutive records; an incomplete last bin, which is noisier, is left out."""
    size = max(1, ceil(len(series) / CURVE_BINS))
    whole = series[: len(series) // size * size]
    return whole.reshape(-1, size, series.shape[1]).mean(1)


@styled
def learning_curves(runs: Sequence[RunFiles], metric: str) -> Figure:
    """The training loss, averaged within bins, beside the validation score with its 95% interval.
    Runs of one recipe share a colour and a line style. Mean squared errors have a logarithmic
    axis."""
    recipes = list(dict.fromkeys(recipe_of(run) for run in runs))
    figure = Figure(figsize=(9.4, 3.7 + 0.2 * (len(recipes) // 3)), layout="constrained")
    training, validation = figure.subplots(1, 2, sharex=True)
    named: set[str] = set()
    for run in runs:
        recipe = recipe_of(run)
        index = recipes.index(recipe)
        colour, dashes = (
            LINE_COLOURS[index % len(LINE_COLOURS)],
            LINE_DASHES[index % len(LINE_DASHES)],
        )
        training.plot(*_binned(series_of(run.metrics, "loss")).T, color=colour, linewidth=1.1)
        step, score, half = series_of(run.metrics, "validation", "validation_ci95").T
        # One entry in the legend for all seeds of a recipe.
        label = None if recipe in named else recipe
        named.add(recipe)
        validation.plot(step, score, label=label, color=colour, linestyle=dashes, linewidth=1.6)
        # An interval may reach below zero, which a logarithmic axis cannot show.
        low = np.maximum(score - half, score / 10) if metric == "mse" else score - half
        validation.fill_between(step, low, score + half, color=colour, alpha=0.15, linewidth=0)
    name = "mean squared error" if metric == "mse" else "accuracy"
    validation.set_title(f"Validation {name} (band: 95% over tasks)", loc="left")
    training.set_title("Training loss (with penalties)", loc="left")
    floors = {run.result["floor"] for run in runs if run.result and run.result["floor"] is not None}
    for floor in floors if metric == "mse" else ():
        style: Json = {"color": "#555555", "linewidth": 1, "linestyle": (0, (2, 2))}
        validation.axhline(floor, label=f"best possible: {floor:.3f}", **style)
    if metric == "accuracy":
        validation.yaxis.set_major_formatter(PercentFormatter(1.0))
    for axes in (training, validation) if metric == "mse" else (training,):
        _logarithmic(axes)
    for axes in (training, validation):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel("step")
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=min(3, len(recipes)), frameon=False)
    return figure


def _logarithmic(axes: Axes) -> None:
    values = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in axes.get_lines()])
    positive = values[values > 0]
    # Within a factor of two a logarithmic axis would have no round number to show.
    if len(positive) and positive.max() > 2 * positive.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        # Labels between two powers of ten fit on an axis of few of them.
        few = positive.max() < 300 * positive.min()
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}") if few else NullFormatter())
