"""Figures of the inside of a learner, with their captions: the meta-knowledge graph of ARML and the
cost of interventions, or the numbers that a method's own `inside` returned.

Each takes the content of `explain.json`.
"""

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure

from arml.report.curves import BLUES, COLOURS, heat, styled
from arml.results.files import Json, JsonView

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


DIVERGING = LinearSegmentedColormap.from_list("arml-diverging", ["#56b4e9", "#ffffff", "#d55e00"])
"""Gain, nothing, loss: told apart by lightness and hue, and by the sign in the cell."""


USE = {
    "equal_vertices": "equal\nvertices",
    "mean": "mean\ncode",
    "own_family": "own\nfamily's",
    "other_family": "other\nfamily's",
    "mean_reading": "mean\nreading",
    "own_family_reading": "reading,\nown fam.",
    "other_family_reading": "reading,\nother fam.",
}
"""Interventions that test whether a learner uses its code; older files have none."""


def effects(found: JsonView) -> Json:
    """The entries of all interventions by a short name."""
    named = {f"V{i}": entry for i, entry in enumerate(found["vertices"])}
    used = found.get("use", {})
    return (
        named | {"links": found["links"]} | {USE[name]: used[name] for name in USE if name in used}
    )


@styled
def effect_figure(explain: JsonView) -> Figure:
    """The loss of each family by each intervention: the mean over its tasks and, below, the median
    with the share of tasks that are worse, where the file has them."""
    found = explain["interventions"]
    entries = effects(found)
    families = ["all", *explain["families"]]
    kinds = ["mean", *(["median"] if "median" in found["links"]["all"] else [])]
    size = (0.78 * len(entries) + 2.4, len(kinds) * (0.46 * len(families) + 1.2))
    figure = Figure(figsize=size, layout="constrained")
    unit = "points of accuracy" if found["metric"] == "accuracy" else "mean squared error"
    panels = np.atleast_1d(figure.subplots(len(kinds), 1))
    for axes, kind in zip(panels, kinds, strict=True):
        _effects(axes, kind, entries, families, 100 if found["metric"] == "accuracy" else 1)
        more = (
            ", and of the changed tasks the share that is worse" if kind == "median" else " ± 95%"
        )
        axes.set_title(f"{kind.capitalize()} loss ({unit}){more}", loc="left")
    return figure


def _effects(axes: Axes, kind: str, entries: JsonView, families: list[str], scale: int) -> None:
    values = np.array(
        [[scale * (e[name][kind] or 0.0) for e in entries.values()] for name in families],
        np.float64,
    )
    # By the vertices: a code that is replaced may cost a thousand times as much.
    vertices = [column for column, name in enumerate(entries) if name.startswith("V")]
    most = max(float(np.abs(values[:, vertices]).max(initial=0.0)), 1e-9)
    norm = TwoSlopeNorm(0.0, -most, most)
    heat(axes, values, families, list(entries), norm=norm, cmap=DIVERGING)
    for (i, j), value in np.ndenumerate(values):
        entry = list(entries.values())[j][families[i]]
        test, more = "adjusted", ""
        if kind == "median":
            test = "adjusted_sign"
            more = "" if entry["worse"] is None else f"\n{entry['worse']:.0%}"
        elif entry["ci95"] is not None:
            more = f"\n±{scale * entry['ci95']:.2g}"
        counts = entry.get(test) is not None and entry[test] < 0.05
        text = "n/a" if entry[kind] is None else f"{value:+.2g}{more}"
        weight = "bold" if counts else "normal"
        axes.text(j, i, text, ha="center", va="center", size=7, weight=weight, linespacing=1.1)


MOST = 100
"""Rows of a table that is drawn, at most."""
COMMON = ("families", "tasks", "tasks_by_family", "kind", "format", "recipe", "step")
"""Entries that every explanation has."""


class Numbers(NamedTuple):
    """A table of numbers; names of its rows where it has them."""

    values: np.ndarray
    names: tuple[str, ...] = ()


def numbers(value: object) -> Numbers | None:
    """A list of numbers, a table of them, or either by name, as a table; None for anything else."""
    names: tuple[str, ...] = ()
    if isinstance(value, list) and all(isinstance(v, Mapping) and "name" in v for v in value):
        value = {entry["name"]: entry for entry in value}
    if isinstance(value, Mapping):
        names, value = tuple(value), list(value.values())
        # Mean and deviation of each row.
        value = [v["mean"] if isinstance(v, Mapping) and "mean" in v else v for v in value]
    if not isinstance(value, list) or not value:
        return None
    try:
        values = np.asarray(value, np.float64)
    except (TypeError, ValueError):  # texts, or rows of different lengths
        return None
    if not values.size or values.ndim > 2 or len(values) > MOST:
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


ALIKE = 1e-5
"""Weights that differ by less are the same."""
Captioned = tuple[str, Figure, str, str]
"""A figure's name, the figure, its alternative text, its caption."""


def graph_like(explain: JsonView) -> bool:
    """Whether the explanation is of a meta-knowledge graph, as in all files without a kind."""
    return explain.get("kind", "graph") == "graph"


def captioned(explain: JsonView) -> list[Captioned]:
    """All figures of an explanation."""
    return _graph(explain) if graph_like(explain) else own_figures(explain)


def alike(explain: JsonView) -> bool:
    """Whether all tasks read the vertices with the same weights, so that the embedding does not
    distinguish them."""
    averages = list(explain["average"].values())
    first = np.asarray(averages[0]["mean"], float)
    return explain["tasks"] > 1 and all(
        np.max(np.abs(np.asarray(a["mean"], float) - first)) < ALIKE and np.max(a["sd"]) < ALIKE
        for a in averages
    )


def strongest(explain: JsonView) -> str:
    """The figures' content in words: the vertex that each family reads most."""
    if alike(explain):
        return (
            "All tasks read the vertices alike: this learner's embedding does not tell them apart"
        )
    said = []
    for family, average in explain["average"].items():
        totals = [sum(column) for column in zip(*average["mean"], strict=True)]
        said.append(f"{family} V{totals.index(max(totals))}")
    return "Vertex read most by each family: " + ", ".join(said)


def _reach(explain: JsonView) -> str:
    """Whether the links between vertices influence a task, in words."""
    if explain.get("vertex_links_reach_tasks", True):
        effect = explain.get("vertex_links_effect")
        if not isinstance(effect, int | float):
            return ""
        return f" Without these links, what the prototypes read would change by {effect:.1%}."
    if not linked(explain):
        return " The vertices of this learner have no links: a task reads without messages."
    return (
        " With this run's wiring these links influence no task, and training had no reason to "
        "shape them, so they have no meaning. The reading of each family (left) is unaffected."
    )


def _graph(explain: JsonView) -> list[Captioned]:
    words = strongest(explain)
    found: list[Captioned] = [
        (
            "knowledge-graph",
            knowledge_graph(explain),
            f"The meta-knowledge graph of {explain['vertices']} vertices. {words}",
            "Left: how much each family reads each vertex (V), averaged over its tasks and "
            "prototypes; each row sums to one. Right: the vertices, and their links of at least "
            f"{explain['threshold']:.3g}.{_reach(explain)}",
        ),
        (
            "links-average",
            average_heat_maps(explain),
            f"Heat maps of the average prototype-to-vertex links by family. {words}",
            "The same by prototype (row): mean and standard deviation of the links over a family's "
            f"tasks ({explain['tasks']:,} tasks in all). A large deviation means that tasks of the "
            "family read different vertices.",
        ),
        (
            "links",
            heat_maps(explain),
            f"Heat maps of prototype-to-vertex links, one task of each family. {words}",
            "One example: the links of the first test task of each family. Each row sums to one.",
        ),
    ]
    if explain.get("interventions"):
        found.append(
            (
                "effects",
                effect_figure(explain),
                "What each family loses when a part of the graph is removed or replaced",
                "What each family loses when one vertex is taken out of the graph (V), when all "
                "links between vertices are cut, when all vertices have one place, and when "
                "a task's code is replaced by the mean code or by that of another task, of its own "
                "family or of another (where a task also has a code of its own, the columns of "
                "readings replace the reading alone): the change of its score on the same "
                f"{explain['interventions']['tasks']:,} tasks, so that above zero is a loss. In "
                "bold the losses that remain significant after Holm's correction for all cells "
                "(the median by a sign test). Nothing was trained again, so the losses show what "
                "this learner relies on; without links every vertex also has another degree, which "
                "a symmetric normalisation divides by.",
            )
        )
    return found
