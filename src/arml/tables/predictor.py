"""Predictors of tables: a data frame, a mapping of columns, or an array, of any width.

    learner = arml.load("tables")
    predictor = learner.adapt(frame, frame.pop("species"))
    predictor.predict(more), predictor.predict_proba(more)
    predictor.reliability(), predictor.matter()

A predictor keeps its examples as they came. Whatever leaves rows out (`reliability`, `interval`,
`matter`) refits everything that reads labels or rows from the rows that stay: the choice of
columns, their scales, frequent categories, and the model.

The interval of a number is the learner's distribution, widened until it would have held the
examples' targets: each example is predicted from the others, and its distance is divided by the
scale that the learner states for it [1]. The table at hand thus decides the width, because real
tables have other tails than the synthetic ones of meta-training.

Up to `MAX_REPEATED_EXAMPLES` rows only the learner predicts. A linear model of the same columns
serves for comparison: a mean of both, with weights from left-out examples, was less accurate than
the learner by 0.2 to 0.9 points on 14 development tables. With more rows several models predict,
and their mean has weights from folds: see `arml.predict.models`. Beyond `MOST_ROWS` rows the
learner is not one of them, because its time grows with the square of the rows.

[1] Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005: conformal prediction.
    Difference: examples are left out one by one, or in tenths, from the set that predicts, so the
    share is "about", as for the jackknife (Barber, Candes, Ramdas and Tibshirani, Annals of
    Statistics 2021).
"""

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from inspect import signature
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, vstack

from arml.algorithms.tables import DEGREES_OF_FREEDOM
from arml.core.compilation import RUN_ONCE, short
from arml.core.episodes import Examples
from arml.core.learner import MetaLearner
from arml.predict.base import BY_LEARNER, Predictor, TaskLearner, equal_rows_of, softmax
from arml.predict.folds import MAX_FOLDS, Places, equal_rows, units_of
from arml.predict.inputs import (
    Bad,
    alike,
    checked_groups,
    checked_labels,
    checked_targets,
    missing,
    no_group,
    weighted,
)
from arml.predict.learner import FewShotLearner, LearnedTask, by_chunks, called, write_learner
from arml.predict.models import (
    GRADIENT_BOOSTING,
    LINEAR_MODEL_NAMES,
    RANDOM_FOREST,
    Choice,
    Outputs,
    by_scikit,
    mean_of,
)
from arml.predict.reliability import MAX_REPEATED_EXAMPLES, MODELS_IN_WORDS, conformal_rank
from arml.predict.scikit import facts_of, remade
from arml.tables.columns import (
    EXPECTED_REASONS,
    MIN_COUNTED_ROWS,
    ColumnEncoder,
    Schema,
    Values,
    as_table,
    encoder,
    schema_of,
    sums,
    width_of,
)
from arml.tables.kinds import (
    ALLOWED_LEVELS,
    AnyCell,
    AnyColumn,
    Cells,
    Dates,
    Declared,
    Number,
    OddCells,
    Origin,
    UnusedColumn,
    column_of,
    named_cells,
    normal,
    some_of,
    targets_in,
    text_of,
)
from arml.tables.sheet import Sheet
from arml.tables.words import WORD_HASHES, Words, fit_words

MOST_ROWS = 1_000
"""Rows beyond which the learner does not predict."""
_MAX_FOLDS = 5
"""Folds beyond `MAX_REPEATED_EXAMPLES` rows."""
_PADDED_ROWS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, MOST_ROWS)
"""Examples are filled up with empty rows to one of these numbers, so that few programs are
compiled."""
_CSR_PARTS = ("data", "indices", "indptr")
MIN_VALUES = 5
"""The fewest values of a column that may name groups of rows."""
LEFT_OUT, NAMES_GROUPS = "left out", "says which rows belong together"
"""Why a column that the user named is not used."""
_CHUNK_ROWS = 256
"""Queries predicted at once. Fewer are filled up, so that one program serves all."""
_SMALL_ROWS = 64
"""A task with at most this many examples and `_CHUNK_ROWS` queries is filled up to this many. Its
programs run for milliseconds, and are compiled in a quarter of the time."""


@dataclass(frozen=True, eq=False)
class ParsedRows:
    """Rows as a predictor has read them."""

    values: Values
    words: tuple[csr_array, ...] = ()
    """The counts of words in each column of free texts."""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, places: slice | Places) -> "ParsedRows":
        return ParsedRows(self.values[places], tuple(counts[places] for counts in self.words))


def _adapted(learner: MetaLearner, support: Examples, like: jax.ShapeDtypeStruct) -> Any:
    """The prediction function: log-odds, or the centre and scale of Student's t."""
    spread = learner.spread(support)
    if spread is None:
        predict = learner.adapt(support, key=jax.random.key(0)).predict
    else:

        def predict(x: jax.Array) -> jax.Array:
            return jnp.stack(spread(x), axis=1)

    return eqx.filter_closure_convert(predict, like)


_COMPILED_PROGRAMS = {
    _CHUNK_ROWS: (short(_adapted), called),
    _SMALL_ROWS: (short(_adapted, RUN_ONCE), short(lambda function, x: function(x), RUN_ONCE)),
}
"""The functions that adapt and that predict, by the number of queries at once."""


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=5)  # at the caller of `predict`


class TablePredictor(Predictor):
    """A learned task of tables. `classes` are its labels in order; None for numbers.

    Rows to predict are read as the examples were: other columns may be there, in any order.
    """

    flat = True
    learner: FewShotLearner
    schema: Schema

    def __init__(
        self,
        learner: FewShotLearner,
        schema: Schema,
        rows: ParsedRows,
        y: Float[np.ndarray, " n"] | Int[np.ndarray, " n"],
        classes: np.ndarray | None,
        groups: Int[np.ndarray, " n"] | None = None,
        times: Float[np.ndarray, " n"] | None = None,
    ) -> None:
        self.learner, self.schema, self.rows, self.y = learner, schema, rows, y
        self.values = rows.values
        self.classes, self.groups, self.times = classes, groups, times
        self.most = MAX_FOLDS if len(y) <= MAX_REPEATED_EXAMPLES else _MAX_FOLDS

    @classmethod
    def learned(
        cls,
        learner: FewShotLearner,
        x: object,
        y: object,
        sample_weight: object = None,
        **options: Any,
    ) -> "TablePredictor":
        """The predictor of rows: see `learned`. It warns of each column that is not used because
        its cells do not help with new rows, and of each hint. With a weight of 2 a row counts
        twice, with 0 it is left out; other weights are refused."""
        if sample_weight is not None:
            table, groups = as_table(x), options.pop("groups", None)
            rows = np.arange(len(next(iter(table.values()))))
            rows, y, weight, groups = weighted(rows, y, sample_weight, groups)
            if weight is None or np.any(weight % 1):
                raise ValueError(
                    "tables cannot use sample weights that are not whole numbers: leave them out"
                )
            counts = weight.astype(int)
            rows, y = np.repeat(rows, counts), np.repeat(np.asarray(y), counts)
            x = {name: some_of(cells, rows.tolist()) for name, cells in table.items()}
            options["groups"] = None if groups is None else np.repeat(groups, counts)
        if odd := [name for name in options if name not in signature(learned).parameters]:
            raise ValueError(f"{', '.join(odd)}: learners of tables have no such options")
        predictor = learned(learner, x, y, **options)
        for name, reason in predictor.schema.left_out.items():
            if reason not in (*EXPECTED_REASONS, LEFT_OUT, NAMES_GROUPS):
                warnings.warn(f"column {name!r} is not used: {reason}", stacklevel=4)
        for hint in (*predictor.schema.hints, *predictor.hints):
            warnings.warn(hint, stacklevel=4)
        return predictor

    @classmethod
    def restored(
        cls, learner: FewShotLearner, arrays: Mapping[str, np.ndarray], task: LearnedTask
    ) -> "TablePredictor":
        """A predictor from the arrays and the facts that `save` wrote."""
        if task.estimator is not None:
            learner = learner.with_estimator(remade(task.estimator))
        classes = None if task.classes is None else np.asarray(task.classes)
        schema = msgspec.convert(task.reader, Schema)
        n = len(arrays["y"])
        words = tuple(
            csr_array(
                tuple(arrays[f"words{i}_{part}"] for part in _CSR_PARTS), (n, 2 * WORD_HASHES)
            )
            for i in range(len(schema.texts))
        )
        given = ParsedRows(arrays["x"], words), arrays["y"], classes
        predictor = cls(learner, schema, *given, arrays.get("groups"), arrays.get("times"))
        if "weights" in arrays:
            weights = zip(predictor.choice.models, arrays["weights"].tolist(), strict=True)
            vars(predictor)["weights"] = {name: weight for name, weight in weights if weight}
        predictor._learned_words[np.arange(n).tobytes()] = [
            Words(int(column), weight, arrays[f"spoken{i}_rows"], arrays[f"spoken{i}_dual"])
            for i, (column, weight) in enumerate(arrays.get("spoken", ()))
        ]
        predictor.target = task.target
        return predictor

    @property
    def remarks(self) -> list[str]:
        """The columns that are not used and why, and those that may name groups of rows."""
        lines, used, total = self.schema.remarks(), len(self._encoder.owners), self._encoder.total
        if used < total:
            lines.append(
                f"used {used} of {total} columns (each value of a category counts as one): those "
                f"that predict {self.target or 'the target'} best"
            )
        spoken, texts = self._spoken, [self.schema.columns[i].name for i in self.schema.texts]
        lines += [f"used the words of {', '.join(spoken)}"] * bool(spoken)
        if silent := [name for name in texts if name not in spoken]:
            lines.append(
                f"not used: {', '.join(silent)} (texts whose words do not help beside the others)"
            )
        return [*lines, *self.hints]

    @property
    def hints(self) -> list[str]:
        """Columns that may say which rows belong together: nearly every value is in several rows,
        all with one label."""
        rows = np.unique(self._same, return_index=True)[1]  # copies are another matter
        found, n = [], len(rows)
        answers = np.unique(self.y[rows], return_inverse=True)[1]
        least = max(MIN_VALUES, 2 * len(self.classes if self.classes is not None else ()))
        for column, cells in zip(self.schema.columns, self.values[rows].T, strict=True):
            there = ~np.isnan(cells)
            if self.groups is not None:
                continue
            _, value, counts = np.unique(cells[there], return_inverse=True, return_counts=True)
            pairs = np.unique(np.stack([value, answers[there]]), axis=1)
            kinds, several = np.bincount(pairs[0]), counts > 1
            if several.sum() >= least and counts[several].sum() > 0.8 * n and kinds.max() == 1:
                found.append(
                    f"each value of {column.name!r} is in several rows, all with one answer: if "
                    "these rows belong together, such as those of one person, the check is too "
                    f"optimistic without --group {column.name!r} (groups={column.name!r})"
                )
        return found

    # Fitting.

    @cached_property
    def choice(self) -> Choice:
        """The models, and the folds that give each its weight."""
        models, parts = [BY_LEARNER], list[Places]()
        if len(self.y) > MAX_REPEATED_EXAMPLES:
            models = [
                BY_LEARNER,
                LINEAR_MODEL_NAMES[self.problem.kind],
                RANDOM_FOREST,
                GRADIENT_BOOSTING,
            ]
            models, parts = models[len(self.y) > MOST_ROWS :], [test for _, test in self._parts]
        if self.learner.estimator is not None:
            models = [type(self.learner.estimator).__name__]
        return Choice(models, self._fit, self.values, self.y, parts)

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weight of each model that predicts."""
        return self.choice.weights(np.arange(len(self.y)))

    @property
    def model(self) -> str:  # type: ignore[override]
        """The model that predicts, or the mean of several with their weights."""
        parts = ", ".join(
            f"{MODELS_IN_WORDS.get(k, k)} {weight:.0%}" for k, weight in self.weights.items()
        )
        one = next(iter(self.weights)) if len(self.weights) == 1 else f"a weighted mean ({parts})"
        used = ", ".join(self._spoken)
        return f"{one}, and the words of {used}" if used else one

    @property
    def _spoken(self) -> list[str]:
        """The columns of free texts whose words help to predict."""
        columns = [self.schema.columns[i].name for i in self.schema.texts]
        return [columns[one.column] for one in self._words(np.arange(len(self.y)))]

    @cached_property
    def _learned_words(self) -> dict[bytes, list[Words]]:
        return {}

    def _words(self, kept: Places) -> list[Words]:
        """The outputs that the words of free texts add, learned from the examples `kept`."""
        if self.rows.words and (key := kept.tobytes()) not in self._learned_words:
            tests = [np.intersect1d(test, kept) for _, test in self._parts]
            tests = [test for test in tests if 0 < len(test) < len(kept)]
            self._learned_words[key] = self._words_of(kept, tests) if tests else []
        return self._learned_words[key] if self.rows.words else []

    def _words_of(self, kept: Places, tests: Sequence[Places]) -> list[Words]:
        places, weights = np.sort(np.concatenate(tests)), self.choice.weights(kept)
        y, classes = self.y[places], self.classes
        parts = [np.searchsorted(places, test) for test in tests]
        outputs = np.zeros((len(places), 2 if classes is None else len(classes)))
        for part, test in zip(parts, tests, strict=True):
            each = self.choice.others(np.setdiff1d(kept, test))
            left = {name: found[test] for name, found in each.items()}
            outputs[part] = mean_of(left, weights, classes is not None)

        def rest(outputs: Outputs) -> Outputs:
            if classes is None:
                return np.stack([y - outputs[:, 0], 0 * y], axis=1)
            return np.eye(len(classes))[y] - softmax(outputs)

        def gain(outputs: Outputs) -> Float[np.ndarray, " n"]:
            return self._likely(outputs, y) if classes is not None else -((y - outputs[:, 0]) ** 2)

        return fit_words(self.rows.words, places, rest, outputs, gain, parts)

    def _with_words(self, kept: Places) -> Callable[[Outputs, ParsedRows], Outputs]:
        """The function that adds the words' part to outputs; hidden cells add nothing."""
        texts, words = self.rows.words, self._words(kept)
        each = [(one.column, one.function(texts[one.column])) for one in words]

        def outputs(found: Outputs, rows: ParsedRows) -> Outputs:
            for column, added in each:
                there = ~np.isnan(rows.values[:, [self.schema.texts[column]]])
                found = found + np.where(there, added(rows.words[column]), 0.0)
            return found

        return outputs

    def _left_out(self, train: Places, test: Places) -> Outputs:
        """The outputs for some examples, learned from others."""
        return self._with_words(train)(self.choice.mean(train)[test], self.rows[test])

    def _fit(self, kept: Places, model: str) -> Callable[[Values], Outputs]:
        """The function that a model learns from some of the examples."""
        values, y, middle, unit = self.values[kept], self.y[kept], 0.0, 1.0
        encode = self._encoded(values, y)
        own = self.learner.estimator if model in self.choice.models else None
        other = partial(by_scikit, model if own is None else own, self.classes)
        learn = self._by_learner if model == BY_LEARNER else other
        if self.classes is None and own is None:
            middle, spread = float(y.mean()), float(y.std())
            unit = spread if spread > 1e-12 * float(np.abs(y).max()) else 1.0
        predict = learn(encode(values), (y - middle) / unit)

        def outputs(rows: Values) -> Outputs:
            found = predict(encode(rows)).astype(np.float64)
            return found if self.classes is not None else found * unit + [middle, 0.0]

        return outputs

    def _mean(self, kept: Places) -> Callable[[ParsedRows], Outputs]:
        """The function that the weighted mean and the words learn from some of the examples."""
        parts = {name: self._fit(kept, name) for name in self.weights}
        with_words = self._with_words(kept)

        def outputs(rows: ParsedRows) -> Outputs:
            each = {name: part(rows.values) for name, part in parts.items()}
            found = mean_of(each, self.weights, self.classes is not None)
            return with_words(found, rows)

        return outputs

    @cached_property
    def _fitted(self) -> Callable[[ParsedRows], Outputs]:
        return self._mean(np.arange(len(self.y)))

    @cached_property
    def _encoder(self) -> ColumnEncoder:
        return self._encoded(self.values, self.y)

    def _encoded(self, values: Values, y: np.ndarray) -> ColumnEncoder:
        bound = {} if self.learner.estimator is None else {"most": np.inf}
        return encoder(self.schema, values, y, **bound)

    def _by_learner(
        self, x: Float[np.ndarray, "n columns 3"], y: np.ndarray
    ) -> Callable[[np.ndarray], Outputs]:
        learner = self.learner.of_classes(0 if self.classes is None else len(self.classes))
        # The same width for all folds; one may have a value of a category more. And of few rows the
        # same height, because compiling takes longer than computing.
        width = width_of(max(len(self._encoder.owners), x.shape[1]))
        height = len(self.y) if len(self.y) <= _CHUNK_ROWS else len(y)
        more = next(rows for rows in _PADDED_ROWS if rows >= height) - len(y)
        filled = np.pad(x, ((0, more), (0, width - x.shape[1]), (0, 0)))
        labels = np.pad(y, (0, more)).astype(np.float32 if self.classes is None else np.int32)
        labels = labels[:, None] if self.classes is None else labels
        support = Examples(*jax.device_put((filled, labels)))
        few = len(filled) <= _SMALL_ROWS

        @cache
        def function(size: int) -> Callable[[np.ndarray], np.ndarray]:
            adapt, predict = _COMPILED_PROGRAMS[size]
            like = jax.ShapeDtypeStruct((size, width, 3), jnp.float32)
            return partial(predict, adapt(learner, support, like))

        def predict(x: Float[np.ndarray, "n columns 3"]) -> Outputs:
            wide = np.pad(x, ((0, 0), (0, width - x.shape[1]), (0, 0)))
            size = _SMALL_ROWS if few and len(x) <= _CHUNK_ROWS else _CHUNK_ROWS
            found = by_chunks(function(size), wide, size)
            # A temperature divides the logits of a classifier and multiplies a number's scale.
            if self.classes is None:
                return found * [1.0, self.learner.temperature]
            return found[:, : len(self.classes)] / self.learner.temperature

        return predict

    # Predictions.

    def read(
        self,
        x: object,
        bad: Bad | None = None,
        *,
        where: str = "the table",
        lines: Sequence[int] | None = None,
        tell: Callable[[str], object] = _warn,
    ) -> ParsedRows:
        """Rows that are checked and read, for any method that takes rows. `where` and `lines` are
        what messages call the table, and its rows; `tell` gets a line for each column with cells
        that cannot be read (a warning by default)."""
        if isinstance(x, ParsedRows):
            return x
        values = self.schema.parse(table := as_table(x), where, lines, tell)
        for column, own, cells in zip(self.schema.columns, self.values.T, values.T, strict=True):
            if not isinstance(column, Number) or np.sum(~np.isnan(own)) < MIN_VALUES:
                continue
            low, high = np.nanmin(own), np.nanmax(own)
            # By two ranges, so that rare numbers stay below.
            far = np.flatnonzero(np.abs(cells - (low + high) / 2) > 2.5 * (high - low)).tolist()
            if far:
                tell(
                    f"{where}: {named_cells(column.name, table[column.name], far, lines)} is far "
                    f"outside the examples ({low:g} to {high:g}): check the unit; probabilities "
                    "and intervals do not hold there"
                )
        return ParsedRows(values, self.schema.words(table))

    @property
    def keys(self) -> tuple[str, ...]:
        """Free texts, and columns that are not used because they tell the rows apart, or were left
        out by name."""
        others = [k for k, why in self.schema.left_out.items() if why not in EXPECTED_REASONS]
        return (*others, *(self.schema.columns[i].name for i in self.schema.texts))

    def _outputs(self, inputs: ParsedRows) -> Outputs:
        return self._fitted(inputs)

    def interval(self, x: object, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        self.need("interval")
        centre, scale = self._fitted(self.read(x)).T
        half = widening(self._distances, level, self._independent) * scale
        return centre - half, centre + half

    @cached_property
    def _distances(self) -> Float[np.ndarray, " n"]:
        """The distance of each example's target from the prediction by the others, in scales."""
        found = [np.zeros(0)]
        for train, test in self._parts:
            centre, scale = self._left_out(train, test).T
            found.append(np.abs(self.y[test] - centre) / scale)
        return np.concatenate(found)

    def equal_examples(self, x: object) -> int:
        return equal_rows_of(self.read(x).values, self.values)

    @cached_property
    def _same(self) -> Int[np.ndarray, " n"]:
        """Equal and nearly equal rows have one number."""
        numbers = np.array([c.kind not in ("category", "text") for c in self.schema.columns])
        return equal_rows(self.values, numbers, self.y)

    def _refit(self, train: Places, test: Places) -> dict[str, np.ndarray]:
        """Predictions of the predictor, of each of its models, and of a linear model."""
        linear = LINEAR_MODEL_NAMES[self.problem.kind]
        found = {name: outputs[test] for name, outputs in self.choice.others(train).items()}
        found |= {self.model: self._left_out(train, test)}
        if linear not in found:
            found[linear] = self._fit(train, linear)(self.values[test])
        read = softmax if self.classes is not None else lambda outputs: outputs[:, :1]
        return {name: read(outputs) for name, outputs in found.items()}

    def reliability(self, groups: Any = None) -> Any:
        """See `Predictor`. It names columns that say the same as the answer. If the rows have
        times, it also says how well the earlier ones predict the last fifth."""
        found, times = super().reliability(groups), self.times
        if same := [repr(c.name) for i, c in enumerate(self.schema.columns) if self._tells(i)]:
            said = "says the same as the answer: if new rows do not have it, use --without"
            found = replace(found, notes=(f"{', '.join(same)} {said}",))
        clock = self.schema.clock
        if times is None or clock is None or np.sum(~np.isnan(times)) < 2 * MIN_VALUES:
            return found
        first = np.nanquantile(times, 0.8, method="higher")
        train, test = np.flatnonzero(times < first), np.flatnonzero(times >= first)
        own = self.groups if groups is None else checked_groups(groups, len(self.y))
        unit = units_of(self.y, self._same, own)
        alone = ~np.isin(unit[train], unit[test])
        train, shared = train[alone], own is not None and not alone.all()
        kinds = () if self.classes is None else self.classes
        rows = f"the last {len(test)} rows by {clock.name!r}"
        if len(train) < MIN_VALUES or len({*self.y[train]}) < len(kinds):
            said = f"{rows} are not predicted from those before, which are of the same groups"
            return replace(found, notes=(*found.notes, said)) if shared else found
        if self.classes is not None and len({*self.y[test]}) == 1:
            said = f"{rows} are all {self.classes[self.y[test][0]]}"
            said += f": if only their dates differ, use --without {clock.name!r}"
            return replace(found, notes=(*found.notes, said))
        outputs, y = self._refit(train, test)[self.model], self.y[test]
        rows += ", predicted from those before" + " of other groups" * shared
        said = f"error {np.sqrt(np.mean((outputs[:, 0] - y) ** 2)):.3g} (root mean square)"
        if self.classes is not None:
            usual = np.mean(y == np.bincount(self.y[train]).argmax())
            said = f"accuracy {np.mean(outputs.argmax(axis=1) == y):.0%} (always their most "
            said += f"frequent label: {usual:.0%})"
        return replace(found, notes=(*found.notes, f"{rows}: {said}"))

    def _tells(self, column: int) -> bool:
        """Whether each value of a column stands for one class, or gives the number by a line."""
        cells, y = self.values[:, column], self.y
        if len(y) < MIN_COUNTED_ROWS or np.isnan(cells).any() or np.ptp(cells) * np.ptp(y) == 0:
            return False
        if self.classes is None:
            return bool(abs(np.corrcoef(cells, y)[0, 1]) > 1 - 1e-9)
        cell, kind = np.unique(np.stack([cells, y]), axis=1)
        return len(cell) == len({*cell}) == len({*kind}) < len(y)

    def matter(self) -> dict[str, float]:
        """How much each used column matters: by how much the mean log-probability of an example's
        label (or log-density of its number) falls, when the other examples predict it and its cell
        of that column is hidden. The largest comes first."""
        parts = [(self._mean(train), test) for train, test in self._parts]

        def likely(*hidden: int) -> float:
            rows = _without(self.rows, *hidden)
            found = [self._likely(predict(rows[test]), self.y[test]) for predict, test in parts]
            return float(np.mean(np.concatenate(found))) if found else 0.0

        spoken = [i for i in self.schema.texts if self.schema.columns[i].name in self._spoken]
        usual, used = likely(), np.union1d(self._encoder.owners, spoken).astype(int).tolist()
        drops = {self.schema.columns[k].name: usual - likely(k) for k in used}
        return dict(sorted(drops.items(), key=lambda drop: -drop[1]))

    def decisive(self, x: object) -> list[str]:
        """The column of each row that changes the prediction most if its cell is hidden, and the
        probability of the label, or the number, with the cell and without it."""
        rows = self.read(x)

        def predicted(*hidden: int) -> Float[np.ndarray, " n"]:
            outputs = self._fitted(_without(rows, *hidden))
            return outputs[:, 0] if self.classes is None else softmax(outputs)[every, own]

        every, own = np.arange(len(rows)), self._fitted(rows).argmax(axis=1)
        with_it = predicted()
        without = np.stack([predicted(k) for k in range(len(self.schema.columns))], axis=1)
        change = with_it[:, None] - without
        best = (change if self.classes is not None else np.abs(change)).argmax(axis=1)
        names = [self.schema.columns[k].name for k in best]
        pairs = zip(names, with_it, without[every, best], strict=True)
        return [f"{name} ({one:.3g} to {other:.3g})" for name, one, other in pairs]

    def _likely(self, outputs: Outputs, y: np.ndarray) -> Float[np.ndarray, " n"]:
        """The log-probabilities of labels, or the log-densities of numbers."""
        if self.classes is not None:
            return np.log(softmax(outputs)[np.arange(len(y)), y] + 1e-9)
        from scipy.stats import t as student

        centre, scale = outputs.T
        return np.asarray(student.logpdf(y, DEGREES_OF_FREEDOM, centre, scale))

    def add(self, x: object, y: object, groups: object = None) -> "TablePredictor":
        """As `Predictor.add`. Columns are read as those of the first examples were, but a category
        also has the values of the new rows, unless these were read already. `groups` may be the
        name of a column; if not given, it is the one that named the groups before."""
        schema, rows, table = self.schema, x, dict[str, Cells]()
        if not isinstance(rows, ParsedRows):
            table = as_table(x)
            schema = schema.widened(table)
            tell = partial(warnings.warn, stacklevel=3)
            rows = ParsedRows(schema.parse(table, tell=tell), schema.words(table))
        named = [name for name, why in schema.left_out.items() if why == NAMES_GROUPS]
        column = normal(groups) if isinstance(groups, str) else "".join(named)
        if isinstance(groups, str) and column not in table:
            raise ValueError(
                f"no column {column!r} to group by; the columns are {', '.join(table)}"
            )
        if (groups is None or isinstance(groups, str)) and column in table:
            groups = _groups(column, table[column], False, "the new rows", None)
        answers, groups = self._joined(y, len(rows), groups)
        words = zip(self.rows.words, rows.words, strict=True)
        values = np.concatenate([self.values, rows.values])
        rows = ParsedRows(values, tuple(csr_array(vstack(both)) for both in words))
        answered = _answers(answers, self.learner, len(values))
        if (times := self.times) is not None:
            clock, later = schema.clock, np.full(len(values) - len(times), np.nan)
            if clock is not None and clock.name in table:
                later = clock.parse(table[clock.name])[0]
            times = np.append(times, later)
        added = TablePredictor(self.learner, schema, rows, *answered, groups, times)
        added.target = self.target
        return added

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the learner's, and its examples as they came. **Raises** `RunError`
        if it cannot be written."""
        classes = None if self.classes is None else self.classes.tolist()
        task = {"classes": classes, "flat": True, "target": self.target}
        task |= {"reader": msgspec.to_builtins(self.schema)}
        if self.learner.estimator is not None:
            task |= {"estimator": facts_of(self.learner.estimator)}
        support = {"x": self.values, "y": self.y}
        more = {"groups": self.groups, "times": self.times}
        support |= {name: each for name, each in more.items() if each is not None}
        for i, counts in enumerate(self.rows.words):
            support |= {f"words{i}_{part}": getattr(counts, part) for part in _CSR_PARTS}
        if words := self._words(np.arange(len(self.y))):
            support["spoken"] = np.array([[one.column, one.weight] for one in words])
        for i, one in enumerate(words):
            support |= {f"spoken{i}_rows": one.rows, f"spoken{i}_dual": one.dual}
        support["weights"] = np.array([self.weights.get(k, 0.0) for k in self.choice.models])
        write_learner(self.learner, folder, support=support, task=task)

    def __repr__(self) -> str:
        kinds = "" if self.classes is None else f"{len(self.classes)} classes, "
        return f"{type(self).__name__}({kinds}{len(self.y)} examples; {self.learner.about})"


def _without(rows: ParsedRows, *hidden: int) -> ParsedRows:
    """Rows whose cells of these columns are missing."""
    values = rows.values.copy()
    values[:, [*hidden]] = np.nan
    return replace(rows, values=values)


def widening(
    distances: Float[np.ndarray, " n"], level: float, independent: int | None = None
) -> float:
    """The half width of an interval in scales, if it should hold about `level` of the targets: see
    `conformal_rank`. If there are too few `distances` of examples, it is the larger of the largest
    distance and the quantile of the distribution. **Raises** as `conformal_rank`."""
    rank = conformal_rank(level, len(distances), independent)
    if rank is not None:
        return float(np.sort(distances)[rank - 1])
    # Here, because SciPy takes a third of a second to load.
    from scipy.special import stdtrit

    return float(np.max(distances, initial=stdtrit(DEGREES_OF_FREEDOM, (1 + level) / 2)))


def learned(
    learner: FewShotLearner,
    x: object,
    y: object,
    *,
    where: str = "the table",
    lines: Sequence[int] | None = None,
    without: Sequence[str] = (),
    keep: Sequence[str] = (),
    dates: Dates | None = None,
    groups: object = None,
    fill_down: bool = False,
    category: Sequence[str] = (),
    order: str | None = None,
) -> TablePredictor:
    """The predictor of the rows `x` (see `as_table`) with the labels or targets `y`.

    **Arguments**

    - `where`, `lines`: what errors call the table, and its rows.
    - `without`: columns that are not used.
    - `keep`, `dates`: see `schema_of`.
    - `groups`: a value for each row, or the name of a column with such values, which is not used
      otherwise. Rows with the same value are left out together wherever rows are.
    - `fill_down`: whether a row without a group belongs to that of the row above.
    - `category`: columns whose numbers are codes.
    - `order`: the column by which rows are ordered in time; if not given, the column of dates that
      rises or falls most with the rows.

    **Raises** `ValueError` in one line for rows or labels that cannot be learned.
    """
    table, group = as_table(x), [groups] if isinstance(groups, str) else []
    asked = without, keep, group, category, [order] if order else []
    without, keep, group, category, ordered = ([*map(normal, names)] for names in asked)
    wanted = {"leave out": without, "keep": keep, "group by": group, "use as a category": category}
    for what, names in (wanted | {"order by": ordered}).items():
        if odd := [name for name in names if name not in table]:
            known = ", ".join(table)
            raise ValueError(f"{where}: no column {odd[0]!r} to {what}; the columns are {known}")
    n = len(next(iter(table.values())))
    if not n:
        raise ValueError("no rows: give some examples")
    places, classes = _answers(y, learner, n)
    if classes is not None:
        numbers, others = Number("").parse(classes.tolist())
        if len(classes) > max(ALLOWED_LEVELS, n / 4) and not others and np.any(numbers % 1):
            raise ValueError(
                f"{where}: expected classes, got {len(classes)} different numbers in {n} rows: "
                "predict numbers (the learner tables-regression)"
            )
    table |= {name: Declared(table[name], ()) for name in category}
    named = _groups(group[0], table[group[0]], fill_down, where, lines) if group else []
    together = checked_groups(named or groups, n)
    used = {name: cells for name, cells in table.items() if name not in (*without, *group)}
    schema = schema_of(used, places, where=where, lines=lines, dates=dates, keep=keep)
    reasons = {**dict.fromkeys(without, LEFT_OUT), **dict.fromkeys(group, NAMES_GROUPS)}
    texts = classes.tolist() if classes is not None and classes.dtype.kind == "U" else []
    labels = np.asarray(y).tolist()
    last = sums({"the label": labels}, lines) if texts and labels.count(labels[-1]) == 1 else ()
    odd = [text for text in texts if missing(text) or not any(map(str.isalnum, text))]
    if odd and "+" not in texts:
        last = (*last, f"labels: {', '.join(odd)} count as classes: empty these cells if unknown")
    hints = (*schema.hints, *alike(texts, "labels"), *alike(named, "groups"), *last)
    clock, times = _times(
        table, schema, ordered[0] if ordered else None, Origin(where, lines, dates)
    )
    schema = replace(schema, left_out={**reasons, **schema.left_out}, hints=hints, clock=clock)
    rows = ParsedRows(schema.parse(table, where, lines), schema.words(table))
    return TablePredictor(learner, schema, rows, places, classes, together, times)


def _answers(y: object, learner: TaskLearner, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The index of each label among the classes, and the classes; or float64 targets, and None."""
    if learner.problem.kind == "regression":
        return checked_targets(y, learner.problem, n)[0].ravel(), None
    return checked_labels(y, n)[::-1]


def _groups(
    name: str, cells: Cells, fill_down: bool, where: str, lines: Sequence[int] | None
) -> list[str]:
    """The group of each row. **Raises** `ValueError` for rows without one."""
    gaps = [i for i, cell in enumerate(cells) if no_group(cell)]
    if gaps and (not fill_down or gaps[0] == 0):
        rows = ", ".join(str(lines[i] if lines is not None else i + 1) for i in gaps[:MIN_VALUES])
        rows += ", ..." * (len(gaps) > MIN_VALUES)
        raise ValueError(
            f"{where}: no group in column {name!r} of row {rows}: "
            "fill the cells, or give --fill-down (fill_down=True) if they continue the row above"
        )
    return [text_of(cell) for cell in _filled_down(cells)]


def _filled_down(cells: Cells) -> list[AnyCell]:
    """The cells of a column of groups; an empty one becomes the one above."""
    filled: list[AnyCell] = []
    for cell in cells:
        filled.append(filled[-1] if filled and no_group(cell) else cell)
    return filled


def _times(
    table: Mapping[str, Cells], schema: Schema, asked: str | None, origin: Origin
) -> tuple[AnyColumn | None, Float[np.ndarray, " n"] | None]:
    """The column by which rows are ordered in time, and its values."""
    dates = [column.name for column in schema.columns if column.kind == "date"]
    best: tuple[float, Any, Any] = -1.0, None, None
    for name in [asked] if asked else [*dates, *schema.left_out]:
        with contextlib.suppress(UnusedColumn, OddCells):
            column, _ = column_of(name, table[name], origin)
            times = column.parse(table[name])[0]
            known = np.flatnonzero(~np.isnan(times))
            if column.kind == "date" or (asked and column.kind in ("number", "time")):
                with np.errstate(all="ignore"):
                    rises = abs(np.nan_to_num(np.corrcoef(times[known], known)[0, 1]))
                best = max(best, (float(rises), column, times), key=lambda one: one[0])
    if asked and best[1] is None:
        raise ValueError(f"{origin.where}: {asked!r} gives no order: name numbers or dates")
    return best[1:]


def learned_table(
    learner: TaskLearner, sheet: Sheet, target: str | None, **options: Any
) -> tuple[TablePredictor, Sheet, Sheet]:
    """Learn the column `target` of a table as people have it: rows whose cell there is empty are no
    examples. `options` go to `learned`. Returns the predictor, and the other columns of the rows
    that are examples, and of those that are not.

    **Raises** `ValueError` in one line for a table that cannot be learned.
    """
    assert isinstance(learner, FewShotLearner)
    regression, where = learner.problem.kind == "regression", sheet.where
    group = normal(str(options.get("groups")))
    if options.get("fill_down") and group in sheet.cells:  # also from rows that are no examples
        sheet = sheet._replace(cells={**sheet.cells, group: _filled_down(sheet.cells[group])})
    y: Any
    y, known, unknown = sheet.answered(target, regression)
    name, remarks = normal(str(target)), list[str]()
    if len(y) < 2:
        raise ValueError(
            f"{where}: expected two or more rows with a value in {name!r}, got {len(y)}: fill some"
        )
    if regression:
        y, remarks = targets_in(name, y, where, known.lines)
    elif len(set(y)) > max(len(y) / 2, 2):
        raise ValueError(
            f"{where}: {name!r} has {len(set(y))} different values in {len(y)} rows, too many for "
            "classes: give more rows, or predict numbers (the learner tables-regression)"
        )
    predictor = learned(learner, known.cells, y, where=where, lines=known.lines, **options)
    predictor.target = name
    predictor.schema = replace(predictor.schema, hints=(*predictor.schema.hints, *remarks))
    return predictor, known, unknown
