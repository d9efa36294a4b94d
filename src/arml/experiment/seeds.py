"""Several seeds of one experiment, side by side on the cores of this machine."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from arml.experiment.options import Experiment, absolute, from_json, to_json
from arml.experiment.running import run
from arml.experiment.workers import Message, Send, carry_out, processes

Watch = Callable[[int, int, Mapping[str, float | None]], None]
"""Called with the seed, the step that it has reached, and the record of that step."""


def of_seed(experiment: Experiment, folder: Path, seed: int) -> tuple[Experiment, Path]:
    """The experiment and the run folder of one seed."""
    return replace(experiment, seed=seed), folder / f"seed-{seed}"


def work(job: Message, send: Send, stop: Callable[[], bool]) -> Message:
    """One seed as a worker's job `{experiment, folder}`: sends each record with its `step`."""

    def watch(step: int, record: Mapping[str, float | None]) -> None:
        send({**record, "step": step})

    experiment = from_json(job["experiment"], "the experiment of a seed")
    reached = run(experiment, job["folder"], watch=watch, stop=stop)
    return {"end": "done" if reached == experiment.steps else "stopped"}


def train_seeds(
    experiment: Experiment,
    folder: Path,
    seeds: list[int],
    *,
    workers: int,
    watch: Watch,
    stop: Callable[[], bool] = lambda: False,
    tick: Callable[[], None] = lambda: None,
) -> dict[int, str]:
    """Meta-train with each seed in `folder/seed-N`, `workers` at a time, or continue there.

    **Returns** the seeds that failed, each with the reason. The same call continues the seeds that
    were stopped.
    """
    failed: dict[int, str] = {}
    experiment = absolute(experiment)
    jobs = []
    for seed in seeds:
        own, place = of_seed(experiment, folder, seed)
        jobs.append({"experiment": to_json(own), "folder": str(place.resolve()), "seed": seed})

    def heard(index: int, job: Message, message: Message) -> bool:
        if message.get("end") == "failed":
            failed[job["seed"]] = message["error"]
        elif "step" in message:
            record = {k: v for k, v in message.items() if k != "step"}
            watch(job["seed"], message["step"], record)
        return False

    workers = min(workers, len(jobs))
    hire = processes("arml.experiment.seeds:work", folder, workers)
    carry_out(jobs, hire, workers=workers, heard=heard, stop=stop, tick=tick)
    return failed
