"""The run folder: what a run writes, and how it is read back.

`config.json` says what was run, `metrics.jsonl` how it went (one JSON object a line), `result.json`
how it scored, `explain/explain.json` what its graph looks like. Every file is UTF-8 JSON that any
program can read; a number that is not finite is `null`, which the tables show as "not finite" and
the curves as a gap. Nothing here needs JAX, so that a report is quick to make.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

from arml.results.files import (
    RunError,
    append_metric,
    read_json,
    read_metrics,
    truncate_metrics,
    write_bytes,
    write_json,
    write_text,
)
from arml.results.intervals import Score, paired, summarise
from arml.results.manifest import check_sealed, sealed
from arml.results.scores import Scores, read_scores, write_scores

__all__ = [
    "FORMAT",
    "Calibration",
    "Result",
    "Run",
    "RunError",
    "Score",
    "TaskScores",
    "append_metric",
    "load_run",
    "paired",
    "read_config",
    "read_json",
    "read_metrics",
    "read_result",
    "read_scores",
    "recipe_of",
    "summarise",
    "truncate_metrics",
    "write_bytes",
    "write_json",
    "write_result",
    "write_scores",
    "write_text",
]

TaskScores = Scores
"""The name of `Scores` up to version 0.1."""

FORMAT = 1
"""The version of the run folder that this library writes and reads."""

METRICS = ("mse", "accuracy")


class Calibration(TypedDict):
    """How far the probabilities of a classifier are from its accuracy: the expected calibration
    error, in [0, 1], of its logits as they are and divided by the temperature that was set on
    `tasks` validation tasks. Null when not finite, or not set: the validation tasks' own score."""

    error: float | None
    temperature: float | None
    error_calibrated: float | None
    tasks: int


class Result(TypedDict):
    """`result.json`. `seconds` is the training time; `floor` the best score that is possible.

    `commit`, `versions` and `device` are those of the scoring, `trained` has those of the training.
    `options` is the same for runs that differ in nothing but their seed; `inputs` is the frozen
    model of frozen features, and what it saw in training. `calibration` is
    there for classification. Older files lack these.
    """

    format: int
    recipe: str
    seed: int
    split: str
    metric: str
    score: Score
    families: dict[str, Score]
    inner_steps: int
    protocol: str
    commit: str | None
    versions: dict[str, str]
    device: str
    seconds: float
    parameters: int
    steps: int
    floor: float | None
    trained: NotRequired[dict[str, Any] | None]
    options: NotRequired[str | None]
    inputs: NotRequired[dict[str, Any] | None]
    calibration: NotRequired[Calibration | None]


class Run(NamedTuple):
    """A run folder, read. `result` and `explain` are None until they have been made."""

    folder: Path
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    result: Result | None
    explain: dict[str, Any] | None


_FIELDS: dict[str, tuple[tuple[type, ...], str]] = {
    "recipe": ((str,), "a string"),
    "seed": ((int,), "a whole number"),
    "split": ((str,), "a string"),
    "metric": ((str,), "a string"),
    "score": ((dict,), "an object with mean, ci95 and n"),
    "families": ((dict,), "an object with a score for each family"),
    "inner_steps": ((int,), "a whole number"),
    "protocol": ((str,), "a string"),
    "commit": ((str, type(None)), "a string or null"),
    "versions": ((dict,), "an object"),
    "device": ((str,), "a string"),
    "seconds": ((int, float), "a number"),
    "parameters": ((int,), "a whole number"),
    "steps": ((int,), "a whole number"),
    "floor": ((int, float, type(None)), "a number or null"),
}
_LATER: dict[str, tuple[tuple[type, ...], str]] = {
    "trained": ((dict, type(None)), "an object or null"),
    "options": ((str, type(None)), "a string or null"),
    "inputs": ((dict, type(None)), "an object or null"),
    "calibration": ((dict, type(None)), "an object or null"),
}
"""Fields that older files lack."""


def _check_format(value: Mapping[str, Any], path: Path) -> None:
    version = value.get("format")
    if version == FORMAT:
        return
    if isinstance(version, int) and version > FORMAT:
        raise RunError(
            f"{path} was made by a newer version of arml: expected format {FORMAT}, got {version}; "
            "update arml, or make the file again with this version"
        )
    raise RunError(
        f"expected format {FORMAT} in {path}, got {json.dumps(version)}; "
        "it is not a file of an arml run, or of a version that can no longer be read"
    )


def _is_score(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("n"), int)
        and all(
            key in value and isinstance(value[key], int | float | None) for key in ("mean", "ci95")
        )
    )


def read_result(path: Path | str) -> Result:
    """Read and check a `result.json`.

    **Raises:** `RunError` if it is absent, damaged, of another format version, or lacks a field.
    """
    path = Path(path)
    check_sealed(path)
    value = read_json(path)
    _check_format(value, path)
    value = {"commit": None, "floor": None, **value}
    later = {name: rule for name, rule in _LATER.items() if name in value}
    for name, (types, kind) in {**_FIELDS, **later}.items():
        if name not in value or not isinstance(value[name], types):
            got = json.dumps(value[name])[:40] if name in value else "nothing"
            raise RunError(
                f"expected `{name}` to be {kind} in {path}, got {got}; "
                "make the file again with `arml evaluate`"
            )
    if value["metric"] not in METRICS:
        raise RunError(
            f"expected `metric` to be one of {', '.join(METRICS)} in {path}, "
            f"got {value['metric']!r}; make the file again with `arml evaluate`"
        )
    for name, score in {"score": value["score"], **value["families"]}.items():
        if not _is_score(score):
            raise RunError(
                f"expected `{name}` to have numbers mean, ci95 and n in {path}, got "
                f"{json.dumps(score)[:40]}; make the file again with `arml evaluate`"
            )
    return cast(Result, value)


def write_result(path: Path | str, result: Mapping[str, Any]) -> None:
    """Write a `result.json`, and its digest in the folder's manifest."""
    with sealed(Path(path)):
        write_json(path, result)


def read_config(folder: Path | str) -> dict[str, Any]:
    """Read the `config.json` of a run folder.

    **Raises:** `RunError` if there is none, or it is damaged or of another format version.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        found = "a folder without one" if folder.is_dir() else "no such folder"
        raise RunError(
            f"expected a run folder with a config.json at {folder}, found {found}; "
            f"`arml train RECIPE --run {folder}` makes one"
        )
    config = read_json(folder / "config.json")
    _check_format(config, folder / "config.json")
    return config


def load_run(folder: Path | str) -> Run:
    """Read a run folder.

    **Raises:** `RunError` if it is no run folder, or one of its files is damaged, of another format
    version, or has changed since it was written.
    """
    folder = Path(folder)
    config = read_config(folder)
    metrics, result = folder / "metrics.jsonl", folder / "result.json"
    explain = folder / "explain" / "explain.json"
    for path in (metrics, result, explain):
        check_sealed(path)
    explained = read_json(explain) if explain.exists() else None
    if explained is not None:
        _check_format(explained, explain)
    return Run(
        folder=folder,
        config=config,
        metrics=read_metrics(metrics),
        result=read_result(result) if result.exists() else None,
        explain=explained,
    )


def recipe_of(run: Run) -> str:
    """The name of a run's recipe; that of its folder where the configuration has none."""
    return str(run.config.get("recipe", run.folder.name))
