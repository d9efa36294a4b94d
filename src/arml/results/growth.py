"""The files of a learner that has grown: `growth.jsonl`, with its decisions and scores as one JSON
object a line, and `growth.json`, with the scores before and after `arml grow`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_args

from msgspec import Meta

from arml.results.files import Json, JsonView, RunError, plain, read_json, write_text
from arml.results.forms import Count, Share, Text
from arml.results.intervals import Score
from arml.results.schema import matching, read_as, read_checked

Finite = Annotated[float, Meta(ge=-1e300, le=1e300)] | None
"""A number, or null where it is not finite."""
Stage = Annotated[int, Meta(ge=0, le=10_000)]
Metric = Annotated[str, matching("^(mse|accuracy)$", "mse or accuracy")]
Shares = Annotated[dict[Text, Share], Meta(min_length=1)]
"""The families of a stage, and their shares."""
Three = Annotated[list[Finite], Meta(min_length=3, max_length=3)]
ADVICE = "restore the file, or delete it"


class Decision(TypedDict):
    """A line of `growth.jsonl`."""

    stage: Stage


class Proposal(Decision):
    """Whether a vertex is proposed; the bands are low, median and high of log losses."""

    decision: Literal["propose", "keep"]
    fresh: Three
    reference: Three
    novelty: Finite


class Trial(Decision):
    """Whether a new vertex is accepted."""

    decision: Literal["accept", "reject"]
    vertex: Text
    steps: Count
    gain: Score
    against: Text


class Guard(Decision):
    """Whether a stage is kept."""

    decision: Literal["keep stage", "undo stage"]
    gain: Score
    lost: dict[Text, Score]


class Test(Decision):
    """The loss of each family without each vertex."""

    decision: Literal["test"]
    lost: dict[Text, dict[Text, Finite]]


class Prune(Decision):
    """A vertex that is removed."""

    decision: Literal["prune"]
    vertex: Text


class Read(Decision):
    """How much each family reads each vertex."""

    decision: Literal["read"]
    vertices: list[Text]
    families: dict[Text, list[Share]]


class Trained(Decision):
    """The cost of a stage."""

    decision: Literal["trained"]
    stage_shares: dict[Text, Share]
    tasks: Count
    replayed: Count


class Scored(Decision):
    """The scores on test tasks after a stage."""

    decision: Literal["scored"]
    shares: Shares
    metric: Metric
    scores: dict[Text, Finite]
    vertices: Count
    tasks: Count
    replayed: Count


FORMS: dict[str, type] = {
    name: form
    for form in (Proposal, Trial, Guard, Test, Prune, Read, Trained, Scored)
    for name in get_args(form.__annotations__["decision"])
}
"""The form of each decision."""


class Point(TypedDict):
    """A point of a learning curve."""

    tasks: Count
    score: Finite


class Passed(TypedDict):
    """A way to meet a stream after one of its stages."""

    stage: Shares
    scores: dict[Text, Finite]
    curve: list[Point]
    vertices: Count
    tasks: Count
    replayed: Count
    decisions: NotRequired[list[Json]]


class Met(TypedDict):
    """One way through one stream."""

    order: Text
    seed: Count
    way: Text
    stages: Annotated[list[Passed], Meta(min_length=1)]


class Growing(TypedDict):
    """`growing.json`, which `benchmarks/growing.py` writes: ways to meet streams, compared."""

    protocol: dict[Text, int | float | str]
    rows: dict[Text, Met]
    metric: NotRequired[Metric]


class Grown(TypedDict):
    """`growth.json`: the result of `arml grow`."""

    before: dict[Text, Finite]
    after: dict[Text, Finite]
    accepted: bool
    gains: dict[Text, Score]
    metric: Metric


def read_growing(path: Path) -> Json:
    """Read and check a `growing.json`. **Raises** `RunError`."""
    found = {"metric": "mse", **read_json(path)}
    read_as(Growing, found, str(path), ADVICE)
    for name, row in found["rows"].items():
        came = {family for stage in row["stages"] for family in stage["stage"]}
        if not came or any(came - {*stage["scores"]} for stage in row["stages"]):
            raise RunError(f"{path}: {name}: expected scores of all its families; {ADVICE}")
        for stage in row["stages"]:
            _check(stage.get("decisions", []), f"{path}: {name}")
    return found


def read_grown(path: Path) -> Json:
    """Read and check a `growth.json`. **Raises** `RunError`."""
    found = read_checked(path, Grown, ADVICE)
    families = [set(found[name]) for name in ("before", "after", "gains")]
    if any(names != families[0] for names in families):
        raise RunError(f"{path}: expected one family in each of its scores; {ADVICE}")
    return found


def read_growth(path: Path) -> list[Json]:
    """Read and check a `growth.jsonl`. **Raises** `RunError`."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        records = [json.loads(line) for line in lines if line]
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"expected one JSON object a line in {path}, got {error}; {ADVICE}"
        ) from None
    _check(records, str(path))
    scored = [record for record in records if record["decision"] == "scored"]
    if any({*one["shares"]} - {*other["scores"]} for one in scored for other in scored):
        raise RunError(f"{path}: expected the scores of all families in each stage; {ADVICE}")
    return records


def _check(records: Sequence[Any], where: str) -> None:
    for i, record in enumerate(records, start=1):
        kind = record.get("decision") if isinstance(record, dict) else None
        if not isinstance(kind, str) or kind not in FORMS:
            raise RunError(f"{where}: decision {i}: expected a decision, got {kind!r}; {ADVICE}")
        read_as(FORMS[kind], record, f"{where}: decision {i}", ADVICE)
        if kind == "read" and any(
            len(row) != len(record["vertices"]) for row in record["families"].values()
        ):
            raise RunError(f"{where}: decision {i}: expected a share for each vertex; {ADVICE}")


def write_lines(path: Path, records: Sequence[JsonView]) -> None:
    """Write JSON lines, atomically. **Raises** `RunError`."""
    lines = [json.dumps(plain(record), ensure_ascii=False, allow_nan=False) for record in records]
    write_text(path, "".join(f"{line}\n" for line in lines))
