"""What a notebook shows: figures, and the report as a page in a frame."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

import arml.report
from arml.results.files import write_json
from invented import explanation, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path, "regression2d/arml", 0, np.linspace(0.1, 0.3, 40))
    write_json(folder / "explain" / "explain.json", explanation())
    return folder


class Halves:
    """The left or the right half of the line, as a predictor that has learned from two points."""

    classes: np.ndarray | None = None
    x = np.array([[-1.0], [1.0]])
    y = np.array([[0.0], [1.0]])

    def predict(self, x: object) -> np.ndarray:
        return (np.asarray(x)[:, 0] > 0).astype(float)

    def predict_proba(self, x: object) -> np.ndarray:
        raise AssertionError("a regression has no classes")


def test_curves_and_graph_are_figures(run: Path) -> None:
    curves = arml.report.learning_curves(run)
    assert isinstance(curves, Figure)
    assert [axes.get_xlabel() for axes in curves.axes] == ["step", "step"]
    explained = json.loads((run / "explain" / "explain.json").read_text())
    for given in (run / "explain", run / "explain" / "explain.json", explained):
        assert isinstance(arml.report.knowledge_graph(given), Figure)


def test_a_function_is_drawn_with_its_examples() -> None:
    x = np.linspace(1, -1, 9)[:, None]
    (axes,) = arml.report.predictions(Halves(), x).axes
    line, points = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), x[::-1, 0])
    np.testing.assert_array_equal(line.get_ydata(), (x[::-1, 0] > 0).astype(float))
    np.testing.assert_array_equal(points.get_xdata(), [-1, 1])
    with pytest.raises(ValueError, match=r"expected pictures or numbers \[n, 1\]"):
        arml.report.predictions(Halves(), np.zeros((2, 3)))


@pytest.mark.slow
def test_the_report_is_shown_in_a_frame(run: Path, tmp_path: Path) -> None:
    page = arml.report.report_of(run)
    assert page.save(tmp_path / "report.html").read_text() == page.html
    assert repr(page).startswith("Page(")
    shown = page._repr_html_()
    frame = ElementTree.fromstring(shown)
    assert frame.tag == "iframe"
    assert "<h1" in frame.attrib["srcdoc"]
