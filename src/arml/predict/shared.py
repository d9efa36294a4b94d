"""The files of a shared learner and of a predictor, read and checked without JAX.

`config.json` holds the format's version, the learner's experiment, the kind of tasks that it was
built for, and a checksum of itself and of the weights: a file that was altered or cut short is
refused.

The package carries such learners, which are found by name: `shipped`.
"""

import hashlib
import json
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from arml.core.novelty import Bound, Novelty
from arml.core.problem import Problem
from arml.predict.simple import Uses
from arml.results.files import (
    AGAIN,
    Json,
    JsonView,
    RunError,
    checksum,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
)
from arml.results.schema import read_as

FORMAT = 1
"""Version of the folder's format: a later one reads the earlier."""
WHAT = "arml learner"
CONFIG, WEIGHTS, SUPPORT = "config.json", "weights.safetensors", "support.safetensors"
SEEN = "seen.safetensors"
SHIPPED = Path(str(files("arml") / "data" / "learners"))


def shipped() -> tuple[str, ...]:
    """Names of the learners that the package carries."""
    return tuple(sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}")))


def locate(learner: Path | str) -> tuple[Path, str | None]:
    """The folder of a learner or run that is named by its path, or by the name of one that the
    package carries, and a remark for the user. The path of an ONNX model stays as it is.

    A folder here that holds a learner or a run comes before a learner of the package.

    **Raises** `RunError` with the names for a path where nothing is.
    """
    path, names = Path(learner), shipped()
    if path.suffix == ".onnx" and path.is_file():
        return path, None
    if (path / CONFIG).is_file() or (path.is_dir() and str(path) not in names):
        mine = str(path) in names
        return path, f"using the folder {path}, not the learner that ships" if mine else None
    if str(path) in names:
        note = f"the folder {path} holds no learner: using the one that ships with arml"
        return SHIPPED / path, note if path.is_dir() else None
    close = get_close_matches(str(path), names, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise RunError(
        f"expected the folder of a run or of a shared learner, or one that ships "
        f"({', '.join(names)}), found nothing at {path}: check the name, or train one with "
        f"`arml train`{hint}"
    )


def is_learner(path: Path) -> bool:
    """Whether it is a learner that has learned no task: one that ships, a folder, an ONNX model."""
    if (path / CONFIG).is_file():
        return (path / WEIGHTS).is_file() and not (path / SUPPORT).is_file()
    return str(path) in shipped() or path.suffix == ".onnx"


def check_predictor(path: Path) -> None:
    """Raise `RunError` unless it is the folder of a predictor."""
    if (path / SUPPORT).is_file():
        return
    if is_learner(path):
        raise RunError(
            f"expected a predictor, got the learner {path}, which knows none of your classes: "
            f"`arml adapt {path} --support EXAMPLES --save FOLDER` makes a predictor of it"
        )
    found = "another folder" if path.is_dir() else "nothing there"
    raise RunError(
        f"expected the folder of a predictor, got {path}, {found}: `arml adapt LEARNER --support "
        "EXAMPLES --save FOLDER` makes one"
    )


Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]


class SeenSet(msgspec.Struct):
    """The bounds of support sets of so many classes and examples of each."""

    classes: Annotated[int, msgspec.Meta(gt=0)]
    examples: Annotated[int, msgspec.Meta(gt=0)]
    support: Positive
    query: Positive


class Seen(msgspec.Struct):
    """The data that novelty is measured with."""

    support: Positive
    query: Positive | None
    sha256: str
    sets: list[SeenSet] = []


class Learned(msgspec.Struct):
    """The task of a predictor."""

    classes: list[str | int | float | bool] | None
    flat: bool
    sha256: str
    columns: list[str] | None = None
    target: str | None = None
    uses: Uses = "learner"
    shares: dict[Uses, Annotated[float, msgspec.Meta(ge=0, le=1)]] | None = None
    reader: dict[str, object] | None = None


class Content(msgspec.Struct):
    """`config.json`; files of older versions lack the fields with a default."""

    experiment: Json
    problem: Json
    families: tuple[str, ...]
    temperature: Positive
    weights_sha256: str
    trained: Json | None = None
    inputs: Json | None = None
    novelty: Seen | None = None
    task: Learned | None = None


def check_free(folder: Path, *, predictor: bool) -> None:
    """Raise `RunError` unless a learner, or a predictor, can be written there: a new or empty
    folder, or one that holds another of its kind."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"expected an empty or new folder, got the file {folder}: name another")
    if folder.is_dir() and any(folder.iterdir()):
        known = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
        if known.get("what") != WHAT or (known.get("task") is not None) != predictor:
            raise RunError(
                f"expected an empty or new folder, got {folder}, which is not empty: name another"
            )


def write_folder(
    folder: Path,
    facts: JsonView,
    weights: Mapping[str, np.ndarray],
    novelty: Novelty | None,
    *,
    support: Mapping[str, np.ndarray] | None = None,
    task: JsonView | None = None,
) -> None:
    """Write a learner; with `support` and `task`, a predictor: the examples that it adapted to.

    **Arguments**

    - `facts`: the entries of `config.json` that are not about the other files.

    **Raises** `RunError` if it cannot be written, or if the folder holds something else.
    """
    check_free(folder, predictor=task is not None)
    written = write_arrays(folder / WEIGHTS, weights)
    seen, adapted = None, {}
    if support is not None:
        adapted = {"task": {**(task or {}), "sha256": write_arrays(folder / SUPPORT, support)}}
    if novelty is not None:
        bank = write_arrays(folder / SEEN, {"bank": novelty.bank})
        sets = [one._asdict() for one in novelty.sets]
        seen = {"support": novelty.support, "query": novelty.query, "sha256": bank, "sets": sets}
    stated = {**facts, "what": WHAT, "weights_sha256": written, "novelty": seen, **adapted}
    content = json.loads(json.dumps(stated))
    # Last: without it the folder is no learner, so one that is half written is never read.
    write_json(folder / CONFIG, {**content, "sha256": checksum(content)})


def read_novelty(folder: Path, stated: Seen | None) -> Novelty | None:
    if stated is None:
        return None
    bank = read_arrays(folder / SEEN, stated.sha256).get("bank")
    if bank is None or bank.ndim != 2 or not len(bank):
        raise RunError(f"{folder / SEEN}: expected vectors as `bank`, got none: {AGAIN}")
    sets = tuple(Bound(one.classes, one.examples, one.support, one.query) for one in stated.sets)
    return Novelty(bank, stated.support, stated.query, sets)


def read_support(
    folder: Path, problem: Problem, task: Learned
) -> tuple[np.ndarray, np.ndarray, dict[Uses, np.ndarray]]:
    """The support set of a predictor of this `task`, and the fits of simple models to it.

    **Raises** `RunError` if the file does not hold a support set of such a task.
    """
    arrays = read_arrays(folder / SUPPORT, task.sha256)
    x, y, classes = arrays.get("x"), arrays.get("y"), task.classes
    if (
        x is None
        or y is None
        or x.shape[1:] != problem.features
        or len(x) != len(y)
        or not len(x)
        or (classes is None) != (problem.kind == "regression")
        or (classes is None and y.shape != (len(x), problem.outputs))
        or (classes is not None and not (y.ndim == 1 and 0 <= y.min() <= y.max() < len(classes)))
    ):
        raise RunError(f"{folder / SUPPORT}: expected the examples of such a task: {AGAIN}")
    by_class = (len(x), len(classes or ()))
    shapes: dict[Uses, tuple[int, ...]] = {"inputs": by_class, "edges": by_class}
    if classes is None:
        shapes = {"process": (x[0].size + 2,)}
    fits = {
        one: arrays[one]
        for one, shape in shapes.items()
        if one in arrays and arrays[one].shape == shape
    }
    return x, y, fits


def _old_checksum(content: JsonView) -> str:
    """The checksum that version 0.1.0 wrote, of the same content with other separators."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_content(folder: Path) -> tuple[Content, Json]:
    """The `config.json` of a learner or predictor, checked, and as it is.

    **Raises** `RunError` for a folder that is none, is of a later format, was altered or cut short.
    """
    content = read_json(folder / CONFIG)
    stated = content.pop("sha256", None)
    if content.get("what") != WHAT:
        said = "expected a shared learner in {}, found none; name a folder that `arml export` wrote"
        raise RunError(said.format(folder))
    if not isinstance(content.get("format"), int) or content["format"] > FORMAT:
        raise RunError(
            f"{folder}: expected format {FORMAT} or earlier, got {content.get('format')}: use a "
            "later version of arml"
        )
    if stated not in (checksum(content), _old_checksum(content)):
        raise RunError(f"{folder / CONFIG} was altered or cut short: get the learner again")
    where = str(folder / CONFIG)
    # The checksum says that it is as it was written, not that it means anything.
    return read_as(Content, content, where, AGAIN), content
