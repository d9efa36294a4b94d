"""A value for each test task, and its means by family, for all kinds of explanations."""

from collections.abc import Sequence

import numpy as np

from arml.results.files import Json, RunError

IMAGES_AT_ONCE = 8
"""Tasks of images at once. Convolutions are unrolled over tasks on a CPU: more would compile for
minutes."""


def by_family(values: np.ndarray, families: np.ndarray, names: Sequence[str]) -> Json:
    """The first task's values `[tasks, ...]`, and their mean and standard deviation over tasks, for
    each family.

    The deviation has n - 1 in its denominator; it is 0 for one task.

    **Raises** `RunError` for a family without a task.
    """
    example, average, counts = {}, {}, {}
    for index, name in enumerate(names):
        own = np.asarray(values, np.float64)[np.asarray(families) == index]
        if not len(own):
            raise RunError(
                f"expected a task of each of the {len(names)} families, got none of {name!r} "
                f"among {len(families)} tasks; raise --tasks"
            )
        example[name] = own[0].tolist()
        deviation = own.std(0, ddof=1) if len(own) > 1 else np.zeros(own.shape[1:])
        average[name] = {"mean": own.mean(0).tolist(), "sd": deviation.tolist()}
        counts[name] = len(own)
    return {"example": example, "average": average, "tasks_by_family": counts}


def finite(what: str, *arrays: np.ndarray) -> None:
    """Raise `RunError` for a learner that has diverged."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise RunError(
            f"expected finite {what}, got some that are not; the run has diverged: train it again "
            "with a lower --outer-rate in a new folder"
        )
