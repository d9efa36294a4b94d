"""`arml evaluate`, `explain` and `report`: the scores of runs, and a look inside them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import parse, print_json, say
from arml.cli.errors import UsageError
from arml.cli.progress import scoring
from arml.results.files import Json

if TYPE_CHECKING:
    from arml.experiment.scoring import Scored
    from arml.report.tables import Row

TASKS = 1_000
"""Tasks that a run is scored on."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Score a run on new tasks: one score per task, its mean with the 95% interval, by family.
    Score a folder of seeds (`arml train --seeds`): their mean and standard deviation, and with
    --against the difference from another such folder over training runs and tasks.
    Score a saved predictor on labelled queries: the classes, the confusions, the worst mistakes.

    The scores on test tasks with the training's inner steps are also written to result.json in the
    folder of the run, and those of single tasks to scores.npz, unless --out is given. The option
    --against reads earlier scores where a run has them. The published tables use 4,000 tasks.
    """

    folder: Positional[Path]
    """Folder of the run, of seeds, or of the predictor."""
    query: Path | None = None
    """For a predictor: labelled queries, a folder or zip with one folder for each class, or a CSV
    file."""
    target: str | None = None
    """For a predictor of tables: the column with the answers; as in `arml adapt` if not given."""
    model: Path | None = None
    """For a predictor of features: the ONNX model, if it is not the default."""
    tasks: int | None = None
    """For a run: tasks to score, 1,000 if not given; they are the same for every run."""
    split: Literal["test", "validation"] = "test"
    """For a run: which tasks."""
    steps: int | None = None
    """For a run: inner steps at test; those of the training if not given."""
    against: Path | None = None
    """For a run: another run; print the difference, task by task, between the two. For a folder of
    seeds: another such folder; the difference is over training runs and tasks."""
    json: bool = False
    """Print JSON."""
    out: Path | None = None
    """Write the result to this file, and not to the folder."""


def evaluate_command(arguments: Sequence[str]) -> int:
    """Score a run on new tasks, or a predictor on labelled queries"""
    options = parse(EvaluateOptions, arguments, prog="arml evaluate")
    # Before JAX is imported, which takes a second or two.
    from arml.predict.files import SUPPORT, is_learner
    from arml.results.folder import read_config, seeds_in

    if (options.folder / SUPPORT).is_file():
        return _predictor(options)
    if is_learner(options.folder):
        raise UsageError(
            f"expected a run or a predictor, got the learner {options.folder}: `arml adapt "
            f"{options.folder} --support EXAMPLES --save FOLDER` makes a predictor of it, and says "
            "how well it predicts your examples"
        )
    _refuse(options, ("query", "target", "model"), "predictors, and this is none")
    folders = [folder for folder in (options.folder, options.against) if folder is not None]
    sides = [(folder, seeds_in(folder) or [folder]) for folder in folders]
    for _, runs in sides:
        for folder in runs:
            read_config(folder)
    tasks = TASKS if options.tasks is None else options.tasks
    asked: Json = {"tasks": tasks, "split": options.split, "steps": options.steps}
    keeps = options.split == "test" and options.steps is None and options.out is None
    if any(runs != [folder] for folder, runs in sides):
        from arml.cli.several import evaluate_several

        return evaluate_several(sides, asked, keeps=keeps, out=options.out, json=options.json)
    console = Console()
    scored = []
    with scoring() as watch:
        from arml.experiment.scoring import evaluate_run, keep, kept
        from arml.report.tables import terminal_table
        from arml.results.comparisons import compare
        from arml.results.files import write_json
        from arml.training.distributed import own_cores

        for folder in folders:
            # A comparison can use the scores of an earlier call.
            found = kept(folder, **asked) if options.against is not None else None
            if found is None:
                found = evaluate_run(folder, **asked, devices=own_cores(), simple=True, watch=watch)
                if keeps:
                    keep(found)
            scored.append(found)
    result: Json = {**scored[0].result}
    if options.against is not None:
        other, compared = scored[1].result, compare(scored[0].scores, scored[1].scores)
        result["against"] = {
            **{key: other[key] for key in ("recipe", "seed", "steps", "score", "families")},
            "run": str(options.against),
            "difference": compared.to_dict(),
        }
    if options.out is not None:
        write_json(options.out, result)
    if options.json:
        print_json(result)
        return 0
    console.print(terminal_table(_rows(scored)))
    if options.against is not None:
        from arml.cli.several import print_difference

        print_difference(console, options.against, compared)
    if options.out is not None:
        say(console, f"written to {options.out}")
    elif keeps:
        places = " and ".join(str(folder / "result.json") for folder in folders)
        say(console, f"the scores are in {places}")
    return 0


def _refuse(options: EvaluateOptions, names: Sequence[str], owners: str) -> None:
    """Raise `UsageError` for the first of these options that was given; they are for `owners`."""
    for name in names:
        if getattr(options, name) != getattr(EvaluateOptions, name):
            raise UsageError(
                f"expected no --{name} for {options.folder}, because --{name} is for {owners}: "
                "leave it out"
            )


def _predictor(options: EvaluateOptions) -> int:
    _refuse(options, ("tasks", "split", "steps", "against"), "runs, and this is a predictor")
    if options.query is None:
        raise UsageError(
            "expected --query with labelled queries for a predictor, got none: name a folder or "
            "zip with one folder for each class, or a CSV file"
        )
    from arml.cli.marking import evaluate_predictor

    return evaluate_predictor(
        options.folder,
        options.query,
        target=options.target,
        model=options.model,
        out=options.out,
        json=options.json,
    )


def _rows(scored: Sequence["Scored"]) -> list["Row"]:
    """A row for each scored run. If several have one recipe, their names also have the seed, or
    else the folder."""
    from arml.report.tables import make_rows

    rows = [row for one in scored for row in make_rows([one.result])]
    if len({row.recipe for row in rows}) == len(rows):
        return rows
    seeds = [f"seed {one.result['seed']}" for one in scored]
    told = seeds if len({*seeds}) == len(rows) else [str(one.folder) for one in scored]
    return [replace(row, recipe=f"{row.recipe}, {by}") for row, by in zip(rows, told, strict=True)]


@dataclass(frozen=True)
class ExplainOptions:
    """Look inside a run: PNG, SVG, and the numbers as JSON.

    ARML: how much each family reads each vertex of the meta-knowledge graph, and how much it loses
    without one. Other methods: the tree, the codes or the masks that they learned, or the numbers
    that a method of your own returns.
    """

    folder: Positional[Path]
    """Folder of the run."""
    out: Path
    """Folder of the figures; FOLDER/explain is where `arml report` looks."""
    tasks: int = 200
    """Test tasks to average over."""


def explain_command(arguments: Sequence[str]) -> int:
    """Draw figures of the inside of a run, such as ARML's graph"""
    options = parse(ExplainOptions, arguments, prog="arml explain")
    from arml.results.folder import seeds_in

    if runs := seeds_in(options.folder):
        raise UsageError(
            f"{options.folder} holds several seeds, and explain looks inside one run: name one, "
            f"such as {runs[0]}"
        )
    from arml.explain.explaining import explain

    for path in explain(options.folder, options.out, tasks=options.tasks):
        say(Console(), str(path))
    return 0


@dataclass(frozen=True)
class ReportOptions:
    """Write one self-contained HTML page: scores, learning curves, figures, mistakes."""

    folders: Positional[tuple[Path, ...]]
    """Folders of runs, of seeds or of predictors, each evaluated."""
    out: Path
    """The page."""


def report_command(arguments: Sequence[str]) -> int:
    """Write one self-contained page about runs or predictors"""
    options = parse(ReportOptions, arguments, prog="arml report")
    from arml.report.page import write_page
    from arml.results.folder import seeds_in

    folders = [run for folder in options.folders for run in seeds_in(folder) or [folder]]
    write_page(folders, options.out)
    say(Console(), f"written to {options.out}")
    return 0
