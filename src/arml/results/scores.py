"""The score of each single task, and its mean with an interval over tasks."""

import hashlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from msgspec import Meta

from arml.results.files import JsonView, RunError, plain, write_bytes
from arml.results.schema import Count, read_as


class Score(TypedDict):
    """A mean over `n` tasks and the half-width of its 95% interval, each null when not finite."""

    mean: Annotated[float, Meta(ge=-1e300, le=1e300)] | None
    ci95: Annotated[float, Meta(ge=0, le=1e300)] | None
    n: Annotated[int, Meta(ge=0, le=2**53)]


class Summary(TypedDict):
    """The scores of tasks, over all of them and by family."""

    score: Score
    families: dict[str, Score]


def score_of(values: np.ndarray) -> Score:
    """Mean, 1.96 s / sqrt(n) (s with n - 1 in its denominator) and n of one score per task."""
    n = len(values)
    with np.errstate(all="ignore"):
        mean = float(np.mean(values)) if n else math.nan
        half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Score(mean=plain(mean), ci95=plain(half), n=n)


def summarise(
    scores: Sequence[float] | np.ndarray, families: Sequence[int] | np.ndarray, names: Sequence[str]
) -> Summary:
    """The scores of tasks, over all of them and by family.

    **Arguments:** `scores` `[tasks]`, one a task; `families` `[tasks]`, the index into `names` of
    each task's family.

    **Returns** a `Summary`. The interval is over tasks, at 95%;
    it is None for one task, and the mean None for a family without tasks.

    **Raises:** `ValueError` if the lengths differ, if there is no task, or for an unknown family.
    """
    values, index = np.asarray(scores, np.float64), np.asarray(families)
    if values.ndim != 1 or values.shape != index.shape or not len(values):
        raise ValueError(
            "expected one score and one family for each of one or more tasks, "
            f"got shapes {values.shape} and {index.shape}"
        )
    if index.min() < 0 or index.max() >= len(names):
        raise ValueError(
            f"expected families from 0 to {len(names) - 1}, got {index.min()} to {index.max()}; "
            "name each family"
        )
    by_family = {name: score_of(values[index == i]) for i, name in enumerate(names)}
    return Summary(score=score_of(values), families=by_family)


def paired(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> Score:
    """The mean of `a - b` over the same tasks, `[tasks]` each, with its 95% interval over tasks.

    **Raises:** `ValueError` unless both have one score for each of the same tasks.
    """
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ValueError(
            "expected two scores for each of one or more tasks, "
            f"got shapes {first.shape} and {second.shape}; score both on the same tasks"
        )
    with np.errstate(all="ignore"):
        return score_of(first - second)


def number_of(value: float | None) -> float:
    """A number of JSON, which has null where one is not finite."""
    return math.nan if value is None else value


def normal_p(mean: float, error: float) -> float:
    """The two-sided p-value of a mean if the true mean is zero, by the normal distribution."""
    if error == 0:
        # Every difference is the same: the two are equal, or certainly different.
        return 1.0 if mean == 0 else 0.0
    return math.erfc(abs(mean) / error / math.sqrt(2))


def pairing(identity: str, split: str) -> str:
    """Twelve letters that are the same for scores on the same tasks: those of one identity (of
    `TaskDistribution.identity`) and one split."""
    what = json.loads(identity) if identity.startswith("[") else [identity]
    text = json.dumps(plain([*what, split]), sort_keys=True)
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
    """`[n]` integers: the place of each task's family in `names`."""
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.asarray(self.values, np.float64))
        object.__setattr__(self, "families", np.asarray(self.families))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def score(self) -> Score:
        """Mean, interval and number of tasks, as a result file holds them."""
        return self.summary()["score"]

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
        return self.summary()["families"]

    def summary(self) -> Summary:
        """`score` and `families`, as a result file holds them."""
        names = self.names or tuple(map(str, range(int(self.families.max(initial=0)) + 1)))
        return summarise(self.values, self.families, names)

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
        return f"Scores({_line(self.metric, self.score)})"

    def _repr_html_(self) -> str:
        rows = {"all tasks": self.score, **self.by_family()}
        return scores_html(self.metric or "score", rows, self.metric)


class About(TypedDict, total=False):
    """The description of scores in their file."""

    names: tuple[str, ...]
    metric: str
    split: str
    identity: str
    inner_steps: Count | None
    step: Count | None


_ABOUT = tuple(About.__annotations__)


def said(metric: str, score: JsonView, *, sign: str = "") -> str:
    """A mean and its interval: accuracies in percent, differences of them in points."""
    mean, half = number_of(score["mean"]), number_of(score["ci95"])
    if metric != "accuracy":
        return f"{mean:{sign}.4f} ± {half:.4f}"
    unit = " points" if sign else "%"
    return f"{100 * mean:{sign}.1f} ± {100 * half:.1f}{unit}"


def _line(metric: str, score: JsonView) -> str:
    return f"{metric or 'score'} {said(metric, score)} over {score['n']:,} tasks"


def scores_html(
    heading: str, rows: Mapping[str, JsonView], metric: str, *, sign: str = "", line: str = ""
) -> str:
    """A table with a mean, its interval and its number of tasks in each row, for a notebook."""
    cells = [[name, said(metric, row, sign=sign), f"{row['n']:,}"] for name, row in rows.items()]
    return table_html(("", f"{heading} ± 95%", "tasks"), cells, line=line)


ADVICE = "only scores on the same tasks can be compared"


def check_paired(a: Scores, b: Scores) -> None:
    """Raise `ValueError` unless both are scores of one metric on the same tasks."""
    for one in (a, b):
        if not isinstance(one, Scores):
            raise ValueError(f"expected Scores, got {type(one).__name__}: see arml.evaluate")
    if a.metric != b.metric and a.metric and b.metric:
        raise ValueError(f"expected scores of one metric, got {a.metric} and {b.metric}")
    check_same_tasks(a, b)
    if len(a) != len(b):
        raise ValueError(
            f"expected scores of equally many tasks, got {len(a)} and {len(b)}; {ADVICE}: score "
            "again, or take scores.first(n)"
        )


def check_same_tasks(a: Scores, b: Scores) -> None:
    """Raise `ValueError` unless the tasks of the scores are drawn alike."""
    if a.tasks != b.tasks:
        what, one, other = next(differing(a, b), ("tasks", a.tasks or "none", b.tasks or "none"))
        raise ValueError(f"the scores differ in their {what}: {one} and {other}; {ADVICE}")


def differing(a: Scores, b: Scores) -> Iterator[tuple[str, str, str]]:
    """The differences between the tasks of two scores, with both values."""
    if a.split != b.split:
        yield "split", a.split, b.split
    if not (a.identity and b.identity) or a.identity == b.identity:
        return
    parts = ("tasks", "data", "split of the classes")
    if not (a.identity.startswith("[") and b.identity.startswith("[")):
        yield "tasks", _short(a.identity), _short(b.identity)
        return
    both = json.loads(a.identity), json.loads(b.identity)
    for what, one, other in zip(parts, *both, strict=False):
        if isinstance(one, dict) and isinstance(other, dict):
            names = sorted(k for k in {*one, *other} if one.get(k) != other.get(k))
            for name in names:
                yield f"{what}' {name}", _short(one.get(name)), _short(other.get(name))
        elif one != other:
            yield what, _short(one), _short(other)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def write_scores(path: Path | str, scores: Scores) -> None:
    """Write the scores of single tasks as a compressed NumPy archive, atomically."""
    buffer = io.BytesIO()
    about = json.dumps({name: getattr(scores, name) for name in _ABOUT})
    families = scores.families.astype(np.min_scalar_type(int(scores.families.max(initial=0))))
    np.savez_compressed(
        buffer,
        # A learner computes them in float32.
        values=scores.values.astype(np.float32),
        families=families,
        tasks=np.array(scores.tasks),
        about=np.array(about),
    )
    write_bytes(path, buffer.getvalue())


MOST = 2**28
"""Bytes of one array in a NumPy archive, at most."""


def _check_sizes(content: io.BytesIO) -> None:
    """Raise `ValueError` if an array of a NumPy archive claims to be larger than its bytes: NumPy
    would allocate the memory that it claims."""
    with zipfile.ZipFile(content) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                if version != (1, 0):
                    raise ValueError(f"{member.filename} is of another format")
                shape, _, kind = np.lib.format.read_array_header_1_0(file)
            if kind.itemsize * math.prod(shape) > min(member.file_size, MOST):
                raise ValueError(f"{member.filename} claims the shape {shape}")
    content.seek(0)


def read_scores(path: Path | str) -> Scores:
    """Read a file that `write_scores` wrote.

    **Raises:** `RunError` if it is absent or damaged.
    """
    try:
        content = io.BytesIO(Path(path).read_bytes())
        _check_sizes(content)
        with np.load(content, allow_pickle=False) as found:
            about = json.loads(str(found["about"]))
            held = read_as(About, about, "its description", "restore it")
            if held.get("identity", "").startswith("["):
                json.loads(held["identity"])
            values, families = found["values"], found["families"]
            kinds = values.dtype.kind, families.dtype.kind in "iu", values.ndim
            if kinds != ("f", True, 1) or values.shape != families.shape:
                raise ValueError("expected a score and a family for each task")
            return Scores(values, families, str(found["tasks"]), **held)
    except (
        *(OSError, KeyError, ValueError, TypeError, EOFError, RecursionError),
        *(zipfile.BadZipFile, zlib.error),
    ) as error:
        raise RunError(
            f"expected the scores of single tasks in {path}, got none or damaged ones ({error}); "
            "score the run again"
        ) from error


def table_html(
    head: Sequence[str],
    rows: Sequence[Sequence[str | list[str]]],
    *,
    line: str = "",
    code: bool = False,
) -> str:
    """A line of text (in the style of code with `code`) above a table; no table without a head.

    The first cell of a row is its heading. A cell is text, or a list of PNGs in base64.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only a notebook needs it

    loader = PackageLoader("arml.results")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    template = environment.get_template("notebook.html")
    return template.render(head=head, rows=rows, line=line, code=code).strip()
