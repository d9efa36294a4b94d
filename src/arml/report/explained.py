"""A look inside a learner, as parts of a page: figures with their captions, and the meta-knowledge
graph to explore with the pointer or the keyboard."""

import math
from base64 import b64encode

import numpy as np
from matplotlib.figure import Figure

from arml.report import render
from arml.report.figures import average_heat_maps, heat_maps, knowledge_graph, linked, mean_links
from arml.report.inside import code_figure, effect_figure, mask_figure, tree_figure
from arml.report.own_inside import own_figures
from arml.report.render import Block
from arml.report.table import Cell, Column, Line, Table
from arml.results.files import Json, JsonView
from arml.results.folder import RunFiles

ALIKE = 1e-5
"""Weights that differ by less are the same."""
Captioned = tuple[str, Figure, str, str]
"""A figure's name, the figure, its alternative text, its caption."""


def graph_like(explain: JsonView) -> bool:
    """Whether the explanation is of a meta-knowledge graph, as in all files without a kind."""
    return explain.get("kind", "graph") == "graph"


def captioned(explain: JsonView) -> list[Captioned]:
    """All figures of an explanation."""
    kind = explain.get("kind", "graph")
    if kind == "graph":
        return _graph(explain)
    drawn = {"tree": _tree, "codes": _codes, "masks": _masks}.get(kind)
    return own_figures(explain) if drawn is None else [drawn(explain)]


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


def _tree(explain: JsonView) -> Captioned:
    return (
        "tree",
        tree_figure(explain),
        "HSML's soft assignments by family, and its tree",
        "Left: how much of a family's tasks each leaf cluster takes, mean ± SD over "
        f"{explain['tasks']:,} tasks. Right: the tree; a line is as thick as the share of the "
        "tasks that goes along it.",
    )


def _codes(explain: JsonView) -> Captioned:
    return (
        "codes",
        code_figure(explain),
        "MUMOMAML's task codes by family",
        f"The codes of {explain['tasks']:,} tasks on their two main axes, which hold "
        f"{sum(explain['variance']):.0%} of their variance. {explain['between_families']:.0%} of "
        "the variance of all axes is between families. Right: the mean modulation of each "
        "family's units, by block.",
    )


def _masks(explain: JsonView) -> Captioned:
    rates = ", ".join(f"{entry['name']} {entry['mean']:.2f}" for entry in explain["layers"])
    return (
        "masks",
        mask_figure(explain),
        f"MT-Net's mask rates: {rates}",
        "How often each unit is adapted, by layer (one point a unit, one half at the start). The "
        "masks are the same for all families: they depend on no task.",
    )


def explorer(run: RunFiles, explain: JsonView) -> list[Block]:
    """The meta-knowledge graph as a drawing whose vertices can be chosen by the pointer, or by Tab
    and the arrow keys. Without scripts, and on paper, the page describes all vertices."""
    count = int(explain["vertices"])
    links = mean_links(explain)
    reading = {name: np.mean(a["mean"], axis=0) for name, a in explain["average"].items()}
    share = np.mean(list(reading.values()), axis=0)
    angles = [2 * math.pi * i / count for i in range(count)]
    places = [(200 + 150 * math.sin(a), 200 - 150 * math.cos(a)) for a in angles]
    top = max(float(links.max()), 1e-9)
    drawn = [
        {
            **dict(zip(("x1", "y1", "x2", "y2"), (f"{c:.1f}" for c in (*a, *b)), strict=True)),
            "weight": f"{links[i, j]:.6f}",
            "width": f"{1 + 5 * links[i, j] / top:.2f}",
            "title": f"V{i} to V{j}: {links[i, j]:.3f}",
        }
        for i, a in enumerate(places)
        for j, b in enumerate(places)
        if i < j and links[i, j] > 0
    ]
    vertices = [
        {
            "name": f"V{i}",
            "about": f"V{i}, read most by {max(reading, key=lambda n: float(reading[n][i]))}",
            "x": f"{x:.1f}",
            "y": f"{y:.1f}",
            "r": f"{14 + 16 * float(share[i] / max(share.max(), 1e-9)):.1f}",
            "nearest": _nearest(run, explain, i),
            **_panel(explain, i, reading, links),
        }
        for i, (x, y) in enumerate(places)
    ]
    between = links[np.triu_indices(count, 1)]
    slider = None
    if drawn:
        threshold = explain["threshold"]
        slider = {
            "min": f"{between.min():.4f}",
            "max": f"{between.max():.4f}",
            "value": f"{threshold:.6f}",
            "text": f"{threshold:.3f}",
        }
    graph = {"macro": "explorer", "links": drawn, "vertices": vertices, "slider": slider}
    return [render.text(f"{strongest(explain)}.{_reach(explain)}"), graph]


def _panel(explain: JsonView, i: int, reading: JsonView, links: np.ndarray) -> Json:
    """All facts about one vertex."""
    interventions = explain.get("interventions") or {}
    effects = interventions["vertices"][i] if interventions.get("vertices") else {}
    accuracy = interventions.get("metric") == "accuracy"
    columns = [Column("Family"), Column("reads it")]
    columns += [Column("loses without it")] if effects else []
    lines = []
    for family in sorted(reading, key=lambda name: -float(reading[name][i])):
        cells = [Cell(f"{reading[family][i]:.3f}")]
        cells += [Cell(*loss(effects[family], accuracy))] if effects else []
        lines.append(Line(family, tuple(cells)))
    order = [j for j in np.argsort(-links[i]) if j != i][:3]
    near = ", ".join(f"V{j} ({links[i, j]:.3f})" for j in order)
    words = f"All tasks lose {loss(effects['all'], accuracy)[0]} without it. " if effects else ""
    words += f"Strongest links: {near}." if near else ""
    return {"table": Table(f"Vertex V{i}", tuple(columns), tuple(lines)), "words": words}


def loss(effect: JsonView, accuracy: bool) -> tuple[str, str, str]:
    """The cost of a removal, with its interval: above zero is a loss; a cell's text, second line
    and kind. A loss that is more than chance has the kind of a score."""
    mean, half = effect["mean"], effect["ci95"]
    if mean is None:
        return "not finite", "", ""
    scale, unit = (100, " points") if accuracy else (1, "")
    said = f"{scale * mean:+.3g}" + ("" if half is None else f" ± {scale * half:.2g}") + unit
    counts = effect.get("adjusted") is not None and effect["adjusted"] < 0.05
    return said, "", "score" if counts else ""


def _nearest(run: RunFiles, explain: JsonView, i: int) -> dict[str, str] | None:
    nearest = explain.get("nearest")
    if not nearest or alike(explain):
        return None
    entries = nearest["images"][i]
    path = run.folder / "explain" / nearest["files"][i]
    names = ", ".join(f"{entry['family']} {entry['link']:.2f}" for entry in entries)
    return {
        "caption": f"Support images that read it most: {names}",
        "alternative": f"The {len(entries)} support images that read V{i} most",
        "data": b64encode(path.read_bytes()).decode() if path.is_file() else "",
    }
