"""`arml train --stream`: a recipe is trained on families that arrive one after another.

Each stage trains all weights on the family that arrives and on kept tasks of the known ones. The
folder is a run after each stage, and the same command goes on from there.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import jax
import numpy as np

from arml.core.checks import at_least
from arml.core.episodes import Problem
from arml.core.learner import MetaLearner
from arml.core.losses import score_of
from arml.experiment.options import Experiment, absolute, essence
from arml.experiment.recipes import built
from arml.experiment.running import check_same, claim, like
from arml.growth.folder import FILE, SPLIT, check_new_run, publish
from arml.growth.replay import kept, replay
from arml.results.files import Json, locked, plain, read_json, write_json
from arml.tasks.mixture import mixture
from arml.tasks.options import splits_of
from arml.training import checkpoint
from arml.training.evaluate import evaluate
from arml.training.fit import fit

_MOST = 2**30
"""Bytes of tasks that are kept for replay."""


@dataclass(frozen=True)
class StreamOptions:
    """Which families arrive when, and how known ones are kept."""

    order: tuple[str, ...] = ()
    """The families in the order in which they arrive; one may come back. All of them if empty."""
    replay: float = 0.5
    """Share of the training tasks that are of known families."""
    keep: int = 100
    """Tasks of each family that are kept for replay."""
    held: int = 200
    """Test tasks of each family for a score."""

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        at_least(self, ("keep",), 1)
        at_least(self, ("replay",), 0, most=1)
        at_least(self, ("held",), 2)

    def stages(self, families: Sequence[str]) -> tuple[str, ...]:
        """The family of each stage.

        **Raises** `ValueError` for a family that is not there.
        """
        order = self.order or tuple(families)
        odd = next((name for name in order if name not in families), None)
        if odd is not None:
            raise ValueError(
                f"unknown family {odd!r} in the order of the stream: expected some of "
                f"{', '.join(families)}"
            )
        return order


def train_stream(
    experiment: Experiment,
    folder: Path | str,
    options: StreamOptions | None = None,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> Json:
    """Meta-train on families that arrive one after another, in `folder`; it goes on after the last
    whole stage.

    The steps of the experiment are those of the whole stream, and all stages have the same number.
    Scores of test tasks are taken after each stage, and decide nothing.

    **Returns** the content of `growth.json`: the `metric`, in `records` the scores of each stage on
    test tasks, and in `plan` the options.

    **Raises** `ValueError` or `RunError` in one line.
    """
    options, folder = options or StreamOptions(), Path(folder)
    options.check()
    experiment.check()
    experiment = absolute(experiment)
    plan = plain({"experiment": essence(experiment), "stream": asdict(options)})
    content = _begun(folder, plan)
    with locked(folder):
        splits = splits_of(experiment.tasks.build(folder / SPLIT))
        order = options.stages(splits.train.families)
        steps = experiment.steps // len(order)
        if steps < 1:
            raise ValueError(
                f"{experiment.steps} steps are too few for {len(order)} stages: raise --steps"
            )
        problem = splits.train.problem
        check_room(problem, len(splits.train.families), options.keep)
        if content is None:
            content = {"metric": score_of(problem)[0], "records": [], "plan": plan}
            write_json(folder / FILE, content)
        experiment = replace(experiment, recipe=f"{experiment.recipe} (stream)")
        claim(experiment, splits, folder)
        train, test = mixture(splits.train), mixture(splits.test)
        memory = kept(train, options.keep, key=jax.random.key(1_000 + experiment.seed))
        learner, done, seconds = _resumed(experiment, problem, folder, steps)
        records = [record for record in content["records"] if record["stage"] < done]
        if done:
            say(f"resuming after {done} of {len(order)} stages")
        for index, name in list(enumerate(order))[done:]:
            say(f"stage {index + 1} of {len(order)}, {name}")
            started = time.monotonic()
            known = order[:index]
            fitted = fit(
                learner,
                replay(train.only(name), memory, known, options.replay),
                steps=steps,
                seed=experiment.seed * 1_000 + index,
                outer=experiment.outer,
                batch=experiment.batch,
                interval=max(1, steps // 10),
            )
            learner, tasks = fitted.learner, steps * experiment.batch
            scores = {
                family: evaluate(learner, test.only(family), options.held, progress=False).mean
                for family in dict.fromkeys(order)
            }
            replays = any(family != name for family in known)
            records.append(
                {
                    "stage": index,
                    "family": name,
                    "scores": scores,
                    "tasks": tasks,
                    "replayed": round(options.replay * tasks) if replays else 0,
                    "losses": [[line["step"], line["loss"]] for line in fitted.history],
                }
            )
            seconds += time.monotonic() - started
            content["records"] = records
            losses = [
                (steps * record["stage"] + step, loss)
                for record in records
                for step, loss in record["losses"]
            ]
            reached = steps * (index + 1)
            publish(folder, learner, content, experiment, losses, step=reached, seconds=seconds)
    return content


def _begun(folder: Path, plan: Json) -> Json | None:
    """The content of `growth.json`; None in a new folder.

    **Raises** `RunError` for a folder that holds something else, or was made with other options.
    """
    content = read_json(folder / FILE) if (folder / FILE).is_file() else {}
    if "plan" not in content:
        check_new_run(folder)
        return None
    check_same(folder, content["plan"], plan, "stream")
    return content


def check_room(problem: Problem, families: int, keep: int) -> None:
    """Raise `ValueError` if the kept tasks of all families need too much memory."""
    numbers = (problem.support + problem.query) * int(np.prod(problem.features))
    each = 4 * numbers * families
    if keep * each > _MOST:
        raise ValueError(
            f"expected kept tasks of at most {_MOST / 2**30:g} GiB, got {keep} of each family, "
            f"which are {keep * each / 2**30:.1f} GiB: give --keep {_MOST // each}"
        )


def _resumed(
    experiment: Experiment, problem: Problem, folder: Path, steps: int
) -> tuple[MetaLearner, int, float]:
    """The learner as far as its newest checkpoint has it, the whole stages, and their seconds."""
    step = checkpoint.latest(folder / "checkpoints")
    if step is None:
        return built(experiment, problem), 0, 0.0
    saved = checkpoint.restore(folder / "checkpoints", step, like(experiment, problem))
    return saved.state.learner, step // steps, float(saved.seconds)
