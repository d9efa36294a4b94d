"""`arml evaluate`, `explain` and `report`: the scores of runs and predictors, and a look inside."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from arml.cli.adapt import asked_of
from arml.cli.console import Display, Shown, parse, print_json, refuse, say, tell
from arml.report.tables import comparable, grid, labels, make_rows, table_of, terminal
from arml.results.files import Json, RunError, check_writable, write_json, write_text
from arml.results.folder import Result, read_config, seeds_in
from arml.results.scores import format_score

if TYPE_CHECKING:
    from arml.experiment.scoring import Scored

_SCORED_TASKS = 1_000
"""The number of tasks on which a run is scored."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Score a run on new tasks: one score per task, its mean with the 95% interval, by family.
    Score a folder of seeds (`arml train --seeds`): their mean and standard deviation.
    Score a saved predictor on labelled queries: the classes, the confusions, the worst mistakes.

    Without --out, the scores on test tasks with the training's shape and inner steps are also
    written to the folder of the run: result.json, and scores.npz with those of single tasks.
    --against compares two runs task by task, and two folders of seeds over training runs and tasks.
    It uses scores of an earlier call. The published tables use 4,000 tasks.
    """

    folder: Positional[Path]
    """Folder of the run, of seeds, or of the predictor."""
    query: Path | None = None
    """For a predictor: labelled queries, as --support of `arml adapt`."""
    target: str | None = None
    """For a predictor of tables: the column with the answers."""
    sheet: str | None = None
    """For a predictor of tables: the sheet of a spreadsheet; by default the first visible one."""
    model: Path | None = None
    """For a predictor of features: the ONNX model, if it is not the default."""
    tasks: int | None = None
    """For a run: tasks to score, the same for every run; 1,000 if not given."""
    split: Literal["test", "validation"] = "test"
    """For a run: which tasks."""
    steps: int | None = None
    """For a run: inner steps at test; those of the training if not given."""
    ways: int | None = None
    """For a run: classes of a task; those of the training if not given."""
    shots: int | None = None
    """For a run: examples of each class; those of the training if not given."""
    against: Path | None = None
    """For a run or seeds: another run, or seeds of another; print the difference."""
    json: bool = False
    """Print JSON."""
    out: Path | None = None
    """Write the result to this file instead of the folder."""


def evaluate_command(arguments: Sequence[str]) -> None:
    options = parse(EvaluateOptions, arguments, prog="arml evaluate")
    from arml.predict.files import check_predictor, is_learner, is_predictor

    check_writable(*filter(None, [options.out]))
    if options.query is not None and not options.folder.exists():
        check_predictor(options.folder)
    if is_predictor(options.folder):
        refuse(options, ("tasks", "split", "steps", "ways", "shots", "against"), "runs")
        found, shown = _predictor(options)
    elif is_learner(options.folder):
        raise ValueError(
            f"{options.folder} is a learner, not a run or a predictor: `arml adapt "
            f"{options.folder} --support EXAMPLES --save FOLDER` makes a predictor "
            "of it, and estimates how well it predicts your examples"
        )
    else:
        refuse(options, ("query", "target", "sheet", "model"), "predictors")
        found, shown = _runs(options)
    if options.out is not None:
        write_json(options.out, found)
        shown = [*shown, f"written to {options.out}"]
    if options.json:
        print_json(found)
    else:
        say(Console(), *shown)


def _runs(options: EvaluateOptions) -> tuple[Json, list[Shown]]:
    """Score the runs of one folder, or of two; returns the result, and what to print."""
    folders = [options.folder, *([options.against] if options.against else [])]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError(f"{options.folder} was given twice: name another folder after --against")
    sides = [seeds_in(folder) or [folder] for folder in folders]
    for runs in sides:
        for run in runs:
            read_config(run)  # before JAX is imported, which takes a second or two
    tasks = _SCORED_TASKS if options.tasks is None else options.tasks
    settings: Json = {"tasks": tasks, "split": options.split, "steps": options.steps}
    shape = {name: n for name in ("ways", "shots") if (n := getattr(options, name)) is not None}
    usual = options.split == "test" and options.steps is None and options.out is None
    keeps = usual and not shape
    if keeps:
        check_writable(*(run for runs in sides for run in runs))
    with Display(Console(stderr=True), "loading and compiling") as display:
        from arml.experiment.scoring import evaluate_run, keep, kept_scores
        from arml.results.comparisons import compare_two
        from arml.training.devices import mesh_of, own_cores

        def scored(run: Path, *, simple: bool) -> "Scored":
            # A comparison can use the scores of an earlier call.
            known = kept_scores(run, **settings) if len(sides) > 1 and not shape else None
            if known is not None:
                return known
            found = evaluate_run(
                run,
                **settings,
                shape=shape,
                mesh=mesh_of(own_cores()),
                simple=simple,
                watch=partial(display.show, "scoring tasks"),
            )
            if keeps:
                keep(found)
            return found

        for folder, runs in zip(folders, sides, strict=True):
            if runs != [folder]:
                _check_seeds(runs)
        # The simple classifiers have the same scores beside each seed.
        every = [[scored(run, simple=run == runs[0]) for run in runs] for runs in sides]
    first, *others = map(_summary, folders, every)
    rows = make_rows(_named(folders, every))
    shown: list[Shown] = [terminal(table_of(some)) for some in comparable(rows)]
    for other in others:
        found = compare_two(*([one.scores for one in side] for side in every))
        first["against"] = {**other, "folder": str(folders[1]), "difference": found.to_dict()}
        better = "above zero" if found.metric == "accuracy" else "below zero"
        lines = []
        for name, part in {"all tasks": found, **found.families}.items():
            score = format_score(found.metric, part.to_dict(), sign="+")
            lines.append((name, "not finite" if part.mean is None else score, f"{part.tasks:,}"))
        shown += [
            f"Difference from {folders[1]} on the same tasks ({better} is better)",
            grid(("", "difference ± 95%", "tasks"), lines),
            found.about,
        ]
    if keeps:
        places = [str(run / "result.json") for side in sides for run in side]
        shown.append(f"the scores are in {', '.join(places)}")
    elif options.out is None:
        shown.append(
            "not kept: the folder keeps only scores on test tasks with the training's shape and "
            "inner steps; --out FILE keeps these"
        )
    return first, shown


def _check_seeds(runs: Sequence[Path]) -> None:
    """Raise `RunError` in one line unless the runs are trained seeds of one experiment."""
    from arml.experiment.options import fingerprint
    from arml.experiment.running import Run

    opened = [Run(run) for run in runs]
    first = opened[0].experiment
    for run in opened:
        own = run.experiment
        if (own.recipe, fingerprint(own)) != (first.recipe, fingerprint(first)):
            raise RunError(
                f"{run.folder} has other options than {runs[0]}, and is not a seed of the same "
                "experiment: move one of them to another folder"
            )
        if not run.is_over:
            raise RunError(
                f"{run.folder} is at step {run.last:,} of {own.steps:,}: train it to the end, or "
                "move it away"
            )
    if len({run.experiment.seed for run in opened}) < len(runs):
        raise RunError(f"two runs of {runs[0].parent} have the same seed: move one of them away")


def _summary(folder: Path, scored: Sequence["Scored"]) -> Json:
    """The result of a run; of seeds all results, with their mean and standard deviation."""
    results = [one.result for one in scored]
    if scored[0].run.folder == folder:
        return {**results[0]}
    (row,) = make_rows(results)
    facts = {"folder": str(folder), "metric": row.metric, "mean": row.mean, "spread": row.spread}
    return {**facts, "runs": results}


def _named(folders: Sequence[Path], every: Sequence[Sequence["Scored"]]) -> list[Result]:
    """The results of all runs. If both folders have one recipe, its name also has the folder."""
    same = len({side[0].result["recipe"] for side in every}) < len(every)
    return [
        {**one.result, "recipe": f"{one.result['recipe']}, {folder}"} if same else one.result
        for folder, side in zip(folders, every, strict=True)
        for one in side
    ]


def _predictor(options: EvaluateOptions) -> tuple[Json, list[Shown]]:
    """Score a saved predictor on labelled queries; returns the result, and what to print."""
    folder, query = options.folder, options.query
    if query is None:
        raise ValueError(
            "no labelled queries for the predictor: name a folder or zip with one folder for each "
            "class, or a CSV file, with --query"
        )
    if not query.exists():
        raise ValueError(f"nothing at {query}: check the path")
    from arml.predict.kinds import inputs_of
    from arml.predict.loading import load_predictor
    from arml.predict.reliability import NumberEvaluation

    predictor = load_predictor(folder, options.model)
    learner = predictor.learner
    asked = asked_of(learner, [query], folder.name)
    if "sheet" not in inputs_of(learner).asks:
        refuse(options, ("sheet",), "tables")
    asked.target, asked.sheet = options.target, options.sheet
    names, x, y = inputs_of(learner).labelled(learner, query, asked, predictor)
    # Rows of a table may be equal by chance.
    if same := predictor.equal_examples(x):
        tell(
            f"warning: {same} of {len(y)} queries equal examples that the predictor learned from; "
            "if they are the same cases, the score is better than for new ones: leave them out"
        )
    marks = predictor.evaluate(x, y)
    if isinstance(marks, NumberEvaluation):
        return marks.as_json(), [str(marks)]
    mistakes = [names[i] for i in marks.mistakes.tolist()]
    found = {**marks.as_json(), "by": predictor.model, "mistakes": mistakes}
    return found, [*marks.lines(names), _by_class(found)]


def _by_class(found: Json) -> Table:
    """The accuracy of each class, the lowest first, and the classes that it was confused with."""
    rows, classes = [], found["classes"]
    for name, share in sorted(found["by_class"].items(), key=lambda pair: pair[1]):
        row = found["confusion"][classes.index(name)]
        pairs = sorted(zip(row, classes, strict=True), key=lambda pair: -pair[0])
        others = [f"{other} ({count})" for count, other in pairs if count and other != name]
        rows.append((name, f"{share:.1%}", str(sum(row)), ", ".join(others)))
    return grid(("class", "accuracy", "queries", "predicted as"), rows, left=(0, 3))


@dataclass(frozen=True)
class ExplainOptions:
    """Look inside a run: PNG, SVG, and the numbers as JSON.

    ARML: how much each family reads each vertex of the meta-knowledge graph, and how much it loses
    without one. A method of your own: the numbers that it returns.
    """

    folder: Positional[Path]
    """Folder of the run."""
    out: Path
    """Folder of the figures; FOLDER/explain is where `arml report` looks."""
    tasks: int = 200
    """Test tasks to average over."""


def explain_command(arguments: Sequence[str]) -> None:
    options = parse(ExplainOptions, arguments, prog="arml explain")
    check_writable(options.out)
    from arml.explain.explaining import explain

    say(Console(), *map(str, explain(options.folder, options.out, tasks=options.tasks)))


@dataclass(frozen=True)
class ReportOptions:
    """Compare runs: mean, interval, difference from one of them, adjusted p-value and verdict.

    Prints a table for the runs of each protocol, and writes it to a file: .html (a self-contained
    page with learning curves and figures), .csv (unrounded numbers), .tex (LaTeX, booktabs) or
    .md. A verdict needs five trainings of each recipe.
    """

    folders: Positional[tuple[Path, ...]]
    """Folders of runs or of seeds, each evaluated."""
    against: str | None = None
    """The recipe that the others are compared with, as the table names it; that of the first folder
    if not given."""
    out: Path | None = None
    """The file."""


def report_command(arguments: Sequence[str]) -> None:
    options = parse(ReportOptions, arguments, prog="arml report")
    if options.out is not None:
        check_writable(options.out)
    from arml.report.page import read_runs, sections_of, write_page

    kind = ".html" if options.out is None else options.out.suffix.lower()
    if kind not in (".html", ".htm", ".csv", ".tex", ".md"):
        raise ValueError(f"--out must end in .html, .csv, .tex or .md, got {options.out}")
    folders = [run for folder in options.folders for run in seeds_in(folder) or [folder]]
    runs = read_runs(folders)
    sections = sections_of(runs, options.against)
    for one in sections:
        say(Console(), terminal(one.table()), *([one.why] if one.why else []))
    if options.out is None:
        return
    if kind in (".html", ".htm"):
        write_page(runs, sections, options.out)
    else:
        verdicts = [one.verdicts for one in sections if one.verdicts is not None]
        if len(sections) != 1:
            parts = "; ".join(
                f"{', '.join(labels(one.rows))}: {one.table().caption}" for one in sections
            )
            raise ValueError(
                f"{options.out} holds one table, of runs with one protocol. These runs have "
                f"{len(sections)} ({parts}): name runs of one of them, or evaluate all with the "
                "same options"
            )
        if not verdicts:
            why = sections[0].why or "These runs are of one recipe."
            raise ValueError(f"{options.out} holds differences of two recipes or more. {why}")
        found = verdicts[0]
        write = {".csv": found.to_csv, ".tex": found.to_latex, ".md": found.to_markdown}[kind]
        write_text(options.out, write())
    say(Console(), f"written to {options.out}")
