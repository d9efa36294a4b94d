"""Figures that explain ARML: which vertices of the meta-knowledge graph the prototypes read, and
how the vertices are linked.

Each takes the content of `explain.json`, as `check_explained` accepts it, and returns a Matplotlib
`Figure`; `save` writes one.
"""

from collections.abc import Mapping
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from arml.report.style import BLUES, heat, styled
from arml.results.files import JsonView

LEAST_RANGE = 0.2
"""The colour scale of the links spans at least this range, so that small differences look small."""


def _short(text: str, limit: int = 28) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _vertices(count: int) -> list[str]:
    return [f"V{i}" for i in range(count)]


def _panels(
    explain: JsonView,
    values: Mapping[str, np.ndarray],
    title: str,
    deviations: Mapping[str, np.ndarray] | None = None,
) -> Figure:
    """A grid of heat maps, one for each family, with one colour scale."""
    vertices = explain["vertices"]
    tallest = max(len(matrix) for matrix in values.values())
    rows = ceil(len(values) / min(4, max(1, 26 // vertices)))
    columns = ceil(len(values) / rows)
    numbers_fit = vertices <= 12 and tallest <= 10
    cell_height = 0.44 if deviations else 0.32
    width = max(columns * (0.48 * vertices + 0.55) + 0.9, 4.6)
    height = rows * (cell_height * tallest + 0.62) + 0.45
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", size=11, weight="bold")
    grid = figure.subplots(rows, columns, squeeze=False)
    norm = Normalize(0.0, max(float(matrix.max()) for matrix in values.values()) or 1.0)
    names = explain["prototype_names"]
    image: ScalarMappable | None = None
    for axes, (family, matrix) in zip(grid.flat, values.items(), strict=False):
        text = [[f"{value:.2f}" for value in row] for row in matrix]
        if deviations:
            pairs = zip(text, deviations[family], strict=True)
            text = [[f"{a}\n±{b:.2f}" for a, b in zip(*pair, strict=True)] for pair in pairs]
        labels = names if len(names) == len(matrix) else [f"P{i}" for i in range(len(matrix))]
        image = heat(
            axes,
            matrix,
            [_short(name, 14) for name in labels],
            _vertices(vertices),
            text if numbers_fit else None,
            norm=norm,
        )
        axes.set_title(_short(family), loc="left")
    for axes in list(grid.flat)[len(values) :]:
        axes.set_axis_off()
    if image is not None:
        bar = figure.colorbar(image, ax=grid, fraction=0.03, pad=0.015, aspect=25)
        bar.set_label("link weight (darker = higher)")
        bar.outline.set_visible(False)
    return figure


@styled
def heat_maps(explain: JsonView) -> Figure:
    """How strongly each prototype (row) of one task is linked to each vertex (column), by family.

    `explain` is the content of `explain.json`.
    """
    values = {name: np.asarray(explain["example"][name], float) for name in explain["families"]}
    return _panels(explain, values, "Prototype-to-vertex links: one task of each family")


@styled
def average_heat_maps(explain: JsonView) -> Figure:
    """The links of `heat_maps` averaged over a family's tasks, ± their standard deviation."""
    means, deviations = (
        {
            family: np.asarray(explain["average"][family][part], float)
            for family in explain["families"]
        }
        for part in ("mean", "sd")
    )
    title = f"Prototype-to-vertex links: mean ± SD over tasks ({explain['tasks']:,} in all)"
    return _panels(explain, means, title, deviations)


def mean_links(explain: JsonView) -> np.ndarray:
    """`[vertices, vertices]`: the links between vertices, the mean of the two directions."""
    links = np.asarray(explain["vertex_links"], float)
    return (links + links.T) / 2


def strong_links(explain: JsonView) -> tuple[np.ndarray, np.ndarray]:
    """The ends `[links, 2]` and the weights `[links]` of the links of at least the threshold. A
    weight of zero is no link."""
    links = mean_links(explain)
    ends = np.argwhere(np.triu((links >= explain["threshold"]) & (links > 0), 1))
    return ends, links[tuple(ends.T)]


def linked(explain: JsonView) -> bool:
    """Whether the vertices have links: with templates they may have none."""
    return bool(np.any(mean_links(explain)))


def reading(explain: JsonView) -> np.ndarray:
    """`[families, vertices]`: the mean link of a family's prototypes to each vertex."""
    return np.stack([np.mean(explain["average"][name]["mean"], 0) for name in explain["families"]])


@styled
def knowledge_graph(explain: JsonView) -> Figure:
    """How much each family reads each vertex, beside the links between the vertices.

    Links below the threshold are left out. A vertex that is read more is drawn larger.
    """
    families, read = list(explain["families"]), reading(explain)
    count, vertices = read.shape
    height = max(0.34 * count + 1.1, 4.2)
    left = 0.5 * vertices + 1.6
    figure = Figure(figsize=(left + 4.6, height), layout="constrained")
    figure.suptitle("Meta-knowledge graph", x=0.01, ha="left", size=11, weight="bold")
    table, axes = figure.subplots(1, 2, width_ratios=[left, 4.6])
    numbers = [[f"{value:.2f}" for value in row] for row in read] if vertices <= 12 else None
    scale = Normalize(0.0, float(read.max()) or 1.0)
    rows = [_short(name, 22) for name in families]
    heat(table, read, rows, _vertices(vertices), numbers, norm=scale)
    table.set_title("Mean link from a family's prototypes", loc="left")
    # Cells no taller than wide, however few the families are.
    table.set_box_aspect(min(count / vertices, height / left))
    _draw_graph(figure, axes, explain, read.mean(0))
    if linked(explain) and not explain.get("vertex_links_reach_tasks", True):
        axes.set_xlabel("These links influence no task:\nthey have no meaning.")
    for part in (table, axes):
        part.set_anchor("N")
    return figure


def _draw_graph(figure: Figure, axes: Axes, explain: JsonView, read: np.ndarray) -> None:
    """The vertices on a circle, where no link can pass behind another vertex. `read` `[vertices]`
    is the share of all links that go to each."""
    threshold, (ends, weights) = explain["threshold"], strong_links(explain)
    angles = 2 * np.pi * np.arange(len(read)) / len(read)
    # Clockwise from the top, as one reads a clock; a single vertex is in the middle.
    xy = np.stack([np.sin(angles), np.cos(angles)], axis=1) * (len(read) > 1)
    about = f"Links of weight {threshold:.2f} or more" if linked(explain) else "No links"
    axes.set_title(about, loc="left")
    if len(weights):
        # The palest tint can be seen on white, because the weakest link shown is still a link.
        scale = LinearSegmentedColormap.from_list("links", BLUES(np.linspace(0.35, 1.0, 32)))
        top = float(weights.max())
        # Weights that hardly differ are drawn as hardly different.
        norm = Normalize(min(threshold, top - LEAST_RANGE), top)
        order = np.argsort(weights)
        segments = xy[ends][order]
        links = LineCollection(
            list(segments),
            cmap=scale,
            norm=norm,
            linewidths=list(1.2 + 4.8 * norm(weights[order])),
            capstyle="round",
            zorder=1,
        )
        links.set_array(weights[order])
        axes.add_collection(links)
        bar = figure.colorbar(links, ax=axes, fraction=0.035, pad=0.02, aspect=25)
        bar.set_label("link weight")
        bar.outline.set_visible(False)
    elif linked(explain):
        axes.text(0, 0, "no link reaches\nthe threshold", ha="center", va="center", color="#555555")
    area = 380 + 1100 * read / (read.max() or 1.0)
    axes.scatter(
        xy[:, 0], xy[:, 1], s=area, color="#FFF3D6", edgecolor="#8a5a00", linewidth=1.4, zorder=2
    )
    for i, (x, y) in enumerate(xy):
        axes.text(x, y, f"V{i}", ha="center", va="center", weight="bold", color="#222222", zorder=3)
    axes.set_xlabel("larger vertex = read more by the families")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set(xlim=(-1.28, 1.28), ylim=(-1.28, 1.28), aspect="equal")
