"""Families that arrive one after another: growing against other ways, on 2-D regression.

`results/growing.json` has a record for each order, seed and way after each stage: R[stage, family]
on test tasks, vertices, training tasks, and the decisions of growing. The same command goes on
where it stopped; what is finished is not run again. `--table` prints the measures.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import arml
from arml.core.learner import MetaLearner
from arml.grow.comparisons import WAYS, Way, met
from arml.grow.growth import GrowthOptions
from arml.grow.measures import (
    backward_transfer,
    final_mean,
    first_stages,
    forgetting,
    tasks_to,
)
from arml.grow.streams import in_stages, kept, mixture
from arml.results.files import write_json
from arml.tasks.functions import FAMILIES, functions_2d
from common import HERE, machine

RESULTS = HERE / "results" / "growing.json"
ORDERS: dict[str, tuple[str, ...]] = {
    "as listed": FAMILIES,
    "reversed": FAMILIES[::-1],
    "mixed": ("quadratic", "ripple", "line", "quadratic surface", "sinusoid", "cubic"),
    "A-B-A": ("line", "sinusoid", "line"),
}
KEEP = 200
"""Tasks of each family in the memory."""


def build(way: Way, count: int, seed: int) -> MetaLearner:
    """A fresh learner with so many vertices or leaves."""
    tasks = functions_2d()
    name = {"vertices": "arml-templates", "maml": "maml", "hsml": "hsml"}[way.method]
    made = arml.recipe(f"regression2d/{name}")
    options = made.algorithm
    if way.method == "vertices":
        options = replace(options, gate="weights", vertices=count)
    elif way.method == "hsml":
        options = replace(options, clusters=(count, 2))
    else:  # as steady and as free as the others are
        options = replace(options, inner_rate=0.01, learn_rates=True, inner_bound=100.0)
    return arml.build(options, tasks, seed=seed, network=made.network)


def measured(way: Way, order: tuple[str, ...], seed: int, given: argparse.Namespace) -> list[Any]:
    """The records of one way on one stream."""
    tasks = mixture(functions_2d())
    options = GrowthOptions(
        steps=given.steps,
        replay=given.replay,
        tasks=given.held,
        outer=arml.OuterOptions(clip=10.0, rates_factor=0.1),
        seed=seed,
    )
    memory = kept(tasks, KEEP, key=jax.random.key(1_000 + seed))
    return met(
        way,
        lambda count: build(way, count, seed),
        in_stages(order),
        tasks,
        tasks,
        tasks,
        options,
        memory=memory,
        tested=given.tested,
        folder=given.runs / f"{'-'.join(order)}-{seed}-{way.name}" if given.runs else None,
    )


def table(rows: Mapping[str, Any]) -> str:
    """The measures of each row, and those of joint training beside them."""
    lines = [
        "| order, seed | way | final MSE | forgetting | backward transfer | vertices "
        "| training tasks | replayed | tasks to 90% of joint (stages) |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows.values():
        records = row["stages"]
        families = list(records[0]["scores"])
        r = np.array([[record["scores"][f] for f in families] for record in records])
        first = first_stages([list(record["stage"]) for record in records], families)
        bound = rows.get(f"{row['order']}/{row['seed']}/joint")
        reached = []
        for stage, record in enumerate(records):
            if bound is None or len(record["stage"]) > 1:
                continue
            (family,) = record["stage"]
            score = bound["stages"][stage]["scores"][family]
            curve = record["curve"]
            reached.append(
                tasks_to([c["tasks"] for c in curve], [c["score"] for c in curve], score, "mse")
            )
        told = [n for n in reached if n is not None]
        median = f"{np.median(told):,.0f} ({len(told)} of {len(reached)})" if told else "never"
        whole = sum(record["tasks"] for record in records)
        again = sum(record["replayed"] for record in records)
        lines.append(
            f"| {row['order']}, {row['seed']} | {row['way']} | {final_mean(r):.3f} "
            f"| {forgetting(r, first, 'mse'):+.0%} | {backward_transfer(r, first, 'mse'):+.3f} "
            f"| {records[-1]['vertices']} | {whole:,} | {again:,} "
            f"| {'-' if row['way'] in ALL_SO_FAR else median} |"
        )
    return "\n".join(lines)


ALL_SO_FAR = {way.name for way in WAYS if way.tasks == "all"}
"""Their validation scores are those of all families so far, not of the new one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    ways = [way.name for way in WAYS]
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways)
    parser.add_argument("--steps", type=int, default=1_000, help="outer steps of a stage")
    parser.add_argument("--replay", type=float, default=0.5, help="share of replayed tasks")
    parser.add_argument("--held", type=int, default=200, help="held-out tasks of a decision")
    parser.add_argument("--tested", type=int, default=400, help="test tasks of a family")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--runs", type=Path, help="folder that keeps each stage of each stream")
    parser.add_argument("--table", action="store_true", help="print the measures and end")
    given = parser.parse_args()
    found: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    rows: dict[str, Any] = found.get("rows", {})
    if given.table:
        print(table(rows))
        return
    protocol = {
        "steps": given.steps,
        "replay": given.replay,
        "kept": KEEP,
        "held": given.held,
        "tested": given.tested,
    }
    if found and found["protocol"] != protocol:
        raise SystemExit(f"{given.out} has other options: {found['protocol']}; name another --out")
    for seed in given.seeds:
        for order in given.orders:
            for name in given.ways:
                key = f"{order}/{seed}/{name}"
                if key in rows:
                    continue
                way = next(way for way in WAYS if way.name == name)
                stages = measured(way, ORDERS[order], seed, given)
                rows[key] = {"order": order, "seed": seed, "way": name, "stages": stages}
                given.out.parent.mkdir(exist_ok=True)
                write_json(given.out, {"protocol": protocol, "machine": machine(), "rows": rows})
                print(key, {f: round(s, 3) for f, s in stages[-1]["scores"].items()}, flush=True)


if __name__ == "__main__":
    main()
