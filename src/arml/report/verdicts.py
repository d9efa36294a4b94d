"""The paper's claims and the tables behind them in a document, drawn from a study's files and never
typed.

`python -m arml.report.verdicts docs/reproduce.md results/laptop` redraws the text between the
markers of the document; `--check` only reports whether it is up to date. Without a study, every
claim is untested.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from arml.report import claims, wording
from arml.report.inside import effects
from arml.report.rates import rates
from arml.report.study import Study, load_study
from arml.report.study_tables import caption, table_of
from arml.report.table import Cell, Column, Line, Table, line_of, markdown
from arml.report.tables import redraw, replace_block
from arml.results.files import RunError, read_json
from arml.results.forms import ADVICE, check_explained


def findings(study: Study) -> str:
    """The paper's claims in three groups under their counts, then those about our own preset."""
    verdicts = claims.judge(study)
    lines = []
    for ours, title in ((False, "The paper's claims"), (True, "Our own presets, not in the paper")):
        own = [v for v in verdicts if v.claim.ours is ours]
        lines += [f"### {title}", "", claims.counted(own), ""]
        for kind, heading in claims.TITLES.items():
            some = [v for v in own if v.verdict == kind and v.said]
            lines += [f"#### {heading}", ""]
            lines += [_verdicts(some) if some else "*None.*", ""]
        for why, names in claims.without_figures(own).items():
            lines += [f"No figures ({why}): {names}.", ""]
    return "\n".join(lines).strip()


def _verdicts(verdicts: Sequence[claims.Verdict]) -> str:
    lines = []
    for v in verdicts:
        said = f"{v.said} ({v.why})" if v.why == claims.CHANCE else v.said
        lines.append(Line(v.claim.text, (Cell(f"`{v.table}`"), Cell(said))))
    return markdown(Table("", (Column("Claim"), Column("Table"), Column("Figures")), tuple(lines)))


def tables(study: Study) -> str:
    """Every table that has a row: score, the paper's figure, the difference from the reference."""
    drawn = [
        f"### {table.title}\n\n{table.about} {caption(table)}\n\n{markdown(table_of(table))}"
        for table in study.tables
        if table.first
    ]
    return "\n\n".join(drawn) or "*None yet.*"


def interventions(study: Study) -> str:
    """The cost of each kind of intervention, for every explained learner that is kept."""
    head = ["Learner", "Without", "Mean loss ± 95%", "p", "Median", "Tasks worse", "p (sign)"]
    lines = [head, ["---", "---", *["---:"] * 5]]
    for path in sorted((study.folder / "interventions").glob("*.json")):
        explained = read_json(path)
        check_explained(explained, path)
        found = explained.get("interventions")
        if not found:
            raise RunError(f"{path}: expected interventions, got none; {ADVICE}")
        scale = 100 if found["metric"] == "accuracy" else 1
        named = effects(found)
        vertices = [name for name in named if name.startswith("V")]
        worst = max(vertices, key=lambda name: named[name]["all"]["mean"] or 0.0, default="")
        for name, entry in named.items():
            if name in vertices and name != worst:
                continue
            every = entry["all"]
            mean = "not finite" if every["mean"] is None else f"{scale * every['mean']:+.3g}"
            half = "" if every["ci95"] is None else f" ± {scale * every['ci95']:.2g}"
            what = (
                f"{name}, of the vertices the one with the largest mean loss"
                if name == worst
                else NAMES[name]
            )
            lines.append(
                [
                    f"`{path.stem}`",
                    what,
                    mean + half,
                    *(_p(every.get("adjusted")),),
                    "–" if every.get("median") is None else f"{scale * every['median']:+.2g}",
                    "–" if every.get("worse") is None else f"{every['worse']:.0%}",
                    _p(every.get("adjusted_sign")),
                ]
            )
    return "\n".join(map(line_of, lines))


def _p(value: float | None) -> str:
    return "–" if value is None else wording.probability(value).removeprefix("= ")


NAMES = {
    "links": "links between vertices",
    "equal\nvertices": "differences between vertices (all made equal)",
    "mean\ncode": "its code (the mean of all in its place)",
    "own\nfamily's": "its code (that of another task of its family)",
    "other\nfamily's": "its code (that of a task of another family)",
}
BLOCKS: dict[str, Callable[[Study], str]] = {
    "claims": findings,
    "tables": tables,
    "rates": rates,
    "interventions": interventions,
}
"""The texts that a document may have between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""


def redrawn(text: str, study: Study) -> str:
    """The document with all its blocks drawn again.

    **Raises** `RunError` for a document without any.
    """
    found = [name for name in BLOCKS if f"<!-- {name}:begin -->" in text]
    if not found:
        names = ", ".join(f"<!-- {name}:begin -->" for name in BLOCKS)
        raise RunError(f"expected one of {names} in the document, found none; add it and its end")
    for name in found:
        markers = (f"<!-- {name}:begin -->", f"<!-- {name}:end -->")
        text = replace_block(text, BLOCKS[name](study), markers)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Redraw, or with `--check` compare, a document's claims and tables. Returns the status."""
    return redraw(
        arguments, "arml.report.verdicts", lambda old, folder: redrawn(old, _study(folder))
    )


def _study(folder: Path) -> Study:
    there = (folder / "study.json").is_file()
    return load_study(folder) if there else Study(folder, "none", ())


if __name__ == "__main__":
    sys.exit(main())
