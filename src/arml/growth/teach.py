"""`arml grow`: teach a trained learner new families, and keep those that it knows.

All weights are trained for a few minutes on known and new families, at a third of the learner's
outer rate. The new learner is accepted if, on held-out classes, the interval of its gain is above
zero for each new family, and for each known family it excludes a loss above `MAX_LOSS`. Otherwise
the weights theta_old + a (theta_new - theta_old) are tried for smaller and smaller a [1]. If all of
these fail, the old learner is kept.

[1] Wortsman et al., Robust Fine-tuning of Zero-shot Models, CVPR 2022: a model between old and new
    weights keeps most of the accuracy of both.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from arml.core.learner import MetaLearner
from arml.datasets.folders import TooFewError
from arml.experiment.choose import paced
from arml.experiment.options import Experiment, absolute
from arml.experiment.running import (
    CHECKPOINTS_FOLDER,
    METRICS_FILE,
    Clocked,
    Run,
    check_place,
    claim,
    like,
)
from arml.predict.files import locate
from arml.predict.learner import FewShotLearner
from arml.results.files import (
    LOCK_ENDING,
    Json,
    RunError,
    locked,
    plain,
    read_json,
    write_json,
    write_text,
)
from arml.results.scores import Score, Scores, paired
from arml.tasks.mixture import Mixture, Stage, equal_shares, mixture
from arml.tasks.splits import Splits, splits_of
from arml.training import checkpoint
from arml.training.evaluate import Held, score_tasks
from arml.training.fit import Fitted, OuterOptions, fit, start

SPLIT_FILE, GROWTH_FILE = "split.json", "growth.json"
RATE_FACTOR = 1 / 3
"""Factor on the outer rate of the learner's training. A lower rate forgets less."""
MAX_LOSS = {"accuracy": 0.02, "mse": 0.10}
"""The largest loss of a known family that its interval may include, in accuracy or as a share of
its error."""
WEIGHT_SHARES = (1.0, 0.75, 0.5, 0.25)
"""Shares a of the way from the old to the new weights, in the order in which they are tried."""


def grow(
    learner: Path | str,
    data: Sequence[str],
    out: Path | str,
    *,
    known: Sequence[str] = (),
    minutes: float = 5.0,
    steps: int | None = None,
    replay: float = 0.5,
    tasks: int = 200,
    say: Callable[[str], None] = lambda line: None,
) -> Json:
    """Teach a learner your own families, and write it as the run folder `out`.

    **Arguments**

    - `learner`: a run folder, an exported learner, or the name of one that ships. It is only read.
    - `data`: the new families: folders or zips of pictures, or folders of features.
    - `known`: the data of known families, for a learner without their paths.
    - `minutes`: about the time of the whole call. With `steps`, that number of outer steps instead.
    - `replay`: share of the training tasks that are of known families.
    - `tasks`: tasks of each family for each score.

    **Returns** the `outcome` in `growth.json`. For each family it has the mean scores on test tasks
    `before` and `after` the training, and their paired `gains`. The decision is based on the gains
    on validation tasks, `held_out`. `moved` is the share of the way from the old to the trained
    weights, 0 if the old learner was kept. The rest is `metric`, `steps`, `tasks` and `seconds`.

    **Raises** `ValueError` or `RunError` in one line.
    """
    since = time.monotonic()
    if tasks < 2 or (steps is not None and steps < 1):
        raise ValueError(f"expected 1 step or more and 2 tasks or more, got {steps} and {tasks}")
    if not 0 <= replay < 1:
        raise ValueError(f"replay must be a share of at least 0 and below 1, got {replay:g}")
    folder, place = Path(out), locate(learner)[0]
    teacher = FewShotLearner.of(place)
    experiment = with_data(teacher, data, known)
    experiment.tasks.check()
    check_new_run(folder)
    with locked(folder):
        (folder / SPLIT_FILE).unlink(missing_ok=True)  # of a call that was interrupted
        splits = _splits(teacher, experiment, place, folder)
        train, held, test = (mixture(part) for part in splits[:3])
        new = _new_families(teacher, train)
        steps = steps or _steps_within(minutes, since, experiment, tasks * len(held.families))
        say(f"known: {', '.join(teacher.families)}; new: {', '.join(new)}")
        say(
            f"training: {steps:,} steps of {experiment.batch} tasks, {replay:.0%} of known "
            f"families; the old and the new learner are scored on {tasks} tasks of each"
        )
        old, experiment = teacher.learner, replace(experiment, steps=steps)
        stage = with_replay(equal_shares(new), teacher.families, replay)
        fitted = _taught(old, experiment, train.of(stage))
        result, moved, held_out = _accepted(old, fitted.learner, held, new, tasks, say)
        outcome: Json = {
            **_tested(old, result, test, tasks),
            "held_out": held_out,
            "moved": moved,
            "steps": steps,
            "tasks": tasks,
            "seconds": time.monotonic() - since,
        }
        losses = [{"step": line["step"], "loss": plain(line["loss"])} for line in fitted.history]
        _write(folder, experiment, splits, result, losses, outcome)
        if teacher.temperature != 1:
            say("its probabilities are not calibrated: `arml export` does that")
    return outcome


def _new_families(teacher: FewShotLearner, tasks: Mixture) -> list[str]:
    """The families that the learner does not know."""
    new = [name for name in tasks.families if name not in teacher.families]
    if not new:
        raise ValueError("the learner knows all of these families: give a new one with --data")
    return new


def _steps_within(minutes: float, since: float, experiment: Experiment, scored: int) -> int:
    """The steps of a training that takes this time with its scores: two learners are scored on
    `scored` validation tasks and on as many test tasks."""
    endless = replace(experiment, steps=10**6, validate_every=10**9, validation_tasks=4 * scored)
    return paced(endless, minutes, since=since).steps


def _tested(old: MetaLearner, new: MetaLearner, test: Mixture, tasks: int) -> Json:
    """The scores of both learners on test tasks, and the gains."""
    before = _scores(old, test, tasks, "test")
    after = before if new is old else _scores(new, test, tasks, "test")
    return {
        "metric": before[test.families[0]].metric,
        "before": {name: scores.mean for name, scores in before.items()},
        "after": {name: scores.mean for name, scores in after.items()},
        "gains": {name: gain_of(before[name], after[name]) for name in test.families},
    }


def _write(
    folder: Path,
    experiment: Experiment,
    splits: Splits,
    learner: MetaLearner,
    losses: list[Json],
    outcome: Json,
) -> None:
    """Write the run folder. It is a run when its checkpoint is there, which is written last."""
    steps = experiment.steps
    experiment = replace(experiment, interval=steps, checkpoint_every=steps, validate_every=steps)
    claim(experiment, splits, folder)
    content = {"metric": outcome["metric"], "outcome": outcome, "records": []}
    write_json(folder / GROWTH_FILE, content)
    write_text(folder / METRICS_FILE, "".join(json.dumps(loss) + "\n" for loss in losses))
    clocked = Clocked(start(learner, experiment.outer.build(steps)), np.asarray(outcome["seconds"]))
    checkpoint.save(folder / CHECKPOINTS_FOLDER, steps, clocked)


def _splits(teacher: FewShotLearner, experiment: Experiment, place: Path, folder: Path) -> Splits:
    """The tasks of known and new families, checked."""
    try:
        splits = splits_of(experiment.tasks.build(folder / SPLIT_FILE))
    except TooFewError as error:
        reason = str(error).rpartition(";")[0]
        raise ValueError(
            f"{reason}; add some, because a learner keeps its ways, shots and queries when it "
            "grows; or use `arml adapt`, which needs a few images only"
        ) from None
    _check_data(teacher, experiment, splits, place, folder)
    return splits


def _taught(learner: MetaLearner, experiment: Experiment, tasks: Mixture) -> Fitted:
    """The result of a training on new and known families, at a lower, constant rate."""
    # The rate of another optimiser has another name and scale.
    own = experiment.outer
    outer = own if isinstance(own, OuterOptions) else OuterOptions()
    rate = outer.outer_rate * RATE_FACTOR
    return fit(
        learner,
        tasks,
        steps=experiment.steps,
        outer=replace(outer, outer_rate=rate, schedule="constant", warmup=0.0),
        batch=experiment.batch,
        interval=max(1, experiment.steps // 10),
        seed=experiment.seed,
    )


def _accepted(
    old: MetaLearner,
    new: MetaLearner,
    held: Mixture,
    fresh: Sequence[str],
    tasks: int,
    say: Callable[[str], None],
) -> tuple[MetaLearner, float, dict[str, Score]]:
    """The learner to write, its share of the way from the old weights to the new ones, and the
    gains on validation tasks."""
    before = _scores(old, held, tasks, "validation")
    for share in WEIGHT_SHARES:
        candidate = between(old, new, share)
        after = _scores(candidate, held, tasks, "validation")
        gains = {name: gain_of(before[name], after[name]) for name in held.families}
        reasons = refusals(gains, fresh, before)
        if not reasons:
            return candidate, share, gains
        say(f"refused, {share:.0%} of the way from the old weights: {'; '.join(reasons)}")
    return old, 0.0, {name: gain_of(scores, scores) for name, scores in before.items()}


def gain_of(old: Scores, new: Scores) -> Score:
    """The paired gain on the same tasks. A gain above zero is an improvement."""
    a, b = (old, new) if old.metric == "mse" else (new, old)  # a lower error is better
    return paired(a.values, b.values)


def refusals(
    gains: Mapping[str, Score], new: Sequence[str], old: Mapping[str, Scores]
) -> list[str]:
    """The reasons to refuse a learner, by the rule at the top of this file; empty if it passes.
    `old` are the scores of the old learner."""
    reasons = []
    for name, score in gains.items():
        mean, half = score["mean"], score["ci95"]
        if mean is None or half is None:
            reasons.append(f"{name} has a score that is not finite")
            continue
        metric = old[name].metric
        most = MAX_LOSS[metric] * (abs(old[name].mean) if metric == "mse" else 1.0)
        if name in new and mean <= half:
            reasons.append(
                f"the gain on the new family {name} may be zero ({mean:+.3f} ± {half:.3f})"
            )
        if name not in new and mean - half < -most:
            reasons.append(
                f"{name} may lose more than {most:.3f} ({mean:+.3f} ± {half:.3f}; more --tasks "
                "narrow the interval)"
            )
    return reasons


def between(old: MetaLearner, new: MetaLearner, share: float) -> MetaLearner:
    """The learner with weights at this share of the way from `old` to `new`."""
    if share == 1:
        return new
    return jax.tree.map(
        lambda a, b: a + share * (b - a) if eqx.is_inexact_array(a) else a, old, new
    )


def _scores(learner: MetaLearner, tasks: Mixture, n: int, split: Held) -> dict[str, Scores]:
    return {name: score_tasks(learner, tasks.only(name), n, split=split) for name in tasks.families}


def with_data(teacher: FewShotLearner, data: Sequence[str], known: Sequence[str]) -> Experiment:
    """The experiment of the learner with more families. **Raises** `ValueError` for tasks that are
    not made from data, and if the data of known families are missing."""
    experiment = teacher.experiment
    assert experiment is not None  # it was read from a folder
    tasks = experiment.tasks
    if not data:
        raise ValueError("no new families: give one or more with --data FOLDER_OR_ZIP...")
    if not hasattr(tasks, "data"):
        raise ValueError(
            f"expected a learner of pictures or features, got {experiment.recipe}, whose "
            "tasks take no data: train it with arml.fit on known and new tasks"
        )
    old = tuple(known) or tuple(tasks.data)
    if not old and bool(getattr(tasks, "needs", None)):
        raise ValueError(
            "an exported learner has no data of the families that it knows "
            f"({', '.join(teacher.families)}), and could forget them: give the data with "
            "--known FOLDER_OR_ZIP..."
        )
    return absolute(replace(experiment, tasks=replace(tasks, data=(*old, *data))))


def _check_data(
    teacher: FewShotLearner, experiment: Experiment, splits: Splits, place: Path, out: Path
) -> None:
    """Raise `ValueError` or `RunError` unless the data are of the learner's kind, the data of known
    families have not changed, and no class of its training would be held out now."""
    problem = splits.train.problem
    if replace(problem, classes=0) != replace(teacher.problem, classes=0):
        raise ValueError(
            f"expected tasks of {teacher.problem}, got {problem}: give data of the same kind"
        )
    lost = [name for name in teacher.families if name not in splits.train.families]
    if lost:
        raise ValueError(f"expected data of the family {lost[0]!r}, got none: add it to --known")
    learners = teacher.learner, like(experiment, problem).state.learner
    shapes = [{n: a.shape for n, a in checkpoint.named(one).items()} for one in learners]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "the learner has weights for each class of its training data, so it cannot grow: "
            "choose a learner without an auxiliary classifier"
        )
    if (place / CHECKPOINTS_FOLDER).is_dir():
        old: Json = Run(place).config.get("sources") or {}
        changed = [name for name in old if splits.sources.get(name) != old[name]]
        if changed:
            raise RunError(f"{place}: the data of {changed[0]!r} has changed since the training")
    if (place / SPLIT_FILE).is_file():
        before, now = (read_json(folder / SPLIT_FILE)["families"] for folder in (place, out))
        changed = [name for name in before if before[name] != now.get(name)]
        if changed:
            raise RunError(
                f"{place}: the split of {changed[0]!r} is not that of its data: copy "
                f"{place / SPLIT_FILE} back as it was, or train anew"
            )


def with_replay(stage: Stage, known: Sequence[str], share: float) -> dict[str, float]:
    """The stage with a `share` of tasks from the `known` families that are not in it, in equal
    parts. If there are none, it is unchanged."""
    old = [name for name in known if name not in stage]
    if not old or not share:
        return dict(stage)
    fresh = {name: part * (1 - share) for name, part in stage.items()}
    return fresh | {name: share / len(old) for name in old}


def check_new_run(folder: Path) -> None:
    """Raise `RunError` for a folder that is not empty."""
    check_place(folder)
    if any(path.name not in (SPLIT_FILE, LOCK_ENDING) for path in folder.glob("*")):
        holds = "a learner that has grown" if (folder / GROWTH_FILE).is_file() else "other files"
        raise RunError(
            f"expected an empty or new folder, got {folder}, which holds {holds}: name another"
        )
