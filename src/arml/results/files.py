"""Files that are never half-written, checked JSON, and a lock for a folder.

Every whole-file write is atomic: a killed process or a full disk leaves the old file or the new
one. JSON has no NaN and no infinity: a number that is not finite is written as `null`. Arrays are
safetensors, with a checksum that is kept elsewhere. JSON from elsewhere is checked by msgspec
against the types of our data before it is used.
"""

import contextlib
import csv
import dataclasses
import errno
import hashlib
import io
import json
import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec
import numpy as np
from filelock import FileLock, Timeout

T = TypeVar("T")
Json = dict[str, Any]
"""A JSON object. Its types are checked where it is read, by `read_as`."""
JsonView = Mapping[str, Any]
"""A JSON object that is only read."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Text = Annotated[str, msgspec.Meta(max_length=10_000)]


def brief(error: BaseException, most: int | None = None) -> str:
    """The text of an error in one line, of at most `most` letters."""
    return " ".join(str(error).split())[:most]


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


class RunError(ValueError):
    """A file or folder that cannot be read or written: one line, with a remedy."""


def plain(value: object) -> Any:
    """`value` in the types of JSON: arrays become nested lists, paths strings, and numbers that are
    not finite None. **Raises** `TypeError` for a value unknown to JSON."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"expected a value that JSON can hold, got {type(value).__name__}")
    return array.tolist()


def cannot_write(path: Path, error: OSError) -> RunError:
    return RunError(
        f"could not write {path}: {error.strerror or error}; free some space, or check the folder "
        "and its permissions, and run the same command again"
    )


def check_writable(*places: Path) -> None:
    """Raise `RunError`, before any work, for a file or folder that cannot be written."""
    for place in places:
        nearest = next(path for path in (place, *place.absolute().parents) if path.exists())
        if not os.access(nearest, os.W_OK):
            raise RunError(f"{place} cannot be written: name another path")


def atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a temporary file beside `path`, flush it to the disk, and rename it: the old file is
    replaced as a whole, or it stays. **Raises** `OSError`."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is a folder or a device, which no file can replace")
    # In the same folder, because a rename is atomic only within one file system. Files of
    # `tempfile` can be read by one user only, and a cache or a split may be shared.
    temporary = path.with_name(f".{path.name[:64]}.{os.getpid()}-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_whole(path: Path | str, write: Callable[[BinaryIO], object]) -> None:
    """`atomically`, making the folder if need be. **Raises** `RunError` if it cannot be written."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomically(path, write)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_bytes(path: Path | str, data: bytes) -> None:
    """`write_whole` of these bytes."""
    write_whole(path, lambda file: file.write(data))


def write_text(path: Path | str, text: str) -> None:
    """`write_bytes` of the text in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path | str, value: JsonView) -> None:
    """Write `value` as JSON, atomically, as `plain` makes it. **Raises** as `write_whole`."""
    write_text(path, json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write arrays as safetensors, atomically; returns the file's SHA-256."""
    data = serialised(arrays)
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def serialised(arrays: Mapping[str, np.ndarray], **metadata: str) -> bytes:
    """Arrays as safetensors."""
    from safetensors.numpy import save

    # Not `ascontiguousarray`, which gives a scalar an axis.
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(whole, metadata or None)


def read_bytes(path: Path) -> bytes:
    """The content of a file. **Raises** `RunError` if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"expected a file {path}, found none; check the folder's name") from None
    except OSError as error:
        raise RunError(
            f"could not read {path}: {error.strerror or error}; check the path and its permissions"
        ) from error


def read_json(path: Path | str) -> Json:
    """Read a file that holds one JSON object. **Raises** `RunError` for another."""
    data = read_bytes(Path(path))
    try:
        return msgspec.json.decode(data, type=Json)
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"expected a JSON object in {path}, got one cut short or damaged ({error}); "
            "restore the file or make it again"
        ) from error


def read_as(kind: type[T] | GenericAlias, value: object, where: str, advice: str) -> T:
    """Convert a JSON value to a type that msgspec supports. **Raises** `RunError` in one line that
    begins with `where` and ends with `advice`."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        raise RunError(f"{where}: {error}; {advice}") from None


def read_options(kind: type[T], value: JsonView, where: str, advice: str) -> T:
    """Make a dataclass of options from a JSON object, which has some of its fields and no others.
    **Raises** as `read_as`."""
    fields = []
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        needed = field.default is field.default_factory is dataclasses.MISSING
        if field.name in value or needed:
            # Values that are objects already, such as the parts of an experiment, are not checked.
            made = isinstance(field.type, type) and field.type not in (int, float, str, bool)
            fields.append((field.name, Any if made else field.type))
    struct = msgspec.defstruct(kind.__name__, fields, forbid_unknown_fields=True, kw_only=True)
    read = read_as(struct, dict(value), where, advice)
    return kind(**{name: getattr(read, name) for name in value})


def read_arrays(path: Path, sha256: str) -> dict[str, np.ndarray]:
    """Arrays that `write_arrays` wrote. **Raises** `RunError` if the file is missing or damaged."""
    from safetensors.numpy import load

    data = read_bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RunError(f"{path} was altered or cut short: get the learner again")
    try:
        return dict(load(data))
    except Exception as error:  # safetensors' own type, and NumPy's
        raise RunError(
            f"{path}: expected safetensors, got: {error}; get the learner again"
        ) from error


def checksum(content: object) -> str:
    """SHA-256 of a JSON value; the order of its keys does not matter."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(content: JsonView) -> Json:
    """A JSON object with its checksum."""
    whole = plain(content)
    return {**whole, "sha256": checksum(whole)}


def unsealed(content: JsonView, where: str) -> Json:
    """The content of `sealed`, or of an older file without a checksum. **Raises** `RunError` if it
    was altered."""
    whole = {name: value for name, value in content.items() if name != "sha256"}
    if content.get("sha256", checksum(whole)) != checksum(whole):
        raise RunError(
            f"{where} was altered, because its checksum is another: restore it, or remove the line "
            "sha256 if you changed it yourself"
        )
    return whole


def digest_of(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def append_metric(path: Path, record: JsonView) -> None:
    """Add one record to `metrics.jsonl`. **Raises** `RunError` if it cannot be written."""
    whole = plain(record)
    try:
        with open(path, "ab") as file:
            file.write((json.dumps({**whole, "crc32": _crc(whole)}) + "\n").encode())
    except OSError as error:
        raise cannot_write(path, error) from error


def _crc(record: JsonView) -> int:
    return zlib.crc32(json.dumps(record).encode())


def read_metrics(path: Path) -> list[Json]:
    """The records of `metrics.jsonl` in order; none if there is no file. A last line without an end
    is left out: its process was killed, or is still writing. **Raises** `RunError` for a damaged
    line."""
    whole = read_bytes(path).rpartition(b"\n")[0] if path.exists() else b""
    try:
        records = msgspec.json.Decoder(dict[str, int | float | None]).decode_lines(whole)
        for record in records:
            msgspec.convert(record.get("step"), int)
            stated = record.pop("crc32", None)
            if stated not in (None, _crc(record)):
                raise ValueError(f"the checksum of step {record['step']} differs")
    except ValueError as error:
        raise RunError(
            f"expected one JSON object a line in {path}, got a damaged one ({error}); remove the "
            "line, or restore the file"
        ) from error
    return records


def drop_half_line(path: Path) -> None:
    """Cut off a last line without an end, which was not written whole. **Raises** `OSError`."""
    with open(path, "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        if file.read(1) not in (b"", b"\n"):
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def truncate_metrics(path: Path, step: int) -> None:
    """Drop the records after `step` and an incomplete last line, so that a run can resume."""
    if path.exists():
        lines = zip(read_metrics(path), read_bytes(path).splitlines(keepends=True), strict=False)
        write_bytes(path, b"".join(line for record, line in lines if record["step"] <= step))


LOCK_ENDING = ".lock"
"""The locked file. It stays unless the folder is otherwise empty."""


@contextlib.contextmanager
def locked(folder: Path, patience: float = 0) -> Iterator[None]:
    """Lock a folder for this thread, which may lock it again. **Raises** `RunError` if another
    process or thread holds it for `patience` seconds, or it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.absolute() / LOCK_ENDING, timeout=0, is_singleton=True)
        lock.acquire(timeout=patience)
    except Timeout:
        raise RunError(f"{folder}: another process is using it; wait for it, or stop it") from None
    except OSError as error:
        raise RunError(
            f"expected a folder that can be written at {folder}, got: {error.strerror or error}; "
            "name another"
        ) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if [path.name for path in folder.iterdir()] == [LOCK_ENDING]:
                # A process that waits for the deleted file starts again with a new one.
                (folder / LOCK_ENDING).unlink()
                folder.rmdir()
        lock.release()
