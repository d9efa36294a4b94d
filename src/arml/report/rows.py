"""Rows of a table: the results of one recipe, over its seeds.

Three numbers that are often confused are kept apart and named:

- the *mean* is the mean over seeds of each run's mean score over test tasks;
- the *interval over tasks* is the mean over seeds of each run's 95% half-width, 1.96 s / sqrt(n).
  Every seed is scored on the same tasks, so their scores cannot be pooled as if they were more
  tasks; the mean of the half-widths is at least the half-width of the seed-averaged score;
- the *spread over seeds* is the standard deviation (n - 1) of the runs' means.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import cast

from arml.results.files import RunError
from arml.results.folder import Result, RunFiles, read_result
from arml.results.scores import Score


@dataclass(frozen=True)
class Row:
    """One recipe under one protocol, over its seeds.

    A number is None where it does not exist: a score that is not finite, an interval over one
    task, a spread over one seed.
    """

    recipe: str
    metric: str
    split: str
    protocol: str
    steps: int
    inner_steps: int
    seeds: tuple[int, ...]
    tasks: int
    mean: float | None
    ci95: float | None
    spread: float | None
    families: dict[str, float | None]
    families_ci95: dict[str, float | None]
    empty: frozenset[str]
    """The families of which no task was scored."""
    seconds: float
    devices: tuple[str, ...]
    """Where it was scored."""
    trained_on: tuple[str, ...]
    """Where it was trained; empty unless every result says so."""
    options: str | None
    """The options in which runs of one recipe differ; None in older results."""
    floor: float | None
    error: float | None
    """Expected calibration error of a classifier's logits as they are."""
    error_calibrated: float | None
    """The same after the temperature that was set on validation tasks."""
    simple: dict[str, Score]
    """Scores of classifiers that need no meta-training, on the same tasks."""


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean, or None if a value is missing: a run that diverged must not be left out."""
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers and len(numbers) == len(values) else None


def spread_of(values: Sequence[float | None]) -> float | None:
    """The standard deviation, or None if a value is missing or there is only one."""
    numbers = [value for value in values if value is not None]
    return stdev(numbers) if len(numbers) == len(values) > 1 else None


def _row(runs: Sequence[Result]) -> Row:
    runs = sorted(runs, key=lambda run: run["seed"])
    first = runs[0]
    seeds = tuple(run["seed"] for run in runs)
    if len(set(seeds)) < len(seeds):
        raise RunError(
            f"expected one result for each seed of {first['recipe']} with {first['steps']} steps, "
            f"got seeds {', '.join(map(str, seeds))}; leave one of the equal ones out"
        )
    means = [run["score"]["mean"] for run in runs]
    trained = [(run.get("trained") or {}).get("device") for run in runs]
    calibrations = [run.get("calibration") for run in runs]
    names = first["families"]
    return Row(
        recipe=first["recipe"],
        metric=first["metric"],
        split=first["split"],
        protocol=first["protocol"],
        steps=first["steps"],
        inner_steps=first["inner_steps"],
        seeds=seeds,
        tasks=first["score"]["n"],
        mean=mean_of(means),
        ci95=mean_of([run["score"]["ci95"] for run in runs]),
        spread=spread_of(means),
        families={name: mean_of([run["families"][name]["mean"] for run in runs]) for name in names},
        families_ci95={
            name: mean_of([run["families"][name]["ci95"] for run in runs]) for name in names
        },
        empty=frozenset(name for name in names if not first["families"][name]["n"]),
        seconds=fmean(run["seconds"] for run in runs),
        devices=tuple(sorted({run["device"] for run in runs})),
        trained_on=tuple(sorted(set(map(str, trained)))) if all(trained) else (),
        options=next((run["options"] for run in runs if run.get("options")), None),
        floor=first["floor"],
        error=mean_of([known.get("error") if known else None for known in calibrations]),
        error_calibrated=mean_of(
            [known.get("error_calibrated") if known else None for known in calibrations]
        ),
        simple=next((run["simple"] for run in runs if run.get("simple")), {}),
    )


def _by_options(runs: Sequence[Result]) -> list[list[Result]]:
    """The runs apart by their options."""
    found = list(dict.fromkeys(run.get("options") for run in runs))
    if len(set(found) - {None}) < 2:
        return [list(runs)]
    return [[run for run in runs if run.get("options") == options] for options in found]


def make_rows(results: Iterable[Result | Path]) -> list[Row]:
    """Group results (or paths of `result.json`) by recipe over seeds, worst mean first.

    Results of one recipe are one row only if they share everything that a score depends on: split,
    metric, protocol, tasks, families, steps, inner steps, size and options. An older result without
    its options joins the others if the others have the same options.

    **Raises:** `RunError` for a damaged file, or two results of the same seed in one row.
    """
    groups: dict[tuple[object, ...], list[Result]] = {}
    for item in results:
        run = read_result(item) if isinstance(item, Path) else item
        keys = ("recipe", "split", "metric", "protocol", "steps", "inner_steps", "parameters")
        same = (*(run.get(key) for key in keys), run["score"]["n"], tuple(run["families"]))
        groups.setdefault(same, []).append(run)
    alike = [part for group in groups.values() for part in _by_options(group)]

    def goodness(row: Row) -> tuple[bool, float, str]:
        sign = -1 if row.metric == "mse" else 1
        return (row.mean is not None, sign * (row.mean or 0.0), row.recipe)

    return sorted(map(_row, alike), key=goodness)


def sections(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows that can be compared with each other: the same metric, families, tasks, protocol."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        same = (row.metric, tuple(row.families), row.split, row.tasks, row.protocol)
        groups.setdefault(same, []).append(row)
    return [groups[key] for key in sorted(groups, key=str)]


def _options(value: object, name: str = "") -> dict[str, str]:
    """A nested configuration as flat names and texts, without the seed."""
    if not isinstance(value, dict):
        return {name: str(value)}
    found: dict[str, str] = {}
    for key, item in value.items():
        if key != "seed":
            found.update(_options(item, f"{name}.{key}" if name else key))
    return found


def told_apart(runs: Sequence[RunFiles]) -> list[RunFiles]:
    """The runs. If runs of one recipe have different options, these are added to the name, so that
    such runs are not averaged as if they were seeds of one experiment.
    """
    options = [_options(run.config.get("experiment", {})) for run in runs]
    named = []
    for run, own in zip(runs, options, strict=True):
        recipe = run.config.get("recipe")
        pairs = zip(runs, options, strict=True)
        others = [found for other, found in pairs if other.config.get("recipe") == recipe]
        names = sorted({name for found in others for name in found})
        differing = [name for name in names if len({found.get(name) for found in others}) > 1]
        if differing:
            label = f"{recipe} ({', '.join(f'{name}={own.get(name)}' for name in differing)})"
            result = cast(Result, {**run.result, "recipe": label}) if run.result else None
            run = run._replace(config={**run.config, "recipe": label}, result=result)
        named.append(run)
    return named
