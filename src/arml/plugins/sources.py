"""The package or file that defines a class, and its version."""

import hashlib
import inspect
import sys
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """The origin of a class: an installed package and its version, or a file and its digest."""

    name: str
    version: str

    @property
    def remedy(self) -> str:
        """What the user must do to load it."""
        if self.name.endswith(".py"):
            return f"give --plugin {self.name}, or import that file first"
        return f"install {self.name} {self.version}"


def package_of(module: str) -> Source | None:
    """The installed package of a module; None if it belongs to no package."""
    package = next(iter(_distributions().get(module.partition(".")[0], ())), None)
    return None if package is None else Source(package, metadata.version(package))


def _is_own(file: str) -> bool:
    return Path(__file__).parents[1] in Path(file).parents


def source_of(cls: type) -> Source | None:
    """The origin of a class; None for a class of this package."""
    if cls.__module__.partition(".")[0] == "arml":
        return None
    package = package_of(cls.__module__)
    if package is not None:
        return package
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    # Code that a script runs by `exec` has the module of the script, but another file.
    code = getattr(inspect.unwrap(getattr(cls, "build", cls)), "__code__", None)
    if code is not None and code.co_filename != file and not _is_own(code.co_filename):
        file = code.co_filename if Path(code.co_filename).is_file() else None
    if file is None or not Path(file).is_file():  # a notebook, or a program from standard input
        return Source(cls.__module__, "")
    return Source(Path(file).name, hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12])


def warn_of_change(now: Source | None, then: str, where: str) -> None:
    """Warn if `where` was made with the version `then`, and that is not the version `now`."""
    if now is not None and then and then != now.version:
        warnings.warn(
            f"{where}: {now.name} is not the version that this was made with "
            f"({now.version}, not {then})",
            stacklevel=3,
        )


_distributions = cache(metadata.packages_distributions)
