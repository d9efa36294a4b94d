"""The answers about functions of two inputs: the surface that is fitted to points."""

from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float

from arml.app.answers import knowledge_graph
from arml.app.uploads import Limits, read_points
from arml.predict.learner import FewShotLearner, Learner
from arml.predict.photos import PhotoLearner
from arml.results.files import Json

GRID = 48
"""Points a side of a fitted surface."""


def span(learner: FewShotLearner) -> tuple[float, ...]:
    """The ends of the range of the inputs that the learner was trained on; empty if tasks of one's
    own do not say it."""
    return tuple(getattr(learner.portable.experiment.tasks, "span", None) or ())


def is_of_functions(learner: Learner) -> bool:
    """Whether it fits functions of two inputs in a known range."""
    if isinstance(learner, PhotoLearner):
        return False
    return bool(span(learner)) and learner.problem.features == (2,)


def surface(learner: FewShotLearner, content: object, limits: Limits) -> Json:
    """The surface that is fitted to points.

    It holds the heights on a `grid` of equal steps from `low` to `high` (a row has one x2), the
    `fitted` heights at the points, the `reading` of the task's prototypes, and the `graph`.

    **Raises** `ValueError` in one line for points that cannot be fitted.
    """
    low, high = span(learner)
    points = read_points(content, low=low, high=high, limits=limits)
    predictor = learner.adapt(points[:, :2], points[:, 2])
    heights = predictor.predict(np.concatenate([grid(low, high), points[:, :2]]))
    if not np.all(np.isfinite(heights)):
        raise ValueError(
            "the fitted surface is not finite, because some points are too high: use lower heights"
        )
    reading = predictor.reading()
    return {
        "low": low,
        "high": high,
        "grid": heights[: GRID**2].reshape(GRID, GRID).tolist(),
        "fitted": heights[GRID**2 :].tolist(),
        "reading": None if reading is None else reading.tolist(),
        "graph": knowledge_graph(learner),
    }


def grid(low: float, high: float) -> Float[np.ndarray, "n 2"]:
    """The inputs (x1, x2) at which a surface is shown; x1 runs first."""
    steps = np.linspace(low, high, GRID, dtype=np.float32)
    x2, x1 = np.meshgrid(steps, steps, indexing="ij")
    return np.stack([x1.ravel(), x2.ravel()], axis=1)


def example_function(learner: FewShotLearner, seed: int) -> Json:
    """The support points of a task like those that the learner was trained on, and its family."""
    tasks = learner.portable.experiment.tasks
    drawn = tasks.build(Path()).test  # drawn, not read: no split is there
    task = drawn.sample(jax.random.key(seed))
    points = np.concatenate([task.support.x, task.support.y], axis=1).astype(np.float64)
    return {"points": np.round(points, 3).tolist(), "family": drawn.families[int(task.family)]}
