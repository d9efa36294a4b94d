"""Kinds of inputs: how each of them is read, learned, compared and shown.

    class Sounds(arml.Inputs):
        one, many = "sound", "sounds"
        suffixes = (".wav",)
        dimension = 40

        def vector(self, content, where):
            rate, samples = scipy.io.wavfile.read(io.BytesIO(content))
            ...

    arml.register("inputs", "sounds", Sounds)
    arml.adapt("sounds", ["a.wav", "b.wav", "c.wav"], ["clap", "clap", "bark"])

This kind turns each input into a vector, and `arml.predict.encoded` learns from the vectors. Files
come in one folder for each class. The kinds of the package replace some of these parts: tables are
read row by row, and photographs use their own model.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from arml.core.inputs import INPUTS, Form
from arml.datasets.archives import Member, is_junk
from arml.datasets.decode import LOG
from arml.datasets.folders import LabelledFiles, files_of, has_suffix, open_source
from arml.plugins.sources import Source, warn_of_change
from arml.predict.base import Predictor, TaskLearner
from arml.predict.inputs import Bad, OnItem, alike, checked_array, each, items_of, opened
from arml.predict.together import warning
from arml.results.files import Json

AT_ONCE = 256
"""The number of files in a batch of queries."""
_MAX_FILES_READ_FIRST = 2_000
"""Up to this number, all files are read before the first prediction."""
_TABLE_ENDINGS = (
    *(".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".jsonl", ".ndjson", ".parquet"),
    *(".xlsx", ".xlsm", ".xls", ".xlsb", ".ods"),
)
"""The endings of the names of tables."""
Labelled = tuple[list[str], Any, Any]
"""Names (of files or rows), inputs, and labels as texts, or numbers for a regression."""


class Shown(NamedTuple):
    """How a page shows one input."""

    image: str = ""
    """The address of an image within the page."""
    text: str = ""
    """An excerpt of its text."""


class Queries(NamedTuple):
    """Inputs to predict."""

    names: Sequence[str | int]
    """Names of files, or line numbers of a table."""
    batches: Iterable[Any]
    """The inputs in batches."""
    keys: Mapping[str, Sequence[object]] = {}
    """Columns of a table that name its rows, for the answers."""
    files: Sequence[Member] = ()
    """The files of the inputs, if there are any."""
    bad: Mapping[int, str] = {}
    """The problems of inputs that cannot be read, by index. It is complete after the last batch."""


def _silent(what: str) -> AbstractContextManager[OnItem]:
    return contextlib.nullcontext(lambda done, total: None)


@dataclass
class Asked:
    """The options with which a command reads inputs."""

    target: str | None = None
    """The column of a table to predict."""
    group: str | None = None
    """A column of a table, or a regular expression for the paths of files. Inputs with the same
    value, or with the same match, belong together."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The given options of the kind, by name. Most of them are about columns."""
    sheet: str | None = None
    """The sheet of a spreadsheet, if it is not the first visible one."""
    strict: bool = False
    """Whether an input that cannot be read is an error."""
    shown: dict[str, Shown] | None = None
    """How a page shows each input that was read, by name; None without a page."""
    tell: Callable[..., object] = LOG.warning
    """Called with remarks for the user."""
    watch: Callable[[str], AbstractContextManager[OnItem]] = _silent
    """From the name of a step to a context manager, whose value is called with the progress."""
    open: ExitStack = field(default_factory=ExitStack)
    """Archives of queries, which stay open until these are answered."""
    unlabelled: Queries | None = None
    """After `learn`: the rows of the examples' table whose target is empty."""


class Inputs(Form):
    """A kind of input. A subclass needs `one`, `many`, `suffixes`, `dimension` and `vector`, or its
    own `learner`. Every other part has a default, but `arml check` needs `examples`. Instances have
    no state.

        class Readings(arml.Inputs):
            one, many, suffixes, dimension = "reading", "readings", (".npy",), 3

            def vector(self, content, where):
                return np.asarray(content, np.float64)

        arml.register("inputs", "readings", Readings)

    Its learner is `arml.load("readings")`.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    """The endings of the names of its files, in small letters."""
    dimension: ClassVar[int] = 0
    """The length of a vector."""
    trained: ClassVar[bool] = False
    """Whether its learners are meta-trained. The learner of a new kind is not."""
    cells: ClassVar[tuple[str, ...]] = ("bytes", "path", "file")
    """Columns of a batch that may hold such inputs. The first that exists is read."""
    asks: ClassVar[tuple[str, ...]] = ("prior", "strict", "sort_into", "report", "group")
    """The options of `arml adapt` that it supports, besides `options` and those of every kind."""
    options: ClassVar[type | None] = None
    """Its own options of `arml adapt`: a frozen dataclass of keywords with defaults. The help
    shows the docstrings of its fields. `learn` finds the given options in `Asked.columns`."""
    tab: ClassVar[str] = ""
    """The tab of `arml app` that shows its predictors; empty without a tab."""
    advice: ClassVar[str] = "name folders or files, or use the learner tables for tables"
    """What to do if a path holds inputs of another kind."""

    @property
    def about(self) -> str:
        """A description in one sentence: the first of the docstring of its class."""
        first, _, _ = " ".join((type(self).__doc__ or self.many).split()).partition(". ")
        return f"{first.rstrip('.')}."

    # One input.

    def vector(self, content: Any, where: str) -> Float[np.ndarray, " dimension"]:
        """The vector of one input: of the bytes of a file, or of another object that a user gave.

        **Raises** `ValueError` with the name `where` if the input cannot be read.
        """
        raise NotImplementedError

    def content(self, item: object, place: int) -> tuple[str, object]:
        """The name of an input in messages, and its content: see `opened`."""
        return opened(item, f"{self.one} {place + 1}")

    def items(self, x: object) -> list[object]:
        """The inputs as a list. **Raises** `ValueError` if `x` is not several inputs."""
        return items_of(x, self.many)

    def holds(self, x: object) -> bool:
        """Whether an estimator with these inputs learns this kind instead of a table."""
        return False

    def show(self, file: Member) -> Shown:
        """How a page shows a file, besides its name."""
        return Shown()

    def examples(self) -> tuple[Sequence[object], list[str]]:
        """Labelled inputs for `arml check`, as a user gives them: two or more classes, each with
        four or more different inputs. **Raises** `ValueError` if the kind has no examples."""
        raise ValueError(f"{self.name}: define examples, some labelled {self.many}, to check them")

    @property
    def facts(self) -> Json:
        """Everything on which its vectors depend, as plain data: a saved predictor keeps it."""
        source = self.source or Source("arml", "")
        return {"dimension": self.dimension, **source._asdict()}

    # Learners.

    def learner(self, model: Path | str | None = None, **options: object) -> TaskLearner | None:
        """Its learner; None for the default: see `arml.predict.encoded`."""
        if model is not None or options:
            given = ", ".join(["model"] * (model is not None) + [*options])
            raise ValueError(f"the learner of {self.many} has no options, got {given}")
        return None

    def opens(self, path: Path) -> bool:
        """Whether the file is a frozen model that `learner` accepts."""
        return False

    def remade(self, facts: Json, model: Path | str | None) -> TaskLearner | None:
        """The learner of a saved predictor; None for the default. `model` is the file of its model,
        if it has moved. **Raises** `ValueError` if the facts of its vectors have changed."""
        if facts["dimension"] != self.dimension:
            raise ValueError(
                f"its {self.many} had {facts['dimension']} numbers, but now have {self.dimension}: "
                "use the file that it was made with"
            )
        warn_of_change(self.source, str(facts["version"]), f"a predictor of {self.many}")
        return self.learner(model)

    def better(
        self, predictor: Predictor, x: object, labels: object
    ) -> tuple[Predictor | None, str]:
        """The predictor of another learner if it predicts the examples better than this one, else
        None; and the reason in words. It is called if the user did not name a learner."""
        return None, ""

    def read(
        self, learner: TaskLearner, x: object, what: str, progress: OnItem | None, bad: Bad | None
    ) -> np.ndarray:
        """The inputs of a meta-trained `learner`: see `TaskLearner.read`."""
        features = learner.problem.features
        if len(getattr(x, "shape", ())) == 1 + len(features):
            return checked_array(x, features, what)

        def one(item: object, place: int) -> np.ndarray:
            where, content = self.content(item, place)
            return checked_array(self.vector(content, where)[None], features, where)[0]

        blank = np.zeros(features, np.float32)
        return each(one, self.items(x), blank, progress, bad, self.many)

    @property
    def predictor(self) -> type[Any] | None:
        """The class of the predictors of meta-trained learners; None for the default: see
        `arml.predict.learner`."""
        return None

    # Files.

    def together(self, source: LabelledFiles, x: np.ndarray) -> str:
        """A warning for the user if several files may show one thing; otherwise empty."""
        given = source.files, source.labels, self.many
        if (found := warning(*given)) or not (sign := self.sign(source, x)):
            return found
        return warning(*given, sign)

    def sign(self, source: LabelledFiles, x: np.ndarray) -> str:
        """Why several files may show one thing, apart from their names; empty if nothing says
        so."""
        return ""

    def fits(self, path: Path) -> bool:
        """Whether a path may hold such inputs, judged by its name."""
        return not is_table(path) or has_suffix(path.name, self.suffixes)

    def labelled(
        self, learner: TaskLearner, path: Path, asked: Asked, predictor: Predictor | None = None
    ) -> Labelled:
        """The labelled inputs below a path that can be read. The label of a file is the name of its
        folder. A `predictor`, if given, determines the columns of a table."""
        if asked.target is not None:
            raise ValueError(f"{self.many} have no columns: leave --target out")
        bad: Bad = {}
        with open_source(path, self.suffixes, self.one) as source:
            x = self._read(learner, source.pictures, asked, None if asked.strict else bad)
            learns = asked.group is None and predictor is None
            if learns and (line := self.together(source, x)):
                asked.tell(line)
        self.tell_left_out(source.left_out, asked)
        asked.tell(*source.remarks)
        if path.is_dir():
            for folder in sorted(path.glob("[!.]*/")):
                if all(is_junk(one.name) for one in folder.iterdir()):
                    asked.tell(f"the folder {folder} is empty: it is not a class")
        return self._kept(path, source.files, x, source.labels, bad, asked)

    def learn(self, learner: TaskLearner, path: Path, asked: Asked) -> tuple[Predictor, list[str]]:
        """The predictor of labelled inputs, and their names."""
        names, x, y = self.labelled(learner, path, asked)
        groups, group = None, asked.group
        if group is not None:
            try:
                found = [re.search(group, name) for name in names]
            except re.error as error:
                raise ValueError(
                    f"--group '{group}' is not a regular expression: {error}"
                ) from None
            if not any(found):
                raise ValueError(
                    f"--group '{group}' does not match the path of a {self.one}, such as {names[0]}"
                )
            pairs = zip(found, y, strict=True)
            groups = [
                f"{label}: {one[one.lastindex or 0]}" if one else f"alone: {i}"
                for i, (one, label) in enumerate(pairs)
            ]
            n = len({*groups}) - found.count(None)
            asked.tell(f"{n} groups of {self.many}, by '{group}' in their paths")
        return learner.adapt(x, y, groups=groups), names

    def learn_rows(
        self, learner: TaskLearner, sheet: Any, asked: Asked
    ) -> tuple[Predictor, list[str]]:
        """The predictor of a table's rows, and their names. Rows with an empty target become
        `asked.unlabelled`. **Raises** `ValueError` if the kind reads only files."""
        raise ValueError(f"{self.many} are not rows of a table: {self.advice}")

    def queries(self, predictor: Predictor, paths: Sequence[Path], asked: Asked) -> Queries:
        """The inputs among and below these paths."""
        files, others = files_of(paths, asked.open, self.suffixes, self.many)
        self.tell_left_out(others, asked)
        return self._asking(predictor, [one.where for one in files], files, asked)

    def decisive(self, predictor: Predictor, queries: Queries) -> list[str]:
        """For each query, the part whose removal makes its label least probable, and the
        probability with and without that part (`--matter`)."""
        found = []
        for i, file in enumerate(queries.files):
            if i in queries.bad:
                found.append("")
                continue
            inputs, parts = self.without_parts(predictor.learner, file)
            chances = predictor.predict_proba(inputs)
            own = chances[:, chances[0].argmax()]
            part = parts[int(own[1:].argmin())]
            found.append(f"{part} ({own[0]:.2f} to {own[1:].min():.2f})")
        return found

    def without_parts(self, learner: TaskLearner, file: Member) -> tuple[np.ndarray, list[str]]:
        """The input of a file, followed by copies that each lack one part, and the parts in words.
        A kind with "matter" in `asks` must define it."""
        raise NotImplementedError

    def _kept(
        self,
        path: Path,
        names: Sequence[str],
        x: np.ndarray,
        labels: Sequence[str],
        bad: Bad,
        asked: Asked,
    ) -> Labelled:
        """The examples that could be read; `asked.tell` gets the others."""
        kept = [i for i in range(len(x)) if i not in bad]
        if bad:
            each = ", ".join(f"{names[i]} ({problem})" for i, problem in bad.items())
            asked.tell(f"left out {len(bad)} of {len(x)} {self.many}, which cannot be read: {each}")
        known = [labels[i] for i in kept]
        if gone := sorted({*labels} - {*known}):
            raise ValueError(
                f"{path}: no {self.one} of {', '.join(gone)} can be read: replace these "
                f"{self.many}, or remove the class"
            )
        asked.tell(*alike(known, "classes"))
        check_different(x[kept], path, self.many)
        return [names[i] for i in kept], x[kept], known

    def _asking(
        self,
        predictor: Predictor,
        names: Sequence[str | int],
        files: Sequence[Member],
        asked: Asked,
        keys: Mapping[str, Sequence[object]] = MappingProxyType({}),
    ) -> Queries:
        """The queries of these files."""
        bad: Bad = {}

        def read(first: int) -> np.ndarray:
            own: Bad = {}
            some = files[first : first + AT_ONCE]
            found = self._read(predictor.learner, some, asked, None if asked.strict else own)
            bad.update((first + i, problem) for i, problem in own.items())
            return found

        parts: Iterable[np.ndarray] = map(read, range(0, len(files), AT_ONCE))
        if len(files) <= _MAX_FILES_READ_FIRST:
            parts = list(parts)  # a file that cannot be read is reported before other work
        return Queries(names, parts, keys, files, bad)

    def _read(
        self, learner: TaskLearner, files: Sequence[Member], asked: Asked, bad: Bad | None
    ) -> np.ndarray:
        with asked.watch(f"reading {self.many}") as progress:
            found = learner.read(files, self.many, progress, bad)
            if asked.shown is not None:
                asked.shown |= {one.where: self.show(one) for one in files}
        return found

    def tell_left_out(self, others: Sequence[object], asked: Asked) -> None:
        """Name the files of another kind to the user."""
        if others:
            n = f"{len(others)} files" if len(others) > 1 else "one file"
            asked.tell(
                f"left out {n} whose name does not end like that of a {self.one}: "
                f"{', '.join(map(str, others[:3]))}{', ...' if len(others) > 3 else ''}"
            )


def named_kind(name: str) -> Inputs:
    """The kind of that name. **Raises** `ValueError` with the nearest names if there is none."""
    kind = INPUTS.known(name)
    assert isinstance(kind, Inputs), "every registered kind is an arml.Inputs"
    return kind


def check_parts(kind: Inputs) -> None:
    """Raise `ValueError` for a kind of vectors that lacks a part: see `Inputs`."""
    name, endings, length = type(kind).__name__, kind.suffixes, kind.dimension
    if type(endings) is not tuple or not all(has_suffix(f"x{end}", (end,)) for end in endings):
        raise ValueError(
            f'{name}: expected suffixes as a tuple such as (".wav",), in small letters and with '
            f"one point each, got {endings!r}"
        )
    if type(length) is not int or length < 1:
        raise ValueError(f"{name}: give the length of a vector as dimension, got {length!r}")
    try:
        signature(kind.vector).bind(b"", "")
    except TypeError:
        raise ValueError(f"{name}: expected vector(self, content, where)") from None
    if type(kind).vector is Inputs.vector:
        raise ValueError(f"{name}: define vector(self, content, where), or a learner of its own")


def inputs_of(learner: TaskLearner) -> Inputs:
    """The kind of a learner's inputs."""
    return named_kind(learner.kind.name)


def every_kind() -> dict[str, Inputs]:
    """All kinds by name."""
    return {name: named_kind(name) for name in INPUTS}


def untrained() -> dict[str, Inputs]:
    """The kinds whose learners need no meta-training, by name."""
    return {name: kind for name, kind in every_kind().items() if not kind.trained}


def is_table(path: Path) -> bool:
    """Whether a path names a table."""
    return path.name.lower().endswith(_TABLE_ENDINGS)


def check_different(x: np.ndarray, path: Path, what: str) -> None:
    """Raise `ValueError` if all inputs are equal."""
    if len(x) > 1 and not np.any(x != x[0]):
        raise ValueError(
            f"{path}: all {len(x)} {what} are identical: they cannot tell the classes apart"
        )
