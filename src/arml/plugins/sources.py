"""The package or the file that a class is of, and its version."""

import hashlib
import inspect
import sys
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """Where a part comes from: an installed package and its version, or a file and its digest."""

    name: str
    version: str

    @property
    def remedy(self) -> str:
        """How to get it again."""
        if self.name.endswith(".py"):
            return f"give --plugin {self.name}, or import that file first"
        return f"install {self.name} {self.version}"


def package_of(module: str) -> Source | None:
    """The installed package that a module is of, if it is of one."""
    package = next(iter(_distributions().get(module.partition(".")[0], ())), None)
    return None if package is None else Source(package, metadata.version(package))


def _is_own(file: str) -> bool:
    return Path(__file__).parents[1] in Path(file).parents


def source_of(cls: type) -> Source | None:
    """Where a class comes from; None for one of this package."""
    if cls.__module__.partition(".")[0] == "arml":
        return None
    package = package_of(cls.__module__)
    if package is not None:
        return package
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    # Code that a script executes has the script's module, and its own file.
    code = getattr(inspect.unwrap(getattr(cls, "build", cls)), "__code__", None)
    if code is not None and code.co_filename != file and not _is_own(code.co_filename):
        file = code.co_filename if Path(code.co_filename).is_file() else None
    if file is None:  # a notebook
        return Source(cls.__module__, "")
    return Source(Path(file).name, hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12])


def warn_of_change(now: Source | None, then: str, where: str) -> None:
    """Warn if `where` was made with another version of a part, `then`."""
    if now is not None and then and then != now.version:
        warnings.warn(
            f"{where}: {now.name} is not the version that this was made with "
            f"({now.version}, not {then})",
            stacklevel=3,
        )


_distributions = cache(metadata.packages_distributions)
