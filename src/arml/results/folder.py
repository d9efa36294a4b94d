"""The run folder: the files that a run writes, and their readers.

`config.json` holds the experiment, `metrics.jsonl` the losses and validation scores of the training
(one JSON object a line), `result.json` the test score, and `explain/explain.json` the numbers of
the figures of the learner's inside. Every file is UTF-8 JSON that any program can read. A number
that is not finite is `null`; tables show it as "not finite" and curves as a gap. Nothing here needs
JAX, so that a report is quick to make.
"""

import base64
import json
import re
from pathlib import Path
from typing import Annotated, NamedTuple, NotRequired, TypedDict, cast

import msgspec
import numpy as np
from msgspec import Meta

from arml.results.files import Json, JsonView, RunError, read_json, read_metrics, write_json
from arml.results.schema import Count, Text, matching, read_as
from arml.results.scores import Score

FORMAT = 1
"""The version of the run folder that this library writes and reads."""


class Result(TypedDict):
    """`result.json`. `seconds` is the training time; `floor` the best score that is possible.

    `commit`, `versions` and `device` are those of the scoring, `trained` has those of the training.
    `options` is the same for runs that differ only in their seed. `inputs` names the frozen model
    that made the features, and its training data. `simple` has the scores of classifiers that need
    no meta-training, in classification only. Older files lack these fields.
    """

    format: int
    recipe: Text
    seed: Count
    split: Text
    metric: Annotated[str, matching("^(mse|accuracy)$", "mse or accuracy")]
    score: Score
    families: dict[Text, Score]
    inner_steps: Count
    protocol: Text
    commit: Text | None
    versions: dict[str, Text]
    device: Text
    seconds: Annotated[float, Meta(ge=0, le=1e12)]
    parameters: Count
    steps: Count
    floor: float | None
    trained: NotRequired[Json | None]
    options: NotRequired[Text | None]
    inputs: NotRequired[Json | None]
    simple: NotRequired[dict[Text, Score]]


class Configuration(TypedDict):
    """`config.json` of a run. `experiment.from_json` checks the experiment in it."""

    recipe: NotRequired[Text]
    experiment: NotRequired[Json]
    sources: NotRequired[Json | None]
    made: NotRequired[Json | None]


class Explained(TypedDict):
    """The fields that every `explain.json` has."""

    families: list[Text]
    tasks: Annotated[int, Meta(ge=1)]


def check_explained(value: JsonView, path: Path) -> None:
    """Check that a file is an explanation. **Raises** `RunError` in one line."""
    read_as(Explained, value, str(path), "make it again with `arml explain`")


class RunFiles(NamedTuple):
    """The content of a run folder's files. `result` and `explain` are None until they are made."""

    folder: Path
    config: Json
    metrics: list[Json]
    result: Result | None
    explain: Json | None


def _check_format(value: JsonView, path: Path) -> None:
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


def read_result(path: Path | str) -> Result:
    """Read and check a `result.json`.

    **Raises:** `RunError` if it is absent, damaged, of another format version, or lacks a field.
    """
    path = Path(path)
    value = read_json(path)
    _check_format(value, path)
    value = {"commit": None, "floor": None, **value}
    found = read_as(Result, value, str(path), "make the file again with `arml evaluate`")
    return cast(Result, {**value, **found})


def write_result(path: Path | str, result: JsonView) -> None:
    """Write a `result.json`."""
    write_json(path, result)


def seeds_in(folder: Path | str) -> list[Path]:
    """The run folders `seed-0`, `seed-1`, ... in a folder, in order of the seeds; none if it is a
    run itself."""
    folder = Path(folder)
    if (folder / "config.json").is_file():
        return []
    seeds = [
        (int(found[1]), path.parent)
        for path in folder.glob("seed-*/config.json")
        if (found := re.fullmatch(r"seed-(\d+)", path.parent.name))
    ]
    return [path for _, path in sorted(seeds)]


def read_config(folder: Path | str) -> Json:
    """Read the `config.json` of a run folder.

    **Raises:** `RunError` if there is none, or it is damaged or of another format version.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        inside = {path.parent for path in folder.glob("*/config.json")}
        inside |= {path.parent.parent for path in folder.glob("*/seed-*/config.json")}
        if inside:
            found = f"{len(inside)} {'runs' if len(inside) > 1 else 'run'}"
            raise RunError(
                f"expected a run folder with a config.json at {folder}, found {found} in it: name "
                f"one, such as {min(inside)}"
            )
        found = "a folder without one" if folder.is_dir() else "no such folder"
        raise RunError(
            f"expected a run folder with a config.json at {folder}, found {found}; "
            f"`arml train RECIPE --run {folder}` makes one"
        )
    path = folder / "config.json"
    config = read_json(path)
    _check_format(config, path)
    read_as(Configuration, config, str(path), "restore the file")
    return config


def read_run(folder: Path | str) -> RunFiles:
    """Read the files of a run folder.

    **Raises:** `RunError` if it is no run folder, or one of its files is damaged or of another
    format version.
    """
    folder = Path(folder)
    config = read_config(folder)
    metrics, result = folder / "metrics.jsonl", folder / "result.json"
    explain = folder / "explain" / "explain.json"
    explained = read_json(explain) if explain.exists() else None
    if explained is not None:
        _check_format(explained, explain)
        check_explained(explained, explain)
    return RunFiles(
        folder=folder,
        config=config,
        metrics=read_metrics(metrics),
        result=read_result(result) if result.exists() else None,
        explain=explained,
    )


def recipe_of(run: RunFiles) -> str:
    """The name of a run's recipe; that of its folder where the configuration has none."""
    return str(run.config.get("recipe", run.folder.name))


MARKS = "evaluated.json"
WHAT = "arml marks"
THUMBNAIL = 96
"""Pixels a side of a kept picture, at most."""


class Mistake(msgspec.Struct):
    """A query that was predicted as another class."""

    name: str
    label: str
    predicted: str
    probability: float
    own: float
    """The probability of its own label."""
    picture: str | None
    """A small PNG in base64."""


class Marked(msgspec.Struct):
    """The content of `evaluated.json` of a classifier."""

    predictor: str
    """The checksum of the predictor's configuration."""
    query: str
    n: int
    accuracy: float
    low: float
    high: float
    classes: list[str]
    by_class: dict[str, float]
    confusion: list[list[int]]
    mistakes: list[Mistake]
    by: str = ""
    """The means that predicted, if it is not the learner."""


def read_marks(folder: Path) -> Marked:
    """The marks of a predictor.

    **Raises** `RunError` if there are none, or if they are damaged, those of a regression, or those
    of another predictor that was saved in this folder before.
    """
    path = folder / MARKS
    advice = f"run `arml evaluate {folder} --query LABELLED` first"
    if not path.is_file():
        raise RunError(f"expected {MARKS} in the predictor's folder {folder}, found none; {advice}")
    content = read_json(path)
    if "mse" in content:
        raise RunError(
            f"{path}: expected marks of a classifier, got a regression, which has no page: "
            "its error is in this file"
        )
    marked = read_as(Marked, content, str(path), advice)
    if marked.predictor != read_json(folder / "config.json").get("sha256"):
        raise RunError(f"{path} is of another predictor, which was saved there before; {advice}")
    return marked


def thumbnail(picture: np.ndarray) -> str:
    """A picture `[h, w, 3]` in bytes as a small PNG in base64."""
    import cv2

    scale = THUMBNAIL / max(picture.shape[:2])
    if scale < 1:
        picture = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return png(picture)


def png(picture: np.ndarray) -> str:
    """A picture `[h, w, 3]` in bytes as a PNG in base64."""
    import cv2

    return base64.b64encode(cv2.imencode(".png", picture[..., ::-1])[1].tobytes()).decode()
