"""How long the first steps of a run take, estimated from earlier runs with the same options."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from arml.datasets.cache import default_folder
from arml.experiment.options import Experiment, fingerprint
from arml.reproduce.costs import seconds
from arml.results.files import RunError, read_json, write_json
from arml.results.forms import Text
from arml.results.schema import read_as

MOST = 500
"""Entries that are kept."""
Seconds = Annotated[float, Meta(ge=0, le=1e9)]


def _place() -> Path:
    return default_folder() / "first-steps.json"


def _known() -> dict[str, float]:
    try:
        return read_as(dict[Text, Seconds], read_json(_place()), "", "")
    except RunError:
        return {}


def _key(experiment: Experiment, devices: int) -> str:
    return f"{fingerprint(experiment)}-{devices}"


def expected(experiment: Experiment, devices: int = 1) -> float:
    """Seconds from the start of compilation to the end of the first interval of steps: the time of
    the last such run, or else an estimate."""
    known = _known().get(_key(experiment, devices))
    if known is not None:
        return float(known)
    start, step = pace(experiment)
    return start + experiment.interval * step


def note(experiment: Experiment, took: float, devices: int = 1) -> None:
    """Remember how long it took; a cache that cannot be written is not an error."""
    known = _known()
    known.pop(_key(experiment, devices), None)
    known[_key(experiment, devices)] = round(took, 1)
    with contextlib.suppress(OSError, ValueError):
        _place().parent.mkdir(parents=True, exist_ok=True)
        write_json(_place(), dict(list(known.items())[-MOST:]))


def pace(experiment: Experiment) -> tuple[float, float]:
    """Seconds to start, and seconds for a step with its share of validation, on one CPU core."""
    one, two = (seconds(replace(experiment, steps=n), tasks=0) for n in (1_000, 2_000))
    step = (two - one) / 1_000
    return one - 1_000 * step, step
