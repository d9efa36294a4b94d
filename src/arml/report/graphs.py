"""Figures of the inside of a learner, with their captions: the meta-knowledge graph of ARML and the
cost of interventions.

Each takes the content of `explain.json`.
"""

from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure

from arml.report.curves import BLUE_COLOURS, heat, styled
from arml.results.files import JsonView

Captioned = tuple[str, Figure, str, str]
"""A figure's name, the figure, its alternative text, its caption."""


@styled
def link_maps(explain: JsonView) -> Figure:
    """How strongly each prototype (row) is linked to each vertex (column), a heat map for each
    family: the mean over its tasks, ± the standard deviation."""
    families = explain["families"]
    means, deviations = (
        np.array([explain["average"][name][part] for name in families]) for part in ("mean", "sd")
    )
    names, vertices = explain["prototype_names"], explain["vertices"]
    columns = min(len(families), max(1, 26 // vertices), 4)
    rows = ceil(len(families) / columns)
    size = (columns * (0.48 * vertices + 0.7) + 0.9, rows * (0.44 * len(names) + 0.65) + 0.45)
    figure = Figure(figsize=(max(size[0], 4.6), size[1]), layout="constrained")
    figure.suptitle("Prototype-to-vertex links: mean ± SD over tasks", x=0.01, ha="left", size=11)
    grid = figure.subplots(rows, columns, squeeze=False)
    norm = Normalize(0.0, float(means.max()) or 1.0)
    for axes in grid.flat[len(families) :]:
        axes.set_axis_off()
    for axes, family, mean, sd in zip(grid.flat, families, means, deviations, strict=False):
        cells = [
            [f"{m:.2f}\n±{s:.2f}" for m, s in zip(*row, strict=True)]
            for row in zip(mean, sd, strict=True)
        ]
        fits = vertices <= 12 and len(names) <= 10
        image = heat(axes, mean, names, cells if fits else None, norm=norm)
        axes.set_title(family, loc="left")
    figure.colorbar(image, ax=grid, fraction=0.03, label="link weight (darker = higher)")
    return figure


def mean_links(explain: JsonView) -> np.ndarray:
    """`[vertices, vertices]`: the links between vertices, the mean of the two directions."""
    links = np.asarray(explain["vertex_links"], float)
    return (links + links.T) / 2


def strong_links(explain: JsonView) -> tuple[np.ndarray, np.ndarray]:
    """The ends `[links, 2]` and the weights `[links]` of the links of at least the threshold. A
    weight of zero is not a link: vertices with templates may have none."""
    links = mean_links(explain)
    ends = np.argwhere(np.triu((links >= explain["threshold"]) & (links > 0), 1))
    return ends, links[tuple(ends.T)]


def reading(explain: JsonView) -> np.ndarray:
    """`[families, vertices]`: the mean link of a family's prototypes to each vertex."""
    return np.stack([np.mean(explain["average"][name]["mean"], 0) for name in explain["families"]])


@styled
def knowledge_graph(explain: JsonView) -> Figure:
    """How much each family reads each vertex, beside the vertices on a circle with their links.
    Links below the threshold are left out. A vertex that is read more is drawn larger."""
    families, read = list(explain["families"]), reading(explain)
    count, vertices = read.shape
    left = 0.5 * vertices + 1.6
    size = (left + 4.6, max(0.34 * count + 1.1, 4.2))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle("Meta-knowledge graph", x=0.01, ha="left", size=11)
    table, axes = figure.subplots(1, 2, width_ratios=[left, 4.6])
    numbers = [[f"{value:.2f}" for value in row] for row in read] if vertices <= 12 else None
    norm = Normalize(0.0, float(read.max()) or 1.0)
    heat(table, read, families, numbers, norm=norm)
    table.set_title("Mean link from a family's prototypes", loc="left")
    # Cells no taller than wide, however few the families are.
    table.set_box_aspect(min(count / vertices, size[1] / left))
    _draw_circle(axes, explain, read.mean(0))
    for part in (table, axes):
        part.set_anchor("N")
    return figure


def _draw_circle(axes: Axes, explain: JsonView, read: np.ndarray) -> None:
    """The vertices on a circle, where no link can pass behind another vertex. `read` `[vertices]`
    is the share of all links that go to each."""
    ends, weights = strong_links(explain)
    angles = 2 * np.pi * np.arange(len(read)) / len(read)
    # Clockwise from the top, as one reads a clock; a single vertex is in the middle.
    xy = np.stack([np.sin(angles), np.cos(angles)], axis=1) * (len(read) > 1)
    if len(weights):
        # Weights that hardly differ are drawn as hardly different.
        top = float(weights.max())
        strength = Normalize(min(explain["threshold"], top - 0.2), top)(weights)
        colours = BLUE_COLOURS(0.35 + 0.65 * strength)  # the weakest can still be seen on white
        lines = LineCollection(list(xy[ends]), colors=colours, linewidths=1.2 + 4.8 * strength)
        axes.add_collection(lines)
        title = f"Links of weight {explain['threshold']:.2f} to {top:.2f}: darker = higher"
    else:
        title = "No links" if not mean_links(explain).any() else "No link reaches the threshold"
    axes.set_title(title, loc="left")
    area = 380 + 1100 * read / (read.max() or 1.0)
    axes.scatter(
        xy[:, 0], xy[:, 1], s=area, color="#FFF3D6", edgecolor="#8a5a00", linewidth=1.4, zorder=2
    )
    for i, (x, y) in enumerate(xy):
        axes.text(x, y, f"V{i}", ha="center", va="center", weight="bold", color="#222222", zorder=3)
    label = "larger vertex = read more by the families"
    if mean_links(explain).any() and not explain["vertex_links_reach_tasks"]:
        label = "These links influence no task:\nthey have no meaning."
    axes.set_xlabel(label)
    axes.set(xlim=(-1.28, 1.28), ylim=(-1.28, 1.28), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


DIVERGING_COLOURS = LinearSegmentedColormap.from_list(
    "arml-diverging", ["#56b4e9", "#ffffff", "#d55e00"]
)
"""Gain, nothing, loss: they differ in lightness and hue, and in the sign in the cell."""
CODE_LABELS = {
    "equal_vertices": "equal\nvertices",
    "mean": "mean\ncode",
    "own_family": "own\nfamily's",
    "other_family": "other\nfamily's",
}
"""Interventions that test whether a learner uses its code."""


@styled
def effect_figure(explain: JsonView) -> Figure:
    """The mean loss of each family by each intervention. Significant ones are bold."""
    found, families = explain["interventions"], ["all", *explain["families"]]
    entries = {f"V{i}": entry for i, entry in enumerate(found["vertices"])}
    entries |= {"links": found["links"]} if "links" in found else {}
    entries |= {
        short: found["use"][name] for name, short in CODE_LABELS.items() if name in found["use"]
    }
    accuracy = found["metric"] == "accuracy"
    scale = 100 if accuracy else 1
    values = np.array(
        [[scale * (e[name]["mean"] or 0.0) for e in entries.values()] for name in families]
    )
    figure = Figure(
        figsize=(0.78 * len(entries) + 2.4, 0.46 * len(families) + 1.2), layout="constrained"
    )
    axes = figure.subplots()
    unit = "points of accuracy" if accuracy else "mean squared error"
    axes.set_title(f"Mean loss ({unit}) ± 95%", loc="left")
    # By the vertices: a code that is replaced may cost a thousand times as much.
    most = max(float(np.abs(values[:, : len(found["vertices"])]).max(initial=0.0)), 1e-9)
    norm = TwoSlopeNorm(0, -most, most)
    heat(axes, values, families, columns=[*entries], norm=norm, cmap=DIVERGING_COLOURS)
    for j, entry in enumerate(entries.values()):
        for i, name in enumerate(families):
            one = entry[name]
            half = "" if one["ci95"] is None else f"\n±{scale * one['ci95']:.2g}"
            text = "n/a" if one["mean"] is None else f"{values[i, j]:+.2g}{half}"
            bold = one["adjusted"] is not None and one["adjusted"] < 0.05
            weight = "bold" if bold else "normal"
            axes.text(j, i, text, ha="center", va="center", size=7, weight=weight)
    return figure


def strongest(explain: JsonView) -> str:
    """The figures' content in words: the vertex that each family reads most."""
    read = reading(explain)
    if len(read) > 1 and np.ptp(read, axis=0).max() < 1e-5:
        return (
            "All tasks read the vertices alike: this learner's embedding does not tell them apart"
        )
    most = zip(explain["families"], read.argmax(axis=1), strict=True)
    return "Vertex read most by each family: " + ", ".join(f"{name} V{v}" for name, v in most)


def captioned(explain: JsonView) -> list[Captioned]:
    """All figures of an explanation; none for the numbers of a method's own `inside`."""
    if explain.get("kind") != "graph":
        return []
    words, reach = strongest(explain), ""
    if explain["vertex_links_reach_tasks"]:
        effect = explain["vertex_links_effect"]
        reach = (
            f" Without these links, the readings of the prototypes would change by {effect:.1%}."
        )
    elif mean_links(explain).any():
        reach = (
            " With this run's wiring these links influence no task, and training had no reason to "
            "shape them, so they have no meaning. The reading of each family (left) is unaffected."
        )
    return [
        (
            "knowledge-graph",
            knowledge_graph(explain),
            f"The meta-knowledge graph of {explain['vertices']} vertices. {words}",
            "Left: how much each family reads each vertex (V), averaged over its tasks and "
            "prototypes; each row sums to one. Right: the vertices, and their links of at least "
            f"{explain['threshold']:.3g}.{reach}",
        ),
        (
            "links",
            link_maps(explain),
            f"Heat maps of the average prototype-to-vertex links by family. {words}",
            "The same by prototype (row): mean and standard deviation of the links over a family's "
            f"tasks ({explain['tasks']:,} tasks in all). A large deviation means that tasks of the "
            "family read different vertices.",
        ),
        (
            "effects",
            effect_figure(explain),
            "What each family loses when a part of the graph is removed or replaced",
            "The loss of each family's score when one vertex is taken out of the graph (V), all "
            "links between vertices are cut, all vertices have one place, and a task's code is "
            "replaced by the mean code or by that of another task, of its own family or of "
            f"another, on the same {explain['interventions']['tasks']:,} tasks. Bold losses are "
            "significant after Holm's correction for all cells. Nothing was trained again, so "
            "the losses show what this learner relies on; without links every vertex also has "
            "another degree, which a symmetric normalisation divides by.",
        ),
    ]
