"""`arml evaluate` of a folder of seeds: the mean over training runs, and the difference from the
runs of another folder, over runs and tasks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from rich.console import Console

from arml.cli.console import grid, print_json, say
from arml.cli.progress import scoring
from arml.report.rows import make_rows, mean_of, spread_of
from arml.report.statistics import SEEDS, Comparison, compare_runs
from arml.report.tables import terminal_table
from arml.report.wording import probability
from arml.results.files import Json, write_json
from arml.results.folder import Result
from arml.results.scores import Scores, said

if TYPE_CHECKING:
    from arml.experiment.scoring import Scored


def evaluate_several(
    sides: Sequence[tuple[Path, Sequence[Path]]],
    asked: Json,
    *,
    keeps: bool,
    out: Path | None,
    json: bool,
) -> int:
    """Score the runs of one folder, or of two, and print their means and the difference.

    **Arguments**

    - `sides`: each folder with its runs; the first is compared with the second.
    - `asked`: `tasks`, `split` and `steps`, as of `evaluate_run`.
    - `keeps`: whether scores that are made now are written into the folders of their runs.
    """
    with scoring() as watch:
        from arml.experiment.scoring import evaluate_run, keep, kept
        from arml.training.devices import own_cores

        def scored(run: Path) -> "Scored":
            if (known := kept(run, **asked)) is not None:
                return known
            found = evaluate_run(run, **asked, devices=own_cores(), simple=True, watch=watch)
            if keeps:
                keep(found)
            return found

        found = [[scored(run) for run in runs] for _, runs in sides]
    result = _mean(found[0])
    if len(found) == 2:
        whole, families = _differences(*([one.scores for one in side] for side in found))
        result["against"] = {
            "folder": str(sides[1][0]),
            **_mean(found[1]),
            "difference": {
                **_plain(whole),
                "families": {n: _plain(c) for n, c in families.items()},
            },
        }
    if out is not None:
        write_json(out, result)
    if json:
        print_json(result)
        return 0
    console = Console()
    console.print(terminal_table(make_rows(_named(sides, found))))
    if len(found) == 2:
        _print_difference(console, str(sides[1][0]), whole, families, result["metric"])
    if out is not None:
        say(console, f"written to {out}")
    return 0


def _mean(runs: Sequence["Scored"]) -> Json:
    """The results of the runs of one side, their mean, and their standard deviation."""
    results = [one.result for one in runs]
    means = [one["score"]["mean"] for one in results]
    return {
        "metric": results[0]["metric"],
        "mean": mean_of(means),
        "spread": spread_of(means),
        "runs": results,
    }


def _named(
    sides: Sequence[tuple[Path, Sequence[Path]]], found: Sequence[Sequence["Scored"]]
) -> list[Result]:
    """The results of all runs. If both sides have one recipe, its name also has the folder."""
    shared = len({one.result["recipe"] for side in found for one in side}) == 1 < len(sides)
    return [
        cast(Result, {**one.result, "recipe": f"{one.result['recipe']}, {folder}"})
        if shared
        else one.result
        for (folder, _), side in zip(sides, found, strict=True)
        for one in side
    ]


def _differences(
    a: Sequence[Scores], b: Sequence[Scores]
) -> tuple[Comparison, dict[str, Comparison]]:
    """The comparison over all tasks, and over those of each family that has some."""
    parts = {}
    for i, name in enumerate(a[0].names):
        if np.any(a[0].families == i):
            parts[name] = compare_runs(*([_of_family(one, i) for one in side] for side in (a, b)))
    return compare_runs(a, b), parts


def _of_family(scores: Scores, i: int) -> Scores:
    own = scores.families == i
    return replace(scores, values=scores.values[own], families=scores.families[own])


def _plain(found: Comparison) -> Json:
    about = {"mean": found.mean, "ci95": found.ci95, "p": found.p, "n": found.tasks}
    return {**about, "runs": list(found.runs), "failed": list(found.failed)}


def _print_difference(
    console: Console, folder: str, whole: Comparison, families: dict[str, Comparison], metric: str
) -> None:
    better = "above zero" if metric == "accuracy" else "below zero"
    a, b = whole.runs
    p = f", p {probability(whole.p)}" if whole.p is not None else ""
    say(
        console,
        f"Difference from {folder} on the same tasks ({better} is better), over {a} and {b} "
        f"training runs and {whole.tasks:,} tasks{p}",
    )
    rows = [
        (
            name,
            "not finite" if one.mean is None else said(metric, {**_plain(one)}, sign="+"),
            f"{one.tasks:,}",
        )
        for name, one in {"all tasks": whole, **families}.items()
    ]
    console.print(grid(("", "difference ± 95%", "tasks"), rows))
    if sum(whole.failed):
        say(console, "runs whose scores are not finite are left out, so there is no p-value")
    elif min(a, b) < SEEDS:
        say(
            console,
            f"an indication: a verdict needs {SEEDS} training runs of each, and ± is over tasks "
            "alone",
        )
