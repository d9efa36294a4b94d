"""The command line. A command is imported when it is called: JAX takes a second to load."""

import hashlib
import os
import platform
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

from arml.core.registry import known
from arml.plugins.loading import announce, place_in_plugin

COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("listing", "List settings, methods and data sets; `arml list starter` shows one"),
    "check": ("check", "Check a plug-in's methods, networks and tasks against the contract"),
    "data": ("data", "List or prepare benchmark data sets"),
    "features": ("data", "Turn pictures into the vectors of a frozen ONNX model"),
    "train": ("train", "Meta-train a recipe in a folder; the same command again resumes"),
    "tune": ("tune", "Search a recipe's options on meta-validation tasks, resumably"),
    "evaluate": ("evaluate", "Score a run on new tasks, or a predictor on labelled queries"),
    "adapt": ("adapt", "Learn a task from your own few examples, and predict"),
    "predict": ("adapt", "Predict with a saved predictor"),
    "grow": (
        "grow",
        "Teach a trained learner new families, if it keeps the known ones",
    ),
    "app": ("export", "Serve a page on this machine to try a learner"),
    "export": ("export", "Write a learner as a folder to share, or a predictor as an ONNX file"),
    "explain": ("evaluate", "Draw figures of the inside of a run, such as ARML's graph"),
    "report": ("evaluate", "Write one self-contained page about runs"),
}
"""The module and the description of each command, whose function is `NAME_command`."""
NESTED_COMMANDS = ("app", "data", "features")
"""Commands that unwind after Ctrl-C, because they may have temporary files. Ctrl-C ends all others
at once, also during imports and compilation: they write files atomically, and handle Ctrl-C
themselves while they train."""
LONG_COMMANDS = ("train", "tune", "grow")
"""Commands that take minutes, so that a line says from the start that they are at work."""
_ANSWERING_COMMANDS = ("adapt", "predict", "app")
"""Commands whose matrix products in NumPy are small. Several threads would wait for each other
longer than they work, above all if other programs run."""
MAX_CACHE_BYTES = 2**30
"""Bytes of the cache of compiled programs, at most."""
JAX_CACHE_SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""By default JAX does not cache programs that compile in less than a second."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The program `arml`. Returns the exit status: 0, 2 for an error, 130 when interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    complain = partial(print, file=sys.stderr)

    def warn(message: Warning | str, *about: object, **more: object) -> None:
        complain(f"arml: warning: {' '.join(str(message).split())}")

    try:
        with warnings.catch_warnings():
            warnings.showwarning = warn
            return dispatch([word for word in words if word != "--debug"])
    except SystemExit as end:
        return int(end.code or 0)
    except KeyboardInterrupt:
        complain("arml: interrupted")
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe (`arml list | head`): nothing more is written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if "--debug" in words:
            traceback.print_exc()
        text = " ".join(str(error).split())
        if isinstance(error, ValueError | OSError):
            complain(f"arml: error: {text}")
            return 2
        what = f"{type(error).__name__}: {text[:300]}"
        if place := place_in_plugin(error):
            complain(f"arml: error: {place}: {what}; correct the plug-in; --debug shows more")
        else:
            complain(
                f"arml: error: unexpected {what}; please report it with the output of the same "
                "command with --debug"
            )
        return 1


def dispatch(arguments: Sequence[str]) -> int:
    """Carry out one command; returns the exit status."""
    name, *rest = _without_plugins(arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name == "--version":
        from arml import __version__

        print(__version__)
        return 0
    module, _ = known("command", name, COMMANDS, 1)
    if name in _ANSWERING_COMMANDS:
        # Now, because NumPy reads it when it is imported.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    keep_compiled()
    cores_as_devices()
    later = threading.Timer(1, print, ["arml: loading ..."], {"file": sys.stderr, "flush": True})
    later.daemon = True
    from arml.cli.console import Stop

    with Stop(idle=lambda: "interrupted").listening():
        # An interrupt inside an import would be lost, or leave half a module.
        if name in LONG_COMMANDS:
            later.start()
        try:
            commands = import_module(f"arml.cli.{module}")
        finally:
            later.cancel()
        command: Callable[[Sequence[str]], int | None] = getattr(commands, f"{name}_command")
        if name not in NESTED_COMMANDS:
            return command(rest) or 0
    return command(rest) or 0


def _help() -> str:
    rows = "\n".join(f"  {name:10}{what}" for name, (_, what) in COMMANDS.items())
    return (
        "usage: arml COMMAND [OPTIONS]\n\nFew-shot meta-learning on heterogeneous tasks.\n\n"
        f"commands:\n{rows}\n\n`arml COMMAND --help` lists a command's options. Every command "
        "takes --plugin FILE.py,\nwhich adds the methods, tasks and networks that the file "
        "registers, and --debug, which shows\nthe traceback of an error. --version prints the "
        "version."
    )


def _without_plugins(arguments: Sequence[str]) -> list[str]:
    """The arguments without each `--plugin FILE.py`, whose files are announced."""
    left, words = [], iter(arguments)
    for word in words:
        option, equals, file = word.partition("=")
        if option != "--plugin":
            left.append(word)
            continue
        file = file if equals else next(words, "")
        if not file or file.startswith("-"):
            raise ValueError("no file after --plugin: --plugin FILE.py")
        announce(file)
    return left


def keep_compiled() -> None:
    """Let JAX cache its programs in `$ARML_CACHE/programs`, unless JAX's own variables are set, so
    that only the first run compiles.

    An entry that was truncated or altered is compiled again, with a warning.
    """
    from arml.datasets.folders import default_folder

    folder = default_folder() / "programs"
    _prune(folder)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / _processor()))
    for name, value in JAX_CACHE_SETTINGS.items():
        os.environ.setdefault(name, value)


def cores_as_devices() -> None:
    """Let JAX use each core of this process as a device, unless its variables are set; see
    `devices.own_cores`."""
    from arml.results.machine import cores

    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(cores()))


def _prune(folder: Path) -> None:
    """Delete the oldest programs beyond `MAX_CACHE_BYTES`, and the empty ones that a full disk
    left: JAX neither reads nor replaces these. Its own bound reads the times of all programs
    whenever it keeps another."""
    with suppress(OSError):
        files = [(path.stat(), path) for path in folder.glob("*/*")]
        excess = sum(stat.st_size for stat, _ in files) - MAX_CACHE_BYTES
        for stat, path in sorted(files, key=lambda pair: pair[0].st_mtime):
            if excess > 0 or not stat.st_size:
                path.unlink(missing_ok=True)
                excess -= stat.st_size


def _processor() -> str:
    """A name for this kind of processor, as machines may share a home directory."""
    features = platform.machine() + platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        features += "".join({line for line in lines if line.startswith(("flags", "Features"))})
    return hashlib.sha256(features.encode()).hexdigest()[:12]
