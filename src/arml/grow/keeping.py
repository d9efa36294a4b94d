"""A stream that was stopped goes on at the stage that it had reached."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from arml.algorithms.arml_extensions import best_fit
from arml.core.learner import MetaLearner
from arml.grow.growth import Growth
from arml.grow.vertices import grown_vertices
from arml.results.arrays import read_arrays, write_arrays
from arml.results.files import Json, RunError, write_json
from arml.results.forms import Count, Digest, Text
from arml.results.schema import read_checked
from arml.training.checkpoint import filled, named


@dataclass(frozen=True)
class Place:
    """The state of a stream after some of its stages."""

    growth: Growth
    leaves: int
    """Vertices or leaves that a fresh learner is built with."""
    added: int = -1
    """The stage that added the latest leaf; -1 before the first."""
    windows: tuple[float, ...] = ()
    """Validation scores of all stages, for HSML-Dynamic."""
    models: Mapping[str, MetaLearner] = field(default_factory=dict)
    """The model of each family, where each has its own."""
    found: tuple[dict[str, Any], ...] = ()
    """The records of the stages."""
    seconds: float = 0.0
    """Time that the stages took."""


class Numbers(TypedDict):
    """The fields of `Growth` that are not arrays."""

    known: list[Text]
    names: list[Text]
    made: Count
    tasks: Count
    replayed: Count
    records: list[Json]


class Kept(TypedDict):
    """`stream.json`."""

    stage: Count
    sha256: Digest
    growth: Numbers
    leaves: Annotated[int, Meta(ge=0, le=10_000)]
    grown: Annotated[int, Meta(ge=0, le=10_000)]
    added: Annotated[int, Meta(ge=-1, le=2**53)]
    windows: list[float]
    models: list[Text]
    found: list[Json]
    seconds: NotRequired[Annotated[float, Meta(ge=0, le=1e12)]]


def keep(folder: Path, place: Place) -> None:
    """Write the state of the stream; the file with the numbers is written last."""
    growth, stage = place.growth, place.growth.stages
    learners = {"": growth.learner, **place.models}
    arrays = {
        f"{name}|{where}": np.asarray(leaf)
        for name, learner in learners.items()
        for where, leaf in named(learner).items()
    }
    digest = write_arrays(folder / f"stage-{stage}.safetensors", arrays)
    numbers: dict[str, Any] = {
        name: getattr(growth, name)
        for name in ("known", "names", "made", "tasks", "replayed", "records")
    }
    write_json(
        folder / "stream.json",
        {
            "stage": stage,
            "sha256": digest,
            "growth": numbers,
            "leaves": place.leaves,
            "grown": grown_vertices(growth.learner),
            "added": place.added,
            "windows": place.windows,
            "models": list(place.models),
            "found": place.found,
            "seconds": place.seconds,
        },
    )
    (folder / f"stage-{stage - 1}.safetensors").unlink(missing_ok=True)


def taken_up(folder: Path, start: Place, build: Any) -> Place:
    """The state of the stream in `folder`; `start` if it has not begun.

    **Raises** `RunError` for a damaged file.
    """
    if not (folder / "stream.json").exists():
        return start
    held = read_checked(folder / "stream.json", Kept, "restore the file, or delete its folder")
    arrays = read_arrays(folder / f"stage-{held['stage']}.safetensors", held["sha256"])
    numbers: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in held["growth"].items()
    }
    count = len(numbers["names"]) or held["leaves"]
    blank = build(count)
    if held["grown"]:
        blank = replace(blank, choose=best_fit(held["grown"]))
    learner = _filled(blank, arrays, "")
    models = {name: _filled(build(count), arrays, name) for name in held["models"]}
    growth = replace(start.growth, learner=learner, stages=held["stage"], **numbers)
    windows, found = tuple(held["windows"]), tuple(held["found"])
    seconds = held.get("seconds", 0.0)
    return Place(growth, held["leaves"], held["added"], windows, models, found, seconds)


def _filled(blank: MetaLearner, arrays: Mapping[str, np.ndarray], name: str) -> MetaLearner:
    own = {
        where.removeprefix(f"{name}|"): array
        for where, array in arrays.items()
        if where.startswith(f"{name}|")
    }
    if {w: a.shape for w, a in own.items()} != {w: a.shape for w, a in named(blank).items()}:
        raise RunError("expected the weights of this stream, got others: delete its folder")
    return filled(blank, own)
