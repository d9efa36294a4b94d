"""`arml adapt` and `predict`: from one's own examples to predictions."""

import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import parse, say
from arml.cli.errors import UsageError
from arml.results.files import write_text

ENOUGH = 9
"""Examples from which 90% intervals can be made."""


@dataclass(frozen=True)
class AdaptOptions:
    """Learn a task from a few labelled examples, and predict.

    Images: a folder (or zip) with one folder a class, and files or folders to predict. Tables: CSV
    files with a header, and the column that --target names; the other columns are the inputs.
    """

    learner: Positional[Path]
    """A run folder, a learner that was exported, or one that ships: starter, regression2d."""
    support: Path
    """The labelled examples: a folder or zip with one folder a class, or a CSV file."""
    query: tuple[Path, ...] = ()
    """What to predict: images, folders (searched to their depths), or one CSV file."""
    target: str | None = None
    """Column of a CSV file to predict."""
    model: Path | None = None
    """The ONNX model of a learner on frozen features, unless it is the one that ships."""
    out: Path | None = None
    """Write the answers to this CSV file, and not to the terminal."""
    save: Path | None = None
    """Keep the predictor in this folder, for `arml predict`."""
    trust: bool = True
    """Predict each example from the others and report how well that works. It takes one adaptation
    an example, or ten where there are many."""


def adapt_command(arguments: Sequence[str]) -> int:
    """Learn a task from your own few examples, and predict"""
    options: AdaptOptions = parse(AdaptOptions, arguments, prog="arml adapt")
    if not options.query and options.save is None:
        raise UsageError("expected --query or --save, got neither: give one; see --help")
    from arml.datasets.own import labelled_files, labelled_images, read_table
    from arml.predict.predictor import load
    from arml.predict.sharing import locate

    place, note = locate(options.learner)
    if note is not None:
        say(Console(stderr=True), note)
    learner = load(place)
    table = options.support.suffix.lower() == ".csv"
    eye = None if table else _eye(learner, options.model)
    if eye is not None:
        pictures, labels = labelled_images(options.support, size=eye.size)
        predictor = learner.adapt(eye.read(pictures), labels)
        names = labelled_files(options.support)
    else:
        if options.target is None:
            raise UsageError("expected --target COLUMN for a table, got none: name the column")
        rows = read_table(options.support, target=options.target)
        if rows.target is None:
            raise ValueError(
                f"{options.support}: expected a column {options.target!r}, got "
                f"{', '.join(rows.columns)}: name one of these with --target"
            )
        _check_columns(options.support, rows.x)
        y: Sequence[float] | Sequence[str]
        regression = learner.problem.kind == "regression"
        texts = rows.target
        y = [_number(text, options.support) for text in texts] if regression else texts
        predictor = learner.adapt(rows.x, y)
        predictor.columns, predictor.target = rows.columns, options.target
        names = [f"row {line}" for line in rows.lines]
    _describe(predictor, Console(stderr=True))
    if options.trust and predictor.classes is not None:
        for line in predictor.trust().lines(names):
            say(Console(stderr=True), line)
    if options.query:
        _answer(predictor, eye, options.query, options.target, options.out)
    if options.save is not None:
        predictor.save(options.save)
        say(Console(stderr=True), f"the predictor is kept in {options.save}")
    return 0


@dataclass(frozen=True)
class PredictOptions:
    """Predict with a predictor that `arml adapt --save` kept."""

    predictor: Positional[Path]
    """Folder of the predictor."""
    query: Positional[tuple[Path, ...]]
    """Images, folders (searched to their depths), or one CSV file."""
    target: str | None = None
    """Column of the CSV file to leave out, unless it is the one that `arml adapt` was told."""
    model: Path | None = None
    """The ONNX model of a learner on frozen features, unless it is the one that ships."""
    out: Path | None = None
    """Write the answers to this CSV file, and not to the terminal."""


def predict_command(arguments: Sequence[str]) -> int:
    """Predict with a predictor that was kept"""
    options: PredictOptions = parse(PredictOptions, arguments, prog="arml predict")
    from arml.predict.predictor import load_predictor

    predictor = load_predictor(options.predictor)
    table = [path.suffix.lower() for path in options.query] == [".csv"]
    eye = None if table else _eye(predictor, options.model)
    target = options.target or predictor.target
    _answer(predictor, eye, options.query, target, options.out)
    return 0


class Eye(NamedTuple):
    """How a learner takes pictures."""

    size: int
    """Pixels a side."""
    read: Callable[[np.ndarray], np.ndarray]
    """From pixels to its inputs."""


def _eye(owner: Any, model: Path | None) -> Eye | None:
    """None for a learner of tables."""
    if len(owner.problem.features) == 3:
        if model is not None:
            raise UsageError("expected no --model for a learner on pixels, got one: leave it out")
        return Eye(owner.problem.features[0], lambda pixels: pixels)
    if owner.portable.inputs is None:
        return None
    from arml.datasets.extractor import remade

    extractor = remade(owner.portable.inputs, model)
    return Eye(extractor.size, extractor)


def _number(text: str, path: Path) -> float:
    from arml.datasets.own import NUMBER

    if not NUMBER.fullmatch(text.strip()):
        raise ValueError(
            f"{path}: expected numbers to predict, got {text!r}: choose another --target"
        )
    return float(text)


def _check_columns(path: Path, x: np.ndarray) -> None:
    if len(x) > 1 and np.all(x == x[0]):
        raise ValueError(f"{path}: expected inputs that differ, got {len(x)} equal rows")


def _describe(predictor: Any, console: Console) -> None:
    """What was learned, and what it read."""
    classes = predictor.classes
    kind = f"{len(classes)} classes" if classes is not None else "regression"
    say(console, f"learned from {len(predictor.x)} examples ({kind})")
    reading = predictor.reading()
    if reading is not None:
        say(console, f"read from the meta-knowledge graph: {vertices(reading.mean(axis=0))}")
    if predictor.portable.novelty is not None:
        novelty = predictor.support_novelty()
        known = ", ".join(predictor.portable.families)
        said = "looks like none of the families of meta-training ({})"
        if novelty <= 1:  # which assures nothing
            said = "no farther from the families of meta-training ({}) than their own new tasks"
        say(console, f"novelty {novelty:.2f}: {said.format(known)}")


def vertices(weights: np.ndarray, most: int = 3) -> str:
    """The vertices that are read most, as text: `V2 0.61, V0 0.22`."""
    order = np.argsort(-weights)[:most]
    return ", ".join(f"V{i} {weights[i]:.2f}" for i in order)


def _answer(
    predictor: Any,
    eye: Eye | None,
    query: Sequence[Path],
    target: str | None,
    out: Path | None,
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows = _rows(predictor, eye, query, target)
    writer.writerows(rows)
    if out is None:
        sys.stdout.write(text.getvalue())
        return
    write_text(out, text.getvalue())
    say(Console(stderr=True), f"written to {out}")


def _in_order(
    x: np.ndarray, found: Sequence[str], columns: Sequence[str], path: Path
) -> np.ndarray:
    """The columns of a query table as they stand in the support table."""
    if sorted(found) != sorted(columns):
        raise ValueError(
            f"{path}: expected the columns of the support table, {', '.join(columns)}, got "
            f"{', '.join(found)}: rename or remove some"
        )
    return x[:, [found.index(name) for name in columns]]


def _rows(
    predictor: Any,
    eye: Eye | None,
    query: Sequence[Path],
    target: str | None,
) -> Iterator[list[Any]]:
    from arml.datasets.own import decoded, image_files, read_table

    if eye is not None:
        files = image_files(query)
        batches = (eye.read(some) for some in decoded(files, size=eye.size))
        names: Sequence[Any] = files
        first = "file"
    else:
        if len(query) != 1:
            raise UsageError(f"expected one CSV file as the query, got {len(query)}: give one")
        table = read_table(query[0], target=target)
        x = table.x
        if predictor.columns is not None:
            x = _in_order(x, table.columns, predictor.columns, query[0])
        batches, names, first = (each for each in [x]), table.lines, "row"
    if predictor.classes is None:
        sure = len(predictor.x) >= ENOUGH
        yield [first, "prediction", *(["low", "high"] if sure else [])]

        def numbers(batch: np.ndarray) -> np.ndarray:
            answers = [predictor.predict(batch), *(predictor.interval(batch) if sure else ())]
            return np.stack(answers, axis=-1)

        for name, values in zip(names, _each(numbers(b) for b in batches), strict=True):
            yield [name, *(f"{number:.6g}" for number in np.ravel(values))]
        return
    reading = predictor.reading()
    read = None if reading is None else [vertices(row) for row in reading]
    # A row of the reading is a class only where the prototypes are the classes.
    by_class = read is not None and len(read) == len(predictor.classes)
    known = predictor.portable.novelty is not None
    more = [*(["vertices"] if read else []), *(["novelty"] if known else [])]
    yield [first, "label", "probability", *more]

    def answered(batch: np.ndarray) -> Iterator[tuple[np.ndarray, float | None]]:
        novelty = predictor.novelty(batch) if known else [None] * len(batch)
        yield from zip(predictor.predict_proba(batch), novelty, strict=True)

    answers = (answer for batch in batches for answer in answered(batch))
    for name, (chance, novelty) in zip(names, answers, strict=True):
        best = int(np.argmax(chance))
        row = [name, predictor.classes[best], f"{chance[best]:.4f}"]
        if read is not None and reading is not None:
            row.append(read[best] if by_class else vertices(reading.mean(axis=0)))
        if novelty is not None:
            row.append(f"{novelty:.2f}")
        yield row


def _each(batches: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    for batch in batches:
        yield from batch
