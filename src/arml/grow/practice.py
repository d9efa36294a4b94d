"""A trained learner grows by families of one's own: the practitioner's case.

The tasks of the learner get the new families beside those that it knows. It is trained on both for
a few minutes (`grow.growth`), at a third of its outer rate. On held-out classes the new learner
must be better on the new families, with an interval above zero, and must lose nothing that matters
on any known family; otherwise the old learner is kept. The result is a run folder.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from arml.core.learner import MetaLearner
from arml.experiment import Experiment, Portable, Run
from arml.experiment.folder import check_place
from arml.experiment.options import absolute
from arml.grow.growth import GrowthOptions, begun, grown
from arml.grow.writing import Outcome, write_run
from arml.predict.shared import CONFIG, locate
from arml.predict.sharing import read_learner
from arml.results.files import read_json
from arml.results.folder import RunError
from arml.results.intervals import Score, paired
from arml.results.lock import LOCK, alone
from arml.results.scores import Scores
from arml.tasks.mixture import Mixture, mixture, uniform
from arml.tasks.options import Splits, splits_of
from arml.training.evaluate import Split, evaluate
from arml.training.fit import fit

SPLIT = "split.json"
RATE = 1 / 3
"""Of the outer rate that the learner was trained with: what it knows is not to be lost."""
MATTERS = {"accuracy": 0.02, "mse": 0.10}
"""A known family may lose so many points of accuracy, or so large a share of its error; more is
refused if it is more than chance."""
Say = Callable[[str], None]


def grow(
    learner: Path | str,
    data: Sequence[str],
    out: Path | str,
    *,
    known: Sequence[str] = (),
    minutes: float = 5.0,
    steps: int | None = None,
    replay: float = 0.5,
    tasks: int = 100,
    say: Say = lambda line: None,
) -> Outcome:
    """Grow a learner by families of one's own, and write it as the run folder `out`.

    **Arguments**

    - `learner`: a run folder, an exported learner, or the name of one that ships. It is only read.
    - `data`: the new families, as the learner's own data: folders or zips of pictures, or folders
      of features.
    - `known`: the data of the families that it knows, where the learner does not say where they
      are: an exported learner has no paths.
    - `minutes`: about what the training may take; `steps`: outer steps instead.
    - `replay`: share of the training tasks that are of known families.
    - `tasks`: tasks of each family for each score.

    **Raises** `ValueError` or `RunError` in one line.
    """
    if not minutes > 0 or tasks < 2 or (steps is not None and steps < 1):
        raise ValueError(
            "expected minutes above 0, steps of 1 or more and tasks of 2 or more, got "
            f"{minutes:g}, {steps} and {tasks}: raise them"
        )
    folder, place = Path(out), locate(learner)[0]
    portable = portable_of(place)
    experiment = absolute(with_data(portable, data, known))
    experiment.tasks.check()
    check_place(folder)
    if any(path.name not in (SPLIT, LOCK) for path in folder.glob("*")):
        raise RunError(f"expected an empty or new folder, got {folder}: name another")
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        splits = splits_of(experiment.tasks.build(folder / SPLIT))
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
        if steps is None:
            steps = _steps(portable.learner, train, options, minutes)
        say(f"known: {', '.join(portable.families)}; new: {', '.join(new)}")
        say(f"training: {steps:,} steps of {options.batch} tasks, {replay:.0%} of known families")
        growth = grown(
            begun(portable.learner, portable.families),
            train,
            held,
            uniform(new),
            replace(options, steps=steps),
        )
        old, tried = (
            _scores(m, held, tasks, "validation") for m in (portable.learner, growth.learner)
        )
        metric = old[new[0]].metric
        gains = {name: gain_of(old[name], tried[name]) for name in held.families}
        accepted = accepts(gains, new, metric, {name: one.mean for name, one in old.items()})
        result = growth.learner if accepted else portable.learner
        before = {n: one.mean for n, one in _scores(portable.learner, test, tasks, "test").items()}
        after = before
        if accepted:
            after = {n: one.mean for n, one in _scores(result, test, tasks, "test").items()}
        outcome = Outcome(before, after, accepted, gains, metric, growth.records, steps)
        seconds = time.monotonic() - begun_at
        write_run(folder, experiment, splits, result, outcome, len(growth.names), seconds)
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

    **Raises** `RunError` or `ValueError` if the tasks are not those that the learner knows and new
    ones.
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


def _steps(learner: MetaLearner, train: Mixture, options: GrowthOptions, minutes: float) -> int:
    """Outer steps that take about so many minutes; a tenth of the time is for what else is done."""
    moments: list[float] = []
    fit(
        learner,
        train,
        steps=6,
        seed=options.seed,
        outer=options.outer,
        batch=options.batch,
        interval=2,
        callbacks=[lambda moment: moments.append(time.monotonic())],
        progress=False,
    )
    # The first interval compiles.
    each = max((moments[-1] - moments[0]) / 4, 1e-4)
    return max(10, int(0.9 * 60 * minutes / each))


def _scores(learner: MetaLearner, tasks: Mixture, n: int, split: Split) -> dict[str, Scores]:
    return {
        name: evaluate(learner, tasks.only(name), n, split=split, progress=False)
        for name in tasks.families
    }


def gain_of(old: Scores, new: Scores) -> Score:
    """The paired gain on the same tasks: above zero is better."""
    a, b = (old, new) if old.metric == "mse" else (new, old)  # a lower error is better
    return paired(a.values, b.values)


def accepts(
    gains: Mapping[str, Score], new: Sequence[str], metric: str, old: Mapping[str, float]
) -> bool:
    """Whether each new family gains, with an interval above zero, and no known family loses what
    matters. `old` are the scores of the old learner."""
    for name, score in gains.items():
        mean, half = score["mean"], score["ci95"]
        if mean is None or half is None:
            return False
        most = MATTERS[metric] * (abs(old[name]) if metric == "mse" else 1.0)
        if name in new and mean <= half:
            return False
        if name not in new and mean < -most and mean + half < 0:
            return False
    return True
