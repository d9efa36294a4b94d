"""The command line. A command is imported when it is called: JAX takes a second to load."""

import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module

from arml.cli.errors import UsageError, named
from arml.cli.stopping import INTERRUPTED, Stop
from arml.core.registry import announce, place_in_plugin

COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("listing", "List settings, methods and data sets; `arml list starter` shows one"),
    "check": ("check", "Check a plug-in's methods, networks and tasks against the contract"),
    "data": ("data", "List, prepare or verify benchmark data sets"),
    "features": ("features", "Turn pictures into the vectors of a frozen ONNX model"),
    "train": ("train", "Meta-train a recipe in a folder; the same command again resumes"),
    "tune": ("tune", "Search a recipe's options on meta-validation tasks, resumably"),
    "evaluate": ("show", "Score a run on new tasks, or a predictor on labelled queries"),
    "adapt": ("adapt", "Learn a task from your own few examples, and predict"),
    "predict": ("adapt", "Predict with a saved predictor"),
    "grow": ("grow", "Teach a trained learner new families; it keeps what it knows"),
    "app": ("app", "Serve a page on this machine to try a learner"),
    "export": ("export", "Write a learner as a folder to share, or a predictor as an ONNX file"),
    "explain": ("show", "Draw figures of the inside of a run, such as ARML's graph"),
    "report": ("show", "Write one self-contained page about runs or predictors"),
}
"""The module and the description of each command, whose function is `NAME_command`."""


UNWOUND = ("app", "data", "features")
"""Commands that unwind after Ctrl-C, because they may have temporary files. Ctrl-C ends all others
at once, also during imports and compilation: they write files atomically, and handle Ctrl-C
themselves while they train."""


LONG = ("train", "tune", "grow")
"""Commands that take minutes, so that a line says from the start that they are at work."""


SMALL = ("adapt", "predict", "app")
"""Commands whose matrix products in NumPy are small. Several threads would wait for each other
longer than they work, above all if other programs run."""


def _help() -> str:
    rows = "\n".join(f"  {name:10}{what}" for name, (_, what) in COMMANDS.items())
    return (
        "usage: arml COMMAND [OPTIONS]\n\nFew-shot meta-learning on heterogeneous tasks.\n\n"
        f"commands:\n{rows}\n\n`arml COMMAND --help` lists a command's options. Every command "
        "takes --plugin FILE.py,\nwhich adds the methods, tasks and networks that the file "
        "registers, and --debug, which shows\nthe traceback of an error. --version prints the "
        "version."
    )


def dispatch(arguments: Sequence[str]) -> int:
    """Carry out one command; returns the exit status."""
    name, *rest = without_plugins(arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name == "--version":
        from arml import __version__

        print(__version__)
        return 0
    module, _ = named("command", name, COMMANDS)
    if name in SMALL:
        # Now, because NumPy reads it when it is imported.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from arml.cli.environment import cores_as_devices, keep_compiled

    keep_compiled()
    cores_as_devices()
    with Stop(idle=lambda: "interrupted").listening():
        # An interrupt inside an import would be lost, or leave half a module.
        with _telling() if name in LONG else nullcontext():
            commands = import_module(f"arml.cli.{module}")
            command: Callable[[Sequence[str]], int] = getattr(commands, f"{name}_command")
        if name not in UNWOUND:
            return command(rest)
    return command(rest)


@contextmanager
def _telling() -> Iterator[None]:
    """Tell that the program loads, if that takes more than a second."""
    later = threading.Timer(1, print, ["arml: loading ..."], {"file": sys.stderr, "flush": True})
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()


def without_plugins(arguments: Sequence[str]) -> list[str]:
    """The arguments without each `--plugin FILE.py`, whose files are announced."""
    left, words = [], iter(arguments)
    for word in words:
        option, equals, file = word.partition("=")
        if option != "--plugin":
            left.append(word)
            continue
        file = file if equals else next(words, "")
        if not file or file.startswith("-"):
            raise UsageError("expected a file after --plugin, got none: --plugin FILE.py")
        announce(file)
    return left


def main(arguments: Sequence[str] | None = None) -> int:
    """The program `arml`. Returns the exit status: 0, 2 for an error, 130 when interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    complain = partial(print, file=sys.stderr)

    def warn(message: Warning | str, *about: object, **more: object) -> None:
        complain(f"arml: warning: {' '.join(str(message).split())}")

    try:
        with warnings.catch_warnings():
            warnings.showwarning = warn
            return dispatch([argument for argument in given if argument != "--debug"])
    except SystemExit as end:
        return int(end.code or 0)
    except KeyboardInterrupt:
        complain("arml: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe (`arml list | head`): nothing more is written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        said = " ".join(str(error).split())
        if isinstance(error, ValueError | OSError):
            complain(f"arml: error: {said}")
            return 2
        what = f"{type(error).__name__}: {said[:300]}"
        if place := place_in_plugin(error):
            complain(f"arml: error: {place}: {what}; correct the plug-in; --debug shows more")
        else:
            complain(
                f"arml: error: unexpected {what}; please report it with the output of the same "
                "command with --debug"
            )
        return 1
