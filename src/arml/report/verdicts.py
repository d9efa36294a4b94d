"""The paper's claims and the tables behind them in a document, drawn from a study's files and never
typed.

`python -m arml.report.verdicts docs/reproduce.md results/laptop` redraws what is between the two
pairs of markers of the document; `--check` only says whether it is up to date. A study that is not
there yet leaves every claim untested.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from arml.report import study_cells as cells_of
from arml.report.claims import CANNOT, counted, judge
from arml.report.study import Study, StudyTable, load_study
from arml.report.tables import METRIC_NAMES, interval, line_of, number, replace_block
from arml.results.folder import RunError, write_text

CLAIMS = ("<!-- claims:begin -->", "<!-- claims:end -->")
TABLES = ("<!-- tables:begin -->", "<!-- tables:end -->")


def claims(study: Study) -> str:
    """The counts of the verdicts, and a table for each group of claims."""
    verdicts = judge(study)
    lines = [counted(verdicts)]
    for group in dict.fromkeys(v.claim.group for v in verdicts):
        own = [v for v in verdicts if v.claim.group == group]
        lines += ["", f"### {group}", "", "| Claim | Table | Verdict | Figures |"]
        lines += ["| --- | --- | --- | --- |"]
        lines += [
            line_of([v.claim.text, f"`{v.table}`", v.verdict, v.said])
            for v in own
            if v.verdict != CANNOT
        ]
        elsewhere = dict.fromkeys(f"`{v.table}`" for v in own if v.verdict == CANNOT)
        if elsewhere:
            lines += ["", f"{CANNOT.capitalize()}: {', '.join(elsewhere)}."]
    return "\n".join(lines)


def tables(study: Study) -> str:
    """Every table that has a row: score, the paper's figure, the difference from the reference."""
    return "\n\n".join(_table(table) for table in study.tables if table.first) or "*None yet.*"


def _table(table: StudyTable) -> str:
    assert table.first is not None
    metric = table.first["metric"]
    printed = any(table.paper(row) for row in table.rows)
    head = ["Row", f"{METRIC_NAMES[metric]} ± tasks", *(["Paper"] if printed else [])]
    head += ["Difference", "", "p", "SD over seeds", *table.first["families"]]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for row in table.rows:
        cells = [cells_of.missing(row), *[""] * (len(head) - 2)]
        if row.results:
            found = table.comparisons.get(row.label)
            same = "reference" if row.label == table.reference else ""
            cells = [
                interval(row.mean, row.ci95, metric),
                *([cells_of.paper(table, row)] if printed else []),
                cells_of.difference(found, metric == "accuracy") if found else same,
                cells_of.verdict(found, metric) if found else "",
                cells_of.adjusted(found) if found else "",
                cells_of.seeds(row, metric),
                *(number(row.family(name), metric) for name in table.first["families"]),
            ]
        lines.append([row.label, *cells])
    if table.first["floor"] is not None:
        floor = ["*Bayes-optimal predictor*", number(table.first["floor"], metric)]
        lines.append(floor + [""] * (len(head) - 2))
    drawn = "\n".join(map(line_of, lines))
    return f"### {table.title}\n\n{table.about} {cells_of.caption(table)}\n\n{drawn}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Redraw, or with `--check` compare, a document's claims and tables. Returns the status."""
    parser = argparse.ArgumentParser(
        prog="python -m arml.report.verdicts", description=main.__doc__
    )
    parser.add_argument("document", type=Path, help="a Markdown file with the markers")
    parser.add_argument("study", type=Path, help="a folder that `arml reproduce` made or exported")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    options = parser.parse_args(arguments)
    try:
        there = (options.study / "study.json").is_file()
        study = load_study(options.study) if there else Study(options.study, "none", ())
        if not options.document.is_file():
            raise RunError(f"expected a file {options.document}, found none; check its name")
        old = options.document.read_text(encoding="utf-8")
        new = replace_block(old, claims(study), CLAIMS)
        new = replace_block(new, tables(study), TABLES)
        if options.check and new != old:
            command = f"python -m arml.report.verdicts {options.document} {options.study}"
            raise RunError(f"the claims or tables in {options.document} are stale; run `{command}`")
        if new != old:
            write_text(options.document, new)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
