"""A trained learner grows by families of one's own: the practitioner's case.

The learner is trained for a few minutes on its known families and the new ones (`grow.growth`), at
a third of its outer rate. On held-out classes the new learner must be better on the new families,
with an interval above zero, and the interval of no known family may allow a loss that matters. A
learner that fails is tried again with weights a part of the way,
theta_old + a (theta_new - theta_old) for falling a [1]; if none of these passes, the old learner is
kept. The result is a run folder.

[1] Wortsman et al., Robust Fine-tuning of Zero-shot Models, CVPR 2022: between old and new weights
    lies a model that keeps most of what both can do.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from arml.core.learner import MetaLearner
from arml.datasets.folders import TooFewError
from arml.experiment.folder import check_place, differences
from arml.experiment.loaded import Portable, Run
from arml.experiment.options import Experiment, absolute
from arml.grow.accepting import WAYS, between, gain_of, refusals
from arml.grow.growth import GrowthOptions, begun, grown
from arml.grow.timing import Say, in_words, progress, steps_for
from arml.grow.vertices import own_vertices
from arml.grow.writing import Outcome, write_run
from arml.predict.shared import CONFIG, locate
from arml.predict.sharing import read_learner
from arml.results.files import Json, RunError, read_json, write_json
from arml.results.forms import Count
from arml.results.lock import LOCK, alone
from arml.results.schema import read_checked
from arml.results.scores import Scores
from arml.tasks.mixture import Mixture, mixture, uniform
from arml.tasks.options import Splits, splits_of
from arml.training.evaluate import Split, evaluate

SPLIT = "split.json"
KEPT, PLAN = "growing", "plan.json"
"""The folder that keeps the trainings until the learner is written, and its file of options."""
RATE = 1 / 3
"""Factor of the outer rate of the learner's training; a lower rate forgets less."""


class Plan(TypedDict):
    """The file of a run that was stopped."""

    asked: Json
    steps: Count


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
    say: Say = lambda line: None,
) -> Outcome:
    """Grow a learner by families of one's own, and write it as the run folder `out`.

    **Arguments**

    - `learner`: a run folder, an exported learner, or the name of one that ships. It is only read.
    - `data`: the new families, as the learner's own data: folders or zips of pictures, or folders
      of features.
    - `known`: the data of the families that it knows, for a learner without their paths, such as an
      exported one.
    - `minutes`: about the time that the training may take; `steps`: outer steps instead.
    - `replay`: share of the training tasks that are of known families.
    - `tasks`: tasks of each family for each score.

    **Raises** `ValueError` or `RunError` in one line.
    """
    if not minutes > 0 or tasks < 2 or (steps is not None and steps < 1):
        raise ValueError(
            "expected minutes above 0, steps of 1 or more and tasks of 2 or more, got "
            f"{minutes:g}, {steps} and {tasks}: raise them"
        )
    if not 0 <= replay < 1:
        raise ValueError(
            f"replay must be a share of at least 0 and below 1, got {replay:g}: such as 0.5"
        )
    folder, place = Path(out), locate(learner)[0]
    portable = portable_of(place)
    experiment = absolute(with_data(portable, data, known))
    experiment.tasks.check()
    check_place(folder)
    asked = {
        "learner": str(place),
        "data": [str(path) for path in getattr(experiment.tasks, "data", ())],
        "minutes": None if steps else minutes,
        "steps": steps,
        "replay": replay,
        "tasks": tasks,
    }
    kept = folder / KEPT
    if (kept / PLAN).is_file():
        plan = read_checked(kept / PLAN, Plan, "name another folder")
        begun_with = plan["asked"]
        if begun_with != asked:
            changes = "; ".join(differences(begun_with, asked))
            raise RunError(f"{folder} was begun with other options ({changes}): name another")
    elif any(path.name not in (SPLIT, LOCK, KEPT) for path in folder.glob("*")):
        found = "a learner that has grown" if (folder / "growth.json").is_file() else "other files"
        raise RunError(
            f"expected an empty or new folder, got {folder}, which holds {found}: name another"
        )
    with alone(folder):
        try:
            splits = splits_of(experiment.tasks.build(folder / SPLIT))
        except TooFewError as error:
            found = str(error).rpartition(";")[0]
            raise ValueError(
                f"{found}; add some, because a learner keeps its ways, shots and queries when it "
                "grows; or use `arml adapt`, which needs a few images only"
            ) from None
        new = _check(portable, splits, place, folder)
        begun_at = time.monotonic()
        train, held, test = (mixture(part) for part in splits[:3])
        slow = replace(
            experiment.outer,
            outer_rate=experiment.outer.outer_rate * RATE,
            schedule="constant",
            warmup=0,
        )
        options = GrowthOptions(
            replay=replay,
            tasks=tasks,
            batch=experiment.batch,
            outer=slow,
            seed=experiment.seed,
            curve=False,
        )
        about = ""
        if (kept / PLAN).is_file():
            steps = int(read_json(kept / PLAN)["steps"])
            say("goes on where it was stopped")
        else:
            if steps is None:
                steps, each = steps_for(portable.learner, train, options, minutes)
                about = f", about {in_words(steps * each)}"
            kept.mkdir(exist_ok=True)
            write_json(kept / PLAN, {"asked": asked, "steps": steps})
        say(f"known: {', '.join(portable.families)}; new: {', '.join(new)}")
        say(
            f"training: {steps:,} steps of {options.batch} tasks, {replay:.0%} of known "
            f"families{about}; then the old and the new learner are scored"
        )
        growth = grown(
            begun(portable.learner, portable.families),
            train,
            held,
            uniform(new),
            replace(options, steps=steps),
            folder=kept,
            shown=progress(say),
        )
        old = _scores(portable.learner, held, tasks, "validation")
        metric = old[new[0]].metric
        means = {name: one.mean for name, one in old.items()}
        same = own_vertices(growth.learner) == own_vertices(portable.learner)
        ways = WAYS if same else WAYS[:1]  # weights of a vertex that is new are not between any
        for way in ways:
            result = between(portable.learner, growth.learner, way)
            tried = _scores(result, held, tasks, "validation")
            gains = {name: gain_of(old[name], tried[name]) for name in held.families}
            refused = refusals(gains, new, metric, means)
            accepted = not refused
            if accepted:
                break
            say(f"refused, {way:.0%} of the way from the old weights: {'; '.join(refused)}")
        if not accepted:
            result, way = portable.learner, 0.0
        before = {n: one.mean for n, one in _scores(portable.learner, test, tasks, "test").items()}
        after = before
        if accepted:
            after = {n: one.mean for n, one in _scores(result, test, tasks, "test").items()}
        seconds = time.monotonic() - begun_at
        outcome = Outcome(
            before, after, accepted, gains, metric, growth.records, steps, seconds, way
        )
        write_run(folder, experiment, splits, result, outcome, len(growth.names))
        shutil.rmtree(kept)
    return outcome


def portable_of(place: Path) -> Portable:
    """The learner of a run folder, or one that was exported or ships."""
    shared = read_json(place / CONFIG).get("what") if (place / CONFIG).is_file() else None
    return Run(place).portable() if shared is None else read_learner(place)[0]


def with_data(portable: Portable, data: Sequence[str], known: Sequence[str]) -> Experiment:
    """The experiment of the learner with further families.

    **Raises** `ValueError` for tasks that take no data, and where those of known families are
    missing.
    """
    tasks = portable.experiment.tasks
    if not data:
        raise ValueError(
            "expected one or more new families, got none: give --data FOLDER_OR_ZIP..."
        )
    if not hasattr(tasks, "data"):
        raise ValueError(
            f"expected a learner of pictures or features, got {portable.experiment.recipe}, whose "
            "tasks take no data: grow it in memory, see arml.grow"
        )
    old = tuple(known) or tuple(tasks.data)
    needs: object = getattr(tasks, "needs", "")
    if not old and needs:
        families = ", ".join(portable.families)
        raise ValueError(
            f"an exported learner has no data of the families that it knows ({families}), and what "
            "it knows could be lost: give them with --known FOLDER_OR_ZIP..."
        )
    return replace(portable.experiment, tasks=replace(tasks, data=(*old, *data)))


def _check(portable: Portable, splits: Splits, place: Path, out: Path) -> tuple[str, ...]:
    """The new families.

    **Raises** `RunError` or `ValueError` if the tasks lack a known family, have changed, or are of
    another kind.
    """
    problem = splits.train.problem
    if replace(problem, classes=0) != replace(portable.problem, classes=0):
        raise ValueError(
            f"expected tasks of {portable.problem}, got {problem}: give data of the same kind"
        )
    lost = [name for name in portable.families if name not in splits.train.families]
    if lost:
        raise ValueError(f"expected data of the family {lost[0]!r}, got none: add it to --known")
    if (place / "checkpoints").is_dir():
        old = Run(place).config.get("sources", {})
        changed = [n for n, digest in old.items() if splits.sources.get(n) != digest]
        if changed:
            raise RunError(
                f"{place}: the data of {changed[0]!r} has changed since the training: restore it"
            )
    if (place / SPLIT).is_file():
        # A class that the learner was trained on must not be held out now.
        before, now = (read_json(folder / SPLIT)["families"] for folder in (place, out))
        moved = [name for name in before if before[name] != now.get(name)]
        if moved:
            raise RunError(
                f"{place}: the split of {moved[0]!r} is not that of its data: copy {place / SPLIT} "
                "back as it was, or train anew"
            )
    return tuple(name for name in splits.train.families if name not in portable.families)


def _scores(learner: MetaLearner, tasks: Mixture, n: int, split: Split) -> dict[str, Scores]:
    return {
        name: evaluate(learner, tasks.only(name), n, split=split, progress=False)
        for name in tasks.families
    }
