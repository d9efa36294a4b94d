"""A study, which `arml reproduce` keeps in a folder: its tables with the results of all runs.

The folder holds `study.json` (the tables and their rows), `runs/` (ordinary run folders with the
scores of single tasks beside each result) and the page. The place of a run that is missing or has
failed is empty, and the page says so.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from arml.report.paper import Reported, overall
from arml.report.rows import mean_of, spread_of
from arml.report.statistics import Comparison, compare, holm
from arml.results import forms
from arml.results.files import Json, RunError, read_json, write_text
from arml.results.folder import FORMAT, Result, RunFiles, read_result, read_run
from arml.results.intervals import score_of
from arml.results.manifest import check_sealed, seal_all
from arml.results.schema import read_as, read_checked
from arml.results.scores import Scores, read_scores


@dataclass(frozen=True)
class StudyRow:
    """One row of a table: its plan, and the results so far."""

    label: str
    run: str
    scored: str
    planned: tuple[int, ...]
    """Seeds."""
    about: Json
    """`note`, `command`, `minutes`, `expected`, `steps` and `paper`, its name in the paper."""
    results: dict[int, Result]
    scores: dict[int, Scores]
    failures: dict[int, str]

    @property
    def any(self) -> bool:
        """Whether a run has finished or failed."""
        return bool(self.scores or self.failures)

    @property
    def first(self) -> Result | None:
        """The result of the first seed that there is."""
        return self.results[min(self.results)] if self.results else None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that have a result."""
        return tuple(sorted(self.results))

    @property
    def mean(self) -> float | None:
        """The mean over tasks and seeds; None if there is no result, or one is not finite."""
        return mean_of([result["score"]["mean"] for result in self.results.values()])

    @property
    def ci95(self) -> float | None:
        """The interval over tasks of the scores averaged over seeds."""
        if not self.scores:
            return None
        return score_of(np.mean([s.values for s in self.scores.values()], axis=0))["ci95"]

    @property
    def spread(self) -> float | None:
        """The standard deviation of the seeds' means."""
        return spread_of([result["score"]["mean"] for result in self.results.values()])

    def family(self, name: str) -> float | None:
        """The mean over seeds of one family's score."""
        return mean_of([result["families"][name]["mean"] for result in self.results.values()])


@dataclass(frozen=True)
class StudyTable:
    """Rows that are compared with one of them."""

    name: str
    title: str
    about: str
    reference: str
    paper_table: str
    rows: tuple[StudyRow, ...]
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    """Each other row minus the reference, by label, adjusted for their number."""

    @property
    def first(self) -> Result | None:
        """A result with the facts that the rows share: that of the reference, or any other."""
        known = self.row(self.reference)
        rows = [known, *self.rows] if known else self.rows
        return next((row.first for row in rows if row.first), None)

    def row(self, label: str) -> StudyRow | None:
        """The row of that label."""
        return next((row for row in self.rows if row.label == label), None)

    def paper(self, row: StudyRow) -> Reported | None:
        """The paper's figure for a row, over all families."""
        return overall(self.paper_table, row.about["paper"])


@dataclass(frozen=True)
class Study:
    """All tables of a folder."""

    folder: Path
    scale: str
    tables: tuple[StudyTable, ...]

    def table(self, name: str) -> StudyTable | None:
        """The table of that name."""
        return next((table for table in self.tables if table.name == name), None)

    def runs(self, table: StudyTable) -> list[RunFiles]:
        """The run folders of a table, each once."""
        folders = dict.fromkeys(
            self.folder / "runs" / row.run / f"seed-{seed}"
            for row in table.rows
            for seed in row.planned
        )
        return [read_run(folder) for folder in folders if (folder / "config.json").is_file()]


def load_study(folder: Path) -> Study:
    """Read a study and compare its rows.

    **Raises** `RunError` for a folder that holds none, or a damaged file.
    """
    path = folder / "study.json"
    if not path.is_file():
        raise RunError(
            f"expected a study with a study.json at {folder}, found none: `arml reproduce --out "
            f"{folder}` makes one"
        )
    value = read_json(path)
    if value.get("format") != FORMAT:
        raise RunError(f"expected format {FORMAT} in {path}, got {value.get('format')!r}")
    read_as(forms.Study, value, str(path), "restore the file, or run `arml reproduce` again")
    tables = tuple(_table(folder, name, entry) for name, entry in value["tables"].items())
    return Study(folder, str(value["scale"]), tables)


def _table(folder: Path, name: str, entry: Json) -> StudyTable:
    rows = tuple(_row(folder, row) for row in entry["rows"])
    reference = next((row for row in rows if row.label == entry["reference"]), None)
    others = [row for row in rows if row is not reference and row.scores]
    comparisons: dict[str, Comparison] = {}
    if reference is not None and reference.scores:
        found = holm([compared(other, reference) for other in others])
        comparisons = {row.label: one for row, one in zip(others, found, strict=True)}
    title, about, paper = (str(entry[key]) for key in ("title", "about", "paper"))
    return StudyTable(name, title, about, entry["reference"], paper, rows, comparisons)


def compared(a: StudyRow, b: StudyRow) -> Comparison:
    """The comparison `a - b` over runs and tasks. Runs that failed are counted, not left out."""
    failed = (len(a.failures), len(b.failures))
    return compare(a.scores, b.scores, failed=failed, same_runs=a.run == b.run)


def _row(folder: Path, entry: Json) -> StudyRow:
    end = "" if entry["scored"] == "as trained" else f"-{entry['scored']}"
    results, scores, failures = {}, {}, {}
    for seed in entry["seeds"]:
        run = folder / "runs" / entry["run"] / f"seed-{seed}"
        # Without the scores of single tasks a result cannot be compared: it is still to be scored.
        result, single = run / f"result{end}.json", run / f"scores{end}.npz"
        check_sealed(result)  # it may be gone
        check_sealed(single)
        if result.is_file() and single.is_file():
            results[seed] = read_result(result)
            scores[seed] = read_scores(single)
        elif (run / "failure.json").is_file():
            failed = read_checked(run / "failure.json", forms.Failure, "run the row again")
            failures[seed] = failed["error"]
    return StudyRow(
        entry["label"],
        entry["run"],
        entry["scored"],
        tuple(entry["seeds"]),
        entry,
        results,
        scores,
        failures,
    )


KEPT = ("config.json", "result*.json", "scores*.npz", "failure.json", "explain/*.json")
"""The small files of a run, from which all tables and claims are drawn."""


def export(folder: Path, out: Path) -> None:
    """Copy a study for a repository, without its page, checkpoints and training losses. The copies
    are sealed: a page that is drawn from them notices changes.

    **Raises** `RunError` if `out` cannot be written.
    """
    try:
        _copy(folder / "study.json", out / "study.json")
        if (folder / "growing.json").is_file():
            _copy(folder / "growing.json", out / "growing.json")
        # A run that failed at once has no configuration, and counts.
        found = (folder / "runs").rglob("*")
        names = ("config.json", "failure.json")
        for run in sorted({path.parent for path in found if path.name in names}):
            for path in sorted(path for pattern in KEPT for path in run.glob(pattern)):
                _copy(path, out / path.relative_to(folder))
            metrics = run / "metrics.jsonl"
            # A run that has only begun has none, nor one that trains nothing.
            if metrics.exists():
                lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
                kept = "".join(line for line in lines if '"validation"' in line)
                write_text(out / run.relative_to(folder) / "metrics.jsonl", kept)
            seal_all(out / run.relative_to(folder))
    except OSError as error:
        raise RunError(f"could not copy to {out}: {error.strerror or error}") from error


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
