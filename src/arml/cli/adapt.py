"""`arml adapt` and `predict`: from one's own examples to predictions."""

import csv
import dataclasses
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tyro.conf import Positional

from arml.cli.answers import labels_of, numbers_of
from arml.cli.console import command, parse, tell
from arml.cli.errors import UsageError
from arml.cli.inputs import (
    Queries,
    check_kind,
    check_pictures,
    check_places,
    check_there,
    embedded,
    photographs_of,
    pictures_of,
    tell_left_out,
)
from arml.cli.marking import equal_to_known, marks_of, warn_of_known
from arml.cli.tables import adapted_table, is_table, numbers, of_tables, query_table, rows_of
from arml.results.files import write_text

if TYPE_CHECKING:
    pass

FEW = 2_000
"""Pictures up to which all are read before anything is learned."""
NONE = "none of these"
"""The label of queries that may belong to none of the classes."""
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

    learner: Positional[Path | None] = None
    """A run folder, an exported learner, one of the package (photos, starter, tables,
    tables-regression, regression2d), or an ONNX model of pictures. If none is named, pictures are
    learned by photos; but by starter, which was trained on drawings, if most of them are grey and
    starter predicts the examples better."""
    support: Path = dataclasses.field(kw_only=True)
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
    reliability: bool = True
    """Leave examples out, predict them from the others, and report the accuracy, or the error of
    numbers. It learns anew for each of ten folds or fewer, and for folds of these."""
    uses: Literal["auto", "learner", "logistic", "edges", "process", "ensemble"] = "auto"
    """The model that predicts: the learner, logistic regression on the inputs (pixels) or on the
    edges of pictures, a Gaussian process for numbers, or the ensemble of all of them, with weights
    from examples that are left out. `auto` is the ensemble where there is one, and with
    --no-reliability the learner."""
    none: bool = False
    """Answer "none of these" for queries whose class is less probable than that of 95% of the
    examples when these are left out."""


def adapt_command(arguments: Sequence[str]) -> int:
    """Learn a task from your own few examples, and predict"""
    options = parse(AdaptOptions, arguments, prog="arml adapt")
    if not options.query and options.save is None:
        raise UsageError("expected --query FILES or --save FOLDER, got neither: give one or both")
    check_there(options.support, *options.query)
    check_places(options.out, options.save, options.support, *options.query)
    model = _network(options)
    if model is not None:
        return _photographs(options, model)
    return _learned(options)


def _network(options: AdaptOptions) -> Path | None:
    """The ONNX model of pictures that the options name, or imply; None for any other learner."""
    from arml.datasets.features import PHOTOS

    if options.learner is None and is_table(options.support):
        raise UsageError(
            "a table needs a learner: arml adapt tables (classes) or arml adapt tables-regression "
            "(numbers)"
        )
    named = options.learner
    if named is None or (str(named) == "photos" and not (named / "config.json").exists()):
        return PHOTOS
    return named if named.suffix == ".onnx" and named.is_file() else None


def _photographs(options: AdaptOptions, model: Path) -> int:
    """Learn from pictures by a frozen network. It imports no JAX, unless `starter` is tried."""
    from arml.datasets.folders import open_source
    from arml.predict.photos import PhotoLearner

    if is_table(options.support):
        raise UsageError(f"{options.learner} reads pictures: the table needs the learner tables")
    check_pictures(options.query, options.target)
    if options.matter:
        raise UsageError("expected no --matter, because pictures have no columns: leave it out")
    learner = PhotoLearner(model)
    seen = photographs_of(learner, options.query) if options.query else None
    if seen is not None and len(seen.names) <= FEW:
        # So that a picture that cannot be read is named before anything is learned.
        seen = Queries(seen.names, list(seen.batches))
    with open_source(options.support) as source:
        vectors, labels = embedded(learner, source.pictures), source.labels
    tell_left_out(source.left_out)
    if len(vectors) > 1 and not np.any(vectors != vectors[0]):
        raise ValueError(
            f"{options.support}: all {len(vectors)} pictures are identical: they cannot tell the "
            "classes apart"
        )
    predictor = learner.adapt(vectors, labels)
    if options.learner is None and options.uses in ("auto", "learner"):
        better, said = _better(predictor, options.support, labels)
        tell(said)
        if better == "starter":
            return _learned(dataclasses.replace(options, learner=Path("starter")))
    if options.uses not in ("auto", *predictor.models):
        raise UsageError(f"--uses {options.uses} is not for photographs: leave it out")
    return _finish(predictor, options, source.files, seen)


def _better(predictor: Any, support: Path, labels: Sequence[str]) -> tuple[str, str]:
    """The learner that predicts the examples better, and the reason in words."""
    from arml.datasets.decode import decoded
    from arml.datasets.folders import labelled_images, open_source
    from arml.predict.photos import SMALL, mostly_grey, sampled, starter_is_better

    def starter() -> Any:
        from arml.predict.learner import load

        small, _ = labelled_images(support, size=SMALL)
        found = load("starter").adapt(small, labels)
        return found.using(found.models[-1])

    with open_source(support) as opened:
        grey = mostly_grey(decoded(sampled(opened.pictures), size=SMALL))
    if not grey:
        return "photos", "learner: photos (a network that was trained on photographs)"
    better, said = starter_is_better(predictor, starter)
    name = "starter" if better else "photos"
    return name, f"learner: {name} (the pictures are grey like drawings, and {said})"


def _learned(options: AdaptOptions) -> int:
    """Learn by a meta-trained learner."""
    from arml.datasets.folders import labelled_images
    from arml.predict.files import locate
    from arml.predict.inputs import picture_reader
    from arml.predict.learner import FewShotLearner, load
    from arml.predict.models import check_model

    assert options.learner is not None
    place, note = locate(options.learner)
    if note is not None:
        tell(note)
    table = is_table(options.support)
    learner = load(place)
    assert isinstance(learner, FewShotLearner)  # others are of photographs, for `_photographs`
    check_kind(learner, table, f"{options.support}", options.learner.name)
    if options.uses != "auto":
        check_model(options.uses, learner.problem)
    if not table:
        check_pictures(options.query, options.target)
        if options.matter:
            raise UsageError("expected no --matter, because pictures have no columns: leave it out")
    reader = None if table else picture_reader(learner, options.model)
    seen: Queries | None = None
    if options.query and reader is not None:
        files, batches, _ = pictures_of(reader, options.query)
        # So that a picture that cannot be read is named before anything is learned.
        seen = Queries(files, list(batches) if len(files) <= FEW else batches)
    if reader is not None:
        pictures, source = labelled_images(options.support, size=reader.size, crop=reader.crop)
        tell_left_out(source.left_out)
        predictor = learner.adapt(reader.read(pictures), source.labels)
        names = source.files
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
    if options.none and predictor.classes is None:
        raise UsageError("numbers have no classes that a query could lack: leave --none out")
    predictor = _checked(predictor, options, names)
    if options.matter and of_tables(predictor):
        drops = sorted(predictor.matter().items(), key=lambda drop: -drop[1])
        shown = ", ".join(f"{name} {drop:.2f}" for name, drop in drops[:MATTER])
        tell(f"columns that matter (log-probability lost without each): {shown}")
    if options.query:
        asked = seen or rows_of(predictor, options.query, options.target)
        _answer(predictor, asked, options, pictures=seen is not None)
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
    none: bool = False
    """Answer "none of these" for queries whose class is less probable than that of 95% of the
    examples when these are left out."""
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
    from arml.predict.photos import is_photo_predictor, load_photo_predictor

    table = is_table(*options.query)
    if is_photo_predictor(options.predictor) and not table:
        check_pictures(options.query, options.target)
        known = load_photo_predictor(options.predictor, options.model)
        asked = photographs_of(known.learner, options.query)
        _answer(known, asked, options, pictures=True)
        return 0
    from arml.predict.inputs import picture_reader
    from arml.predict.learner import load_predictor

    predictor = load_predictor(options.predictor)
    check_kind(predictor, table, ", ".join(map(str, options.query[:3])), options.predictor.name)
    if not table:
        check_pictures(options.query, options.target)
    reader = None if table else picture_reader(predictor, options.model)
    target = options.target or predictor.target
    pictures = None if reader is None else pictures_of(reader, options.query)
    found = pictures or rows_of(predictor, options.query, target)
    _answer(predictor, found, options, pictures=pictures is not None)
    return 0


def _checked(predictor: Any, options: AdaptOptions, names: Sequence[str]) -> Any:
    """The predictor with the model that the options name, checked."""
    from arml.predict.photos import PhotoPredictor

    if isinstance(predictor, PhotoPredictor):  # there is one model, and the import below loads JAX
        if options.reliability:
            tell(*predictor.reliability().lines(names))
        return predictor
    from arml.predict.models import ENSEMBLE, LEARNER, WORDS

    if not of_tables(predictor):
        best = predictor.models[-1] if options.reliability else LEARNER
        predictor = predictor.using(best if options.uses == "auto" else options.uses)
    if options.reliability:
        found = predictor.reliability()
        tell(*found.lines(names))
        # Of tables, the other models are there for comparison: none of them can be chosen.
        other = not of_tables(predictor) and found.best != found.model
        if other and found.model != ENSEMBLE:
            tell(f"{WORDS[found.best]} would be better: --uses {found.best}")
    if not of_tables(predictor) and predictor.model == ENSEMBLE:
        each = ", ".join(f"{WORDS[name]} {share:.0%}" for name, share in predictor.weights.items())
        tell(f"predicting with a weighted mean: {each}; --uses learner takes the learner alone")
    return predictor


def _describe(predictor: Any) -> None:
    """Print the number of examples, and a warning if they are unlike all that the learner knows."""
    classes = predictor.classes
    kind = f"{len(classes)} classes" if classes is not None else "regression"
    tell(f"learned from {len(predictor.y)} examples ({kind})")
    known = predictor.portable.novelty
    # A low novelty is no assurance, so only a high one is told.
    if known is not None and (novelty := float(predictor.novelty(predictor.x).mean())) > 1:
        tell(
            f"novelty {novelty:.2f}: these examples are unlike the learner's training data "
            f"({', '.join(predictor.portable.families)}); check the predictions"
        )


def _strange(predictor: Any, chances: np.ndarray, novelty: np.ndarray) -> np.ndarray:
    """Which queries may belong to none of the classes: photographs by their novelty, others if the
    probability of their class is below that of 95% of the examples when these are left out."""
    if len(novelty):
        return novelty > 1
    least: float = predictor.reliability().threshold()
    return chances.max(axis=1) < least


def _answer(
    predictor: Any, asked: Queries, options: AdaptOptions | PredictOptions, *, pictures: bool
) -> None:
    """Write the answers; of `pictures`, also how right they are where their folders are labels."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names, batches, keys = asked
    marked: list[str] = []
    rows: Iterable[list[object]]
    if predictor.classes is None:
        rows = numbers_of(predictor, names, batches, options.level)
    else:
        known = predictor.portable.novelty is not None
        chances, novelty, same = [], list[float](), 0
        for batch in batches:
            chances.append(predictor.predict_proba(batch))
            novelty += predictor.novelty(batch).tolist() if known else []
            same += equal_to_known(batch, predictor.x) if pictures else 0
        every = np.concatenate(chances)
        strange = _strange(predictor, every, np.asarray(novelty)) if options.none else None
        rows = labels_of(predictor, names, every, novelty, NONE, strange)
        marked = marks_of(names, every, predictor.classes) if pictures else []
        warn_of_known(same, len(every), "pictures")
    named = zip(*([name, *cells] for name, cells in keys.items()), strict=True) if keys else None
    for row in rows:
        writer.writerow(row if named is None else [row[0], *next(named), *row[1:]])
    if options.out is None:
        sys.stdout.write(text.getvalue())
    else:
        write_text(options.out, text.getvalue())
        tell(f"written to {options.out}")
    tell(*marked)
