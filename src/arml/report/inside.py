"""Figures of the inside of learners other than ARML, and of interventions on ARML's graph.

Each takes the content of `explain.json` and gives a Matplotlib `Figure`.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure

from arml.report.style import COLOURS, heat, styled
from arml.results.files import Json, JsonView

MARKERS = "osD^vP*XhdpH"
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


@styled
def tree_figure(explain: JsonView) -> Figure:
    """HSML's assignments to its leaves by family, and its tree with the shares of all tasks."""
    families = list(explain["families"])
    mean = np.array([explain["average"][name]["mean"] for name in families], np.float64)
    deviation = np.array([explain["average"][name]["sd"] for name in families], np.float64)
    figure = Figure(figsize=(9.4, 0.4 * len(families) + 2.2), layout="constrained")
    table, tree = figure.subplots(1, 2, width_ratios=[1.2, 1.0])
    pairs = zip(mean, deviation, strict=True)
    numbers = [[f"{m:.2f}\n±{sd:.2f}" for m, sd in zip(*row, strict=True)] for row in pairs]
    leaves = [f"leaf {i}" for i in range(mean.shape[1])]
    norm = Normalize(0.0, max(float(mean.max()), 1e-9))
    heat(table, mean, families, leaves, numbers, norm=norm)
    table.set_title("Soft assignment of tasks to leaves", loc="left")
    _draw_tree(tree, explain)
    return figure


def _draw_tree(axes: Axes, explain: JsonView) -> None:
    """Levels from the leaves below to the root above."""
    flows = [np.asarray(level, np.float64) for level in explain["flows"]]
    counts = [flow.shape[1] for flow in flows]
    places = [[(k + 0.5) / n for k in range(n)] for n in counts]
    for level, flow in enumerate(flows[1:], start=1):
        for (i, j), share in np.ndenumerate(flow):
            ends = [places[level - 1][i], places[level][j]]
            axes.plot(
                ends, [level - 1, level], color=COLOURS[0], linewidth=0.5 + 9 * share, alpha=0.6
            )
    taken = [flow.sum(0) for flow in flows]
    for level, (xs, shares) in enumerate(zip(places, taken, strict=True)):
        for k, (x, share) in enumerate(zip(xs, shares, strict=True)):
            axes.scatter(
                [x], [level], s=260 + 500 * share, color="#FFF3D6", edgecolor="#8a5a00", zorder=3
            )
            name = "root" if counts[level] == 1 and level == len(counts) - 1 else f"{k}"
            axes.text(x, level, name, ha="center", va="center", size=8, zorder=4)
    axes.set(xlim=(0, 1), ylim=(-0.4, len(counts) - 0.6), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_title("The tree, by the share of all tasks", loc="left")


@styled
def code_figure(explain: JsonView) -> Figure:
    """MUMOMAML's task codes on two axes, and each family's mean modulation."""
    families = list(explain["families"])
    figure = Figure(figsize=(9.4, 4.2 + 0.15 * len(families)), layout="constrained")
    points, table = figure.subplots(1, 2, width_ratios=[1.2, 1.0])
    for i, name in enumerate(families):
        own = np.array([p[:2] for p in explain["points"] if p[2] == i], np.float64).reshape(-1, 2)
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        points.scatter(own[:, 0], own[:, 1], s=16, label=name, alpha=0.75, linewidths=0, **style)
    first, second = explain["variance"]
    points.set_xlabel(f"first axis ({first:.0%} of the variance)")
    points.set_ylabel(f"second axis ({second:.0%})")
    points.set_title("Task codes", loc="left")
    figure.legend(loc="outside lower center", ncols=min(4, len(families)), frameon=False)
    mean = np.array([explain["modulation"][name] for name in families], np.float64)
    numbers = [[f"{value:.2f}" for value in row] for row in mean]
    blocks = [f"block {i}" for i in range(mean.shape[1])]
    norm = Normalize(float(mean.min()), float(mean.max()))
    heat(table, mean, families, blocks, numbers, norm=norm)
    table.set_title("Mean scale of the units", loc="left")
    return figure


@styled
def mask_figure(explain: JsonView) -> Figure:
    """MT-Net's mask rates: a point a unit, by layer."""
    layers = explain["layers"]
    figure = Figure(figsize=(1.1 * len(layers) + 3.0, 3.4), layout="constrained")
    axes = figure.subplots()
    for i, layer in enumerate(layers):
        rates = np.sort(np.asarray(layer["rates"], np.float64))
        spread = np.linspace(-0.3, 0.3, len(rates)) if len(rates) > 1 else np.zeros(1)
        axes.scatter(i + spread, rates, s=12, color=COLOURS[0], linewidths=0)
        axes.plot([i - 0.36, i + 0.36], [layer["mean"]] * 2, color=COLOURS[1], linewidth=2)
    axes.axhline(0.5, color="#888888", linewidth=1, linestyle=(0, (2, 2)))
    axes.set_xticks(range(len(layers)), [layer["name"] for layer in layers])
    axes.set(ylim=(-0.03, 1.03), ylabel="probability that a unit is adapted")
    axes.set_title("Mask rates (bar: mean of the layer)", loc="left")
    return figure
