"""`arml adapt` and `arml predict`: read examples, learn, check, predict, and write the answers."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, make_dataclass
from functools import partial
from inspect import getdoc
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import Display, ModelOptions, command, doubts, parse, refuse, tell
from arml.datasets.features import PHOTOS_MODEL
from arml.datasets.folders import has_suffix, open_source
from arml.predict.answers import (
    Answer,
    free_name,
    labels_of,
    numbers_of,
    sort_into,
    write_answers,
)
from arml.predict.base import Predictor, TaskLearner
from arml.predict.files import check_free, check_new, locate
from arml.predict.inputs import OnItem
from arml.predict.kinds import Asked, Inputs, Queries, every_kind, inputs_of, is_table, untrained
from arml.predict.loading import load, load_predictor
from arml.predict.reliability import MODELS_IN_WORDS, curve_in_words
from arml.results.files import check_writable, csv_text, write_text
from arml.results.folder import CONFIG_FILE

MAX_UNCERTAIN = 3
"""Least certain pictures that are named."""
_COLUMN_OPTIONS = ("without", "keep", "dates", "fill_down", "category", "order")
"""Options of tables with any columns."""
NO_CLASS = "none of these"
"""The label of queries that may belong to none of the classes."""


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options of both commands."""

    level: float = 0.9
    """About this share of new numbers lies in the intervals of a regression."""
    model: Path | None = None
    """The frozen ONNX model of a learner on features, if it is not the default. Or an estimator
    for the columns of tables, or for vectors of other inputs: logistic-regression,
    ridge-regression, random-forest, gradient-boosting, or xgboost, lightgbm, tabpfn or tabicl."""
    prior: str | None = None
    """How frequent the classes are among new inputs: equal (usual for photos), examples (as
    among the examples), or shares such as good=95,bad=5."""
    none: bool = False
    """Answer "none of these" for queries that fit their class worse than 95% of the examples, when
    these are left out."""
    out: Path | None = None
    """Write the answers to this CSV file instead of the terminal."""
    strict: bool = False
    """Stop at a picture that cannot be read; otherwise an example is left out, and the answer to a
    query is empty."""
    sort_into: Path | None = None
    """Copy the pictures into this new folder, in a folder for each label."""
    above: float = 0.5
    """Lowest probability of a label that --sort-into takes; the other pictures go to the folder
    unsure."""
    sheet: str | None = None
    """The sheet of a spreadsheet, if it is not the first that is visible."""
    columns: bool = False
    """Print how each column of a table is read."""
    matter: bool = False
    """Also answer which cell of a row, or which patch of a picture, matters most: the prediction
    changes most without it."""


@dataclass(frozen=True, kw_only=True)
class AdaptOptions(AnswerOptions, ModelOptions):
    """Learn a task from a few labelled examples, and predict.

    Pictures: a folder (or zip) with one folder for each class, and files or folders to predict.
    Tables: CSV, spreadsheets, Parquet or JSON lines, with a header; --target names the column to
    predict, and the other columns are the inputs. The learners tables (classes) and
    tables-regression (numbers) take any columns: numbers, dates, categories, and missing cells.

    LEARNER is a run folder, an exported learner, one of the package (photos, starter, tables,
    tables-regression, regression2d), a kind of input that is named below (--plugin FILE.py brings
    more), or an ONNX model of pictures. If none is named, photos learns pictures, or starter
    (trained on drawings) if most of them are grey and starter predicts the examples better.
    """

    learner: Positional[Path | None] = None
    """The learner; photos or starter for pictures if none is named."""
    support: Path
    """Labelled examples: one folder for each class, a zip of such, or a table."""
    query: tuple[Path, ...] = ()
    """Pictures, folders (with all their subfolders), or one table to predict."""
    target: str | None = None
    """Column of a table to predict; without --query its empty cells are predicted."""
    without: tuple[str, ...] = ()
    """Columns that are not used; the answers repeat them."""
    keep: tuple[str, ...] = ()
    """Columns that are used although they number the rows, or their texts differ in most rows."""
    group: str | None = None
    """Column whose equal values mark rows that belong together, such as the rows of one person. For
    pictures a regular expression: those of a class in whose paths it finds the same text."""
    fill_down: bool = False
    """A row whose cell in the column of --group is empty belongs to the group of the row above."""
    category: tuple[str, ...] = ()
    """Columns whose numbers are codes of categories."""
    order: str | None = None
    """Column of times: the check also predicts the last fifth of the rows from those before."""
    dates: Literal["dmy", "mdy", "ymd"] | None = None
    """Order of day, month and year in dates such as 03/04/2020."""
    save: Path | None = None
    """Save the predictor in this folder, for `arml predict`."""
    reliability: bool = True
    """Predict each example from the others, and report how well that works."""
    report: Path | None = None
    """Write an HTML page: the estimate, doubtful examples, the least certain answers."""


@dataclass(frozen=True, kw_only=True)
class PredictOptions(AnswerOptions):
    """Predict with a predictor that `arml adapt --save` saved."""

    predictor: Positional[Path]
    """Folder of the predictor."""
    query: Positional[tuple[str, ...]]
    """Pictures, folders (with all their subfolders), or one table. With --on one source: a folder
    of pictures or of Parquet files, one of these, a text file with a path or address in each line,
    or an address such as s3://BUCKET/FOLDER."""
    on: str | None = None
    """Predict on a Ray cluster: `ray` for that of $RAY_ADDRESS or a new one here, or
    ray://HOST:PORT. --out is then a folder, which gets Parquet files."""


def adapt_options() -> type[AdaptOptions]:
    """The options, with those that kinds of inputs bring."""
    kinds = every_kind()
    own = dict.fromkeys(kind.options for kind in kinds.values() if kind.options is not None)
    named = "\n\n".join(f"{name}: {kind.about}" for name, kind in kinds.items())
    about = f"{getdoc(AdaptOptions)}\n\nKinds of input:\n\n{named}"
    found: type[AdaptOptions] = make_dataclass(
        "AdaptOptions",
        [],
        bases=(*own, AdaptOptions),
        namespace={"__doc__": about},
        frozen=True,
        kw_only=True,
    )
    return found


def adapt_command(arguments: Sequence[str]) -> None:
    options = parse(adapt_options(), arguments, prog="arml adapt")
    wanted = options.query or options.save or options.reliability
    nothing = ValueError(
        "nothing to do: give --query FILES or --save FOLDER, or leave out --no-reliability"
    )
    of_queries = ("none", "sort_into", "out")
    if not options.query and not is_table(options.support):
        refuse(options, of_queries, "--query")
        if not wanted:
            raise nothing
    _check_paths(options, options.support, *options.query)
    asked, predictor, names = _learned(options)
    if options.save is not None:  # before the check of the examples, which takes longest
        classes = None if predictor.classes is None else predictor.classes.tolist()
        task = {"classes": classes, "target": predictor.target, "columns": predictor.columns}
        check_free(options.save, predictor=True, task=task)
    kind = inputs_of(predictor.learner)
    if options.columns:
        tell(*str(predictor.schema).splitlines())
    queries = asked.unlabelled
    of_examples = asked.shown or {}
    if options.query:
        asked.shown = None if asked.shown is None else {}  # other rows may have the same names
        queries = kind.queries(predictor, options.query, asked)
    if not (wanted or queries or options.columns or options.matter):
        raise nothing
    whole = predictor.can("matter")
    if queries is None:
        refuse(options, (*of_queries, *(() if whole else ("matter",))), "--query")
    said = "regression" if predictor.classes is None else f"{len(predictor.classes)} classes"
    tell(f"learned from {len(predictor.y)} examples ({said})")
    predictor = _with_prior(predictor, options.prior)
    predictor = predictor.using(predictor.models[-1])  # all of its models together
    if options.reliability:
        tell(*predictor.reliability().lines(names))
    if len(weights := predictor.weights) > 1:
        each = ", ".join(
            f"{MODELS_IN_WORDS.get(name, name)} {part:.0%}" for name, part in weights.items()
        )
        tell(f"predicting with a weighted mean: {each}")
    small = queries is None and options.save is None and kind.cells
    if small and predictor.can("learning_curve") and (curve := predictor.learning_curve()):
        tell(curve_in_words(curve))
    if options.matter and whole:
        drops = predictor.matter().items()
        each = ", ".join(f"{name} {np.exp(min(drop, 50)):.3g}" for name, drop in drops)
        tell(
            "how many times less probable the right answers are without a column (about 1 or less: "
            f"it is not needed): {each}"
        )
    answers = [] if queries is None else _answer(predictor, queries, options, asked)
    if options.report is not None:
        write_answers(options.report, predictor, names, answers, of_examples, asked.shown or {})
        tell(f"report written to {options.report}: open it in a browser")
    if options.save is not None:
        if (options.save / CONFIG_FILE).exists():
            tell(f"replaced the predictor in {options.save}")
        predictor.save(options.save)
        onnx = options.learner is not None and options.learner.suffix == ".onnx"
        own = predictor.learner.estimator is not None
        model = (None if own else options.model) or (options.learner if onnx else None)
        more = [] if model is None else ["--model", str(model)]
        following = command("predict", str(options.save), *more)
        tell(f"predictor saved in {options.save}; next: {following} FILES")


def predict_command(arguments: Sequence[str]) -> None:
    options = parse(PredictOptions, arguments, prog="arml predict")
    if not options.query:
        raise ValueError("no queries after the predictor: name pictures, folders or a table")
    if options.on is not None:
        _predict_on(options, options.on)
        return
    query = tuple(map(Path, options.query))
    _check_paths(options, *query)
    predictor = load_predictor(options.predictor, options.model)
    asked = _asked(options, predictor.learner, query, options.predictor.name)
    predictor = _with_prior(predictor, options.prior)
    if options.columns:
        tell(*str(predictor.schema).splitlines())
    queries = inputs_of(predictor.learner).queries(predictor, query, asked)
    _answer(predictor, queries, options, asked)


def _with_prior(predictor: Predictor, prior: str | None) -> Predictor:
    """The predictor with this prior, which is also printed."""
    predictor = predictor if prior is None else predictor.with_prior(prior)
    tell(*filter(None, [predictor.prior_in_words]))
    return predictor


def _predict_on(options: PredictOptions, on: str) -> None:
    from arml.predict.batches import BatchPredictor, predict_parts

    refuse(
        options,
        ("prior", "none", "columns", "matter", "strict", "sort_into", "above", "sheet"),
        "predictions without --on",
    )
    if len(options.query) > 1 or options.out is None:
        raise ValueError("--on takes one source and --out FOLDER: give both")
    predict, out = BatchPredictor(options.predictor, options.model, options.level), options.out
    with doubts(), Display(Console(stderr=True), "reading the source") as display:
        watch = partial(display.show, "predicting parts")
        counts = predict_parts(predict, options.query[0], out, on=on, watch=watch)
    tell(f"{counts['answers']:,} new answers in {out}, {counts['errors']:,} of them errors")


def asked_of(learner: TaskLearner, paths: Sequence[Path], name: str) -> Asked:
    """How the inputs of the learner of this `name` are to be read: with remarks and progress on the
    terminal. **Raises** `ValueError` for a path that cannot hold such inputs."""
    kind = inputs_of(learner)
    for path in paths:
        if not kind.fits(path):
            found = "a table" if is_table(path) else "not a table"
            raise ValueError(f"{path} is {found}, and {name} reads {kind.many}: {kind.advice}")
    return Asked(tell=tell, watch=_watched)


@contextmanager
def _watched(what: str) -> Iterator[OnItem]:
    with doubts(), Display(Console(stderr=True), what) as display:
        yield partial(display.show, what)


def _asked(options: AnswerOptions, learner: TaskLearner, paths: Sequence[Path], name: str) -> Asked:
    """As `asked_of`. **Raises** `ValueError`, too, for an option that its inputs or its answers do
    not have."""
    asked, kind = asked_of(learner, paths, name), inputs_of(learner)
    owners: dict[str, list[str]] = {}
    for each in every_kind().values():
        for option in (*each.asks, *_own(each)):
            owners.setdefault(option, []).append(each.many)
    for option in owners.keys() - {*kind.asks, *_own(kind)}:
        refuse(options, (option,), " and ".join(sorted({*owners[option]})))
    # A problem loads JAX, which photographs do not need.
    if kind.trained and learner.problem.kind == "regression":
        refuse(options, ("none", "sort_into", "report"), "classes")
    asked.strict, asked.sheet = options.strict, options.sheet
    asked.shown = {} if getattr(options, "report", None) else None
    return asked


def _own(kind: Inputs) -> list[str]:
    """The names of the options that the kind brings."""
    return [] if kind.options is None else [one.name for one in fields(kind.options)]


def _learned(options: AdaptOptions) -> tuple[Asked, Predictor, list[str]]:
    """How the inputs were read, the predictor, and the names of the examples. Pictures are learned
    by `photos`, or by `starter` if that is better, unless a learner is named."""
    if options.learner is None and is_table(options.support):
        kinds = ["tables (classes)", "tables-regression (numbers)"]
        for name, one in untrained().items():
            if type(one).learn_rows is not Inputs.learn_rows:
                kinds.append(f"{name} (one column)")
        raise ValueError(f"a table needs a learner: arml adapt {' or '.join(kinds)}")
    # Without a learner's name a folder of queries may have the name of one.
    place, note = (PHOTOS_MODEL, None) if options.learner is None else locate(options.learner)
    if note is not None:
        tell(note)
    learner = load(place, options.model, **options.given())
    tell(*learner.notes)
    name = "photos" if options.learner is None else options.learner.name
    asked = _asked(options, learner, [options.support, *options.query], name)
    asked.target, asked.group = options.target, options.group
    kind = inputs_of(learner)
    asked.columns = {k: v for k in (*_COLUMN_OPTIONS, *_own(kind)) if (v := getattr(options, k))}
    if options.save is not None and options.save.exists() and not is_table(options.support):
        with open_source(options.support, kind.suffixes, kind.one) as source:
            check_free(options.save, predictor=True, task={"classes": [*source.classes]})
    try:
        predictor, names = kind.learn(learner, options.support, asked)
    except ValueError as error:
        others = [] if options.learner else _others(options.support)
        if not others:
            raise
        raise ValueError(f"{error}; {', '.join(others)}") from None
    # An option that the user gave wins.
    if not (options.learner or options.model or options.prior or options.given()):
        with open_source(options.support) as source:
            pairs, known = zip(source.pictures, source.labels, strict=True), {*names}
            read = [(picture, label) for picture, label in pairs if picture.where in known]
            starter, reason = kind.better(predictor, *zip(*read, strict=True))
        tell(f"learner: {'photos' if starter is None else 'starter'} ({reason})")
        predictor = starter or predictor
    return asked, predictor, names


def _others(folder: Path) -> list[str]:
    """The commands that learn the files of a folder, if there are no pictures among them."""
    files = [file.name for file in folder.rglob("*")] if folder.is_dir() else []
    if any(map(has_suffix, files)):
        return []
    return [
        f"for {kind.many}: arml adapt {name}"
        for name, kind in untrained().items()
        if any(has_suffix(file, kind.suffixes) for file in files)
    ]


def _check_paths(options: AnswerOptions, *read: Path) -> None:
    """Raise `ValueError`, before any work, for a path where nothing is, and for answers or a
    predictor that cannot be written or would replace something else."""
    if not 0 < options.level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.9, got {options.level:g}")
    for path in read:
        if not path.exists():
            raise ValueError(f"nothing at {path}: check the path")
    out = options.out
    if out is not None and out.exists():
        if out.is_dir():
            raise ValueError(f"--out {out} is a folder: name a CSV file")
        if any(out.samefile(path) for path in read):
            raise ValueError(f"--out {out} is a file that the command reads: name another")
        if out.suffix.lower() != ".csv":
            raise ValueError(f"--out {out} would replace a file that is not CSV: name another")
    save, report = getattr(options, "save", None), getattr(options, "report", None)
    check_writable(*filter(None, (out, save, report, options.sort_into)))
    if save is not None:
        check_free(save, predictor=True)
    if options.sort_into is not None:
        check_new(options.sort_into)
        if not 0 <= options.above <= 1:
            raise ValueError(
                f"--above is a probability from 0 to 1, such as 0.8; got {options.above}"
            )
    else:
        refuse(options, ("above",), "--sort-into")


def _answer(
    predictor: Predictor, queries: Queries, options: AnswerOptions, asked: Asked
) -> list[Answer]:
    """Write the answers; returns those that are labels."""
    kind = inputs_of(predictor.learner)
    names = [*map(str, queries.names)]
    if not names:
        raise ValueError("no rows to predict: the table of queries has only a header")
    columns: dict[str, Sequence[object]] = {}
    if options.matter:
        queries = queries._replace(batches=list(queries.batches))
        matters = kind.decisive(predictor, queries)
    answers: list[Answer] = []
    if predictor.classes is None:
        refuse(options, ("none", "sort_into", "report"), "classes")
        columns |= numbers_of(predictor, queries.batches, options.level)
    else:
        files = [file.where for file in queries.files]
        answers = labels_of(predictor, queries, files or names, NO_CLASS if options.none else None)
        columns["label"] = [one.label for one in answers]
        columns["probability"] = [one.shown for one in answers]
        novelty = [one.novelty for one in answers]
        if novelty != [None] * len(novelty):
            columns["novelty"] = ["" if far is None else f"{far:.2f}" for far in novelty]
        if queries.bad:
            columns["problem"] = [one.problem for one in answers]
        _tell_of(predictor, answers, kind.many)
    if options.matter:
        columns["matters"] = matters
    first = "row" if isinstance(queries.names[0], int) else "file"
    named = {free_name(first, queries.keys): names, **queries.keys}
    named |= {free_name(name, queries.keys): cells for name, cells in columns.items()}
    text = csv_text([[*named], *zip(*named.values(), strict=True)])
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_text(options.out, text)
        tell(f"written to {options.out}")
    if queries.files:
        with asked.open:
            _files(queries, answers, options, kind.many)
    return answers


def _tell_of(predictor: Predictor, answers: Sequence[Answer], many: str) -> None:
    if np.bincount(predictor.y).max() == 1:
        tell("one example a class: the probabilities are not checked")
    if above := sum((one.novelty or 0) > 1 for one in answers):
        tell(
            f"the novelty of {above} of {len(answers)} queries is above 1, which is a sign of "
            f"another class; about 5% of the {many} of your classes are above 1, too"
        )


def _files(queries: Queries, answers: Sequence[Answer], options: AnswerOptions, many: str) -> None:
    """Name the files that cannot be read and those that are least certain, and sort the
    files."""
    if bad := [f"{one.name} ({one.problem})" for one in answers if one.problem]:
        said = f"{len(bad)} of {len(answers)} {many} cannot be read, and have no label"
        tell(f"{said}: {', '.join(bad)}")
    unsure = sorted((one for one in answers if not one.problem), key=lambda one: one.probability)
    if len(unsure) > MAX_UNCERTAIN:
        named = ", ".join(f"{one.name} ({one.probability:.0%})" for one in unsure[:MAX_UNCERTAIN])
        tell(f"the least certain answers, to label next: {named}")
    if options.sort_into is not None:
        read = [file.read for file in queries.files]
        pairs = zip(answers, queries.files, strict=True)
        copies = [one._replace(name=file.name or file.where) for one, file in pairs]
        counts = sort_into(options.sort_into, copies, lambda place: read[place](), options.above)
        found = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        tell(f"copied into {options.sort_into}: {found}")
