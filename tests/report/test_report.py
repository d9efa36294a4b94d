"""The report: what tables, figures and the page say about runs, on made-up numbers."""

import re
import xml.etree.ElementTree as ET
from base64 import b64decode
from io import StringIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from arml.report import graphs, tables
from arml.report.curves import learning_curves, render, save_figure
from arml.report.page import read_runs, sections_of, write_page
from arml.report.tables import comparable, make_rows
from arml.results.files import RunError, append_metric, write_json
from arml.results.folder import Result, RunFiles, read_run
from small import RESULT

FAMILIES = ["line", "a <b> & $c$"]


def result(recipe: str = "regression2d/maml", seed: int = 0, **change: Any) -> Result:
    value = {
        **RESULT,
        "recipe": recipe,
        "seed": seed,
        "score": {"mean": 1.0 + seed, "ci95": 0.1, "n": 4000},
        "families": {
            name: {"mean": seed + i / 10, "ci95": 0.2, "n": 2000} for i, name in enumerate(FAMILIES)
        },
        "seconds": 90.0 + seed,
        "steps": 1000,
        **change,
    }
    return cast(Result, value)


def explanation(threshold: float = 0.5) -> dict[str, Any]:
    links = [[0.0, 0.9, 0.6], [0.9, 0.0, 0.1], [0.6, 0.1, 0.0]]
    weights = {FAMILIES[0]: [[0.7, 0.2, 0.1]] * 2, FAMILIES[1]: [[0.1, 0.1, 0.8]] * 2}
    effect = {"mean": 0.1, "ci95": 0.01, "n": 600, "p": 0.01, "adjusted": 0.03, "median": 0.1}
    return {
        "families": FAMILIES,
        "kind": "graph",
        "vertices": 3,
        "average": {name: {"mean": w, "sd": w} for name, w in weights.items()},
        "tasks": 1200,
        "vertex_links": links,
        "threshold": threshold,
        "prototype_names": ["P0", "P1"],
        "vertex_links_reach_tasks": True,
        "vertex_links_effect": 0.05,
        "interventions": {
            "tasks": 1200,
            "metric": "mse",
            "vertices": [dict.fromkeys(("all", *FAMILIES), effect)] * 3,
            "links": dict.fromkeys(("all", *FAMILIES), effect),
            "use": {},
        },
    }


def make_run(
    folder: Path, recipe: str = "regression2d/maml", seed: int = 0, rate: float = 0.1, **change: Any
) -> Path:
    experiment = {"seed": seed, "learner": {"rate": rate}, "note": "<script>alert('x')</script>"}
    write_json(folder / "config.json", {"recipe": recipe, "experiment": experiment})
    for step in range(1, 40):
        append_metric(folder / "metrics.jsonl", {"step": step, "loss": 3.0 / step})
    for step in (20, 40):
        record = {"step": step, "validation": 9.0 / step, "validation_ci95": 0.5}
        append_metric(folder / "metrics.jsonl", record)
    write_json(folder / "result.json", result(recipe, seed, **change))
    return folder


def test_seeds_are_averaged_and_the_two_spreads_kept_apart() -> None:
    (row,) = make_rows([result(seed=2), result(seed=0), result(seed=1)])
    assert [run["seed"] for run in row.runs] == [0, 1, 2]
    assert row.mean == pytest.approx(2.0)
    assert row.ci95 == pytest.approx(0.1)
    assert row.spread == pytest.approx(1.0)
    assert [row.family(name) for name in FAMILIES] == ["1.000 ± 0.200", "1.100 ± 0.200"]


@pytest.mark.parametrize(
    "change", [{"steps": 5}, {"protocol": "other"}, {"inner_steps": 9}, {"parameters": 3}]
)
def test_what_differs_in_more_than_the_seed_is_not_averaged(change: dict[str, Any]) -> None:
    assert len(make_rows([result(seed=0), result(seed=1, **change)])) == 2


def test_results_of_other_options_are_rows_of_their_own() -> None:
    rows = make_rows([result(seed=i, options=name) for i, name in enumerate("aab")])
    assert sorted(len(row.runs) for row in rows) == [1, 2]
    names = tables.labels(rows)
    assert len(set(names)) == 2
    assert all("[options" in name for name in names)
    assert not any("[" in name for name in tables.labels(rows[:1]))


def test_options_that_differ_name_the_rows(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / f"{i}", seed=i, rate=i // 2, options="ab"[i // 2]) for i in (0, 1, 2)
    ]
    other = make_run(tmp_path / "other", "regression2d/arml", options="c")
    (section,) = sections_of(read_runs([*runs, other]))
    names = sorted(name.partition("[")[2] for name in tables.labels(section.rows))
    assert names == ["", "options rate 0]", "options rate 1]"]


def text_of(rows: list[tables.Row]) -> str:
    return tables.markdown(tables.table_of(rows))


def test_a_run_that_diverged_is_shown_not_dropped() -> None:
    bad = {"score": {"mean": None, "ci95": None, "n": 4000}}
    rows = make_rows([result(seed=0), result(seed=1, **bad), result("regression2d/arml")])
    assert [row.mean for row in rows] == [None, 1.0]
    assert "| regression2d/maml | not finite |" in text_of(rows)


def test_seeds_that_validation_chose_at_different_steps_are_one_row() -> None:
    best = "the best of 3 validation scores, at step {}"
    runs = [result(seed=i, steps=n, chosen=best.format(n)) for i, n in enumerate((15, 35))]
    (row,) = make_rows(runs)
    assert "15 to 35 steps" in text_of([row])


def test_seeds_that_were_scored_on_different_tasks_are_refused() -> None:
    assert len(make_rows([result(seed=0, tasks="a"), result(seed=1, tasks="a")])) == 1
    with pytest.raises(RunError, match="different tasks, because their data differ"):
        make_rows([result(seed=0, tasks="a"), result(seed=1, tasks="b")])


def test_the_same_seed_twice_is_refused() -> None:
    with pytest.raises(RunError, match="expected one result for each seed of regression2d/maml"):
        make_rows([result(), result()])


def test_only_comparable_rows_share_a_table() -> None:
    images = {"metric": "accuracy", "families": {"glyphs": {"mean": 0.5, "ci95": 0.01, "n": 5}}}
    rows = make_rows(
        [result(), result("regression2d/arml"), result("folders/maml", **images, floor=None)]
    )
    assert [[row.recipe for row in group] for group in comparable(rows)] == [
        ["folders/maml"],
        ["regression2d/arml", "regression2d/maml"],
    ]
    low = result("folders/a", **images, score={"mean": 0.2, "ci95": 0.01, "n": 4})
    high = result("folders/b", **images, score={"mean": 0.6225, "ci95": 0.0147, "n": 4})
    ordered = make_rows([high, low])
    assert [row.recipe for row in ordered] == ["folders/a", "folders/b"]
    assert "| 62.25 ± 1.47% |" in text_of(ordered)


def test_markdown_is_a_table_with_the_floor_last() -> None:
    text = text_of(make_rows([result(seed=0), result(seed=1)]))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    head, rule, row, floor = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    assert len({len(head), len(rule), len(row), len(floor)}) == 1
    assert head[1:4] == ["MSE ± over trainings", "± over tasks", "Trainings (SD)"]
    assert row[1:4] == ["1.500 ± 6.353", "± 0.100", "2 (0.707)"]  # t with one degree: 12.706
    assert floor[:2] == ["Bayes-optimal predictor", "0.127"]


def test_the_terminal_shows_each_family() -> None:
    screen = Console(width=80, file=StringIO())
    (rows,) = comparable(make_rows([result(), result("folders/[red]x")]))
    screen.print(tables.terminal(tables.table_of(rows)))
    text = cast(StringIO, screen.file).getvalue()
    for part in ("maml", "[red]x", "1.000 ± 0.100", *FAMILIES, "0.127", "over tasks"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_graph_leaves_weak_links_out_and_weighs_the_vertices() -> None:
    ends, weights = graphs.strong_links(explanation())
    assert ends.tolist() == [[0, 1], [0, 2]]
    assert weights[0] == pytest.approx(0.9)
    assert graphs.reading(explanation()).mean(0) == pytest.approx([0.4, 0.15, 0.45])
    assert not len(graphs.strong_links(explanation(threshold=0.95))[0])


def test_a_weight_of_zero_is_no_link() -> None:
    none = explanation(threshold=0.0)
    none["vertex_links"] = np.zeros_like(none["vertex_links"]).tolist()
    none["vertex_links_reach_tasks"] = False
    assert not len(graphs.strong_links(none)[0])
    _, axes = graphs.knowledge_graph(none).axes
    words = (axes.get_title(loc="left"), axes.get_xlabel())
    assert words == ("No links", "larger vertex = read more by the families")


def test_heat_maps_show_the_links_of_each_family() -> None:
    panels = [axes for axes in graphs.link_maps(explanation()).axes if axes.get_yticklabels()]
    panels = [axes for axes in panels if axes.images]
    assert [axes.get_title(loc="left") for axes in panels] == FAMILIES
    for axes, family in zip(panels, FAMILIES, strict=True):
        shown = np.asarray(axes.images[0].get_array())
        np.testing.assert_array_equal(shown, explanation()["average"][family]["mean"])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["V0", "V1", "V2"]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["P0", "P1"]
    assert {axes.images[0].get_clim() for axes in panels} == {(0.0, 0.8)}


@pytest.mark.parametrize("threshold", [0.5, 0.95])
def test_figures_are_saved_twice_alike_as_png_and_svg(tmp_path: Path, threshold: float) -> None:
    first = save_figure(graphs.knowledge_graph(explanation(threshold)), tmp_path / "a" / "graph")
    assert [path.name for path in first] == ["graph.png", "graph.svg"]
    assert imread(first[0]).shape[0] > 400
    assert ET.parse(first[1]).getroot().tag.endswith("svg")
    again = render(graphs.knowledge_graph(explanation(threshold)), "svg")
    assert again == first[1].read_bytes()
    assert b"<dc:date>" not in again


def test_learning_curves_give_seeds_one_colour_and_one_name(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    folders.append(make_run(tmp_path / "arml", "regression2d/arml"))
    figure = learning_curves([read_run(folder) for folder in folders], "mse")
    validation = figure.axes[1]
    colours = [line.get_color() for line in validation.get_lines()[:3]]
    assert colours[0] == colours[1] != colours[2]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["regression2d/maml", "regression2d/arml", "best possible: 0.127"]
    assert validation.get_yscale() == "log"
    np.testing.assert_allclose(np.asarray(validation.get_lines()[0].get_xdata()), [20, 40])


def test_learning_curves_of_all_methods_look_different(tmp_path: Path) -> None:
    scores = [{"step": step, "validation": 0.5, "validation_ci95": 0.1} for step in (1, 2)]
    runs = [RunFiles(Path("x"), {"recipe": str(n)}, scores, None, None) for n in range(20)]
    _, validation = learning_curves(runs, "mse").axes
    looks = {(line.get_color(), str(line._dash_pattern)) for line in validation.get_lines()}
    assert len(looks) == len(runs)


@pytest.mark.parametrize(
    "metrics",
    [
        [],
        [{"step": 1, "loss": None}],
        [{"step": 1, "loss": 1.0}, {"step": 1, "validation": None, "validation_ci95": None}],
        [{"step": 1, "validation": 0.5, "validation_ci95": None}],
    ],
)
@pytest.mark.parametrize("metric", ["mse", "accuracy"])
def test_learning_curves_of_little_are_drawn(metrics: list[dict[str, Any]], metric: str) -> None:
    run = RunFiles(Path("x"), {"recipe": "r"}, metrics, None, None)
    assert render(learning_curves([run], metric), "svg").startswith(b"<?xml")


def write(folders: list[Path], out: Path) -> None:
    runs = read_runs(folders)
    write_page(runs, sections_of(runs), out)


def page_of(text: str) -> tuple[ET.Element, str]:
    """The elements of a page, which is XML, too, and its text."""
    page = ET.fromstring(text.partition("\n")[2])
    return page, "".join(page.itertext())


def test_the_page_is_whole_escaped_and_needs_nothing_else(tmp_path: Path) -> None:
    first = make_run(tmp_path / "maml")
    second = make_run(tmp_path / "arml", "regression2d/arml")
    write_json(second / "explain" / "explain.json", explanation())
    write([first, second], tmp_path / "out" / "report.html")
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    write([first, second], tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == text
    page, said = page_of(text)
    assert not [*page.iter("script"), *page.iter("link")]
    assert "<script>alert('x')</script>" in said  # as text, in the configuration
    assert FAMILIES[1] in said
    without_data = re.sub(r"data:[^\"]*", "", text)
    assert not re.search(r"https?:|src=\"[^\"]", without_data)
    images = [*page.iter("img")]
    assert len(images) == 4
    for image in images:
        assert image.attrib["alt"]
        ET.fromstring(b64decode(image.attrib["src"].partition(",")[2]))
    assert all(cell.get("scope") in ("row", "col") for cell in page.iter("th"))
    assert len([*page.iter("details")]) == 2
    assert "4,000 test tasks" in said


def test_a_page_of_a_run_without_a_score_says_what_to_run_first(tmp_path: Path) -> None:
    run = make_run(tmp_path / "maml")
    (run / "result.json").unlink()
    with pytest.raises(RunError, match=r"run `arml evaluate .*maml` first"):
        write([run], tmp_path / "report.html")
    with pytest.raises(RunError, match="`arml train RECIPE --run"):
        write([tmp_path / "none"], tmp_path / "report.html")
    with pytest.raises(RunError, match="one or more run folders"):
        write([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_the_page_says_who_won_and_what_the_graph_means(tmp_path: Path) -> None:
    maml = make_run(tmp_path / "maml", seed=1)
    arml = make_run(tmp_path / "arml", "regression2d/arml")
    for reach, said in ((True, "would change by 12.5%"), (False, "so they have no meaning")):
        links = {"vertex_links_reach_tasks": reach, "vertex_links_effect": 0.125}
        write_json(arml / "explain" / "explain.json", {**explanation(), **links})
        write([maml, arml], tmp_path / "report.html")
        _, text = page_of((tmp_path / "report.html").read_text(encoding="utf-8"))
        assert said in text
        assert (
            "Lowest error (MSE): 1.000 by regression2d/arml, then 2.000 by regression2d/maml; the "
            "best possible is about 0.127." in text
        )
        assert "1,000 steps" in text
    for reach in (True, False):
        axes = graphs.knowledge_graph({**explanation(), "vertex_links_reach_tasks": reach}).axes
        assert any("influence no task" in part.get_xlabel() for part in axes) is not reach
