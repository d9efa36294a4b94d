"""Predictors of tables: a data frame, a mapping of columns, or an array, of any width.

    learner = arml.load("tables")
    predictor = learner.adapt(frame, frame.pop("species"))
    predictor.predict(more), predictor.predict_proba(more)
    predictor.reliability(), predictor.matter()

A predictor keeps its examples as they came. Whatever leaves rows out (`reliability`, `interval`,
`matter`) refits everything that reads labels or rows from the rows that stay: the choice of
columns, their scales, frequent categories, and the learner.

The interval of a number is the learner's own distribution, made so wide that it would have held the
examples' targets: each example is predicted from the others, and its distance is divided by the
scale that the learner states for it [1]. The table at hand thus decides the width, because real
tables have other tails than the synthetic ones of meta-training.

Beyond `MOST` rows scikit-learn's gradient boosting predicts instead: it needs no meta-training
there, and the learner's kernel would need time with the square of the rows.

[1] Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005: conformal prediction.
    Difference: examples are left out one by one, or in tenths, from the set that predicts, so the
    share is "about", as for the jackknife (Barber, Candes, Ramdas and Tibshirani, Annals of
    Statistics 2021).
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from arml.core.compilation import short
from arml.core.episodes import Examples, Problem
from arml.core.learner import MetaLearner
from arml.experiment.running import Portable
from arml.predict.files import packed, unpacked, write_learner
from arml.predict.inputs import checked_labels, places_of
from arml.predict.predictor import for_classes, grouped_function
from arml.predict.reliability import (
    Evaluation,
    NumberReliability,
    Reliability,
    class_folds,
    classification_reliability,
    copies_of,
    number_folds,
    regression_reliability,
)
from arml.results.files import one_blas_thread
from arml.tables.columns import (
    PLAIN,
    Reader,
    Schema,
    Values,
    as_table,
    missing,
    normal,
    number,
    reader,
    remarks,
    schema_of,
    schema_of_json,
    width_of,
)
from arml.tables.model import FREEDOM, Tables

MOST = 1_000
"""Rows beyond which gradient boosting predicts."""
ROWS = (8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 768, MOST)
"""Examples are filled up with empty rows to one of these numbers, so that few programs are
compiled."""
CHUNK = 256
"""Queries predicted at once; fewer are filled up, so that one program serves all."""
NAMES = {
    "classification": ("the learner", "gradient boosting", "logistic regression"),
    "regression": ("the learner", "gradient boosting", "ridge regression"),
}


class Read(NamedTuple):
    """Rows as a predictor has read them."""

    values: Values


class Fitted(NamedTuple):
    """What was learned from some rows."""

    reader: Reader
    support: Examples
    outputs: Callable[[Values], Float[np.ndarray, "n outputs"]]
    """Log-odds of classes, or the centre and the scale of each number, from rows."""


@short
def _adapted(learner: MetaLearner, support: Examples, like: jax.ShapeDtypeStruct) -> Any:
    """The prediction function: Student's t of numbers if the learner has it, else its outputs."""
    spread = learner.spread(support)
    if spread is None:
        predict = learner.adapt(support, key=jax.random.key(0)).predict
    else:

        def predict(x: jax.Array) -> jax.Array:
            return jnp.stack(spread(x), axis=1)

    return eqx.filter_closure_convert(predict, like)


@short
def _called(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    return function(x)


@short
def _reading(learner: Tables, support: Examples) -> jax.Array:
    return learner.reads(support)


class TablePredictor:
    """A learned task of tables. `classes` are its labels in order; None for numbers.

    Rows to predict are read as the examples were: other columns may be there, in any order.
    """

    columns: tuple[str, ...] | None = None
    target: str | None = None
    """The name of the column that it predicts."""

    def __init__(
        self,
        portable: Portable,
        schema: Schema,
        values: Values,
        y: Float[np.ndarray, " n"] | Int[np.ndarray, " n"],
        classes: np.ndarray | None,
    ) -> None:
        self.portable, self.schema, self.values, self.y = portable, schema, values, y
        self.classes = classes
        self._ways = max(portable.problem.outputs, 0 if classes is None else len(classes))
        self._learner = for_classes(portable, self._ways)

    @property
    def problem(self) -> Problem:
        """The kind of tasks that the learner was built for."""
        return self.portable.problem

    @property
    def model(self) -> str:
        """What predicts: the learner, or gradient boosting for many rows."""
        return NAMES[self.problem.kind][len(self.y) > MOST]

    @property
    def remarks(self) -> list[str]:
        """Which columns are not used and why, and what predicts if it is not the learner."""
        said = remarks(self.schema, self._fitted.reader, self.target or "the target")
        if len(self.y) > MOST:
            said.append(
                f"{len(self.y):,} rows are more than the {MOST:,} that the learner takes: "
                "scikit-learn's gradient boosting predicts"
            )
        return said

    @cached_property
    def _fitted(self) -> Fitted:
        return self._fit(np.arange(len(self.y)))

    def _fit(self, kept: Int[np.ndarray, " kept"], hidden: int | None = None) -> Fitted:
        """Learn from some of the examples alone; `hidden` is a column that is not used."""
        values, y = self.values[kept], self.y[kept]
        if hidden is not None:
            values = values.copy()
            values[:, hidden] = np.nan
        read = reader(self.schema, values, y)
        middle, unit = (0.0, 1.0) if self.classes is not None else _standard(y)
        if len(self.y) > MOST:
            predict = _boosted(_with_gaps(read(values)), (y - middle) / unit, self.classes)
            support = Examples(jnp.zeros((0, 0, 3)), jnp.zeros(0))
        else:
            support = self._support(read(values), (y - middle) / unit)
            predict = self._by_learner(support)

        def outputs(rows: Values) -> Float[np.ndarray, "n outputs"]:
            if hidden is not None:
                rows = rows.copy()
                rows[:, hidden] = np.nan
            found = predict(read(rows)).astype(np.float64)
            if not np.all(np.isfinite(found)):
                raise ValueError("a prediction is not finite: the rows are far from the examples")
            return found if self.classes is not None else found * unit + [middle, 0.0]

        return Fitted(read, support, outputs)

    def _support(self, x: Float[np.ndarray, "n columns 3"], y: np.ndarray) -> Examples:
        """The examples, filled up to a size for which there may be a program already."""
        # The same width for all folds; one may have a value of a category more.
        width = width_of(max(self._width, x.shape[1]))
        more = next(rows for rows in ROWS if rows >= len(y)) - len(y)
        filled = np.pad(x, ((0, more), (0, width - x.shape[1]), (0, 0)))
        if self.classes is None:
            return Examples(
                *jax.device_put((filled, np.pad(y, (0, more)).astype(np.float32)[:, None]))
            )
        return Examples(*jax.device_put((filled, np.pad(y, (0, more)).astype(np.int32))))

    @cached_property
    def _width(self) -> int:
        return len(reader(self.schema, self.values, self.y).kept)

    def _by_learner(self, support: Examples) -> Callable[[np.ndarray], np.ndarray]:
        width = support.x.shape[1]
        if self._learner is None:  # a method with a fixed number of classes
            problem = dataclasses.replace(self.problem, features=(width, 3))
            rows = np.any(np.asarray(support.x)[..., 1] > 0, axis=1)
            some = Examples(support.x[rows], support.y[rows])
            function = grouped_function(self.portable.learner, some, problem, self._ways, CHUNK)
        else:
            like = jax.ShapeDtypeStruct((CHUNK, width, 3), jnp.float32)
            function = partial(_called, _adapted(self._learner, support, like))

        def predict(x: Float[np.ndarray, "n columns 3"]) -> Float[np.ndarray, "n outputs"]:
            parts = []
            for first in range(0, max(len(x), 1), CHUNK):
                some = x[first : first + CHUNK]
                fill = ((0, CHUNK - len(some)), (0, width - some.shape[1]), (0, 0))
                parts.append(np.asarray(function(jax.device_put(np.pad(some, fill)))))
            found = np.concatenate(parts)[: len(x)]
            if self.classes is not None:
                return found[:, : len(self.classes)] / self.portable.temperature
            scale = found[:, 1] if found.shape[1] > 1 else np.zeros(len(found))
            # A temperature divides the logits of a classifier and multiplies a number's scale.
            return np.stack([found[:, 0], scale * self.portable.temperature], axis=1)

        return predict

    def read(self, x: Any, where: str = "the table", lines: Sequence[int] | None = None) -> "Read":
        """Rows that are checked and read, for any method that takes rows. `where` and `lines` are
        what errors call the table, and its rows."""
        return x if isinstance(x, Read) else Read(self.schema.read(as_table(x), where, lines))

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that are not used because they tell the rows apart, or were left out by name."""
        return tuple(k for k, reason in self.schema.left_out.items() if reason not in PLAIN)

    def predict(self, x: Any) -> np.ndarray:
        """The label or the number of each row `[n]`.

        **Raises** `ValueError` in one line for rows without a column of the examples, or with a
        cell of another kind.
        """
        outputs = self._fitted.outputs(self.read(x).values)
        return outputs[:, 0] if self.classes is None else self.classes[outputs.argmax(axis=1)]

    def predict_proba(self, x: Any) -> Float[np.ndarray, "n classes"]:
        """The probability of each class, columns in the order of `classes`. **Raises** `ValueError`
        as `predict`, and for numbers."""
        if self.classes is None:
            raise ValueError("numbers have no probabilities: use predict or interval")
        return _softmax(self._fitted.outputs(self.read(x).values))

    def interval(self, x: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The ends of an interval around each predicted number: about `level` of new targets lie
        within, if they are drawn as the examples were.

        **Raises** `ValueError` as `predict`, for classes, and for a level that is no share.
        """
        if self.classes is not None:
            raise ValueError("classes have no interval: use predict_proba")
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, such as 0.9, got {level:g}")
        centre, scale = self._fitted.outputs(self.read(x).values).T
        half = widening(self._distances, level) * _positive(scale)
        return centre - half, centre + half

    @cached_property
    def _distances(self) -> Float[np.ndarray, " n"]:
        """The distance of each example's target from the prediction by the others, in scales."""
        found = [np.zeros(0)]
        for train, test in number_folds(self._groups):
            centre, scale = self._fit(train).outputs(self.values[test]).T
            found.append(np.abs(self.y[test] - centre) / _positive(scale))
        return np.concatenate(found)

    @cached_property
    def _groups(self) -> Int[np.ndarray, " n"]:
        """Equal rows have one group, and are left out together."""
        return copies_of(np.nan_to_num(self.values, nan=-1e300), self.y)

    def reliability(self) -> Reliability | NumberReliability:
        """How well each example is predicted from the others, beside the simplest model of the same
        columns; and which examples look mislabelled, or are copies of others.

        Everything is learned again without the examples that are left out.
        """
        name, simple = self.model, NAMES[self.problem.kind][2]
        if self.classes is None:

            def numbers(train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
                fitted = self._fit(train)
                ridge = self._simple(fitted.reader, train, self.values[test])
                return {name: fitted.outputs(self.values[test])[:, :1], simple: ridge}

            return regression_reliability(numbers, self.y[:, None], self._groups, model=name)

        def chances(train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
            fitted = self._fit(train)
            logistic = self._simple(fitted.reader, train, self.values[test])
            return {name: _softmax(fitted.outputs(self.values[test])), simple: logistic}

        return classification_reliability(chances, self.y, self.classes, self._groups, model=name)

    def _simple(self, read: Reader, train: np.ndarray, rows: Values) -> np.ndarray:
        """The predictions of a linear model of the same columns, which are standardised; a missing
        cell is at their mean."""
        from sklearn.linear_model import LogisticRegression, Ridge

        own = self.values[train], rows
        x, new = (read(values)[..., 0].astype(np.float64) for values in own)
        middle, unit = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
        x, new = (x - middle) / unit, np.clip((new - middle) / unit, -10, 10)
        y = self.y[train]
        with one_blas_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.classes is None:
                return Ridge().fit(x, y).predict(new)[:, None]
            chances = np.zeros((len(new), len(self.classes)))
            if len(np.unique(y)) == 1:
                chances[:, y[0]] = 1
                return chances
            model = LogisticRegression().fit(x, y)
            chances[:, model.classes_] = model.predict_proba(new)
            return chances

    def evaluate(self, x: Any, y: Any) -> Evaluation:
        """How rows are predicted whose labels `y` are known. **Raises** `ValueError` as
        `predict_proba`, and for a label that is not among `classes`."""
        chances = self.predict_proba(x)
        assert self.classes is not None
        return Evaluation(self.classes, places_of(y, self.classes), chances)

    def matter(self) -> dict[str, float]:
        """How much each used column matters: by how many nats the mean log-probability of an
        example's label (or log-density of its number) falls, when the other examples predict it
        without that column.

        **Raises** `ValueError` for a regression that has no distribution.
        """
        if self.classes is None and not self._fitted.outputs(self.values[:1])[0, 1]:
            raise ValueError("the learner predicts no distributions: use tables-regression")
        if self.classes is None:
            folds = [*number_folds(self._groups)]
        else:
            folds = [*class_folds(self.y, self._groups)]

        def likely(hidden: int | None) -> float:
            total, n = 0.0, 0
            for train, test in folds:
                outputs = self._fit(train, hidden).outputs(self.values[test])
                total, n = total + self._likely(outputs, self.y[test]), n + len(test)
            return total / max(n, 1)

        usual = likely(None)
        places = dict.fromkeys(self._fitted.reader.owners.tolist())
        return {self.schema.columns[place].name: usual - likely(place) for place in places}

    def _likely(self, outputs: np.ndarray, y: np.ndarray) -> float:
        """The sum of the log-probabilities of labels, or of the log-densities of numbers."""
        if self.classes is not None:
            return float(np.log(_softmax(outputs)[np.arange(len(y)), y] + 1e-9).sum())
        from scipy.stats import t as student

        centre, scale = outputs.T
        return float(student.logpdf(y, FREEDOM, centre, _positive(scale)).sum())

    def reading(self) -> Float[np.ndarray, "1 vertices"] | None:
        """How much the task reads each vertex of the meta-knowledge graph, one row with sum one.
        None for a learner without a graph, and where gradient boosting predicts."""
        learner = self.portable.learner
        if not isinstance(learner, Tables) or len(learner.vertices) < 2 or len(self.y) > MOST:
            return None
        return np.asarray(_reading(learner, self._fitted.support))[None]

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the learner's, and its examples as they came. **Raises** `RunError`
        if it cannot be written."""
        classes = None if self.classes is None else self.classes.tolist()
        task = {"classes": classes, "flat": True, "target": self.target}
        task |= {"reader": self.schema.as_json()}
        write_learner(self.portable, folder, support={"x": self.values, "y": self.y}, task=task)

    def __reduce__(self) -> tuple[object, ...]:
        from arml.predict.learner import load_predictor

        return unpacked, (load_predictor, packed(self.save))

    def __repr__(self) -> str:
        kinds = "" if self.classes is None else f"{len(self.classes)} classes, "
        return f"{type(self).__name__}({kinds}{len(self.y)} examples; {self.portable.about})"


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
    without: Sequence[str] = (),
) -> TablePredictor:
    """The predictor of the rows `x` (see `as_table`) with the labels or targets `y`.

    **Arguments**

    - `where`, `lines`: what errors call the table, and its rows.
    - `without`: columns that are not used.

    **Raises** `ValueError` in one line for rows or labels that cannot be learned.
    """
    table = as_table(x)
    for name in map(normal, without):
        if name not in table:
            raise ValueError(f"{where}: no column {name!r} to leave out, among {', '.join(table)}")
    n = len(next(iter(table.values())))
    if not n:
        raise ValueError("no rows: give some examples")
    classes = None
    places: np.ndarray
    if portable.problem.kind == "regression":
        places = targets_of(y, n)
    else:
        classes, places = checked_labels(y, n)
    used = {name: cells for name, cells in table.items() if name not in {*map(normal, without)}}
    schema = schema_of(used, classes=classes is not None, where=where, lines=lines)
    left_out = {**dict.fromkeys(map(normal, without), "left out"), **schema.left_out}
    schema = schema._replace(left_out=left_out)
    return TablePredictor(portable, schema, schema.read(table, where, lines), places, classes)


def targets_of(y: Any, n: int) -> Float[np.ndarray, " n"]:
    """The targets of `n` rows in 64 bits: small differences of large numbers stay.

    **Raises** `ValueError` for another number of them, and for anything but finite numbers.
    """
    cells = as_table(y if np.ndim(y) == 2 else {"target": y})
    if len(cells) != 1:
        raise ValueError(
            f"a table has one target, got {len(cells)}: scikit-learn's MultiOutputRegressor fits "
            "one regressor for each"
        )
    (targets,) = cells.values()
    if len(targets) != n:
        raise ValueError(f"{n} rows need {n} targets, got {len(targets)}")
    for row, cell in enumerate(targets):
        if number(cell) is None:
            found = "is missing" if missing(cell) else f"is no finite number: {cell!r}"
            raise ValueError(f"the target of example {row + 1} {found}: correct or drop it")
    return np.asarray([number(cell) for cell in targets], np.float64)


def adapted(portable: Portable, x: Any, y: Any) -> TablePredictor:
    """As `learned`, with a warning for each column that is not used because its cells say nothing
    about new rows."""
    predictor = learned(portable, x, y)
    for name, reason in predictor.schema.left_out.items():
        if reason not in PLAIN:
            warnings.warn(f"column {name!r} is not used: {reason}", stacklevel=3)
    return predictor


def restored(
    portable: Portable,
    arrays: Mapping[str, np.ndarray],
    classes: np.ndarray | None,
    target: str | None,
    schema: Mapping[str, Any],
) -> TablePredictor:
    """A predictor from the arrays and the facts that `TablePredictor.save` wrote."""
    predictor = TablePredictor(portable, schema_of_json(schema), arrays["x"], arrays["y"], classes)
    predictor.target = target
    return predictor


def _standard(y: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The mean and the standard deviation of targets; 1 if all are equal."""
    spread = float(y.std())
    return float(y.mean()), spread if spread > 1e-12 * float(np.abs(y).max()) else 1.0


def _positive(scale: np.ndarray) -> np.ndarray:
    return np.where(scale > 0, scale, 1.0)


def _softmax(logits: np.ndarray) -> np.ndarray:
    chances = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return chances / chances.sum(axis=1, keepdims=True)


def _with_gaps(x: Float[np.ndarray, "n columns 3"]) -> Float[np.ndarray, "n columns"]:
    return np.where(x[..., 1] > 0, x[..., 0], np.nan)


def _boosted(
    x: Float[np.ndarray, "n columns"], y: np.ndarray, classes: np.ndarray | None
) -> Callable[[np.ndarray], np.ndarray]:
    """Log-odds, or the centre of each number and a scale of zero, by gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    kind = HistGradientBoostingRegressor if classes is None else HistGradientBoostingClassifier
    # One thread: several wait for each other busily, and take 40 times as long on a busy machine.
    with threadpool_limits(1):
        model = kind(random_state=0).fit(x, y)

    def predict(new: np.ndarray) -> np.ndarray:
        with threadpool_limits(1):
            if classes is None:
                centre = model.predict(_with_gaps(new))
                return np.stack([centre, np.zeros(len(centre))], axis=1)
            chances = model.predict_proba(_with_gaps(new))
        odds = np.full((len(new), len(classes)), -50.0)
        odds[:, model.classes_.astype(int)] = np.log(np.maximum(chances, 1e-12))
        return odds

    return predict
