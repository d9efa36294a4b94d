"""`arml tune`: a sweep of a recipe's options on meta-validation tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from arml.cli.console import EXIT_INTERRUPTED, Stop, command, say
from arml.cli.options import Parsed, TrainingOptions, read_command, words_without
from arml.experiment.recipes import recipe
from arml.experiment.search import space, space_in_words, tune, usual
from arml.report.tables import grid
from arml.results.files import Json, write_json

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True, kw_only=True)
class TuneOptions(TrainingOptions):
    """Search a recipe's options on meta-validation tasks; the same command again continues. A trial
    ends early if its score is below the median of the others at the same step.

    `arml tune RECIPE --run DIR`; `arml list` shows the recipes, and `arml tune RECIPE --help` the
    options of one.

    An option to search is PART.NAME=LOW..HIGH, on a logarithmic scale if it spans a factor of ten,
    or PART.NAME=A,B,C, where PART is algorithm, outer or network.
    """

    trials: int = 20
    """Number of choices of options to try."""
    search: tuple[str, ...] = ()
    """Options to search; the step sizes and the weights of losses if not given."""
    workers: int = 1
    """Trials that run at the same time. The same command on other machines that share the folder,
    or the storage, joins the search."""
    storage: str | None = None
    """A database for Optuna's record if machines do not share the folder: sqlite:///FILE or
    postgresql://... The search is named after the folder."""
    on: str | None = None
    """Run the workers on a Ray cluster: `ray` for that of $RAY_ADDRESS or a new one here, or
    ray://HOST:PORT."""


def tune_command(arguments: Sequence[str]) -> int:
    parsed = read_command(TuneOptions, arguments, prog="arml tune")
    options, experiment = parsed.options, parsed.experiment
    if options.minutes is not None:
        raise ValueError("a search has no --minutes: give --steps")
    experiment.check()
    search = space(options.search, experiment) or usual(experiment)
    console, stop = Console(), Stop()
    say(console, f"searching {space_in_words(search)}")

    def watch(trial: "optuna.trial.FrozenTrial") -> None:
        why = trial.user_attrs.get("why", "").partition(":")[0]
        cells = _cells(trial, experiment.steps)
        say(
            console,
            f"trial {cells[0]}: {cells[1]}, {cells[2]}{f' ({why})' * bool(why)}  {cells[3]}",
        )

    with stop.listening():
        ended = tune(
            experiment,
            search,
            options.run,
            trials=options.trials,
            workers=options.workers,
            watch=watch,
            stop=stop,
            storage=options.storage,
            on=options.on,
        )
    finished = sum(trial.state.name == "COMPLETE" for trial in ended)
    if ended:
        rows = [_cells(trial, experiment.steps) for trial in ended[:10]]
        title = "Validation scores, the best first"
        console.print(grid(("trial", "score", "", "options"), rows, left=(2, 3), title=title))
    if finished:
        best = _best(ended[0], parsed)
        write_json(options.run / "best.json", best)
        say(console, f"best of {finished} finished trials, on validation tasks: {best['command']}")
        if "short" in best:
            say(
                console,
                f"this trains all {recipe(experiment.recipe).steps:,} steps with options that were "
                f"best after {experiment.steps:,}; a longer training may need others, for example "
                f"a lower rate; to train as long as the trials: {best['short']}",
            )
    if (open_ := options.trials - len(ended)) > 0 and not stop():
        say(
            console,
            f"{open_} trials have not ended: other processes run them, or died; the same command "
            "continues those of dead processes",
        )
    if stop():
        again = command("tune", *arguments)
        say(console, f"stopped after {len(ended)} trials; to continue: {again}")
        return EXIT_INTERRUPTED
    return 0


def _best(trial: "optuna.trial.FrozenTrial", parsed: Parsed[TuneOptions]) -> Json:
    experiment = parsed.experiment
    # A search may begin at a value that was given.
    words = words_without(parsed.words, trial.params, experiment)
    own = ["--steps", str(experiment.steps)]
    if experiment.steps > recipe(experiment.recipe).steps:
        words += own
    for path, value in trial.params.items():
        part, _, name = path.replace("_", "-").partition(".")
        if isinstance(value, bool):
            words.append(f"--{part}.{'' if value else 'no-'}{name}")
        else:
            words += [f"--{part}.{name}", str(value)]
    words += ["--run", f"runs/{experiment.recipe}-tuned"]
    shorter = experiment.steps < recipe(experiment.recipe).steps
    short = {"short": command("train", *words, *own)} if shorter else {}
    return {
        "score": trial.value,
        "split": "validation",
        "tasks": experiment.validation_tasks,
        "steps": experiment.steps,
        "values": trial.params,
        "run": str(parsed.options.run / "trials" / trial.user_attrs["run"]),
        "command": command("train", *words),
        **short,
    }


def _cells(trial: "optuna.trial.FrozenTrial", steps: int) -> tuple[str, str, str, str]:
    """A trial's number, score, end and options."""
    values = "  ".join(
        f"{path}={value:.3g}" if isinstance(value, float) else f"{path}={value}"
        for path, value in trial.params.items()
    )
    score = "none" if trial.value is None else f"{trial.value:.4f}"
    last = max(trial.intermediate_values, default=0)
    end = "finished" if last == steps else f"ended at step {last:,} of {steps:,}"
    return str(trial.number), score, end, values
