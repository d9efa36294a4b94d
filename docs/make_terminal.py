"""Draw what a command prints in a terminal, as an SVG picture.

python docs/make_terminal.py docs/images/adapt.svg arml adapt --support my-classes --query photos

The command runs in the current folder, in a terminal of 100 columns.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 100


def main() -> None:
    """Run the command, and write the picture of its output."""
    out, command = Path(sys.argv[1]), sys.argv[2:]
    terminal = {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    made = subprocess.run(
        command,
        env={**os.environ, **terminal},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=True,
    )
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        console = Console(record=True, width=COLUMNS, file=nothing, force_terminal=True)
        shown = [Path(command[0]).name, *command[1:]]
        console.print(Text(f"$ {' '.join(shown)}", style="bold"))
        lines = [line for line in made.stdout.splitlines() if line and "\u2501" not in line]
        console.print(Text.from_ansi("\n".join(lines)))
        drawn = console.export_svg(title="arml")
    # The fonts would come from another server; without them a reader's own is taken.
    own = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    out.write_text(own, encoding="utf-8")


if __name__ == "__main__":
    main()
