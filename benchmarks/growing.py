"""Families that arrive one after another: growing against other ways.

Streams of 2-D regression, or of the starter pictures and their blurred and pencil versions
(`--pictures`). The results are in `results/laptop/growing.json`, because the page of that study
shows them, and in `benchmarks/results/growing-pictures.json`: a record for each order, seed and way
after each stage with R[stage, family] on test tasks, vertices, training tasks, and the decisions of
growing. The same command goes on where it stopped; a finished row is not run again. `--table`
prints the measures.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

import arml
from arml.core.learner import MetaLearner
from arml.experiment.options import Experiment
from arml.grow.comparisons import WAYS, Way, met
from arml.grow.growth import GrowthOptions
from arml.grow.streams import in_stages, kept, mixture
from arml.report.table import markdown
from arml.results.files import write_json
from arml.results.growth import read_growing
from arml.tasks.functions import FAMILIES
from arml.tasks.options import FunctionsOptions, StarterOptions, TasksOptions, splits_of
from common import HERE, machine
from growing_tables import growing_table

ART = tuple(
    f"{name}{end}" for end in ("", "-blur", "-pencil") for name in ("glyphs", "icons", "textures")
)


@dataclass(frozen=True)
class Setting:
    """Tasks, and the streams of their families."""

    recipes: str
    tasks: TasksOptions
    orders: dict[str, tuple[str, ...]]
    metric: str
    file: Path
    change: Callable[[Experiment], Experiment]
    """Further options of a method."""
    keep: int
    """Tasks of each family in the memory."""


def functions(made: Experiment) -> Experiment:
    """All ways with as steady an outer optimiser, and MAML with rates as free as the others'."""
    options: Any = made.algorithm
    if made.recipe.endswith("/maml"):
        options = replace(options, inner_rate=0.01, learn_rates=True, inner_bound=100.0)
    if made.recipe.endswith("/arml-layers"):
        options = replace(options, gate="weights")
    return replace(made, algorithm=options, outer=arml.OuterOptions(clip=10.0, rates_factor=0.1))


SETTINGS = {
    "functions": Setting(
        "regression2d",
        FunctionsOptions(),
        {
            "as listed": FAMILIES,
            "reversed": FAMILIES[::-1],
            "mixed": ("quadratic", "ripple", "line", "quadratic surface", "sinusoid", "cubic"),
            "A-B-A": ("line", "sinusoid", "line"),
        },
        "mse",
        HERE / "results" / "growing.json",
        functions,
        200,
    ),
    "pictures": Setting(
        "starter-art",
        # A task reads vertices by how its classes spread, which takes more than one shot.
        StarterOptions(art=True, shots=5, queries=10),
        {"as listed": ART, "reversed": ART[::-1], "A-B-A": (ART[0], ART[2], ART[0])},
        "accuracy",
        HERE / "results" / "growing-pictures.json",
        lambda made: made,
        30,
    ),
}


def recipe_of(setting: Setting, way: Way, count: int) -> Experiment:
    """The recipe of a way's method with so many vertices or leaves."""
    functions = setting.recipes == "regression2d"
    method = "arml-layers" if functions and way.method == "arml" else way.method
    made = setting.change(arml.recipe(f"{setting.recipes}/{method}"))
    options: Any = made.algorithm
    if way.grows == "leaves":
        options = replace(options, clusters=(count, 2))
    elif hasattr(options, "vertices"):
        options = replace(options, vertices=count)
    return replace(made, algorithm=options, tasks=setting.tasks)


def measured(
    setting: Setting, way: Way, order: tuple[str, ...], seed: int, given: argparse.Namespace
) -> list[Any]:
    """The records of one way on one stream."""
    train, held, test = (mixture(part) for part in splits_of(setting.tasks)[:3])
    made = recipe_of(setting, way, 1)
    options = GrowthOptions(
        steps=given.steps,
        replay=given.replay,
        tasks=given.held,
        batch=made.batch,
        outer=made.outer,
        seed=seed,
        grow=True,
    )

    def build(count: int) -> MetaLearner:
        own = recipe_of(setting, way, count)
        return arml.build(own.algorithm, train, seed=seed, network=own.network)

    return met(
        way,
        build,
        in_stages(order),
        train,
        held,
        test,
        options,
        memory=kept(train, setting.keep, key=jax.random.key(1_000 + seed)),
        tested=given.tested,
        folder=given.runs / f"{'-'.join(order)}-{seed}-{way.name}" if given.runs else None,
        say=lambda line: print(line, flush=True) if given.verbose else None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", action="store_true", help="the starter pictures")
    parser.add_argument("--orders", nargs="+", help="all of them if not given")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--steps", type=int, default=1_000, help="outer steps of a stage")
    parser.add_argument("--replay", type=float, default=0.5, help="share of replayed tasks")
    parser.add_argument("--held", type=int, default=200, help="held-out tasks of a decision")
    parser.add_argument("--tested", type=int, default=400, help="test tasks of a family")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, help="folder that keeps each stage of each stream")
    parser.add_argument("--table", action="store_true", help="print the measures and end")
    parser.add_argument("--verbose", action="store_true", help="print each stage")
    given = parser.parse_args()
    setting = SETTINGS["pictures" if given.pictures else "functions"]
    orders = given.orders or list(setting.orders)
    if odd := [name for name in orders if name not in setting.orders]:
        parser.error(f"expected orders of {', '.join(setting.orders)}, got {odd[0]!r}")
    out = given.out or setting.file
    found = read_growing(out) if out.exists() else {}
    rows: dict[str, Any] = found.get("rows", {})
    if given.table:
        print(markdown(growing_table(found)))
        return
    protocol = {
        "steps": given.steps,
        "replay": given.replay,
        "kept": setting.keep,
        "held": given.held,
        "tested": given.tested,
    }
    if found and found["protocol"] != protocol:
        raise SystemExit(f"{out} has other options: {found['protocol']}; name another --out")
    for seed in given.seeds:
        for order in orders:
            for name in given.ways:
                key = f"{order}/{seed}/{name}"
                if key in rows:
                    continue
                stages = measured(setting, WAYS[name], setting.orders[order], seed, given)
                rows[key] = {"order": order, "seed": seed, "way": name, "stages": stages}
                value = {"protocol": protocol, "metric": setting.metric, "machine": machine()}
                write_json(out, {**value, "rows": rows})
                print(key, {f: round(s, 3) for f, s in stages[-1]["scores"].items()}, flush=True)


if __name__ == "__main__":
    main()
