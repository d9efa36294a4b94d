"""`arml evaluate` of a folder of seeds: the mean over training runs, and the difference from the
runs of another folder, over runs and tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

from rich.console import Console

from arml.cli.console import grid, print_json, say
from arml.cli.errors import UsageError
from arml.cli.progress import scoring
from arml.report.tables import make_rows, mean_of, spread_of, terminal_table
from arml.results.comparisons import Comparison, compare
from arml.results.files import Json, RunError, write_json
from arml.results.folder import Result
from arml.results.scores import Scores, format_score


class Side(NamedTuple):
    """The runs of one experiment in a folder, and their scores."""

    folder: Path
    results: list[Result]
    scores: list[Scores]


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
    - `keeps`: whether new scores are written into the folders of their runs.
    """
    if len({folder.resolve() for folder, _ in sides}) < len(sides):
        raise UsageError(f"expected two folders to compare, got {sides[0][0]} twice: name another")
    with scoring() as watch:
        from arml.experiment.scoring import evaluate_run, keep, kept
        from arml.training.distributed import own_cores

        for _, runs in sides:
            _check(runs)
        found = []
        for folder, runs in sides:
            side = Side(folder, [], [])
            for run in runs:
                # A comparison can use the scores of an earlier call.
                scored = kept(run, **asked) if len(sides) > 1 or not keeps else None
                if scored is None:
                    # The simple classifiers have the same scores beside each run.
                    first = not side.results
                    scored = evaluate_run(
                        run, **asked, devices=own_cores(), simple=first, watch=watch
                    )
                    if keeps:
                        keep(scored)
                side.results.append(scored.result)
                side.scores.append(scored.scores)
            found.append(side)
    result = _mean(found[0])
    if len(found) == 2:
        compared = compare(found[0].scores, found[1].scores)
        result["against"] = {**_mean(found[1]), "difference": compared.to_dict()}
    if out is not None:
        write_json(out, result)
    if json:
        print_json(result)
        return 0
    console = Console()
    console.print(terminal_table(make_rows(_named(found))))
    if len(found) == 2:
        print_difference(console, found[1].folder, compared)
    if out is not None:
        say(console, f"written to {out}")
    elif keeps:
        places = " and of ".join(str(side.folder) for side in found)
        say(console, f"the scores are in result.json in each folder of {places}")
    return 0


def _check(runs: Sequence[Path]) -> None:
    """Raise `RunError` in one line unless the runs are trained seeds of one experiment."""
    from arml.experiment.options import fingerprint
    from arml.experiment.running import Run

    opened = [Run(path) for path in runs]
    first, seeds = opened[0], set[int]()
    for run in opened:
        made = run.experiment
        if (made.recipe, fingerprint(made)) != (
            first.experiment.recipe,
            fingerprint(first.experiment),
        ):
            raise RunError(
                f"expected seeds of one experiment, got other options in {run.folder} than in "
                f"{first.folder}: move one of them to another folder"
            )
        if made.seed in seeds:
            raise RunError(
                f"expected a seed of its own for each run, got seed {made.seed} again in "
                f"{run.folder}: move it away"
            )
        seeds.add(made.seed)
        if run.step < made.steps:
            raise RunError(
                f"expected trained runs, got {run.folder} at step {run.step:,} of {made.steps:,}: "
                "train it to the end, or move it away"
            )


def _mean(side: Side) -> Json:
    """The results of the runs of one side, their mean, and their standard deviation."""
    means = [one["score"]["mean"] for one in side.results]
    return {
        "folder": str(side.folder),
        "metric": side.results[0]["metric"],
        "mean": mean_of(means),
        "spread": spread_of(means),
        "runs": side.results,
    }


def _named(found: Sequence[Side]) -> list[Result]:
    """The results of all runs. If both sides have one recipe, its name also has the folder."""
    shared = len({side.results[0]["recipe"] for side in found}) < len(found)
    return [
        cast(Result, {**one, "recipe": f"{one['recipe']}, {side.folder}"}) if shared else one
        for side in found
        for one in side.results
    ]


def print_difference(console: Console, folder: Path, found: Comparison) -> None:
    """Print a difference, over all tasks and by family."""
    better = "above zero" if found.metric == "accuracy" else "below zero"
    say(console, f"Difference from {folder} on the same tasks ({better} is better)")
    rows = []
    for name, part in {"all tasks": found, **found.families}.items():
        score = format_score(found.metric, part.to_dict(), sign="+")
        rows.append((name, "not finite" if part.mean is None else score, f"{part.tasks:,}"))
    console.print(grid(("", "difference ± 95%", "tasks"), rows))
    say(console, found.about)
