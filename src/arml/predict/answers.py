"""Answers about files: copies in one folder for each label, and an HTML page that works offline."""

import shutil
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from arml.predict.base import Predictor
from arml.predict.files import check_new
from arml.predict.kinds import Queries, Shown, inputs_of
from arml.predict.reliability import Reliability, curve_in_words, digits_of
from arml.report.tables import Cell, Line, Table
from arml.results.files import Json, write_bytes, write_text

_MAX_CLASSES_SHOWN = 12
"""The largest number of inputs in each list of the page."""
UNSURE_LABEL = "unsure"
"""The folder for files whose label is not probable enough."""


def free_name(name: str, taken: Container[str]) -> str:
    """The name for a column of answers. If the name is `taken`, it gets the prefix `arml_`."""
    return free_name(f"arml_{name}", taken) if name in taken else name


class Answer(NamedTuple):
    """The answer about one file."""

    name: str
    """The name of the file."""
    label: str
    """The predicted label; empty if the file cannot be read."""
    probability: float
    """The probability of the label."""
    novelty: float | None = None
    problem: str = ""
    """Why the file cannot be read; empty if it can."""

    @property
    def shown(self) -> str:
        """The probability with four digits; empty if the file cannot be read."""
        return "" if self.problem else f"{self.probability:.4f}"


def labels_of(
    predictor: Predictor, queries: Queries, names: Sequence[str], none: str | None = None
) -> list[Answer]:
    """The answer to each query. A query that may lie outside of all classes is labelled `none`."""
    answers: list[Answer] = []
    for batch in queries.batches:
        chances = predictor.predict_proba(batch)
        novelty = predictor.novelty(batch) if predictor.can("novelty") else None
        labels = predictor.labels[chances.argmax(axis=1)].astype(object)
        if none is not None:
            labels[predictor.outside(batch, chances)] = none
        for k, label in enumerate(labels):
            name, problem = names[len(answers)], queries.bad.get(len(answers), "")
            far = None if novelty is None or problem else float(novelty[k])
            given = "" if problem else str(label), float(chances[k].max())
            answers.append(Answer(name, *given, far, problem))
    return answers


def numbers_of(
    predictor: Predictor, batches: Iterable[object], level: float
) -> dict[str, list[str]]:
    """The columns of the predicted numbers and, if there are enough examples for the level, of the
    ends of their intervals."""
    digits, enough = digits_of(predictor.y), predictor.is_enough(level)
    names = ["prediction", *([f"low {100 * level:g}%", f"high {100 * level:g}%"] if enough else [])]
    parts = []
    for batch in batches:
        ends = predictor.interval(batch, level) if enough else ()
        parts.append(np.stack([np.ravel(a) for a in (predictor.predict(batch), *ends)]))
    values = np.concatenate(parts, axis=1)
    pairs = zip(names, values, strict=True)
    return {name: [f"{value:.{digits}g}" for value in row] for name, row in pairs}


def sort_into(
    folder: Path, answers: Sequence[Answer], read: Callable[[int], bytes], above: float
) -> dict[str, int]:
    """Copy each file into the folder of its label, or into `UNSURE_LABEL` if the probability is
    below `above`. `read` returns the content of a file from its index.

    If the name of a folder or file is taken, a number is added. Returns the number of files by
    folder. **Raises** `RunError` if the folder is not empty or cannot be written. It then removes
    the copies.
    """
    check_new(folder)
    counts: dict[str, int] = {}
    taken, new = {folder, folder / UNSURE_LABEL}, not folder.exists()
    folders = {"": folder / UNSURE_LABEL}
    for label in sorted({answer.label for answer in answers} - {""}):
        name = label.replace("/", "_").replace("\\", "_").lstrip(".")
        folders[label] = _free(folder / (name or "_"), taken)
    try:
        for i, answer in enumerate(answers):
            if answer.problem:
                continue
            label = answer.label if answer.probability >= above else ""
            own = folders[label]
            file = _free(own / answer.name.replace("\\", "/").rpartition("/")[2], taken)
            write_bytes(file, read(i))
            shown = own.name if label in ("", own.name) else f"{own.name} (the class {label!r})"
            counts[shown] = counts.get(shown, 0) + 1
    except BaseException:  # such as a full disk: the same command then works again
        for own in [folder] if new else folders.values():
            shutil.rmtree(own, ignore_errors=True)
        raise
    return counts


def _free(path: Path, taken: set[Path]) -> Path:
    """The path, with a number if it is taken; the result is added to `taken`."""
    found, number = path, 2
    while found in taken:
        found, number = path.with_name(f"{path.stem}-{number}{path.suffix}"), number + 1
    taken.add(found)
    return found


def write_answers(
    out: Path,
    predictor: Predictor,
    names: Sequence[str],
    answers: Sequence[Answer],
    of_examples: Mapping[str, Shown],
    of_queries: Mapping[str, Shown],
) -> None:
    """Write an HTML page about a classifier: how far to trust it, which examples are doubtful, and
    its least and most certain answers.

    **Arguments**

    - `names`: the names of its examples.
    - `of_examples`, `of_queries`: how the page shows each input, by its name.

    **Raises** `RunError` if it cannot be written.
    """
    # Imported here because it loads the package that draws figures.
    from arml.report.render import block, html

    found, many = predictor.reliability(), inputs_of(predictor.learner).many
    assert isinstance(found, Reliability), "a regression has no labels to show"
    first = [names[int(np.argmax(predictor.y == k))] for k in range(len(found.classes))]
    doubts = [
        (names[found.checked[i]], found.mistake(i)) for i in found.mistakes[:_MAX_CLASSES_SHOWN]
    ]
    read = sorted((one for one in answers if not one.problem), key=lambda one: one.probability)
    said = []
    for one in read:
        unlike = ", unlike every class" if (one.novelty or 0) > 1 else ""
        said.append((one.name, f"{one.label} ({one.probability:.0%}){unlike}"))
    least = min(_MAX_CLASSES_SHOWN, (len(read) + 1) // 2)
    bad = [f"{one.name}: {one.problem}" for one in answers if one.problem]

    def listed(rows: Sequence[tuple[str, str]], shown: Mapping[str, Shown]) -> list[Json]:
        each = [(*shown[name], name, text) for name, text in rows]
        return [block("pictures", pictures=each)] if each else []

    trust: list[Json] = [block("text", text=line) for line in found.overview(names)]
    if len(found.labels):
        trust.append(
            block("table", table=_confusion(found, [of_examples[name].image for name in first]))
        )
    if curve := predictor.learning_curve():
        trust.append(block("text", text=curve_in_words(curve)))
    sections = {
        "Can I trust it?": trust,
        "Doubtful examples: mislabelled, or hard": listed(doubts, of_examples),
        "Least certain answers: label these next": listed(said[:least], of_queries),
        "Most certain answers": listed(said[: least - 1 : -1][:_MAX_CLASSES_SHOWN], of_queries),
        f"{many.capitalize()} that cannot be read": [block("items", texts=bad)] if bad else [],
    }
    lead = f"{len(names)} examples of {len(first)} classes, {len(answers)} {many} to predict."
    write_text(out, html(f"Answers about {many}", [lead], sections))


def _confusion(found: Reliability, images: Sequence[str]) -> Table:
    own, lines = found.by_class, []
    for k, (name, row) in enumerate(zip(found.classes.tolist(), found.confusion, strict=True)):
        right = Cell(f"{own[name]:.0%}" if name in own else "")
        kinds = ["score" if j == k else "bad" for j in range(len(row))]
        counts = [Cell(str(n or ""), kind=kind) for n, kind in zip(row, kinds, strict=True)]
        lines.append(Line(str(name), (Cell(image=images[k]), right, *counts)))
    columns = ("labelled", "", "right", *(f"as {name}" for name in found.classes.tolist()))
    return Table("How each class was predicted", columns, tuple(lines))
