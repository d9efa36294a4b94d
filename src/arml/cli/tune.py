"""`arml tune`: a sweep of a recipe's options on meta-validation tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from arml.cli.console import command, grid, say
from arml.cli.errors import UsageError
from arml.cli.options import TrainingOptions, flags, read
from arml.cli.stopping import INTERRUPTED, Stop
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.experiment.search import Sweep, Trial, Value, chosen, space, tune, usual
from arml.results.files import Json, write_json

SHOWN = 10
"""Trials in the table at the end."""


@dataclass(frozen=True, kw_only=True)
class TuneOptions(TrainingOptions):
    """Search a recipe's options on meta-validation tasks; the same command again continues. A trial
    ends early if its score is below the median of the others at the same step.

    `arml tune RECIPE --run DIR`; `arml list` shows the recipes, and `arml tune RECIPE --help` the
    options of one.
    """

    trials: int = 20
    """Number of choices of options to try."""
    search: tuple[str, ...] = ()
    """Options to search: PART.NAME=LOW..HIGH (on a logarithmic scale if it spans a factor of ten)
    or PART.NAME=A,B,C, where PART is algorithm, outer or network; the step sizes and the weights
    of losses if not given."""
    workers: int = 1
    """Trials that run at the same time."""


def tune_command(arguments: Sequence[str]) -> int:
    """Search a recipe's options on meta-validation tasks; the same command again continues"""
    asked = read(TuneOptions, arguments, prog="arml tune")
    options, experiment, name = asked.options, asked.experiment, asked.experiment.recipe
    if options.minutes is not None:
        raise UsageError("--minutes does not suit a search: give --steps")
    experiment.check()
    sweep = Sweep(experiment, space(options.search, experiment) or usual(experiment))

    console, stop = Console(), Stop()
    say(console, f"searching {sweep}")

    def watch(trial: Trial) -> None:
        say(console, _line(trial, experiment.steps))

    with stop.listening():
        ended = tune(
            sweep,
            options.run,
            trials=options.trials,
            workers=options.workers,
            watch=watch,
            stop=stop,
        )
    finished = sum(trial.finished for trial in ended)
    if ended:
        console.print(_table(ended, experiment.steps))
    if finished:
        best = _best(ended[0], sweep, name)
        write_json(options.run / "best.json", best)
        say(console, f"best of {finished} finished trials, on validation tasks: {best['command']}")
    if stop():
        again = command("tune", *arguments)
        say(console, f"stopped after {len(ended)} trials; to continue: {again}")
        return INTERRUPTED
    return 0


def _best(trial: Trial, sweep: Sweep, name: str) -> Json:
    """The best trial, and the command that trains with its options."""
    usual_steps, steps = recipe(name).steps, sweep.experiment.steps
    # Trials are often shorter than the run that the search is for.
    tuned = chosen(sweep.experiment, trial.values)
    whole: Experiment = replace(tuned, steps=max(usual_steps, steps))
    words = ["train", name, "--run", f"runs/{name}-tuned", *flags(recipe(name), whole)]
    return {
        "score": trial.score,
        "split": "validation",
        "tasks": sweep.experiment.validation_tasks,
        "steps": steps,
        "values": trial.values,
        "run": str(trial.folder),
        "command": command(*words),
    }


def _values(values: dict[str, Value]) -> str:
    return "  ".join(
        f"{path}={value:.3g}" if isinstance(value, float) else f"{path}={value}"
        for path, value in values.items()
    )


def _score(trial: Trial) -> str:
    return "none" if trial.score is None else f"{trial.score:.4f}"


def _state(trial: Trial, steps: int) -> str:
    if trial.finished:
        return "finished"
    return f"ended at step {max(trial.scores, default=0):,} of {steps:,}"


def _line(trial: Trial, steps: int) -> str:
    why = f" ({trial.why.partition(':')[0]})" if trial.why else ""
    return (
        f"trial {trial.number}: {_score(trial)}, {_state(trial, steps)}{why}  "
        f"{_values(trial.values)}"
    )


def _table(ended: Sequence[Trial], steps: int) -> Table:
    rows = [
        (str(trial.number), _score(trial), _state(trial, steps), _values(trial.values))
        for trial in ended[:SHOWN]
    ]
    title = "Validation scores, the best first"
    return grid(("trial", "score", "", "options"), rows, left=(2, 3), title=title)
