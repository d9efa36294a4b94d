"""The files of a shared learner and of a predictor: readable without running anybody's code, and
without the data that the learner was trained on.

`config.json` holds the learner's experiment, the kind of tasks that it was built for, and checksums
of itself and of the weights: a file that was altered or cut short is refused. A predictor's folder
holds the examples that it learned from, too. A pickle holds the same files, and nothing else.

The package carries such learners, which are found by name: `shipped`. Only what reads or writes
weights loads JAX.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import numpy as np

from arml.datasets.features import PHOTOS
from arml.results.files import (
    Json,
    JsonView,
    RunError,
    checksum,
    read_arrays,
    read_as,
    read_json,
    write_arrays,
    write_json,
)

if TYPE_CHECKING:
    from arml.experiment.running import Portable

AGAIN = "get the learner again"
FORMAT = 1
"""Version of the folder's format."""
CONFIG, WEIGHTS, SUPPORT = "config.json", "weights.safetensors", "support.safetensors"
LEARNED, PHOTOGRAPHS = "arml learner", "arml predictor of photographs"
"""The kinds of folders, as `config.json` states them."""
SHIPPED = Path(str(files("arml") / "data" / "learners"))
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Owner = TypeVar("Owner")


class Task(msgspec.Struct):
    """The facts about a predictor's task."""

    classes: list[str | int | float | bool] | None
    flat: bool
    sha256: str
    columns: list[str] | None = None
    target: str | None = None
    model: str = "learner"
    weights: dict[str, Share] | None = None
    reader: dict[str, object] | None = None


class Content(msgspec.Struct):
    """`config.json` of a learner, or of its predictor."""

    experiment: Json
    problem: Json
    families: tuple[str, ...]
    temperature: Positive
    weights_sha256: str
    trained: Json | None
    inputs: Json | None
    task: Task | None = None


# Where they are.


def shipped() -> tuple[str, ...]:
    """Names of the learners that the package carries."""
    folders = [path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}")]
    return tuple(sorted([PHOTOS.parent.name, *folders]))


def locate(learner: Path | str) -> tuple[Path, str | None]:
    """The folder of a learner or run that is named by its path, or by the name of one that the
    package carries, and a remark for the user. The path of an ONNX model stays as it is.

    A folder here that holds a learner or a run comes before a learner of the package.

    **Raises** `RunError` with the names for a path where nothing is.
    """
    path, names = Path(learner), shipped()
    if path.suffix == ".onnx" and path.is_file():
        return path, None
    mine = str(path) in names
    if (path / CONFIG).is_file() or (path.is_dir() and not mine):
        return path, f"using the folder {path}, not the learner that ships" if mine else None
    if mine:
        note = f"the folder {path} holds no learner: using the one that ships with arml"
        place = PHOTOS if str(path) == PHOTOS.parent.name else SHIPPED / path
        return place, note if path.is_dir() else None
    close = get_close_matches(str(path), names, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise RunError(
        f"no learner at {path}: name the folder of a run or of a shared learner, or one that ships "
        f"({', '.join(names)}), or train one with `arml train`{hint}"
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
            f"{path} is a learner, which knows none of your classes, and no predictor: "
            f"`arml adapt {path} --support EXAMPLES --save FOLDER` makes a predictor of it"
        )
    found = "another folder" if path.is_dir() else "nothing there"
    raise RunError(
        f"no predictor at {path} ({found}): `arml adapt LEARNER --support EXAMPLES --save FOLDER` "
        "makes one"
    )


def check_free(folder: Path, *, predictor: bool) -> None:
    """Raise `RunError` unless a learner, or a predictor, can be written there: a new or empty
    folder, or one that holds another of its kind."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, and no new or empty folder: name another")
    if folder.is_dir() and any(folder.iterdir()):
        known = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
        task = known.get("what") == PHOTOGRAPHS or known.get("task") is not None
        if known.get("what") not in (LEARNED, PHOTOGRAPHS) or task != predictor:
            raise RunError(f"{folder} is not empty: name another folder")


# The configuration.


def kind_of(folder: Path) -> str | None:
    """The kind of a folder, as its `config.json` states it; None for any other."""
    try:
        return str(read_json(folder / CONFIG).get("what"))
    except RunError:
        return None


def write_config(folder: Path, what: str, content: JsonView) -> None:
    """Write `config.json` with a checksum. It comes last: without it the folder is of no kind, so
    one that is half written is never read. **Raises** `RunError` if it cannot be written."""
    whole = json.loads(json.dumps({"what": what, "format": FORMAT, **content}))
    write_json(folder / CONFIG, {**whole, "sha256": checksum(whole)})


def read_config(folder: Path, what: str) -> Json:
    """What `write_config` wrote. **Raises** `RunError` for another kind or version of folder, or if
    it was altered or cut short."""
    content = read_json(folder / CONFIG)
    stated = content.pop("sha256", None)
    if content.get("what") != what:
        raise RunError(f"{folder} is no {what}: name a folder that arml wrote")
    if content.get("format") != FORMAT:
        raise RunError(
            f"{folder}: its format is {content.get('format')}, not {FORMAT}: use the version of "
            "arml that wrote it"
        )
    if stated != checksum(content):
        raise RunError(f"{folder / CONFIG} was altered or cut short: {AGAIN}")
    return content


# Learners with their weights.


def write_learner(
    portable: "Portable",
    folder: Path | str,
    *,
    support: Mapping[str, np.ndarray] | None = None,
    task: JsonView | None = None,
) -> None:
    """Write a learner; with `support` and `task`, a predictor: the examples that it adapted to.

    **Raises** `RunError` if it cannot be written, or if the folder holds something else.
    """
    from arml.experiment.options import to_json
    from arml.training.checkpoint import named
    from arml.training.devices import provenance

    folder = Path(folder)
    check_free(folder, predictor=task is not None)
    arrays = {name: np.asarray(leaf) for name, leaf in named(portable.learner).items()}
    experiment = to_json(portable.experiment)
    # Paths of the training data are removed: they mean nothing on another machine.
    experiment["tasks"].pop("data", None)
    facts: Json = {
        "experiment": experiment,
        "problem": dataclasses.asdict(portable.problem),
        "families": portable.families,
        "temperature": portable.temperature,
        "inputs": portable.inputs,
        "trained": portable.trained,
        "made": provenance(),
        "weights_sha256": write_arrays(folder / WEIGHTS, arrays),
    }
    if support is not None:
        facts["task"] = {**(task or {}), "sha256": write_arrays(folder / SUPPORT, support)}
    write_config(folder, LEARNED, facts)


def read_learner(folder: Path) -> tuple["Portable", Task | None]:
    """A learner that `write_learner` wrote, and its task if it is that of a predictor.

    **Raises** `RunError` for a folder that is none, was altered or cut short.
    """
    import equinox as eqx

    from arml.experiment.options import from_json
    from arml.experiment.recipes import initial
    from arml.experiment.running import Portable, problem_of
    from arml.training.checkpoint import filled, named

    where = str(folder / CONFIG)
    # The checksum says that it is as it was written, not that it means anything.
    known = read_as(Content, read_config(folder, LEARNED), where, AGAIN)
    experiment = from_json(known.experiment, where)
    problem = problem_of(known.problem, f"{where}: problem")
    arrays = read_arrays(folder / WEIGHTS, known.weights_sha256)
    try:
        blank = eqx.filter_eval_shape(initial, experiment, problem)
    except Exception as error:
        first = " ".join(str(error).split())[:200]
        raise RunError(f"{where}: no learner can be built of its options: {first}") from error
    wanted = {name: array.shape for name, array in named(blank).items()}
    if wanted != {name: array.shape for name, array in arrays.items()}:
        raise RunError(
            f"{folder}: its weights are not those of the learner that this version builds: use the "
            "version of arml that wrote it"
        )
    portable = Portable(
        experiment,
        filled(blank, arrays),
        problem,
        known.families,
        known.temperature,
        trained=known.trained,
        inputs=known.inputs,
    )
    return portable, known.task


# Pickles.


def packed(save: Callable[[Path], None]) -> dict[str, bytes]:
    """The files that `save` writes into a folder, by name: what a pickle holds. A learner has
    functions inside that pickle cannot name."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "kept"
        save(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def unpacked(load: Callable[[Path], Owner], files: dict[str, bytes]) -> Owner:
    """The object that `load` reads from the folder with these files."""
    with TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        return load(Path(folder))
