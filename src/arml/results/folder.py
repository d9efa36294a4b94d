"""The run folder: the files that a run writes, and their readers.

`config.json` holds the experiment, `metrics.jsonl` the losses and validation scores of the training
(one JSON object a line), `result.json` the test score, and `explain/explain.json` the numbers of
the figures of the learner's inside. Every file is UTF-8 JSON that any program can read. A number
that is not finite is `null`; tables show it as "not finite" and curves as a gap.
"""

import re
from pathlib import Path
from typing import Annotated, NamedTuple, NotRequired, TypedDict

from msgspec import Meta

from arml.results.files import (
    Count,
    Json,
    RunError,
    Text,
    read_as,
    read_json,
    read_metrics,
    unsealed,
)
from arml.results.scores import Score

CONFIG_FILE = "config.json"
"""The file that describes a folder: a run, a shared learner or a predictor."""


class Result(TypedDict):
    """`result.json`. `seconds` is the training time; `floor` the best score that is possible.
    `commit`, `versions` and `device` are those of the scoring, `trained` has those of the training.
    `chosen` is the rule that chose the learner, `tasks` the digest of the tasks. `shared`: the
    tasks are drawn from the training distribution. `options` is the same for runs that differ only
    in their seed. `inputs` names the frozen model that made the features. `simple` has the scores
    of simple classifiers, `weights` the file of the weights that the network began with, and its
    digest."""

    recipe: Text
    seed: Count
    split: Text
    metric: Annotated[str, Meta(pattern="^(mse|accuracy)$")]
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
    weights: NotRequired[Json | None]
    simple: NotRequired[dict[Text, Score]]
    shared: NotRequired[bool]
    chosen: NotRequired[Text]
    tasks: NotRequired[Text]


class Configuration(TypedDict):
    """`config.json` of a run. `experiment.from_json` checks the experiment in it."""

    recipe: NotRequired[Text]
    experiment: NotRequired[Json]
    sources: NotRequired[Json | None]
    made: NotRequired[Json | None]


class RunFiles(NamedTuple):
    """The content of a run folder's files. `result` and `explain` are None until they are made."""

    folder: Path
    config: Json
    metrics: list[Json]
    result: Result | None
    explain: Json | None


def read_result(path: Path) -> Result:
    """Read and check a `result.json`. **Raises** `RunError` if it is absent or damaged."""
    found = unsealed(read_json(path), str(path))
    return read_as(Result, found, str(path), "make the file again with `arml evaluate`")


def seeds_in(folder: Path | str) -> list[Path]:
    """The run folders `seed-0`, `seed-1`, ... in a folder, in order of the seeds; none if it is a
    run itself."""
    folder = Path(folder)
    if (folder / CONFIG_FILE).is_file():
        return []
    found = [path.parent for path in folder.glob("seed-*/config.json")]
    seeds = [path for path in found if re.fullmatch(r"seed-\d+", path.name)]
    return sorted(seeds, key=lambda path: int(path.name.removeprefix("seed-")))


def read_config(folder: Path | str) -> Json:
    """Read the `config.json` of a run. **Raises** `RunError` if there is none, or it is damaged."""
    path = Path(folder) / CONFIG_FILE
    if not path.is_file():
        inside = [*Path(folder).glob("*/config.json"), *Path(folder).glob("*/seed-*/config.json")]
        advice = f"`arml train RECIPE --run {folder}` makes one"
        if inside:
            advice = f"there are runs in it: name one, such as {min(inside).parent}"
        if trials := [*Path(folder).glob("trials/*/config.json")]:
            advice = f"it is a sweep: name the run of a trial, such as {min(trials).parent}"
        raise RunError(
            f"expected a run folder with a config.json at {folder}, found none; {advice}"
        )
    config = unsealed(read_json(path), str(path))
    read_as(Configuration, config, str(path), "restore the file")
    return config


def read_run(folder: Path | str) -> RunFiles:
    """Read the files of a run folder. **Raises** `RunError` if it is not a run folder or has a
    damaged file."""
    folder = Path(folder)
    result, explain = folder / "result.json", folder / "explain" / "explain.json"
    return RunFiles(
        folder,
        read_config(folder),
        read_metrics(folder / "metrics.jsonl"),
        read_result(result) if result.exists() else None,
        read_json(explain) if explain.exists() else None,
    )


def recipe_of(run: RunFiles) -> str:
    """The name of a run's recipe; that of its folder where the configuration has none."""
    return str(run.config.get("recipe", run.folder.name))
