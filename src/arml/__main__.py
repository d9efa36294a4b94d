"""The program `arml`, also as `python -m arml`."""

import sys


def program() -> int:
    """Run the command line; Ctrl-C while it is imported ends it in one line, too."""
    try:
        from arml.cli import main
    except KeyboardInterrupt:
        print("arml: interrupted", file=sys.stderr)
        return 130
    return main()


if __name__ == "__main__":
    sys.exit(program())
