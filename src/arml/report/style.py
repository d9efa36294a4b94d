"""The style of every figure, and how a figure is written to a file.

Colours are safe for colour-blind readers: a single-hue scale, and Okabe and Ito's palette with a
line style for each colour. The same numbers give the same SVG, byte for byte.
"""

import io
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine

from arml.results.files import write_bytes

STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": "#222222",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    # The name of a data set may contain a dollar sign.
    "text.parse_math": False,
    "svg.hashsalt": "arml",
    # Text as text, not as outlines: it can be searched and edited, and takes less room.
    "svg.fonttype": "none",
}

# Starts at a visible tint, not at white, so that an empty cell does not look like a missing one.
BLUES: Colormap = LinearSegmentedColormap.from_list(
    "arml-blues", ["#eef4fa", "#b5d2ea", "#5fa2d0", "#2069a8", "#0a2f63"]
)
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
DASHES: list[str | tuple[int, tuple[float, ...]]] = [
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.5, 1.5)),
]
P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in our style and leave the program's own settings as they are."""

    @wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(STYLE)
            return draw(*args, **kwargs)

    return inner


def heat(
    axes: Axes,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    numbers: Sequence[Sequence[str]] | None = None,
    *,
    norm: Normalize,
    cmap: Colormap = BLUES,
) -> AxesImage:
    """A heat map, darker = higher, with the `numbers` in its cells."""
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
    return _slim(buffer.getvalue()) if kind == "svg" else buffer.getvalue()


def _slim(svg: bytes) -> bytes:
    """An SVG without indentation and rotations by zero, with two decimals for each number."""
    svg = re.sub(rb">\s+<", b"><", svg)
    svg = re.sub(rb' transform="rotate\(-0 [^"]*"', b"", svg)
    decimals = re.compile(rb"\d+\.\d{3,}")
    return re.sub(
        rb"<[^>]*>", lambda tag: decimals.sub(lambda n: b"%.2f" % float(n[0]), tag[0]), svg
    )


def save(figure: Figure, path: Path | str) -> tuple[Path, Path]:
    """Write `path` with the suffixes .png and .svg, each atomically; returns both paths.

    **Raises:** `RunError` if they cannot be written.
    """
    files = [Path(f"{path}.{kind}") for kind in ("png", "svg")]
    for file in files:
        write_bytes(file, render(figure, file.suffix[1:]))
    return files[0], files[1]
