"""Families that arrive one after another: growing against other ways, at equal steps and tasks.

- `growing`: vertices that are proposed and accepted (`arml.growth.growing`).
- `fine-tuning`: the stage's tasks only. `replay`: these and kept tasks of known families.

Streams of 2-D regression, or of the starter pictures and their blurred and pencil versions
(`--pictures`). A file has a record for each order, seed and way after each stage: R[stage, family]
on test tasks, vertices and training tasks. A finished row is not run again. `--table` prints the
measures.

The files also have rows of ways that left this script: training from scratch on all families so far
(`joint`), one model for each family (`own`), replay with all vertices from the start (`final
capacity`), MAML on all families so far (`ftml`), and HSML that adds leaves (`hsml-dynamic`). In
`growing`, vertices that no family needed were then removed, too: 1 in 63 stages of functions, 16 in
54 of pictures.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import jax
import numpy as np

import arml
from arml.experiment.options import Experiment
from arml.growth.growing import Growth, StreamOptions, grown
from arml.growth.replay import kept
from arml.growth.vertices import own_vertices
from arml.report.growth import measured as measures_of
from arml.report.tables import METRIC_NAMES, Cell, Line, Table, markdown
from arml.results.files import JsonView, read_json, write_json
from arml.tasks.functions import FAMILIES
from arml.tasks.mixture import mixture
from arml.tasks.options import FunctionsOptions, StarterOptions, splits_of
from common import HERE, machine

WAYS = ("growing", "replay", "fine-tuning")
ART = tuple(
    f"{name}{end}" for end in ("", "-blur", "-pencil") for name in ("glyphs", "icons", "textures")
)


@dataclass(frozen=True)
class Setting:
    """Tasks, and the streams of their families."""

    recipe: str
    tasks: Any
    orders: dict[str, tuple[str, ...]]
    metric: str
    file: Path
    keep: int
    """Tasks of each family in the memory."""

    def experiment(self) -> Experiment:
        """The experiment with one vertex."""
        made = arml.recipe(self.recipe)
        algorithm = replace(made.algorithm, vertices=1)
        if self.metric == "mse":
            algorithm = replace(algorithm, gate="weights")
            outer = arml.OuterOptions(clip=10.0, rates_factor=0.1)
            made = replace(made, outer=outer)
        return replace(made, algorithm=algorithm, tasks=self.tasks)


SETTINGS = {
    "functions": Setting(
        "regression2d/arml-layers",
        FunctionsOptions(),
        {
            "as listed": FAMILIES,
            "reversed": FAMILIES[::-1],
            "mixed": ("quadratic", "ripple", "line", "quadratic surface", "sinusoid", "cubic"),
            "A-B-A": ("line", "sinusoid", "line"),
        },
        "mse",
        HERE / "results" / "growing.json",
        200,
    ),
    "pictures": Setting(
        "starter-art/arml",
        # A task reads vertices by how its classes spread, which takes more than one shot.
        StarterOptions(art=True, shots=5, queries=10),
        {"as listed": ART, "reversed": ART[::-1], "A-B-A": (ART[0], ART[2], ART[0])},
        "accuracy",
        HERE / "results" / "growing-pictures.json",
        30,
    ),
}


def measured(
    made: Experiment, keep: int, way: str, order: tuple[str, ...], seed: int, given: Any
) -> list[Any]:
    """The record of each stage of one way on one stream."""
    train, held, test = (mixture(part) for part in splits_of(made.tasks)[:3])
    growth = Growth(arml.build(made.algorithm, train, seed=seed, network=made.network))
    options = StreamOptions(
        replay=0.0 if way == "fine-tuning" else given.replay,
        held=given.held,
        grow=way == "growing",
    )
    staged = replace(made, steps=given.steps, seed=seed)
    memory = kept(train, keep, key=jax.random.key(1_000 + seed))
    records = []
    for family in order:
        growth = grown(growth, train, held, {family: 1.0}, options, staged, memory=memory)
        scores = {
            name: arml.evaluate(growth.learner, test.only(name), given.tested, progress=False).mean
            for name in dict.fromkeys(order)
        }
        cost = {name: growth.records[-1][name] for name in ("tasks", "replayed")}
        vertices = own_vertices(growth.learner) or 0
        records.append({"family": family, "scores": scores, "vertices": vertices, **cost})
    return records


def growing_table(study: JsonView) -> Table:
    """A row for each way through each order, over its seeds."""
    metric = study["metric"]
    groups: dict[tuple[str, str], list[JsonView]] = {}
    for row in study["rows"].values():
        groups.setdefault((row["order"], row["way"]), []).append(row)
    sign, lines = 1 if metric == "mse" else -1, []
    for order in dict.fromkeys(order for order, _ in groups):
        rows = []
        for way in (way for name, way in groups if name == order):
            own = groups[order, way]
            streams = [measures_of(row["stages"], metric) for row in own]
            means = [stream.final_mean for stream in streams]
            cells = (
                ", ".join(str(row["seed"]) for row in sorted(own, key=lambda row: row["seed"])),
                _spread(means, metric),
                _share([stream.forgetting for stream in streams]),
                " / ".join(f"{stream.vertices}" for stream in streams),
                f"{fmean([stream.tasks for stream in streams]):,.0f}",
                f"{fmean([stream.replayed for stream in streams]):,.0f}",
            )
            rows.append((sign * fmean(means), Line(f"{order}: {way}", tuple(map(Cell, cells)))))
        lines += [line for _, line in sorted(rows, key=lambda row: row[0])]
    headings = ("order: way", "seeds", f"final {METRIC_NAMES[metric]}", "forgetting")
    columns = (*headings, "vertices", "training tasks", "replayed")
    return Table("Ways to meet a stream", tuple(columns), tuple(lines))


def _spread(values: list[float], metric: str) -> str:
    scale, digits = (100, 1) if metric == "accuracy" else (1, 3)
    spread = f" (SD {scale * stdev(values):.{digits}f})" if len(values) > 1 else ""
    return f"{scale * fmean(values):.{digits}f}{'%' if metric == 'accuracy' else ''}{spread}"


def _share(values: list[float]) -> str:
    """The mean of shares, with their range where there are several."""
    if not np.isfinite(values).all():
        return "-"
    several = f" ({min(values):+.0%} to {max(values):+.0%})" if len(values) > 1 else ""
    return f"{fmean(values):+.0%}{several}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", action="store_true", help="the starter pictures")
    parser.add_argument("--orders", nargs="+", help="all of them if not given")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--steps", type=int, default=1_000, help="outer steps of a stage")
    parser.add_argument("--replay", type=float, default=0.5, help="share of replayed tasks")
    parser.add_argument("--held", type=int, default=200, help="held-out tasks of a decision")
    parser.add_argument("--tested", type=int, default=400, help="test tasks of a family")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true", help="print the measures and end")
    given = parser.parse_args()
    setting = SETTINGS["pictures" if given.pictures else "functions"]
    out = given.out or setting.file
    known = read_json(out) if out.exists() else {}
    rows: dict[str, Any] = known.get("rows", {})
    if given.table:
        print(markdown(growing_table(known)))
        return
    names = ("steps", "replay", "held", "tested")
    protocol = {**{name: getattr(given, name) for name in names}, "kept": setting.keep}
    if known and known["protocol"] != protocol:
        raise SystemExit(f"{out} has other options: {known['protocol']}; name another --out")
    for seed in given.seeds:
        for order in given.orders or setting.orders:
            for way in given.ways:
                key = f"{order}/{seed}/{way}"
                if key not in rows:
                    made, families = setting.experiment(), setting.orders[order]
                    stages = measured(made, setting.keep, way, families, seed, given)
                    rows[key] = {"order": order, "seed": seed, "way": way, "stages": stages}
                    value = {"protocol": protocol, "metric": setting.metric, "machine": machine()}
                    write_json(out, {**value, "rows": rows})
                    print(key, stages[-1]["scores"], flush=True)


if __name__ == "__main__":
    main()
