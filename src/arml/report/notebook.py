"""Figures and the report for a notebook: the command line writes the same to files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from matplotlib.figure import Figure

from arml.report import curves, graphs
from arml.report.curves import styled
from arml.report.page import page_of
from arml.report.render import framed
from arml.results.files import Json, write_text
from arml.results.folder import read_explained, read_run

COLUMNS, MOST = 6, 24
"""Pictures in a row, and in all."""


@runtime_checkable
class Predicts(Protocol):
    """An `arml.Predictor`."""

    classes: np.ndarray | None
    x: np.ndarray
    y: np.ndarray

    def predict(self, x: object, /) -> np.ndarray: ...

    def predict_proba(self, x: object, /) -> np.ndarray: ...


@dataclass(frozen=True, repr=False)
class Page:
    """The report of some folders as one HTML page; a notebook shows it."""

    html: str

    def save(self, path: Path | str) -> Path:
        """Write the page, atomically; returns its path."""
        write_text(Path(path), self.html)
        return Path(path)

    def __repr__(self) -> str:
        return f"Page({len(self.html):,} characters; save(path) writes it)"

    def _repr_html_(self) -> str:
        return framed(self.html)


def report_of(*folders: Path | str) -> Page:
    """The report of run folders that are evaluated.

        arml.report.report_of("runs/arml", "runs/maml")

    **Raises** `RunError` for a folder that is no such run.
    """
    return Page(page_of([Path(folder) for folder in folders]))


def learning_curves(*folders: Path | str, metric: str | None = None) -> Figure:
    """The learning curves of run folders: loss and validation score by step.

    **Raises** `RunError` for a folder that is no run.
    """
    return curves.learning_curves([read_run(folder) for folder in folders], metric)


def knowledge_graph(explained: Json | Path | str) -> Figure:
    """The meta-knowledge graph of a learner, from the `explain.json` of `arml explain` or its
    folder."""
    if not isinstance(explained, dict):
        path = Path(explained)
        explained = read_explained(path / "explain.json" if path.is_dir() else path)
    return graphs.knowledge_graph(explained)


@styled
def predictions(predictor: Predicts, x: Sequence[object] | np.ndarray) -> Figure:
    """The predictor's answers for inputs `x`: pictures with label and probability, or the function
    of one input with its examples.

    **Raises** `ValueError` for vectors of several numbers.
    """
    inputs = np.asarray(x)
    if inputs.ndim == 4:
        return _pictures(predictor, inputs[:MOST])
    if predictor.classes is None and inputs.shape[1:] == (1,):
        return _function(predictor, inputs)
    raise ValueError(
        f"expected pictures or numbers [n, 1] to draw, got inputs of shape {inputs.shape}: print "
        "predict(x)"
    )


def _pictures(predictor: Predicts, pictures: np.ndarray) -> Figure:
    labels, chances = predictor.predict(pictures), predictor.predict_proba(pictures).max(axis=1)
    rows = math.ceil(len(pictures) / COLUMNS)
    figure = Figure(figsize=(1.4 * COLUMNS, 1.8 * rows), layout="constrained")
    every = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes in every:
        axes.set_axis_off()
    for axes, picture, label, chance in zip(every, pictures, labels, chances, strict=False):
        axes.imshow(picture)
        axes.set_title(f"{label}, {chance:.0%}", fontsize=8)
    return figure


def _function(predictor: Predicts, x: np.ndarray) -> Figure:
    order = np.argsort(x[:, 0])
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(x[order, 0], np.asarray(predictor.predict(x))[order], label="prediction")
    axes.plot(predictor.x[:, 0], predictor.y, "o", label="examples")
    axes.set_xlabel("x")
    axes.legend()
    return figure
