"""`arml adapt` and `predict`: from one's own examples to predictions."""

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tyro.conf import Positional

from arml.cli.answers import labels_of, numbers_of, vertices
from arml.cli.console import command, parse, tell
from arml.cli.errors import UsageError
from arml.cli.inputs import (
    Queries,
    check_kind,
    check_pictures,
    check_places,
    check_there,
    pictures_of,
    tell_left_out,
)
from arml.cli.marking import marks_of
from arml.cli.tables import adapted_table, is_table, numbers, of_tables, query_table, rows_of
from arml.predict.eye import eye_of
from arml.predict.simple import WORDS, check_uses, choices
from arml.results.files import write_text

if TYPE_CHECKING:
    from arml.predict.predictor import Predictor
    from arml.predict.quick import QuickPredictor

MATTER = 8
"""How many columns are named as the ones that matter most."""


@dataclass(frozen=True)
class AdaptOptions:
    """Learn a task from a few labelled examples, and predict.

    Images: a folder (or zip) with one folder for each class, and files or folders to predict.
    Tables: CSV files with a header; --target names the column to predict, and the other columns
    are the inputs. The learners tables (classes) and tables-regression (numbers) take any columns:
    numbers, dates, categories, and missing cells.
    """

    learner: Positional[Path]
    """A run folder, an exported learner, one of the package (starter, tables,
    tables-regression, regression2d), or an ONNX model of pictures."""
    support: Path
    """The labelled examples: a folder or zip with one folder for each class, or a CSV file."""
    query: tuple[Path, ...] = ()
    """What to predict: images, folders (with all their subfolders), or one CSV file."""
    target: str | None = None
    """Column of a CSV file to predict."""
    without: tuple[str, ...] = ()
    """Columns that are not used, such as numbers of the rows; the answers repeat them."""
    level: float = 0.9
    """How many of new numbers the intervals of a regression hold: about this share."""
    model: Path | None = None
    """The ONNX model that computed the features, if the learner uses another than the default."""
    out: Path | None = None
    """Write the answers to this CSV file instead of the terminal."""
    save: Path | None = None
    """Save the predictor in this folder, for `arml predict`."""
    matter: bool = False
    """Print which columns of a table matter: how much worse the examples are predicted without
    each. It needs a learner of tables, and adapts once more for each example and column."""
    trust: bool = True
    """Predict each example from the others, and report the accuracy, or the error of numbers. It
    takes one adaptation for each example, or ten if there are many."""
    uses: Literal["auto", "learner", "inputs", "edges", "process", "together"] = "auto"
    """The means to predict: the learner, logistic regression on the inputs (pixels) or on the edges
    of pictures, a Gaussian process for numbers, or all of them together, each with a share that
    --trust finds. `auto` is `together`, and with --no-trust `learner`."""


def adapt_command(arguments: Sequence[str]) -> int:
    """Learn a task from your own few examples, and predict"""
    options = parse(AdaptOptions, arguments, prog="arml adapt")
    if not options.query and options.save is None:
        raise UsageError("expected --query FILES or --save FOLDER, got neither: give one or both")
    if options.uses == "together" and not options.trust:
        raise UsageError(
            "expected no --no-trust with --uses together, because the check finds the shares: "
            "leave one of them out"
        )
    # Before JAX is imported, which takes a second or two.
    check_there(options.support, *options.query)
    check_places(options.out, options.save, options.support, *options.query)
    from arml.datasets.folders import labelled_files, labelled_images
    from arml.predict.quick import FEW
    from arml.predict.shared import locate

    place, note = locate(options.learner)
    if note is not None:
        tell(note)
    table = is_table(options.support)
    learner = _learner(place, () if table else options.query, table)
    check_kind(learner, table, f"{options.support}", options.learner.name)
    if options.uses != "auto":
        check_uses(options.uses, choices(learner.problem))
    if not table:
        check_pictures(options.query, options.target)
        if options.matter:
            raise UsageError("expected no --matter, because pictures have no columns: leave it out")
    model = place if place.suffix == ".onnx" else options.model
    eye = None if table else eye_of(learner, model)
    seen: Queries | None = None
    if options.query and eye is not None:
        files, batches, _ = pictures_of(eye, options.query)
        # So that a picture that cannot be read is named before anything is learned.
        seen = Queries(files, list(batches) if len(files) <= FEW else batches)
    if eye is not None:
        pictures, labels = labelled_images(options.support, size=eye.size)
        tell_left_out([options.support])
        predictor = learner.adapt(eye.read(pictures), labels)
        names = labelled_files(options.support)
    else:
        from arml.tables.sheet import read_cells, read_numbers

        if options.target is None:
            raise UsageError(
                f"expected --target COLUMN for a table, got none: name the column to predict, one "
                f"of {', '.join(read_cells(options.support)[0])}"
            )
        if of_tables(learner):
            asked = options.support, options.target, options.without, options.query
            predictor, names = adapted_table(learner, *asked)
            return _finish(predictor, options, names, seen)
        rows = read_numbers(options.support, target=options.target)
        if rows.target is None:
            raise ValueError(
                f"{options.support}: expected a column {options.target!r}, got "
                f"{', '.join(rows.columns)}: name one of these with --target"
            )
        if len(rows.x) > 1 and np.all(rows.x == rows.x[0]):
            raise ValueError(
                f"{options.support}: all {len(rows.x)} rows are identical: check the table"
            )
        if options.query:
            query_table(options.query, options.target, rows.columns)
        y: Sequence[float] | Sequence[str] = rows.target
        if learner.problem.kind == "regression":
            y = numbers(rows.target, rows.lines, options.support)
        predictor = learner.adapt(rows.x, y)
        predictor.columns, predictor.target = rows.columns, options.target
        names = [f"row {line}" for line in rows.lines]
    return _finish(predictor, options, names, seen)


def _finish(
    predictor: Any, options: AdaptOptions, names: Sequence[str], seen: Queries | None
) -> int:
    """Check, answer and save. `seen` are the pictures to predict."""
    _describe(predictor)
    predictor = _checked(predictor, options, names)
    if options.matter and of_tables(predictor):
        drops = sorted(predictor.matter().items(), key=lambda drop: -drop[1])
        shown = ", ".join(f"{name} {drop:.2f}" for name, drop in drops[:MATTER])
        tell(f"columns that matter (log-probability lost without each, in nats): {shown}")
    if options.query:
        asked = seen or rows_of(predictor, options.query, options.target)
        _answer(predictor, asked, options.out, options.level, mark=seen is not None)
    if options.save is not None:
        predictor.save(options.save)
        next_ = command("predict", str(options.save))
        tell(f"predictor saved in {options.save}; next: {next_} FILES")
    return 0


@dataclass(frozen=True)
class PredictOptions:
    """Predict with a predictor that `arml adapt --save` saved."""

    predictor: Positional[Path]
    """Folder of the predictor."""
    query: Positional[tuple[Path, ...]]
    """Images, folders (with all their subfolders), or one CSV file."""
    target: str | None = None
    """Column of the CSV file to leave out; the --target of `arml adapt` if not given."""
    level: float = 0.9
    """How many of new numbers the intervals of a regression hold: about this share."""
    model: Path | None = None
    """The ONNX model that computed the features, if the learner uses another than the default."""
    out: Path | None = None
    """Write the answers to this CSV file instead of the terminal."""


def predict_command(arguments: Sequence[str]) -> int:
    """Predict with a saved predictor"""
    options = parse(PredictOptions, arguments, prog="arml predict")
    if not options.query:
        raise UsageError(
            "expected queries after the predictor's folder, got none: name images, folders or a "
            "CSV file"
        )
    check_there(*options.query)
    check_places(options.out, None, *options.query)
    from arml.predict.quick import opened_predictor

    table = is_table(*options.query)
    predictor = opened_predictor(options.predictor, options.query, table=table)
    check_kind(predictor, table, ", ".join(map(str, options.query[:3])), options.predictor.name)
    if not table:
        check_pictures(options.query, options.target)
    eye = None if table else eye_of(predictor, options.model)
    target = options.target or predictor.target
    pictures = None if eye is None else pictures_of(eye, options.query)
    asked = pictures or rows_of(predictor, options.query, target)
    _answer(predictor, asked, options.out, options.level, mark=pictures is not None)
    return 0


def _learner(place: Path, query: Sequence[Path], table: bool) -> Any:
    """The learner, in NumPy if that answers sooner."""
    from arml.predict.quick import few, quick_learner

    quick = quick_learner(place)
    if quick is not None and (table or few(query)):  # `check_kind` refuses a table
        return quick
    from arml.predict.learner import load

    return load(place)


def _checked(
    predictor: Any, options: AdaptOptions, names: Sequence[str]
) -> "Predictor | QuickPredictor":
    """The predictor with the means that the options name, checked."""
    if of_tables(predictor):
        pass
    elif options.uses != "auto":
        predictor = predictor.using(options.uses)
    elif options.trust:
        predictor = predictor.using(choices(predictor.problem)[-1])
    if not options.trust:
        return predictor
    if of_tables(predictor):
        tell(*predictor.reliability().lines(names))
        return predictor
    trust = predictor.errors() if predictor.classes is None else predictor.trust()
    tell(*trust.lines(names))
    if predictor.uses == "together":
        each = ", ".join(f"{WORDS[name]} {share:.0%}" for name, share in trust.shares.items())
        tell(f"predicting with a weighted mean: {each}; --uses learner takes the learner alone")
    elif trust.best != predictor.uses:
        tell(f"{WORDS[trust.best]}: better, with --uses {trust.best}")
    return predictor


def _describe(predictor: "Predictor | QuickPredictor") -> None:
    """Print the number of examples, and how far the examples are from meta-training."""
    classes = predictor.classes
    kind = f"{len(classes)} classes" if classes is not None else "regression"
    tell(f"learned from {len(predictor.y)} examples ({kind})")
    reading = predictor.reading()
    if reading is not None:
        tell(f"read from the meta-knowledge graph: {vertices(reading.mean(axis=0))}")
    if predictor.portable.novelty is not None:
        novelty, known = predictor.support_novelty(), ", ".join(predictor.portable.families)
        said = "these examples are unlike the learner's training data ({}); check the predictions"
        if novelty <= 1:
            said = "these examples are as near to the learner's training data ({}) as new tasks of "
            said += "the same families; this does not guarantee correct predictions"
        tell(f"novelty {novelty:.2f}: {said.format(known)}")


def _answer(predictor: Any, asked: Queries, out: Path | None, level: float, *, mark: bool) -> None:
    """Write the answers; with `mark`, how right they are where the files' folders are labels."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names, batches, keys = asked
    marked: list[str] = []
    rows: Iterable[list[object]]
    if predictor.classes is None:
        rows = numbers_of(predictor, names, batches, level)
    else:
        known = predictor.portable.novelty is not None
        answers = [
            (predictor.predict_proba(batch), predictor.novelty(batch) if known else None)
            for batch in batches
        ]
        chances = np.concatenate([chance for chance, _ in answers])
        novelty = [one for _, some in answers if some is not None for one in some]
        rows = labels_of(predictor, names, chances, novelty)
        marked = marks_of(names, chances, predictor.classes) if mark else []
    named = zip(*([name, *cells] for name, cells in keys.items()), strict=True) if keys else None
    for row in rows:
        writer.writerow(row if named is None else [row[0], *next(named), *row[1:]])
    if out is None:
        sys.stdout.write(text.getvalue())
    else:
        write_text(out, text.getvalue())
        tell(f"written to {out}")
    tell(*marked)
