"""A recipe meets a stream of families, in a run folder that is a run after each stage.

The folder has what each run folder has (`config.json`, `metrics.jsonl`, `checkpoints/`), the
decisions and scores of the stages (`growth.jsonl`, `growth.html`), and in `stream/` where the
stream is: the same command goes on there, within a stage, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import jax
import numpy as np

from arml.core.checks import at_least
from arml.core.episodes import Problem
from arml.core.learner import MetaLearner
from arml.experiment.building import built
from arml.experiment.folder import check_place, claim, differences
from arml.experiment.options import Experiment, absolute, essence, from_json, to_json
from arml.experiment.parts import metric_of
from arml.experiment.running import Clocked
from arml.grow.comparisons import WAYS, met
from arml.grow.growth import GrowthOptions
from arml.grow.keeping import Place
from arml.grow.streams import Stage, drifting, in_stages, kept, mixture
from arml.grow.vertices import grown_vertices, own_vertices
from arml.report.growth import write_growth
from arml.results.files import Json, RunError, plain, write_json
from arml.results.folder import read_config
from arml.results.growth import write_lines
from arml.results.lock import LOCK, alone
from arml.results.schema import read_checked
from arml.tasks.options import splits_of
from arml.training import checkpoint
from arml.training.step import start

PLACE, ASKED = "stream", "asked.json"
"""The folder of a run that says where its stream is, and the file in it with all options."""
SPLIT = "split.json"
MOST = 2**30
"""Bytes of tasks that are kept for replay."""


@dataclass(frozen=True)
class StreamOptions:
    """Which families arrive when, and how known ones are kept."""

    order: tuple[str, ...] = ()
    """The families in the order in which they arrive; one may come back. All of them if empty."""
    drift: int = 0
    """Stages between two families, in which the next one gains share; 0 for sudden changes."""
    replay: float = 0.5
    """Share of the training tasks that are of known families."""
    keep: int = 100
    """Tasks of each family that are kept for replay; 0 to draw replayed tasks anew."""
    held: int = 200
    """Held-out tasks of each family for a decision, and test tasks for a score."""
    grow: bool | None = None
    """Propose vertices, or train all weights with replay. By default a learner grows if its
    vertices own the weights of the network (`--gate weights`)."""

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        at_least(self, ("drift", "keep"), 0)
        at_least(self, ("replay",), 0, most=1)
        at_least(self, ("held",), 2)

    def stages(self, families: Sequence[str]) -> list[dict[str, float]]:
        """The stages of the stream.

        **Raises** `ValueError` for a family that is not there.
        """
        order = self.order or tuple(families)
        odd = next((name for name in order if name not in families), None)
        if odd is not None:
            raise ValueError(
                f"unknown family {odd!r} in the order of the stream: expected some of "
                f"{', '.join(families)}"
            )
        return drifting(order, between=self.drift) if self.drift else in_stages(order)


class Asked(TypedDict):
    """`stream/asked.json`."""

    experiment: Json
    stream: Json


@dataclass(frozen=True)
class Streamed:
    """A run that has met its stream."""

    stages: list[Json]
    """The record of each stage, as `comparisons.met` returns it."""
    metric: str


def train_stream(
    experiment: Experiment,
    folder: Path | str,
    options: StreamOptions | None = None,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> Streamed:
    """Meta-train on families that arrive one after another, in `folder`; it goes on from where it
    was stopped.

    The steps of the experiment are those of the whole stream, and all stages have the same number.
    A learner whose vertices own the weights of the network grows; others train all weights, with
    replay. Scores of test tasks are taken after each stage, and decide nothing.

    **Raises** `ValueError` or `RunError` in one line.
    """
    options, folder = options or StreamOptions(), Path(folder)
    options.check()
    experiment.check()
    check_place(folder)
    experiment = absolute(experiment)
    file = folder / PLACE / ASKED
    asked = plain({"experiment": essence(experiment), "stream": asdict(options)})
    _check_claim(folder, file, asked)
    with alone(folder):
        splits = splits_of(experiment.tasks.build(folder / SPLIT))
        stages = options.stages(splits.train.families)
        steps = experiment.steps // len(stages)
        if steps < 1:
            raise ValueError(
                f"expected a step or more for each of the {len(stages)} stages, got "
                f"{experiment.steps} steps for all of them: raise --steps"
            )
        problem = splits.train.problem
        _check_room(problem, len(splits.train.families), options.keep)
        learner = built(experiment, problem)
        run = replace(experiment, recipe=f"{experiment.recipe} (stream)")
        write_json(file, asked)
        claim(run, splits, folder)
        train, held, test = (mixture(part) for part in splits[:3])
        memory = None
        if options.keep:
            memory = kept(train, options.keep, key=jax.random.key(1_000 + experiment.seed))

        def build(vertices: int) -> MetaLearner:
            changed: Any = experiment.algorithm
            if vertices:
                changed = replace(changed, vertices=vertices)
            return built(replace(experiment, algorithm=changed), problem)

        def after(place: Place) -> None:
            _publish(place, stages, run, folder, steps)

        records = met(
            replace(WAYS["growing"], first=own_vertices(learner) or 0),
            build,
            stages,
            train,
            held,
            test,
            GrowthOptions(
                steps=steps,
                replay=options.replay,
                tasks=options.held,
                batch=experiment.batch,
                outer=experiment.outer,
                seed=experiment.seed,
                grow=options.grow,
            ),
            memory=memory,
            tested=options.held,
            folder=folder / PLACE,
            after=after,
            say=say,
        )
    return Streamed(records, metric_of(experiment.tasks))


def _check_claim(folder: Path, file: Path, asked: Json) -> None:
    """Refuse a folder that holds something else than this stream."""
    if file.is_file():
        begun_with = read_checked(file, Asked, "name another folder")
        # Compared as options: an option that this version added has its default.
        begun_with["experiment"] = plain(essence(from_json(begun_with["experiment"], str(file))))
        changes = differences(begun_with, asked)
        if changes:
            more = f"; and {len(changes) - 8} more" if len(changes) > 8 else ""
            raise RunError(
                f"{folder} was begun with other options ({'; '.join(changes[:8])}{more}): give "
                "those to go on, or name another folder"
            )
    elif any(path.name not in (SPLIT, PLACE, LOCK) for path in folder.glob("*")):
        raise RunError(
            f"expected a new folder or that of a stream, got {folder}: name another with --run"
        )


def _check_room(problem: Problem, families: int, keep: int) -> None:
    numbers = (problem.support + problem.query) * int(np.prod(problem.features))
    each = 4 * numbers * families
    if keep * each > MOST:
        raise ValueError(
            f"expected kept tasks of at most {MOST / 2**30:g} GiB, got {keep} of each family, "
            f"which are {keep * each / 2**30:.1f} GiB: give --keep {MOST // each}, or --keep 0 to "
            "draw replayed tasks anew"
        )


def _publish(
    place: Place,
    stages: Sequence[Stage],
    experiment: Experiment,
    folder: Path,
    steps: int,
) -> None:
    """Make the folder a run of the learner after the stage; the checkpoint comes last."""
    growth = place.growth
    step = steps * growth.stages
    if checkpoint.latest(folder / "checkpoints") == step:
        return
    algorithm: Any = experiment.algorithm
    if growth.names:
        grown = grown_vertices(growth.learner)
        algorithm = replace(algorithm, vertices=len(growth.names), grown=grown)
    config = {
        **read_config(folder),
        "experiment": to_json(replace(experiment, algorithm=algorithm)),
    }
    write_json(folder / "config.json", config)
    records, metrics = _records(place, metric_of(experiment.tasks)), []
    for record in records:
        if record["decision"] == "trained":
            before = steps * record["stage"]
            for at, loss in record["losses"]:
                metrics.append({"step": before + at, "loss": loss})
            for point in record["curve"]:
                at = before + point["tasks"] // experiment.batch
                metrics.append({"step": at, "validation": point["score"]})
    write_lines(folder / "metrics.jsonl", sorted(metrics, key=lambda line: line["step"]))
    write_lines(folder / "growth.jsonl", records)
    write_growth(
        records,
        folder / "growth.html",
        title=experiment.recipe,
        lead=f"{growth.stages} of {len(stages)} stages of the stream have passed.",
    )
    state = start(growth.learner, experiment.outer.build(experiment.steps))
    checkpoint.save(folder / "checkpoints", step, Clocked(state, np.asarray(place.seconds)))


def _records(place: Place, metric: str) -> list[Json]:
    """The decisions of each stage, and its scores."""
    whole = []
    for index, found in enumerate(place.found):
        whole += [one for one in place.growth.records if one["stage"] == index]
        scores = {key: found[key] for key in ("scores", "vertices", "tasks", "replayed")}
        shares = {"shares": found["stage"], "metric": metric}
        whole.append({"stage": index, "decision": "scored", **shares, **scores})
    return whole
