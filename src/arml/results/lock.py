"""A lock that lets one process at a time work in a folder; the system releases the lock when the
process dies."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from arml.results.files import RunError

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
