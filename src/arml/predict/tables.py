"""Predictors of tables: a data frame, a mapping of columns, or an array, of any width.

learner = arml.load("tables")
predictor = learner.adapt(frame, frame.pop("species"))
predictor.predict(more), predictor.predict_proba(more), predictor.matter()

The interval of a number is the learner's own distribution, made so wide that it would have held the
examples' targets: each example is predicted from the others, and its distance is divided by the
scale that the learner states for it [1]. The table at hand thus decides the width, because real
tables have other tails than the synthetic ones of meta-training.

[1] Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005: conformal prediction.
    Difference: examples are left out one by one, or in tenths, from the set that predicts, so the
    share is "about", as for the jackknife (Barber, Candes, Ramdas and Tibshirani, Annals of
    Statistics 2021).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.algorithms.tables import Tables
from arml.core.compilation import short
from arml.core.episodes import Examples
from arml.core.learner import MetaLearner
from arml.datasets.columns import Reader, Table, reader
from arml.experiment.loaded import Portable
from arml.predict.inference import by_chunks
from arml.predict.inputs import checked_labels, checked_targets
from arml.predict.predictor import Predictor
from arml.predict.trust import folds

FREEDOM = 4
"""Degrees of freedom of the distribution of a number."""
ROWS = 8
"""Examples are filled up with empty rows to a multiple of this, so that few programs are
compiled."""


def as_table(x: Any) -> Table:
    """The columns of a data frame, a mapping, or an array `[n, columns]` (NaN is a missing cell).

    **Raises** `ValueError` in one line for anything but a table.
    """
    if isinstance(x, Mapping):
        table = {str(name): list(cells) for name, cells in x.items()}
    elif callable(getattr(x, "to_dict", None)):  # pandas, without importing it
        table = {str(name): cells for name, cells in x.to_dict("list").items()}
    else:
        array = np.asarray(x)
        if array.ndim != 2 or array.dtype.kind == "c":
            raise ValueError(
                f"expected a table [n, columns], got shape {list(array.shape)} of {array.dtype}: "
                "give a data frame, a mapping of columns, or an array"
            )
        table = {str(i): column for i, column in enumerate(array.T.tolist())}
    if not table or len({len(cells) for cells in table.values()}) != 1:
        lengths = sorted({len(cells) for cells in table.values()})
        raise ValueError(
            f"expected one or more columns of inputs, all of one length, got "
            f"{f'the lengths {lengths}' if lengths else 'none'}: check the table"
        )
    return table


@short
def _reading(learner: Tables, support: Examples) -> Float[Array, " vertices"]:
    return learner.reads(support)


@short
def _spread(learner: MetaLearner, support: Examples, x: Array) -> Float[Array, "n 2"]:
    spread = learner.spread(support)
    assert spread is not None
    return jnp.stack(spread(x), axis=1)


class TablePredictor(Predictor):
    """A learned task of tables: it reads the columns of new rows by `reader`, which says which
    columns were left out, and which were kept if there were more than the bound."""

    def __init__(
        self,
        portable: Portable,
        x: np.ndarray,
        y: np.ndarray,
        classes: np.ndarray | None,
        flat: bool,
        reader: Reader,
    ) -> None:
        super().__init__(portable, x, y, classes, flat)
        self.reader: Reader = reader

    def _support(self) -> Examples:
        support = super()._support()
        more = -len(support.x) % ROWS
        return Examples(
            jnp.pad(support.x, ((0, more), (0, 0), (0, 0))),
            jnp.pad(support.y, ((0, more), *((0, 0),) * (support.y.ndim - 1))),
        )

    def _read(self, x: Any) -> np.ndarray:
        """Cells that the learner reads already stay as they are."""
        return x if isinstance(x, np.ndarray) and x.ndim == 3 else self.reader(as_table(x))

    def _outputs(self, x: Any) -> Float[np.ndarray, "n outputs"]:
        return super()._outputs(self._read(x))

    def _without(self, kept: np.ndarray) -> "TablePredictor":
        some = self.x[kept], self.y[kept], self.classes, self._flat
        return TablePredictor(self.portable, *some, self.reader)

    def add(self, x: Any, y: Any) -> Predictor:
        """Refused: how a column is read depends on all rows, so adapt to all of them again."""
        raise ValueError(
            "a predictor of tables cannot add rows, because how a column is read depends on all "
            "rows: call adapt with all of them"
        )

    def to_onnx(self, path: Path | str, model: Path | str | None = None) -> None:
        """Refused: the cells of any table are read by Python, not by operators of ONNX."""
        raise ValueError(
            "expected a predictor of pictures, vectors or functions for an ONNX file, got one of "
            "tables with any columns, which Python reads: use `arml predict`"
        )

    def reading(self) -> Float[np.ndarray, "1 vertices"] | None:
        """How much the task reads each vertex of the meta-knowledge graph, one row with sum one.
        None for a learner without a graph."""
        learner = self.portable.learner
        if not isinstance(learner, Tables) or len(learner.vertices) < 2:
            return None
        return np.asarray(_reading(learner, self._support()))[None]

    def interval(self, x: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The quantiles (1 - level) / 2 and (1 + level) / 2 of each predicted number.

        **Raises** `ValueError` as `predict`, for classes, and for a level that is no share.
        """
        read = self._read(x)
        if self.portable.learner.spread(self._support()) is None:
            return super().interval(read, level)
        if not 0 < level < 1:
            raise ValueError(f"expected a level between 0 and 1, got {level:g}: give 0.9, say")
        centre, scale = self._distributed(read)
        half = widening(self._distances, level) * scale
        low, high = centre - half, centre + half
        return (low, high) if self._flat else (low[:, None], high[:, None])

    def _distributed(self, x: np.ndarray) -> Float[np.ndarray, "2 n"]:
        """The centre and the scale of Student's t for each number."""
        learner, support = self.portable.learner, self._support()
        centre, scale = by_chunks(lambda some: _spread(learner, support, some), x, 2).T
        # A temperature divides the logits of a classifier and multiplies the scale of a number.
        return np.stack([centre, self.portable.temperature * scale])

    @cached_property
    def _distances(self) -> Float[np.ndarray, " n"]:
        """The distance of each example's target from the prediction by the others, in scales."""
        found = []
        for fold in folds(np.zeros(len(self.y), int)):
            kept = np.setdiff1d(np.arange(len(self.y)), fold)
            if len(kept):
                centre, scale = self._without(kept)._distributed(self.x[fold])
                found.append(np.abs(self.y[fold, 0] - centre) / scale)
        return np.concatenate(found) if found else np.zeros(0)

    def matter(self) -> dict[str, float]:
        """How much each column matters: by how many nats the mean log-probability of an example's
        label (or log-density of its number) falls, when the other examples predict it without that
        column.

        **Raises** `ValueError` for a regression that has no distribution.
        """
        if self.classes is None and self.portable.learner.spread(self._support()) is None:
            raise ValueError(
                "expected a learner that predicts distributions, got one that predicts numbers "
                "only: use tables-regression"
            )
        every = self.y if self.classes is not None else np.zeros(len(self.y), int)
        parts = [fold for fold in folds(every) if self._whole(fold)]

        # The columns that fill up are of none of the table's.
        filled: list[str | None] = [None] * (self.reader.width - len(self.reader.owners))
        owners = [*self.reader.owners, *filled]

        def likely(hidden: str | None) -> float:
            shown = [owner != hidden for owner in owners]
            x = np.where(np.asarray(shown)[:, None], self.x, 0)
            total = 0.0
            for fold in parts:
                kept = np.setdiff1d(np.arange(len(x)), fold)
                some = (x[kept], self.y[kept], self.classes, self._flat)
                total += TablePredictor(self.portable, *some, self.reader)._likely(
                    x[fold], self.y[fold]
                )
            return total / max(sum(map(len, parts)), 1)

        usual = likely(None)
        return {name: usual - likely(name) for name in dict.fromkeys(self.reader.owners)}

    def _likely(self, x: np.ndarray, y: np.ndarray) -> float:
        """The sum of the log-probabilities of labels, or of the log-densities of numbers."""
        if self.classes is not None:
            return float(np.log(self.predict_proba(x)[np.arange(len(y)), y] + 1e-9).sum())
        from scipy.stats import t as student

        centre, scale = self._distributed(x)
        return float(student.logpdf(y[:, 0], FREEDOM, centre, scale).sum())

    def _whole(self, fold: np.ndarray) -> bool:
        """Whether every class has an example outside of the fold."""
        if self.classes is None:
            return len(fold) < len(self.y) - 1
        kept = np.setdiff1d(np.arange(len(self.y)), fold)
        return len(np.unique(self.y[kept])) == len(np.unique(self.y))


def remarks(reader: Reader, target: str) -> list[str]:
    """Which columns of a table are not used to predict `target`, for the user."""
    said = []
    if reader.left_out:
        said.append(f"not used, because it has one value in all rows: {', '.join(reader.left_out)}")
    if len(reader.kept) < reader.total:
        said.append(
            f"used {len(reader.kept)} of {reader.total} columns (each value of a category counts "
            f"as one): those that predict {target} best"
        )
    return said


def widening(distances: Float[np.ndarray, " n"], level: float) -> float:
    """By how many scales an interval reaches to each side, so that it holds about `level` of the
    targets: the rank of split conformal prediction among the examples' own `distances`. Where these
    are too few, the larger of the largest distance and the quantile of the distribution."""
    rank = math.ceil(level * (len(distances) + 1) - 1e-9)
    if rank <= len(distances):
        return float(np.sort(distances)[rank - 1])
    # Here, because SciPy takes a third of a second to load.
    from scipy.special import stdtrit

    return float(np.max(distances, initial=stdtrit(FREEDOM, (1 + level) / 2)))


def learned(
    portable: Portable,
    x: Any,
    y: Any,
    *,
    where: str = "the table",
    lines: Sequence[int] | None = None,
) -> TablePredictor:
    """The predictor of the rows `x` (see `as_table`) with the labels or targets `y`.

    **Arguments**

    - `where`, `lines`: what errors call the table, and its rows.

    **Raises** `ValueError` in one line for rows or labels that cannot be learned.
    """
    table = as_table(x)
    n = len(next(iter(table.values())))
    if not n:
        raise ValueError("expected one or more rows, got none: give some examples")
    classes, flat = None, False
    if portable.problem.kind == "regression":
        places, flat = checked_targets(y, portable.problem, n)
        read = reader(table, places[:, 0], where=where, lines=lines)
    else:
        classes, places = checked_labels(y, n)
        read = reader(table, places, where=where, lines=lines)
    problem = dataclasses.replace(portable.problem, features=(read.width, 3))
    wide = dataclasses.replace(portable, problem=problem)
    return TablePredictor(wide, read(table), places, classes, flat, read)
