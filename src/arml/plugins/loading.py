"""Plug-in files. An announced file runs when a registry is first used, in this process and in its
worker processes, because the environment variable `ARML_PLUGINS` names it."""

import os
import sys
import traceback
from importlib import util
from pathlib import Path

PLUGINS_VARIABLE = "ARML_PLUGINS"
"""The environment variable that names plug-in files, separated as in PATH."""


def announce(file: Path | str) -> None:
    """Announce a plug-in file to this process and to those that it starts.

    **Raises** `ValueError` if the file does not exist.
    """
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"expected a plug-in file at {file}, found none: check the path")
    paths = announced()
    if str(path) not in paths:
        os.environ[PLUGINS_VARIABLE] = os.pathsep.join([*paths, str(path)])


def announced() -> list[str]:
    """The paths of the announced plug-ins."""
    return [path for path in os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep) if path]


def as_options() -> list[str]:
    """The announced plug-ins as options of a command, to show it to the user."""
    return [word for path in announced() for word in ("--plugin", os.path.relpath(path))]


def place_in_plugin(error: BaseException) -> str:
    """The file and line of the innermost call in an announced plug-in that led to the error; empty
    if there is no call in a plug-in."""
    known, found = announced(), ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename in known:
            found = f"{os.path.relpath(frame.f_code.co_filename)}, line {line}"
    return found


_loaded: set[str] = set()


def load_plugins() -> None:
    """Run the announced plug-ins that have not run yet."""
    for path in announced():
        load_plugin(path)


def load_plugin(file: Path | str) -> None:
    """Run a plug-in file, once in a process. Like a script, it can import modules of its folder.

    **Raises** `ValueError` in one line if that fails.
    """
    path = Path(file).expanduser().resolve()
    if str(path) in _loaded:
        return
    name = path.stem
    while name in sys.modules:
        name += "_"
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"expected a Python file as the plug-in, got {file}: name a .py file")
    module = util.module_from_spec(spec)
    # Registered before it runs: dataclasses look up their module, and registries load plug-ins.
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, because it must not hide an installed module
    _loaded.add(str(path))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        _loaded.discard(str(path))
        del sys.modules[name]
        raise ValueError(f"could not load the plug-in {file}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The type and the text of an error, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
