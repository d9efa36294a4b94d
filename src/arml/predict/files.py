"""Finds, reads and writes the folders of shared learners and of predictors. Their `config.json`
contains its own checksum, and a file that was altered or cut short is refused.

Some learners ship with the package and are found by name: `shipped`. This module loads no JAX.
"""

import io
import zipfile
import zlib
from collections.abc import Callable
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, TypeVar

from arml.datasets.features import PHOTOS_MODEL
from arml.predict.kinds import untrained
from arml.results.files import (
    Json,
    JsonView,
    RunError,
    checksum,
    read_json,
    sealed,
    write_json,
)
from arml.results.folder import CONFIG_FILE

GET_LEARNER_AGAIN = "get the learner again"
_FORMAT_VERSION = 1
"""The version of the format of folders."""
WEIGHTS_FILE, SUPPORT_FILE = "weights.safetensors", "support.safetensors"
LEARNER_FORMAT, PREDICTOR_FORMAT = "arml learner", "arml predictor of "
"""The kinds of folders in `config.json`. The name of the kind of inputs follows the second text."""
_MAX_UNPACKED_BYTES = 2**30
"""The largest size of a predictor that is unpacked from a zip, in bytes."""
MAX_SENT_BYTES = 2**26
"""The same for a zip that was sent to the page in the browser."""
SHIPPED_LEARNERS = Path(str(files("arml") / "data" / "learners"))
Owner = TypeVar("Owner")


# Finding folders.


def shipped() -> tuple[str, ...]:
    """The names of the learners that ship with the package."""
    folders = [path.parent.name for path in SHIPPED_LEARNERS.glob(f"*/{CONFIG_FILE}")]
    return tuple(sorted([PHOTOS_MODEL.parent.name, *folders]))


def locate(learner: Path | str) -> tuple[Path, str | None]:
    """The folder of a learner or a run, from its path or from the name of a learner that ships, and
    a remark for the user. The path of an ONNX model is returned as it is.

    A folder in the working directory is preferred, if it holds a learner or a run.

    **Raises** `RunError` with the known names if nothing is found.
    """
    path, names = Path(learner), shipped()
    if path.suffix == ".onnx" and path.is_file():
        return path, None
    mine = str(path) in (*names, *untrained())
    if (path / CONFIG_FILE).is_file() or (path.is_dir() and not mine):
        return path, f"using the folder {path}, not the learner that ships" if mine else None
    if mine:
        note = f"the folder {path} holds no learner: using the one that ships with arml"
        place = PHOTOS_MODEL if str(path) == PHOTOS_MODEL.parent.name else SHIPPED_LEARNERS / path
        return place if str(path) in names else path, note if path.is_dir() else None
    names = (*names, *untrained())
    close = get_close_matches(str(path), names, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise RunError(
        f"no learner at {path}: name the folder of a run or of a shared learner, or one that ships "
        f"({', '.join(names)}), or train one with `arml train`; a kind of inputs of your own needs "
        f"--plugin FILE.py (in Python: arml.register){hint}"
    )


def is_learner(path: Path) -> bool:
    """Whether it is a learner without a task: one that ships, a folder, or an ONNX model."""
    if (path / CONFIG_FILE).is_file():
        return (path / WEIGHTS_FILE).is_file() and not (path / SUPPORT_FILE).is_file()
    return str(path) in (*shipped(), *untrained()) or path.suffix == ".onnx"


def is_predictor(path: Path) -> bool:
    """Whether it is the folder of a predictor, or a zip file."""
    return (path / SUPPORT_FILE).is_file() or zipfile.is_zipfile(path)


def check_predictor(path: Path) -> None:
    """Raise `RunError` unless it is the folder of a predictor, or a zip file."""
    if is_predictor(path):
        return
    if is_learner(path):
        raise RunError(
            f"{path} is a learner, not a predictor: it has not learned your classes. "
            f"`arml adapt {path} --support EXAMPLES --save FOLDER` makes a predictor of it"
        )
    found = "another folder" if path.is_dir() else "nothing there"
    raise RunError(
        f"no predictor at {path} ({found}): `arml adapt LEARNER --support EXAMPLES --save FOLDER` "
        "makes one"
    )


def check_free(folder: Path, *, predictor: bool, task: JsonView = MappingProxyType({})) -> None:
    """Raise `RunError` unless a learner, or a predictor, can be written there: a new or empty
    folder, or one that holds another of its kind. A predictor is only replaced by one that knows
    all of its classes (its target, its columns) and has the same kind of inputs, as far as the new
    `task` names them (`what` is the kind)."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a new or empty folder: name another")
    if folder.is_dir() and any(folder.iterdir()):
        known = read_json(folder / CONFIG_FILE) if (folder / CONFIG_FILE).exists() else {}
        encoded = str(known.get("what")).startswith(PREDICTOR_FORMAT)
        holds_task = encoded or known.get("task") is not None
        if not (encoded or known.get("what") == LEARNER_FORMAT) or holds_task != predictor:
            raise RunError(f"{folder} is not empty: name another folder")
        kind, new_kind = (str(facts.get("what")) for facts in (known, task))
        if encoded and "what" in task and kind != new_kind:
            raise RunError(
                f"{folder} holds an {kind}, not an {new_kind}: name another folder, or delete it"
            )
        held: Any = known.get("task") or known
        for name in ("classes", "target", "columns"):
            old, new = _texts(held.get(name)), _texts(task.get(name))
            # A regression has no classes; a target or columns may be unknown.
            compared = old or new if name == "classes" and name in task else old and new
            if compared and not (old and {*old} <= {*new}):
                few = ", ".join(old[:5]) + ", ..." * (len(old) > 5)
                other = f"{'another' if name == 'target' else 'other'} {name} ({few})"
                raise RunError(
                    f"{folder} holds a predictor of {other if old else 'numbers'}: name another "
                    "folder, or delete it"
                )


def _texts(value: object) -> list[str]:
    return [*map(str, value)] if isinstance(value, list | tuple) else [str(value)] * bool(value)


def check_new(folder: Path) -> None:
    """Raise `RunError` unless the folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is not empty: name a new folder")


# The configuration.


def write_checked(folder: Path, what: str, content: JsonView) -> None:
    """Write `config.json` with a checksum. It is written last. A folder without it is refused, so a
    half-written folder is never read. **Raises** `RunError` if it cannot be written."""
    write_json(folder / CONFIG_FILE, sealed({"what": what, "format": _FORMAT_VERSION, **content}))


def read_checked(folder: Path, what: str) -> Json:
    """The content that `write_checked` wrote. **Raises** `RunError` for another kind or version of
    folder, or if it was altered or cut short."""
    content = read_json(folder / CONFIG_FILE)
    stated = content.pop("sha256", None)
    if content.get("what") != what:
        raise RunError(f"{folder} is not an {what}: name a folder that arml wrote")
    if content.get("format") != _FORMAT_VERSION:
        raise RunError(
            f"{folder}: its format is {content.get('format')}, not {_FORMAT_VERSION}: use "
            "the version of arml that wrote it"
        )
    if stated != checksum(content):
        raise RunError(f"{folder / CONFIG_FILE} was altered or cut short: {GET_LEARNER_AGAIN}")
    return content


# Pickles.


def packed(save: Callable[[Path], None]) -> dict[str, bytes]:
    """The files that `save` writes into a folder, by name. A pickle holds these files, because
    pickle cannot store the functions in a learner."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "kept"
        save(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def zipped(data: bytes, most: int = _MAX_UNPACKED_BYTES) -> dict[str, bytes]:
    """The files of such a folder in a zip. **Raises** `RunError` for any other zip, and for one
    whose files have more than `most` bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = {one.filename: one.file_size for one in archive.infolist()}
            tops = [name.removesuffix(CONFIG_FILE) for name in names if name.endswith(CONFIG_FILE)]
            if not tops:
                raise RunError("it holds no predictor")
            top = min(tops, key=len)
            found = [
                name for name in (CONFIG_FILE, WEIGHTS_FILE, SUPPORT_FILE) if top + name in names
            ]
            if sum(names[top + name] for name in found) > most:
                raise RunError("it is too large: unpack it, and give the folder")
            return {name: archive.read(top + name) for name in found}
    except (zipfile.BadZipFile, NotImplementedError, OSError, zlib.error) as error:
        raise RunError(f"it is not a zip: {error}") from error


def unpacked(load: Callable[[Path], Owner], files: dict[str, bytes]) -> Owner:
    """The object that `load` reads from the folder with these files."""
    with TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        return load(Path(folder))
