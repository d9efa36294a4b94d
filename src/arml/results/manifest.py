"""Digests of the files that a run writes beside its checkpoints, in one `manifest.json` a folder.

The writer seals a file when it is complete; the code that draws a page or a table checks it. Files
that only grow (`metrics.jsonl`) are sealed up to their length at that moment, so lines may be added
later. A folder of an older version has no manifest, and files that were never sealed are accepted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from arml.results.files import Json, RunError, digest_of, write_json
from arml.results.forms import Manifest
from arml.results.schema import read_checked

MANIFEST = "manifest.json"
FORMAT = 1
LOCK = ".manifest.lock"
UNSEALED = ("config.json", "failure.json")
"""Files that are replaced when a run is tried again, so that they are not sealed."""


def seal(folder: Path, *names: str, **more: object) -> None:
    """Note the digests of files that were just written in `folder`, and `more` values."""

    def add(files: Json) -> None:
        for name in names:
            size = (folder / name).stat().st_size
            files[name] = {"bytes": size, "sha256": digest_of(folder / name, size).hexdigest()}

    _edit(folder, add, more)


def seal_all(folder: Path) -> None:
    """Seal every file in a folder and below it that is finished, with a manifest in each folder."""
    for place in (folder, *sorted(path for path in folder.rglob("*") if path.is_dir())):
        names = [p.name for p in place.iterdir() if p.is_file() and not p.name.startswith(".")]
        if names := sorted({*names} - {MANIFEST, *UNSEALED}):
            (place / MANIFEST).unlink(missing_ok=True)
            seal(place, *names)
            (place / LOCK).unlink(missing_ok=True)


def unseal(folder: Path, *names: str) -> None:
    """Forget files, before they are changed."""
    if (folder / MANIFEST).exists():
        _edit(folder, lambda files: [files.pop(name, None) for name in names], {})


@contextmanager
def sealed(path: Path) -> Iterator[None]:
    """Seal the file that is written within the block."""
    unseal(path.parent, path.name)
    yield
    seal(path.parent, path.name)


def noted(folder: Path, name: str) -> Any:
    """A value that was noted beside the digests; None if there is none."""
    return _read(folder).get(name)


def check_sealed(path: Path | str) -> None:
    """Check that a file that was sealed is still there and unchanged.

    **Raises** `RunError` if it is not.
    """
    path = Path(path)
    known = _read(path.parent).get("files", {}).get(path.name)
    if known is None:
        return
    found = path.stat().st_size if path.is_file() else -1
    grows = path.suffix == ".jsonl"
    same = found >= known["bytes"] if grows else found == known["bytes"]
    if same and digest_of(path, known["bytes"]).hexdigest() == known["sha256"]:
        return
    what = "is gone" if found < 0 else "has changed"
    raise RunError(
        f"{path} {what} since it was written (its SHA-256 is not the one in {MANIFEST}): "
        f"restore it, make it again, or delete {path.parent / MANIFEST} to use it as it is"
    )


def _edit(folder: Path, change: Callable[[Json], object], more: Json) -> None:
    # A run may be scored while its training goes on.
    with FileLock(folder / LOCK, timeout=60):
        content = {"format": FORMAT, "files": {}, **_read(folder), **more}
        change(content["files"])
        write_json(folder / MANIFEST, content)


def _read(folder: Path) -> Json:
    path = folder / MANIFEST
    if not path.exists():
        return {}
    advice = "restore the file, or delete it to use the files beside it as they are"
    return read_checked(path, Manifest, advice)
