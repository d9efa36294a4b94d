"""Answers about pictures: copies in a folder for each label, and a page that opens offline."""

from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from arml.predict.files import check_new
from arml.predict.pictures import as_image
from arml.predict.reliability import Reliability, curve_in_words
from arml.report.tables import Cell, Line, Table
from arml.results.files import Json, RunError, write_bytes, write_text

_SHOWN = 12
"""Pictures of a list on the page."""
UNSURE = "unsure"
"""The folder of pictures whose label is not probable enough, or that cannot be read."""


def free_name(name: str, taken: Container[str]) -> str:
    """The name of a column of answers beside columns whose names are `taken`."""
    return free_name(f"arml_{name}", taken) if name in taken else name


class Answer(NamedTuple):
    """The answer about one picture."""

    name: str
    """Of the file."""
    label: str
    """Empty if the picture cannot be read."""
    probability: float
    """Of the label."""
    novelty: float | None = None
    problem: str = ""
    """Why the picture cannot be read."""


def sort_into(
    folder: Path, answers: Sequence[Answer], read: Callable[[int], bytes], above: float
) -> dict[str, int]:
    """Copy pictures into a folder for each label, those with a probability below `above` into
    `UNSURE`; `read` gives the content of each. Returns how many each folder got.

    A folder or file whose name is taken gets a number.

    **Raises** `RunError` if the folder is not empty or cannot be written.
    """
    check_new(folder)
    counts: dict[str, int] = {}
    taken = {folder, folder / UNSURE}
    folders = {"": folder / UNSURE}
    for label in sorted({answer.label for answer in answers} - {""}):
        name = label.replace("/", "_").replace("\\", "_").lstrip(".")
        folders[label] = _free(folder / (name or "_"), taken)
    for place, answer in enumerate(answers):
        if answer.problem:
            continue
        label = answer.label if answer.probability >= above else ""
        own = folders[label]
        file = _free(own / answer.name.replace("\\", "/").rpartition("/")[2], taken)
        try:
            own.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{own} cannot be made: {error.strerror}") from error
        write_bytes(file, read(place))
        shown = own.name if label in ("", own.name) else f"{own.name} (the class {label!r})"
        counts[shown] = counts.get(shown, 0) + 1
    return counts


def _free(path: Path, taken: set[Path]) -> Path:
    """The path, with a number if it is taken already; it is taken then."""
    found, number = path, 2
    while found in taken:
        found, number = path.with_name(f"{path.stem}-{number}{path.suffix}"), number + 1
    taken.add(found)
    return found


def write_answers(
    out: Path,
    predictor: Any,
    names: Sequence[str],
    answers: Sequence[Answer],
    pictures: Mapping[str, UInt8[np.ndarray, "side side 3"]],
) -> None:
    """Write one HTML file: how far the predictor of classes can be trusted, which examples are
    doubtful, and the answers of which it is least and most certain.

    **Arguments**

    - `names`: of its examples.
    - `pictures`: the pixels of each file by its name.

    **Raises** `RunError` if it cannot be written.
    """
    # Here, because it loads the package that draws figures.
    from arml.report.render import Section, block, html

    found = predictor.reliability()
    first = [names[int(np.argmax(predictor.y == k))] for k in range(len(predictor.classes))]
    shown = {name: as_image(pictures[name]) for name in first}
    doubts = [
        (names[found.checked[i]], f"labelled {found.classes[found.labels[i]]}, predicted as "
         f"{found.classes[found.probabilities[i].argmax()]} ({found.probabilities[i].max():.0%})")
        for i in found.mistakes[:_SHOWN]
    ]  # fmt: skip
    read = sorted((one for one in answers if not one.problem), key=lambda one: one.probability)
    least = min(_SHOWN, (len(read) + 1) // 2)
    bad = [f"{one.name}: {one.problem}" for one in answers if one.problem]

    def listed(title: str, rows: Sequence[tuple[str, str]]) -> list[Json]:
        each = [(as_image(pictures[name]), name, text) for name, text in rows]
        heading = [block("heading", text=title)] if title else []
        return [*heading, block("pictures", pictures=each)] if each else []

    def said(some: Sequence[Answer]) -> list[tuple[str, str]]:
        return [
            (
                one.name,
                f"{one.label} ({one.probability:.0%})"
                + (", unlike every class" if (one.novelty or 0) > 1 else ""),
            )
            for one in some
        ]

    trust: list[Json] = [
        block("text", text=line)
        for line in found.lines(names)
        if not line.startswith(("check ", "and "))
    ]
    if len(found.labels):
        trust.append(block("table", table=_confusion(found, [shown[name] for name in first])))
    if curve := predictor.learning_curve():
        trust.append(block("text", text=curve_in_words(curve)))
    parts = [
        Section("trust", "Can I trust it?", trust, "Trust"),
        Section("doubts", "Doubtful examples", listed("Mislabelled, or hard", doubts), "Doubts"),
        Section(
            "unsure",
            "Least certain answers",
            listed("Label these next", said(read[:least])),
            "Least certain",
        ),
        Section(
            "sure",
            "Most certain answers",
            listed("", said(read[: least - 1 : -1][:_SHOWN])),
            "Certain",
        ),
        Section("bad", "Pictures that cannot be read", [block("items", texts=bad)] if bad else []),
    ]
    lead = f"{len(names)} examples of {len(first)} classes, {len(answers)} pictures to predict."
    write_text(out, html("Answers about pictures", [lead], parts))


def _confusion(found: Reliability, images: Sequence[str]) -> Table:
    counts, own = found.confusion, found.by_class
    lines = [
        Line(
            str(name),
            (
                Cell(image=images[k]),
                Cell(f"{own[name]:.0%}" if name in own else ""),
                *(
                    Cell(str(n or ""), kind="score" if j == k else "bad")
                    for j, n in enumerate(counts[k].tolist())
                ),
            ),
        )
        for k, name in enumerate(found.classes.tolist())
    ]
    columns = ("labelled", "", "right", *(f"as {name}" for name in found.classes.tolist()))
    return Table("How each class was predicted", columns, tuple(lines))
