"""Files that are never half-written, and a lock for a folder.

Every whole-file write is atomic: a killed process or a full disk leaves the old file or the new
one. JSON has no NaN and no infinity: a number that is not finite is written as `null`. Arrays are
safetensors, with a checksum that is kept elsewhere.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np
from filelock import FileLock, Timeout

Json = dict[str, Any]
"""A JSON object. Its types are checked where it is read (`results/schema.py`)."""
JsonView = Mapping[str, Any]
"""A JSON object that is only read."""


class RunError(ValueError):
    """A run folder that cannot be read or written: one line, with a remedy."""


@runtime_checkable
class _ArrayLike(Protocol):
    def __array__(self) -> np.ndarray: ...


def plain(value: object) -> Any:
    """`value` in the types of JSON; numbers that are not finite become None."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else None
        case Path():
            return str(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _ArrayLike():
            return plain(np.asarray(value).tolist())
    raise TypeError(f"expected a value that JSON can hold, got {type(value).__name__}")


def _cannot_write(path: Path, error: OSError) -> RunError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "free some space" if full else "check the folder and its permissions"
    reason = error.strerror or str(error)
    return RunError(
        f"could not write {path}: {reason}; {'the old file is unchanged; ' * path.is_file()}"
        f"{advice} and run the same command again"
    )


def atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a temporary file beside `path`, flush it to the disk, and rename it: the old file is
    replaced as a whole, or it stays.

    **Raises:** `OSError`.
    """
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device or another special file"
        raise OSError(errno.EINVAL, f"it is {kind}, which cannot be replaced by a file")
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
    _sync_folder(path.parent)


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write a whole file atomically, making its folder if need be.

    **Raises:** `RunError` if it cannot be written; the old file, if there is one, is unchanged.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomically(path, lambda file: file.write(data))
    except OSError as error:
        raise _cannot_write(path, error) from error


def checksum(content: object) -> str:
    """SHA-256 of a JSON value; the order of its keys does not matter."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(
    path: Path,
    size: int | None = None,
    *,
    algorithm: str = "sha256",
    told: Callable[[int], object] = lambda done: None,
) -> "hashlib._Hash":
    """The digest of a file, or of its first `size` bytes. `told` is called with the bytes read."""
    digest, done = hashlib.new(algorithm, usedforsecurity=False), 0
    size = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while done < size and (part := file.read(min(size - done, 2**20))):
            digest.update(part)
            done += len(part)
            told(done)
    return digest


def _sync_folder(folder: Path) -> None:
    """Make sure that a rename survives a power cut, where the system allows it: Windows cannot open
    a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path | str, text: str) -> None:
    """`write_bytes` of the text in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path | str, value: JsonView) -> None:
    """Write `value` as JSON, atomically.

    Arrays become nested lists, paths strings, numbers that are not finite `null`.

    **Raises:** `RunError` if it cannot be written, `TypeError` for a value unknown to JSON.
    """
    write_text(path, json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse(text: bytes) -> Json:
    value = json.loads(text.decode(), parse_constant=_refuse_constant)
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


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
    """Read a file that holds one JSON object.

    **Raises:** `RunError` if it is absent, cut short, or not a JSON object.
    """
    data = read_bytes(Path(path))
    try:
        return _parse(data)
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"expected a JSON object in {path}, got one cut short or damaged ({error}); "
            "restore the file or make it again"
        ) from error


def append_metric(path: Path | str, record: JsonView) -> None:
    """Add one record to `metrics.jsonl`: one write of a whole line.

    If a killed process left its last line incomplete, that line is removed first. A line that does
    not fit on the disk is removed again.

    **Raises:** `RunError` if it cannot be written; the records before it are unchanged.
    """
    path = Path(path)
    line = (json.dumps(plain(record), allow_nan=False) + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            if file.read(1) not in (b"", b"\n"):
                file.seek(0)
                end = file.readall().rfind(b"\n") + 1
                file.truncate(end)
            try:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise _cannot_write(path, error) from error


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and abs(value) < 1e300)


def _metric_lines(path: Path) -> list[tuple[bytes, Json]]:
    """The complete lines of the file, each with its record."""
    # A last line without an end is incomplete: its process was killed, or is still writing.
    lines = read_bytes(path).split(b"\n")[:-1] if path.exists() else []
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = _parse(line)
            if not isinstance(record.get("step"), int) or not all(map(_is_number, record.values())):
                raise ValueError("expected a whole number `step`, and numbers or null")
        except ValueError as error:
            if number == len(lines):
                break
            raise RunError(
                f"expected one JSON object a line in {path}, got line {number} damaged ({error}); "
                "remove the line, or restore the file"
            ) from error
        records.append((line, record))
    return records


def read_metrics(path: Path | str) -> list[Json]:
    """The records of `metrics.jsonl` in order, without an incomplete last line; none if there is no
    file.

    **Raises:** `RunError` for a damaged line before the last.
    """
    return [record for _, record in _metric_lines(Path(path))]


def truncate_metrics(path: Path | str, step: int) -> None:
    """Drop the records after `step`, atomically, so that a run can resume from there."""
    path = Path(path)
    kept = [line + b"\n" for line, record in _metric_lines(path) if record["step"] <= step]
    if path.exists():
        write_bytes(path, b"".join(kept))


AGAIN = "get the learner again"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write arrays as safetensors, atomically; returns the file's SHA-256."""
    from safetensors.numpy import save

    # Not `ascontiguousarray`, which gives a scalar an axis.
    data = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def read_arrays(path: Path, sha256: str) -> dict[str, np.ndarray]:
    """Arrays that `write_arrays` wrote.

    **Raises** `RunError` if the file is missing, damaged, or has another checksum.
    """
    from safetensors.numpy import load

    data = read_bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RunError(f"{path} was altered or cut short: {AGAIN}")
    try:
        return dict(load(data))
    except Exception as error:  # safetensors' own type, and NumPy's
        raise RunError(f"{path}: expected safetensors, got: {error}; {AGAIN}") from error


LOCK = ".lock"
"""The file that is locked. It stays after the lock is released, unless the folder holds nothing
else."""


class Hold:
    """A folder that this process holds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._file = folder, _identity(folder / LOCK)

    def check(self) -> None:
        """Check that the folder was not deleted or replaced while it was held.

        **Raises** `RunError` if it was.
        """
        if _identity(self.folder / LOCK) != self._file:
            raise RunError(
                f"{self.folder} was deleted or replaced while this process worked in it: nothing "
                "more is written; run the same command again in a folder that stays"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[Hold]:
    """Hold a folder; a thread that holds it may hold it again.

    **Raises** `RunError` at once if another process or thread holds it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.absolute() / LOCK, timeout=0, is_singleton=True)
        lock.acquire()
    except Timeout:
        raise RunError(
            f"{folder}: another process is at work here; wait for it, or stop it"
        ) from None
    except OSError as error:
        raise RunError(
            f"expected a folder that can be written at {folder}, got: {error.strerror or error}; "
            "name another"
        ) from error
    try:
        yield Hold(folder)
    finally:
        with contextlib.suppress(OSError):
            if [path.name for path in folder.iterdir()] == [LOCK]:
                # A process that waits for the deleted file starts again with a new one.
                (folder / LOCK).unlink()
                folder.rmdir()
        lock.release()


def extra(package: str, name: str, purpose: str) -> Any:
    """Import a package of the extra `arml[NAME]`.

    **Raises** `ValueError` in one line if it is not installed.
    """
    try:
        return import_module(package)
    except ImportError:
        raise ValueError(
            f"expected the package {package} for {purpose}, found none: pip install 'arml[{name}]'"
        ) from None
