"""`arml train`: reads the options, trains one seed or several, shows progress, and can stop."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

import jax
from rich.console import Console
from tyro.conf import arg

from arml.cli.console import EXIT_INTERRUPTED, Display, Stop, command, say
from arml.cli.options import TrainingOptions, read_command, timed
from arml.core.checks import Size, Whole, check_types
from arml.experiment.options import TASKS, Experiment, metric_of
from arml.experiment.running import check_claim, check_place, of_seed, run, train_seeds
from arml.results.files import Json, JsonView, read_metrics
from arml.results.machine import cores
from arml.training import checkpoint
from arml.training.devices import mesh_of, own_cores, sharing
from arml.training.distributed import Processes, ending, is_first, of_all
from arml.training.fit import SCORING_STAGE, best_of


@dataclass(frozen=True, kw_only=True)
class TrainOptions(TrainingOptions):
    """Meta-train in a folder; the same command again resumes.

    `arml train RECIPE --run DIR` trains a recipe, which is a setting and a method: `arml list`
    shows them, and `arml train RECIPE --help` the options of one. `arml train --data FOLDER...`
    trains on your own pictures, with options that suit them; it prints each choice, and every
    option can be given.
    """

    seeds: Size = 1
    """Train this many seeds side by side, in RUN/seed-0, RUN/seed-1 and so on."""
    workers: Whole = 0
    """Seeds that are trained at once; 0 means one for each core, or one on a GPU."""
    on: str | None = None
    """Train the seeds on a Ray cluster: `ray` for that of $RAY_ADDRESS or a new one here, or
    ray://HOST:PORT. The run folder must be on storage that all nodes share."""
    devices: Whole = 0
    """Devices of this process that share the tasks of a step; 0 means the CPU cores for images."""
    extend: bool = False
    """Continue a run of fewer steps although its schedule changes. If the rate is constant, --steps
    is enough."""
    joined: Annotated[Processes, arg(name="")] = field(default_factory=Processes)

    @property
    def extends(self) -> bool | None:
        """Whether more steps continue a run; None: only if the rate is constant."""
        return self.extend or (None if self.steps else False)

    def check(self) -> None:
        """Raise `ValueError` for options that exclude each other."""
        check_types(self)
        if (self.workers or self.on) and self.seeds == 1:
            raise ValueError("--workers and --on are for --seeds, got one seed: leave them out")
        if self.seeds > 1 and self.devices:
            raise ValueError(
                "--seeds excludes --devices, because each seed has one process: leave one out"
            )
        if self.joined.several and (self.seeds > 1 or self.steps is None):
            raise ValueError(
                "--distributed trains one run, with the same number of steps in each process: give "
                "--steps, and neither --seeds nor --minutes"
            )


def train_command(arguments: Sequence[str]) -> int:
    since = time.monotonic()
    parsed = read_command(TrainOptions, arguments, prog="arml train")
    options, experiment = parsed.options, parsed.experiment
    options.check()
    several, devices = options.seeds > 1, options.devices
    if not several:
        check_place(options.run)
    experiment.check()
    again = command("train", *arguments)
    with ending(options.joined.several):
        if options.joined.several:
            check_claim(experiment, options.run, options.extends)
            options.joined.check(experiment.batch, devices)
            options.joined.join()
        console = Console(quiet=not is_first())
        say(console, *parsed.lines)
        if not devices:
            # Steps of small networks take milliseconds: they are not shared.
            split = not (experiment.scan or several)
            own = experiment.batch // jax.process_count()
            devices = sharing(own, experiment.chunk, own_cores()) if split else 1
        experiment = timed(parsed, since, devices=devices, console=console)
        if several:
            return _train_seeds(console, experiment, options, again)
        if longer := check_claim(experiment, options.run, options.extends):
            say(console, longer)
        return _train(console, experiment, options, again, devices)


class Training:
    """Shows one training: its steps, losses and validation scores."""

    def __init__(self, display: Display, experiment: Experiment) -> None:
        self.display, self.experiment = display, experiment
        self.reached, self.loss = 0, ""
        self.saves = False
        """Whether a stop must wait, until data are read or a step is saved."""

    def watch(self, step: int, record: Mapping[str, float | None]) -> None:
        """Show that step `step` is done; without a record, that the first steps are compiled."""
        self.reached, self.saves = step, bool(record)
        console = self.display.console
        if not record:
            if step:
                say(console, f"resuming at step {step:,}")
            say(console, "compiling and making the first steps")
            self.display.show("compiling")
            return
        if "loss" in record:
            self.loss = f", loss {_number(record['loss'])}"
        if "validation" in record:
            say(console, f"step {step:,}: {time_in_words(self.experiment, record)}")
        steps = self.experiment.steps
        self.display.show("training", step, steps, note=f"step {step:,} of {steps:,}{self.loss}")

    def idle(self) -> str:
        """The reason why an end during compilation loses no steps; empty otherwise."""
        saved = f"saved at step {self.reached:,}" if self.reached else "no step is done"
        return "" if self.saves else f"stopped; {saved}"


def _train(
    console: Console, experiment: Experiment, options: TrainOptions, again: str, devices: int
) -> int:
    """Train one seed, or continue; returns the exit status."""
    folder, distributed = options.run, options.joined.several
    place = folder / "checkpoints"
    done = checkpoint.latest(place) == experiment.steps
    if done and checkpoint.is_sound(place, experiment.steps):
        say(console, f"already trained for {experiment.steps:,} steps: nothing is left to do")
        if last := _scored(folder, experiment):
            say(console, f"step {last['step']:,}: {time_in_words(experiment, last)}")
        _print_end(console, folder)
        return 0
    display = Display(console, "loading")
    training = Training(display, experiment)
    few = f"{experiment.interval} steps at most, one where steps are slow"
    stop = Stop(
        f"stopping after the current steps ({few}), which are then saved",
        # One of several processes stops with the rest.
        idle=str if distributed else training.idle,
    )

    def reading(what: str, done: int, total: int) -> None:
        """Show that images are decoded, or validation tasks scored."""
        if stop() and what != SCORING_STAGE:  # the current steps are saved first
            raise KeyboardInterrupt
        training.saves = True
        display.show(what if what == SCORING_STAGE else f"reading {what}", done, total)

    with stop.listening(), display:
        reached = run(
            experiment,
            folder,
            watch=training.watch,
            stop=stop,
            progress=reading,
            devices=devices,
            distributed=distributed,
            extend=options.extends,
        ).last
    if reached < experiment.steps:
        if any(of_all(mesh_of(devices, processes=distributed), stop())):
            say(console, f"stopped and saved at step {reached:,}; to resume: {again}")
            return EXIT_INTERRUPTED
        steps = f"step {reached:,} of {experiment.steps:,}"
        say(console, f"ended at {steps}: by patience or a callback")
    _print_end(console, folder)
    return 0


def _train_seeds(
    console: Console, experiment: Experiment, options: TrainOptions, again: str
) -> int:
    """Train several seeds from the experiment's own on, or continue; returns the exit status."""
    folder = options.run
    if (folder / "config.json").exists():
        raise ValueError(f"{folder} is a run, not a folder for several seeds: name another")
    seeds = range(experiment.seed, experiment.seed + options.seeds)
    left = []
    for seed in seeds:
        own, place = of_seed(experiment, folder, seed)
        own.check()
        check_claim(own, place, options.extends)
        if checkpoint.latest(place / "checkpoints") != own.steps:
            left.append(seed)
    workers = options.workers
    if not workers and options.on is None:
        # Processes on one accelerator share its memory, which may be too small for all.
        workers = cores() if jax.default_backend() == "cpu" else 1
    workers = min(workers or len(left), len(left))
    if left:
        at_once = f", {workers} at a time" if workers < len(left) else ""
        say(console, f"training {len(left)} of {len(seeds)} seeds{at_once}, one process each")
    display = Display(console, "waiting", rows=left)

    def watch(seed: int, step: int, record: Mapping[str, float | None]) -> None:
        note = "" if record else "compiling"
        display.show(f"seed {seed}", step, experiment.steps, note=note, row=seed)

    stop = Stop("stopping after the current steps, which are then saved")
    with stop.listening(), display:
        failed = train_seeds(
            experiment,
            folder,
            left,
            workers=workers,
            watch=watch,
            stop=stop,
            on=options.on,
            extend=options.extends,
        )
    say(console, *(f"seed {seed} failed: {why}" for seed, why in failed.items()))
    if stop():
        say(console, f"stopped and saved; to resume: {again}")
        return EXIT_INTERRUPTED
    done = [seed for seed in seeds if seed not in failed]
    records = {seed: _scored(folder / f"seed-{seed}", experiment) for seed in done}
    scored = {seed: record for seed, record in records.items() if record is not None}
    for seed, record in scored.items():
        say(console, f"seed-{seed}: {time_in_words(experiment, record)}")
    last = [record["validation"] for record in scored.values()]
    if len(last) > 1 and None not in last:
        spread = f"mean {fmean(last):.3g}, standard deviation {stdev(last):.2g}"
        say(console, f"{len(last)} seeds: {spread}")
    if failed:
        say(console, f"to try the failed seeds again: {again}")
        return 1
    say(console, f"next: {command('evaluate', str(folder))}")
    return 0


def _print_end(console: Console, folder: Path) -> None:
    """Print where the results are, and the next command."""
    say(
        console,
        "± is the 95% interval over validation tasks",
        f"metrics.jsonl, checkpoints and config.json are in {folder}",
        f"next: {command('evaluate', str(folder))}",
    )


def _scored(folder: Path, experiment: Experiment) -> Json | None:
    """The record with the validation score of the learner that a training kept."""
    records = [r for r in read_metrics(folder / "metrics.jsonl") if "validation" in r]
    best, _ = best_of(records, falls=metric_of(experiment.tasks) != "accuracy")
    kept = [r for r in records if r["step"] == best] if experiment.keep == "best" else []
    return next(reversed(kept or records), None)


def time_in_words(experiment: Experiment, record: JsonView) -> str:
    """A validation score: `accuracy 0.66 ± 0.02 on 5-way validation tasks (chance 0.20)`."""
    mean, half = record["validation"], record.get("validation_ci95")
    score = _number(mean) + (f" ± {_number(half)}" if None not in (mean, half) else "")
    if metric_of(experiment.tasks) != "accuracy":
        return f"mean squared error {score} on validation tasks"
    usual = TASKS.of(experiment.tasks).problem
    ways = getattr(experiment.tasks, "ways", usual.outputs)
    return f"accuracy {score} on {ways}-way validation tasks (chance {1 / ways:.2f})"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"
