"""The score of each single task, and its mean with an interval over tasks."""

import hashlib
import io
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from msgspec import Meta

from arml.results.files import Count, JsonView, RunError, plain, write_bytes


class Score(TypedDict):
    """A mean over `n` tasks and the half-width of its 95% interval, each null when not finite."""

    mean: Annotated[float, Meta(ge=-1e300, le=1e300)] | None
    ci95: Annotated[float, Meta(ge=0, le=1e300)] | None
    n: Count


def summary_of(values: np.ndarray) -> Score:
    """Mean, 1.96 s / sqrt(n) (s with n - 1 in its denominator) and n of one score per task."""
    n = len(values)
    with np.errstate(all="ignore"):
        mean = float(np.mean(values)) if n else math.nan
        half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Score(mean=plain(mean), ci95=plain(half), n=n)


def paired(a: np.ndarray, b: np.ndarray) -> Score:
    """The mean of `a - b` over the same tasks, `[tasks]` each, with its 95% interval over tasks."""
    assert a.shape == b.shape
    with np.errstate(all="ignore"):
        return summary_of(a.astype(np.float64) - b)


def number_of(value: float | None) -> float:
    """A number of JSON, which has null where one is not finite."""
    return math.nan if value is None else value


def format_score(metric: str, score: JsonView, *, sign: str = "") -> str:
    """A mean and its interval: accuracies in percent, differences of them in points."""
    mean, half = number_of(score["mean"]), number_of(score["ci95"])
    if metric != "accuracy":
        return f"{mean:{sign}.4f} ± {half:.4f}"
    unit = " points" if sign else "%"
    return f"{100 * mean:{sign}.1f} ± {100 * half:.1f}{unit}"


def pairing(identity: str, split: str) -> str:
    """Twelve letters that are the same for scores on the same tasks: those of one identity (of
    `TaskDistribution.identity`) and one split."""
    # An identity of the package's own options has the form [{...}]; the letters have always been
    # those of the list with the split at its end.
    listed = identity.startswith("[{") and identity.endswith("]")
    text = f"{identity[:-1]}, {json.dumps(split)}]" if listed else json.dumps([identity, split])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """One score for each task, accuracy in [0, 1] or mean squared error, and the tasks' identity.

    `len(scores)` is the number of tasks.

        scores.mean, scores.ci95, scores.first(100).by_family()
    """

    values: np.ndarray
    """`[n]` float64."""
    families: np.ndarray
    """`[n]` integers: the index of each task's family in `names`."""
    tasks: str = ""
    """Equal for scores on the same tasks; empty if it is not known."""
    names: tuple[str, ...] = ()
    """The families."""
    metric: str = ""
    """accuracy or mse."""
    split: str = ""
    """validation or test."""
    identity: str = ""
    """The identity of the distribution of the tasks."""
    inner_steps: int | None = None
    """The learner's inner steps at test."""
    step: int | None = None
    """The outer step of the checkpoint that was scored, for the scores of a run."""
    shared: bool = False
    """Whether its tasks are known to be drawn from the training distribution, and not from one of
    their own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.asarray(self.values, np.float64))
        object.__setattr__(self, "families", np.asarray(self.families))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def score(self) -> Score:
        """Mean, interval and number of tasks, as a result file holds them."""
        return summary_of(self.values)

    @property
    def mean(self) -> float:
        """The mean over tasks; NaN if a score is not finite."""
        return number_of(self.score["mean"])

    @property
    def ci95(self) -> float:
        """The half-width of its 95% interval over tasks, 1.96 s / sqrt(n)."""
        return number_of(self.score["ci95"])

    def by_family(self) -> dict[str, Score]:
        """Mean, interval and number of tasks of each family: `{"mean", "ci95", "n"}`."""
        names = self.names or tuple(map(str, range(int(self.families.max(initial=0)) + 1)))
        return {name: summary_of(self.values[self.families == i]) for i, name in enumerate(names)}

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each task: its `family` and its score, in a column
        with the name of the metric. It needs pandas."""
        import pandas  # type: ignore[import-untyped]

        names = np.asarray(self.names)
        families = names[self.families] if len(names) else self.families
        frame = {"family": families, self.metric or "score": self.values}
        return pandas.DataFrame(frame, index=pandas.RangeIndex(len(self), name="task"))

    def first(self, n: int) -> "Scores":
        """The scores of the first `n` tasks."""
        return replace(self, values=self.values[:n], families=self.families[:n])

    def __repr__(self) -> str:
        score = format_score(self.metric, self.score)
        whose = " of the training distribution" if self.shared else ""
        return f"Scores({self.metric or 'score'} {score} over {len(self):,} tasks{whose})"


SAME_TASKS = "only scores on the same tasks can be compared"


def check_paired(a: Scores, b: Scores) -> None:
    """Raise `ValueError` unless both are scores of one metric on the same tasks."""
    for one in (a, b):
        if not isinstance(one, Scores):
            raise ValueError(f"expected Scores, got {type(one).__name__}: see arml.evaluate")
    if a.metric != b.metric and a.metric and b.metric:
        raise ValueError(f"expected scores of one metric, got {a.metric} and {b.metric}")
    if a.split != b.split:
        raise ValueError(f"the scores differ in their split: {a.split} and {b.split}; {SAME_TASKS}")
    if a.tasks != b.tasks:
        first, second = a.identity or a.tasks, b.identity or b.tasks
        pairs = enumerate(zip(first, second, strict=False))
        start = max(next((i for i, (x, y) in pairs if x != y), 0) - 40, 0)
        ours, theirs = first[start:][:160], second[start:][:160]
        raise ValueError(f"the scores differ in their tasks: {ours} and {theirs}; {SAME_TASKS}")
    if len(a) != len(b):
        raise ValueError(
            f"expected scores of equally many tasks, got {len(a)} and {len(b)}; {SAME_TASKS}: "
            "score again, or take scores.first(n)"
        )


ABOUT_FIELDS = ("names", "metric", "split", "identity", "inner_steps", "step", "shared")


def write_scores(path: Path | str, scores: Scores) -> None:
    """Write the scores of single tasks as a compressed NumPy archive, atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        values=scores.values.astype(np.float32),  # as a learner computes them
        families=scores.families.astype(np.min_scalar_type(int(scores.families.max(initial=0)))),
        tasks=np.array(scores.tasks),
        about=np.array(json.dumps({name: getattr(scores, name) for name in ABOUT_FIELDS})),
    )
    write_bytes(path, buffer.getvalue())


def read_scores(path: Path | str) -> Scores:
    """Read a file that `write_scores` wrote. **Raises:** `RunError` if it is absent or damaged."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            about["names"] = tuple(map(str, about["names"]))
            scores = Scores(file["values"], file["families"], str(file["tasks"]), **about)
        if scores.values.ndim != 1 or scores.values.shape != scores.families.shape:
            raise ValueError("expected a score and a family for each task")
        return scores
    except Exception as error:  # damaged archives raise errors of many kinds
        raise RunError(
            f"expected the scores of single tasks in {path}, got none or damaged ones ({error}); "
            "score the run again"
        ) from error
