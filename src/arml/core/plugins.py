"""Parts from outside this package: entry points of installed packages, and plug-in files.

A plug-in is a Python file that calls `arml.register`. `load_plugin` runs one. A registry runs those
that the environment variable `ARML_PLUGINS` names at its first use, in worker processes too.
"""

import hashlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "ARML_PLUGINS"
"""The environment variable that names plug-in files, separated as in PATH."""


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


def source_of(cls: type) -> Source | None:
    """Where a class comes from; None for one of this package."""
    top = cls.__module__.partition(".")[0]
    if top == "arml":
        return None
    package = next(iter(_distributions().get(top, ())), None)
    if package is not None:
        return Source(package, metadata.version(package))
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
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


def entry_points(group: str) -> Iterator[tuple[str, Any]]:
    """Name and object of each entry point of a group.

    **Raises** `ValueError` in one line for one that cannot be loaded.
    """
    for point in metadata.entry_points(group=group):
        try:
            found = point.load()
        except Exception as error:
            package = point.dist.name if point.dist else "a package"
            raise ValueError(
                f"could not load {point.name!r} of {package}: {_said(error)}; update or remove it"
            ) from error
        yield point.name, found


def announce(file: Path | str) -> None:
    """Announce a plug-in file to this process and to those that it starts.

    **Raises** `ValueError` if there is no such file.
    """
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"expected a plug-in file at {file}, found none: check the path")
    paths = _announced()
    if str(path) not in paths:
        os.environ[VARIABLE] = os.pathsep.join([*paths, str(path)])


def _announced() -> list[str]:
    return [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]


def as_options() -> list[str]:
    """The announced plug-ins as options, for a command that is shown to the user."""
    return [word for path in _announced() for word in ("--plugin", os.path.relpath(path))]


def place_in_plugin(error: BaseException) -> str:
    """The file and line of the innermost call of an announced plug-in that raised the error; empty
    if none was called."""
    known, found = _announced(), ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename in known:
            found = f"{os.path.relpath(frame.f_code.co_filename)}, line {line}"
    return found


_loaded: set[str] = set()


def load_plugins() -> None:
    """Run the announced plug-ins that have not run yet."""
    for path in _announced():
        load_plugin(path)


def load_plugin(file: Path | str) -> None:
    """Run a plug-in file, once in a process. It can import the modules of its folder, as a script
    can.

    **Raises** `ValueError` in one line if that fails.
    """
    path = Path(file).expanduser().resolve()
    if str(path) in _loaded:
        return
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else "plugin"
    while name in sys.modules:
        name += "_"
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"expected a Python file as the plug-in, got {file}: name a .py file")
    module = util.module_from_spec(spec)
    # Before it runs, because dataclasses look up their module, and registries load plug-ins.
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, so that no installed module is hidden
    _loaded.add(str(path))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        _loaded.discard(str(path))
        del sys.modules[name]
        raise ValueError(f"could not load the plug-in {file}: {_said(error)}") from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
