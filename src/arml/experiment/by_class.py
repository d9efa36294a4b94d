"""The hard classes of a split: the accuracy of each class over all tasks that have it, the pairs
of classes that are confused most often, and the worst mistakes with their pictures.

All of it comes from the scored predictions. The tasks of the worst mistakes are drawn again, to
show their pictures.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from arml.core.compilation import short
from arml.core.episodes import TaskDistribution
from arml.datasets.splits import read_split
from arml.results.folder import ByClass, Mistake, OneClass, Pair, thumbnail
from arml.training.evaluate import Predictions, Split, split_keys

PAIRS = 50
"""Confused pairs that are kept."""
PICTURES = 24
"""Mistakes that are kept with their pictures."""


def class_names(folder: Path, tasks: TaskDistribution, split: Split) -> list[str] | None:
    """The names of all classes of a split; None if they have none, because the tasks are not of
    pictures or do not ask for the class of a picture."""
    path = folder / "split.json"
    if not tasks.problem.classes or not path.is_file():
        return None
    parts = read_split(path)
    if {*tasks.families} - {*parts}:
        return None
    several = len(tasks.families) > 1
    names = [
        f"{family}/{name}" if several else name
        for family in tasks.families
        for name in sorted(parts[family][split])
    ]
    return names if len(names) == tasks.problem.classes else None


def by_class(
    predicted: Predictions,
    names: Sequence[str],
    tasks: TaskDistribution,
    *,
    step: int,
    temperature: float = 1.0,
) -> ByClass | None:
    """The accuracy of each class in the predictions of tasks; None if the tasks do not say which
    classes they have."""
    if predicted.classes is None or np.any(predicted.classes < 0):
        return None
    outputs, targets = predicted.outputs[..., : predicted.classes.shape[1]], predicted.targets
    chances = _softmax(outputs / temperature)
    rows = np.arange(len(targets))[:, None]
    labels, guesses = (predicted.classes[rows, y] for y in (targets, outputs.argmax(axis=-1)))
    right = labels == guesses
    counts = np.bincount(labels.ravel(), minlength=len(names))
    hits = np.bincount(labels[right], minlength=len(names))
    shown = [
        OneClass(names[k], float(hits[k] / counts[k]), int(counts[k]))
        for k in np.argsort(hits / np.maximum(counts, 1), kind="stable")
        if counts[k]
    ]
    each = targets.shape[1] // predicted.classes.shape[1]
    together = Counter(
        (int(a), int(b)) for own in predicted.classes for a in own for b in own if a != b
    )
    confused = Counter(zip(labels[~right].tolist(), guesses[~right].tolist(), strict=True))
    pairs = [
        Pair(names[a], names[b], count, each * together[a, b])
        for (a, b), count in confused.most_common(PAIRS)
    ]
    wrong = np.argwhere(~right)
    worst = wrong[np.argsort(-chances.max(axis=-1)[~right], kind="stable")][:PICTURES]
    split = predicted.scores.split
    mistakes = [
        Mistake(
            name=f"task {i}, query {j}",
            label=names[labels[i, j]],
            predicted=names[guesses[i, j]],
            probability=float(chances[i, j].max()),
            own=float(chances[i, j, targets[i, j]]),
            picture=_picture(tasks, split, int(i), int(j)),
        )
        for i, j in worst
    ]
    return ByClass(split, step, len(targets), shown, pairs, mistakes)


def _softmax(logits: Float[np.ndarray, "tasks queries ways"]) -> np.ndarray:
    # The logit of a class that a task lacks is minus infinity.
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def _picture(tasks: TaskDistribution, split: str, i: int, j: int) -> str | None:
    """Query `j` of task `i` as a small PNG; None if it is not a picture."""
    if len(tasks.problem.features) != 3:
        return None
    pixels: Int[np.ndarray, "h w 3"] = np.asarray(_query(tasks, split_keys(split, i, 1)[0])[j])
    return thumbnail(np.rint(255 * pixels).astype(np.uint8))


@short
def _query(tasks: TaskDistribution, key: Array) -> Array:
    """The queries of the task that `training.evaluate` draws from this key."""
    return tasks.sample(jax.random.split(key)[0]).query.x
