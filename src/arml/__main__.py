"""The program `arml`, also as `python -m arml`."""

import gc
import io
import signal
import sys

LONG_COMMANDS = {"train", "tune", "grow", "evaluate"}
"""Commands that take many steps, or learn many tasks."""


def write_everything() -> None:
    """Make the output streams take any text, so that no answer fails after all the work: UTF-8 in
    files and pipes, and on a terminal of another encoding `?` for letters that it lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="replace")


def program() -> int:
    """Run the command line; Ctrl-C while it is imported ends it in one line, too."""
    # Imports and tracing make many objects that live on: to look for garbage less often saves a
    # twentieth of the start.
    gc.set_threshold(50_000, 20, 100)
    write_everything()
    try:
        if LONG_COMMANDS.intersection(sys.argv):
            from arml.results.machine import use_memory_again

            use_memory_again()
        from arml.cli import main
    except KeyboardInterrupt:
        print("arml: interrupted", file=sys.stderr)
        return 130
    status = main()
    # All is saved: one more Ctrl-C must not interrupt what ends the process, with a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return status


if __name__ == "__main__":
    sys.exit(program())
