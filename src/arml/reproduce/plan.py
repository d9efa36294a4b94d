"""The plan of a study as data: tables of rows, and the units of work that they consist of."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from arml.experiment.options import Experiment, fingerprint, to_json
from arml.reproduce.costs import seconds
from arml.results import forms
from arml.results.files import Json, RunError, write_json
from arml.results.folder import FORMAT, read_result
from arml.results.schema import read_checked

STUDY = "study.json"
"""The file that names the tables of a folder; the report is made from it and from the runs."""


@dataclass(frozen=True)
class Row:
    """One row of a table: an experiment, and how it is scored."""

    label: str
    experiment: Experiment
    """With the row's own name as its recipe, which is its folder too; the seed is filled in."""
    paper: str = ""
    """Its name in the paper's table."""
    note: str = ""
    scored: str = "as trained"
    """One of `variants.VARIANTS`."""
    explain: bool = False
    """Explain the first seed."""
    seeds: int = 0
    """Its own number of seeds, fewer if one takes very long; 0 for the table's number."""
    expected: float | None = None
    """The score that the same budget reached before."""

    @property
    def run(self) -> str:
        """The folder of its runs, one a seed."""
        return self.experiment.recipe


@dataclass(frozen=True)
class Table:
    """Rows that are compared with one of them, each on the same test tasks."""

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    reference: str
    """Label of the row that the others are compared with."""
    paper: str = ""
    """Key of the paper's table in `paper.json`."""
    seeds: int = 1
    tasks: int = 1000
    explained: int = 200
    """Tasks on which a run is explained."""

    def seeds_of(self, row: Row) -> range:
        """The seeds of one row."""
        return range(row.seeds or self.seeds)


class Unit(TypedDict):
    """One run of a study: plain JSON."""

    run: str
    seed: int
    folder: str
    """Within the study's folder."""
    experiment: Json
    options: str
    """The fingerprint of the experiment."""
    tasks: int
    """Test tasks of a score."""
    scored: list[str]
    """Names of `variants.VARIANTS`."""
    explain: int
    """Tasks to explain; 0 for none."""
    seconds: float
    """Expected time on one core."""


def units(tables: Iterable[Table]) -> list[Unit]:
    """The work of the tables in their order; a run that is in several tables is done once."""
    found: dict[str, Unit] = {}
    for table in tables:
        for row in table.rows:
            for seed in table.seeds_of(row):
                experiment = replace(row.experiment, seed=seed)
                folder = f"runs/{row.run}/seed-{seed}"
                unit = found.setdefault(
                    folder,
                    {
                        "run": row.run,
                        "seed": seed,
                        "folder": folder,
                        "experiment": to_json(experiment),
                        "options": fingerprint(experiment),
                        "tasks": table.tasks,
                        "scored": [],
                        "explain": 0,
                        "seconds": round(seconds(experiment, tasks=table.tasks), 1),
                    },
                )
                assert unit["experiment"] == to_json(experiment), f"two experiments at {folder}"
                assert unit["tasks"] == table.tasks, f"two numbers of tasks at {folder}"
                unit["scored"] += [row.scored] if row.scored not in unit["scored"] else []
                if row.explain and seed == 0:
                    unit["explain"] = table.explained
    return list(found.values())


def suffix(scored: str) -> str:
    """The suffix of the names of a variant's files: `result.json`, `result-reversed.json`."""
    return "" if scored == "as trained" else f"-{re.sub('[^a-z0-9]+', '-', scored)}"


def is_scored(unit: Unit, scored: str, out: Path) -> bool:
    """Whether a unit's run is finished with these options and scored in that way."""
    folder, end = out / unit["folder"], suffix(scored)
    try:
        result = read_result(folder / f"result{end}.json")
    except RunError:
        return False
    same = (
        result["steps"] == unit["experiment"]["steps"]
        and result.get("options") == unit["options"]
        and result["score"]["n"] == unit["tasks"]
    )
    return same and (folder / f"scores{end}.npz").is_file()


def is_done(unit: Unit, out: Path) -> bool:
    """Whether a unit is finished."""
    if not all(is_scored(unit, scored, out) for scored in unit["scored"]):
        return False
    return not unit["explain"] or (out / unit["folder"] / "explain" / "explain.json").is_file()


def record(tables: Iterable[Table], scale: str, out: Path) -> None:
    """Add the tables to the folder's `study.json`, which keeps those of earlier calls.

    **Raises** `RunError` for a folder that holds a study of another scale.
    """
    path = out / STUDY
    known: Json = {"scale": scale, "tables": {}}
    if path.exists():
        known = read_checked(path, forms.Study, "restore the file, or name another folder")
    if known["scale"] != scale:
        raise RunError(
            f"{out} holds a study of scale {known['scale']}, not {scale}: name another folder"
        )
    entries = dict(known["tables"])
    for table in tables:
        entries[table.name] = _described(table, scale)
    write_json(path, {"format": FORMAT, "scale": scale, "tables": entries})


def _described(table: Table, scale: str) -> Json:
    return {
        "title": table.title,
        "about": table.about,
        "reference": table.reference,
        "paper": table.paper,
        "seeds": table.seeds,
        "tasks": table.tasks,
        "rows": [
            {
                "label": row.label,
                "run": row.run,
                "paper": row.paper,
                "note": row.note,
                "scored": row.scored,
                "seeds": list(table.seeds_of(row)),
                "steps": row.experiment.steps,
                "expected": row.expected,
                "minutes": round(seconds(row.experiment, tasks=table.tasks) / 60, 1),
                "command": command(table.name, scale, row.label),
            }
            for row in table.rows
        ],
    }


def command(table: str, scale: str, row: str) -> str:
    """The command that runs one row, without `--out`: a folder may be moved or copied."""
    return shlex.join(["arml", "reproduce", table, "--scale", scale, "--rows", row])
