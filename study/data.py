"""The results of a study: its tables, each row with the scores of its runs.

While a study runs, its folder has `study.json` (the tables) and run folders. `collect` writes all
of it to two files: `NAME.json` (tables, and the facts of each run) and `NAME.npz` (one score for
each task, and the validation scores by step). Pages are drawn from either.
"""

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from arml.experiment.options import fingerprint
from arml.report.verdicts import score_cells
from arml.results.comparisons import Comparison, compare_seeds, holm
from arml.results.files import Json, read_json, write_bytes, write_json
from arml.results.scores import Scores, read_scores
from study.paper import Reported, overall
from study.plan import SCALES, Table, table

STUDY = "study.json"
RESULTS = Path(__file__).parent / "results"
"""The results that the pages here are drawn from."""


@dataclass(frozen=True)
class StudyRow:
    """One row of a table: its plan, and the results so far, by seed."""

    about: Mapping[str, Any]
    """`label`, `run` (its folder without the seed), `paper` (its name there), `seeds` (planned),
    `steps`."""
    facts: dict[int, Mapping[str, Any]]
    scores: dict[int, Scores]
    failures: dict[int, str]

    @property
    def label(self) -> str:
        return self.about["label"]

    @property
    def means(self) -> list[float]:
        """The mean over tasks of each run."""
        return [scores.mean for scores in self.scores.values()]

    @property
    def mean(self) -> float:
        """The mean over tasks and runs; NaN without a run, or if a score is not finite."""
        return fmean(self.means) if self.means else float("nan")

    @property
    def cells(self) -> list[str]:
        """The mean with its interval over trainings, the interval over tasks, and the number of
        trainings with their standard deviation, as `arml.compare` has them."""
        *cells, count = score_cells([*self.scores.values()])
        return [*cells, count + (f", {len(self.failures)} failed" if self.failures else "")]

    def family(self, name: str) -> float:
        """The mean over runs of one family's score."""
        found = [scores.by_family()[name]["mean"] for scores in self.scores.values()]
        return fmean(float("nan") if value is None else value for value in found)


@dataclass(frozen=True)
class StudyTable:
    """Rows that are compared with one of them."""

    name: str
    about: Mapping[str, Any]
    """`title`, `about`, `reference` (a label), `paper` (a key of `paper.json`)."""
    rows: tuple[StudyRow, ...]

    @property
    def first(self) -> Mapping[str, Any] | None:
        """The facts of a run: of the reference, or any other."""
        ordered = sorted(self.rows, key=lambda row: row.label != self.about["reference"])
        return next((next(iter(row.facts.values())) for row in ordered if row.facts), None)

    @property
    def metric(self) -> str:
        """`accuracy` or `mse`; empty before the first run."""
        return self.first["metric"] if self.first else ""

    @property
    def accuracy(self) -> bool:
        """Whether a score is an accuracy, and not an error."""
        return self.metric == "accuracy"

    def row(self, label: str) -> StudyRow | None:
        """The row of that label."""
        return next((row for row in self.rows if row.label == label), None)

    def paper(self, row: StudyRow) -> Reported | None:
        """The paper's figure for a row, over all families."""
        return overall(self.about["paper"], row.about["paper"])

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Each other row minus the reference, by label, adjusted for their number."""
        reference = self.row(self.about["reference"])
        if reference is None or not reference.scores:
            return {}
        others = [row for row in self.rows if row is not reference and row.scores]
        found = holm([compared(other, reference) for other in others])
        return {row.label: one for row, one in zip(others, found, strict=True)}


def compared(a: StudyRow, b: StudyRow) -> Comparison:
    """The comparison `a - b` over runs and tasks. Runs that failed are counted, not left out."""
    failed = (len(a.failures), len(b.failures))
    same = a.about["run"] == b.about["run"]
    return compare_seeds(a.scores, b.scores, failed=failed, same_runs=same)


@dataclass(frozen=True)
class Study:
    """All tables of a study."""

    scale: str
    tables: tuple[StudyTable, ...]
    curves: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Of each run: validation score and its interval by step, `[steps, 3]`."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Recipes that have another name today."""
    explained: Mapping[str, Any] = field(default_factory=dict)
    """The findings of `arml explain` for runs of real pictures."""

    def table(self, name: str) -> StudyTable | None:
        """The table of that name."""
        return next((table for table in self.tables if table.name == name), None)


def record(tables: Iterable[Table], scale: str, out: Path) -> None:
    """Add the tables to the folder's `study.json`, which keeps those of earlier calls.

    **Raises** `ValueError` for a folder that holds a study of another scale.
    """
    path = out / STUDY
    known: Json = read_json(path) if path.exists() else {"scale": scale, "tables": {}}
    if known["scale"] != scale:
        raise ValueError(
            f"{out} holds a study of scale {known['scale']}, not {scale}: name another folder"
        )
    for one in tables:
        old = {row["label"]: row for row in known["tables"].get(one.name, {}).get("rows", [])}
        rows = {
            row.label: {
                "label": row.label,
                "run": row.experiment.recipe,
                "paper": row.paper,
                "seeds": list(range(row.seeds)),
                "steps": row.experiment.steps,
            }
            for row in one.rows
        }
        known["tables"][one.name] = {"rows": list({**old, **rows}.values())}
    write_json(path, known)


def load(place: Path) -> Study:
    """The study in a folder, or that `collect` wrote as `place` with .json and .npz."""
    if place.is_dir():
        return _of_folder(place)
    plan = read_json(place.with_suffix(".json"))
    with np.load(place.with_suffix(".npz"), allow_pickle=False) as file:
        arrays = dict(file)

    def run(folder: str) -> tuple[Any, Any, Any]:
        facts = plan["runs"].get(folder)
        if facts is None:
            return None, None, plan["failures"].get(folder)
        names, tasks = tuple(facts["families"]), facts["pairing"]
        families = arrays[f"families/{tasks}"][: facts["tasks"]]
        scores = Scores(arrays[folder], families, tasks, names, facts["metric"], "test")
        return facts, scores, None

    curves = {k.removeprefix("curve/"): v for k, v in arrays.items() if k.startswith("curve/")}
    explained = plan.get("explained", {})
    return Study(plan["scale"], _tables(plan, run), curves, plan.get("renamed", {}), explained)


def _of_folder(folder: Path) -> Study:
    plan, curves = read_json(folder / STUDY), {}

    def run(name: str) -> tuple[Any, Any, Any]:
        place = folder / "runs" / name
        if (place / "row.json").is_file():
            facts, scores = read_json(place / "row.json"), read_scores(place / "scores.npz")
            metrics = (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            rows = [json.loads(line) for line in metrics if '"validation"' in line]
            keys = ("step", "validation", "validation_ci95")
            curves[name] = np.array([[row[key] for key in keys] for row in rows], np.float32)
            return facts, scores, None
        failure = place / "failure.json"
        return None, None, read_json(failure)["error"] if failure.is_file() else None

    explained = {
        str(path.parents[1].relative_to(folder / "runs")): read_json(path)
        for path in sorted((folder / "runs").rglob("explain/explain.json"))
        if plan["scale"] == "real"
    }
    return Study(plan["scale"], _tables(plan, run), curves, explained=explained)


def _tables(plan: Mapping[str, Any], run: Any) -> tuple[StudyTable, ...]:
    """The tables that the plan has today: files keep those that left it, too."""
    tables, scales = [], (SCALES["paper"], SCALES[plan["scale"]])
    planned = {name: scale for scale in scales for name in scale.tables}
    for name in filter(planned.__contains__, plan["tables"]):
        made, rows = table(name, planned[name]), []
        about = {key: getattr(made, key) for key in ("title", "about", "reference", "paper")}
        for entry in plan["tables"][name]["rows"]:
            found = {seed: run(f"{entry['run']}/seed-{seed}") for seed in entry["seeds"]}
            rows.append(
                StudyRow(
                    entry,
                    {seed: facts for seed, (facts, _, _) in found.items() if facts},
                    {seed: scores for seed, (_, scores, _) in found.items() if scores},
                    {seed: failure for seed, (_, _, failure) in found.items() if failure},
                )
            )
        tables.append(StudyTable(name, about, tuple(rows)))
    return tuple(tables)


def collect(folder: Path, place: Path) -> None:
    """Write the study in `folder` to `place` with .json and .npz. Runs that are there already, and
    not in the folder, stay: a study may go on elsewhere. **Raises** `ValueError` for a run with
    other options than the plan's."""
    study, plan = _of_folder(folder), read_json(folder / STUDY)
    content: Json = {"scale": plan["scale"], "tables": {}, "runs": {}, "failures": {}}
    arrays: dict[str, Any] = {}
    if place.with_suffix(".json").is_file():
        content |= read_json(place.with_suffix(".json"))
        with np.load(place.with_suffix(".npz"), allow_pickle=False) as file:
            arrays |= file
    if content["scale"] != plan["scale"]:
        raise ValueError(
            f"{place} holds a study of scale {content['scale']}, not {plan['scale']}: name another"
        )
    for name, one in plan["tables"].items():
        old = {row["label"]: row for row in content["tables"].get(name, {}).get("rows", [])}
        rows = {**old, **{row["label"]: row for row in one["rows"]}}
        content["tables"][name] = {"rows": [*rows.values()]}
    runs, failures = content["runs"], content["failures"]
    arrays |= {f"curve/{name}": curve for name, curve in study.curves.items()}
    scale = SCALES[plan["scale"]]
    for one in study.tables:
        made = table(one.name, scale).rows if one.name in scale.tables else ()
        options = {row.label: fingerprint(row.experiment) for row in made}
        for row in one.rows:
            for facts in row.facts.values():
                if facts["options"] != options.get(row.label, facts["options"]):
                    raise ValueError(
                        f"{folder}: a run of {row.about['run']} has other options than its row "
                        f"{row.label!r}: move it away, and run the study again"
                    )
            names = {seed: f"{row.about['run']}/seed-{seed}" for seed in row.about["seeds"]}
            failures |= {names[seed]: error for seed, error in row.failures.items()}
            for seed, scores in row.scores.items():
                runs[names[seed]] = {**row.facts[seed], "pairing": scores.tasks}
                failures.pop(names[seed], None)
                arrays[names[seed]] = scores.values.astype(np.float32)
                arrays[f"families/{scores.tasks}"] = scores.families.astype(np.uint8)
    if study.explained:
        content["explained"] = {**content.get("explained", {}), **study.explained}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(place.with_suffix(".npz"), buffer.getvalue())
    write_json(place.with_suffix(".json"), content)
