"""The paper's claims as a table in a document, drawn from a study's files and never typed.

`python -m arml.report.verdicts docs/reproduce.md results/laptop` redraws the table between the two
markers of the document; `--check` only says whether it is up to date. A study that is not there yet
leaves every claim untested.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from arml.report.claims import CANNOT, Verdict, counted, judge
from arml.report.study import Study, load_study
from arml.report.tables import replace_block
from arml.results import RunError, write_text

BEGIN, END = "<!-- claims:begin -->", "<!-- claims:end -->"


def markdown(study: Study) -> str:
    """The counts of the verdicts, and a table for each group of claims."""
    verdicts = judge(study)
    lines = [counted(verdicts)]
    for group in dict.fromkeys(v.claim.group for v in verdicts):
        own = [v for v in verdicts if v.claim.group == group]
        lines += ["", f"### {group}", "", "| Claim | Table | Verdict | Figures |"]
        lines += ["| --- | --- | --- | --- |"]
        lines += [_row(v) for v in own if v.verdict != CANNOT]
        elsewhere = dict.fromkeys(f"`{v.table}`" for v in own if v.verdict == CANNOT)
        if elsewhere:
            lines += ["", f"{CANNOT.capitalize()}: {', '.join(elsewhere)}."]
    return "\n".join(lines)


def _row(v: Verdict) -> str:
    said = v.said.replace("|", "\\|")
    return f"| {v.claim.text} | `{v.table}` | {v.verdict} | {said} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Redraw, or with `--check` compare, the claims of a document. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m arml.report.verdicts", description=main.__doc__
    )
    parser.add_argument("document", type=Path, help="a Markdown file with the two markers")
    parser.add_argument("study", type=Path, help="a folder that `arml reproduce` made or exported")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    options = parser.parse_args(arguments)
    try:
        there = (options.study / "study.json").is_file()
        study = load_study(options.study) if there else Study(options.study, "none", ())
        if not options.document.is_file():
            raise RunError(f"expected a file {options.document}, found none; check its name")
        old = options.document.read_text(encoding="utf-8")
        new = replace_block(old, markdown(study), (BEGIN, END))
        if options.check and new != old:
            command = f"python -m arml.report.verdicts {options.document} {options.study}"
            raise RunError(f"the claims in {options.document} are stale; run `{command}`")
        if new != old:
            write_text(options.document, new)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
