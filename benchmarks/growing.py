"""Families that arrive one after another: growing against other ways, at equal steps and tasks.

- `growing`: vertices that are proposed, accepted and pruned (`arml.growth.growing`).
- `fine-tuning`: the stage's tasks only. `replay`: these and kept tasks of known families.
- `final capacity`: replay with as many vertices from the start as there are families.
- `joint`: from scratch at each stage, on all families so far, with all steps so far: the bound.
- `own`: one model for each family, each from scratch; a task uses the model of its family.
- `ftml` [1]: MAML on all families so far in equal shares, from the learner of the stage before.
- `hsml-dynamic` [2]: HSML on all families so far; a leaf is added when the mean loss of a window is
  1.25 times that of the window before.

Streams of 2-D regression, or of the starter pictures and their blurred and pencil versions
(`--pictures`). A file has a record for each order, seed and way after each stage: R[stage, family]
on test tasks, vertices, training tasks, and the decisions of growing. A finished row is not run
again. `--table` prints the measures.

[1] Finn, Rajeswaran, Kakade and Levine, Online Meta-Learning, ICML 2019.
[2] Yao, Wei, Huang and Li, Hierarchically Structured Meta-learning, ICML 2019, and the authors'
    code, huaxiuyao/HSML_Dynamic.

Differences: [1] gets one task at a time; here a stage is a family with any number of tasks. The
code of [2] compares windows of 1,000 of 70,000 steps and waits 8,000 steps between two leaves; here
a window is a fifth of a stage and the wait a stage, losses are those of held-out tasks of the
families so far, and a leaf is added between two stages.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import arml
from arml.core.learner import MetaLearner
from arml.experiment.options import Experiment
from arml.growth.growing import GrowthOptions, begun, grown
from arml.growth.replay import in_stages, kept
from arml.report.growth import measured as measures_of
from arml.report.tables import METRIC_NAMES, Cell, Column, Line, Table, markdown
from arml.results.files import JsonView, read_json, write_json
from arml.results.scores import number_of
from arml.tasks.functions import FAMILIES
from arml.tasks.mixture import mixture, uniform
from arml.tasks.options import FunctionsOptions, StarterOptions, TasksOptions, splits_of
from common import HERE, machine

WINDOW, RISE = 2, 1.25
"""Validation scores of a window (ten are taken in a stage), and the rise that adds a leaf."""


@dataclass(frozen=True)
class Way:
    """A way to meet a stream."""

    name: str
    method: str = "arml"
    first: int | None = 1
    """Vertices or leaves at the start; None for as many as there are families."""
    tasks: Literal["stage", "replay", "all"] = "replay"
    """The tasks that a stage trains on."""
    fresh: bool = False
    """Whether each stage starts from scratch."""
    apart: bool = False
    """Whether each family has a model of its own."""
    grows: Literal["", "vertices", "leaves"] = ""


WAYS = {
    way.name: way
    for way in (
        Way("growing", grows="vertices"),
        Way("fine-tuning", tasks="stage"),
        Way("replay"),
        Way("final capacity", first=None),
        Way("joint", first=None, tasks="all", fresh=True),
        Way("own", tasks="stage", fresh=True, apart=True),
        Way("ftml", method="maml", tasks="all"),
        # Two leaves at the start, as in the authors' regression.
        Way("hsml-dynamic", method="hsml", first=2, tasks="all", grows="leaves"),
    )
}
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
    """The record of each stage of one way on one stream."""
    train, held, test = (mixture(part) for part in splits_of(setting.tasks)[:3])
    made, families = recipe_of(setting, way, 1), tuple(dict.fromkeys(order))
    count = len(families) if way.first is None else way.first
    own = replace(made, algorithm=recipe_of(setting, way, count).algorithm)
    fresh = begun(arml.build(own.algorithm, train, seed=seed, network=own.network))
    growth, models, windows, added = fresh, dict[str, MetaLearner](), list[float](), -1
    plan = GrowthOptions(
        steps=given.steps,
        replay=0.0 if way.tasks == "stage" else given.replay,
        tasks=given.held,
        batch=made.batch,
        outer=made.outer,
        seed=seed,
        grow=way.grows == "vertices",
    )
    memory = kept(train, setting.keep, key=jax.random.key(1_000 + seed))
    records = []
    for index, stage in enumerate(in_stages(order)):
        if way.fresh:
            growth = replace(fresh, stages=index, known=growth.known)
        if way.tasks == "all":
            # All families so far are the stage, and there is nothing to replay.
            known = tuple(dict.fromkeys(order[: index + 1]))
            steps = given.steps * (index + 1 if way.fresh else 1)
            growth, options = replace(growth, known=()), replace(plan, steps=steps)
            growth = grown(growth, train, held, uniform(known), options)
        else:
            growth = grown(growth, train, held, stage, plan, memory=memory)
        last = growth.records[-1]
        if way.apart:
            models.setdefault(order[index], growth.learner)
        if way.grows == "leaves":
            latest = [point["score"] for point in last["curve"]]
            windows += latest
            if rose(windows, len(latest)) and index > added + 1:
                key = jax.random.fold_in(jax.random.key(seed), index)
                growth = replace(growth, learner=with_leaf(growth.learner, key=key))
                count, added = count + 1, index
        scores = {
            name: arml.evaluate(
                models.get(name, growth.learner), test.only(name), given.tested, progress=False
            ).mean
            for name in families
        }
        record = {
            "stage": stage,
            "scores": scores,
            "curve": last["curve"],
            "vertices": count if way.grows == "leaves" else len(growth.names),
            "tasks": last["tasks"],
            "replayed": last["replayed"],
        }
        if way.grows == "vertices":
            record["decisions"] = [r for r in growth.records if r["stage"] == index]
        records.append(record)
        if given.verbose:
            print(index + 1, {name: round(score, 3) for name, score in scores.items()}, flush=True)
    return records


def rose(scores: Sequence[float], new: int) -> bool:
    """Whether the mean of one of the windows that the last `new` scores fill is above `RISE` times
    that of the window before."""
    whole = len(scores) - len(scores) % WINDOW
    means = np.reshape(scores[:whole], (-1, WINDOW)).mean(axis=1)
    last = means[-(new // WINDOW) - 1 :]
    return bool((last[1:] > RISE * last[:-1]).any())


def with_leaf(learner: Any, *, key: jax.Array) -> Any:
    """HSML with one more leaf, whose weights are drawn as those of the others (HSML-Dynamic)."""

    def arrays(m: Any) -> Any:
        leaves = m.encode.tree.levels[0]
        return leaves.assign.centres, leaves.weight, leaves.bias

    def drawn(rows: jax.Array, key: jax.Array) -> jax.Array:
        shape = (1, *rows.shape[1:]) if rows.ndim == 3 else (1, rows.shape[1])
        limit = (6 / sum(shape[-2:])) ** 0.5  # Glorot-uniform
        new = jax.random.uniform(key, shape, rows.dtype, -limit, limit)
        return jnp.concatenate([rows, new])

    old = arrays(learner)
    new = tuple(drawn(rows, k) for rows, k in zip(old, jax.random.split(key, 3), strict=True))
    return eqx.tree_at(arrays, learner, new)


BOUND = "joint"
"""The way that trains from scratch on all families so far."""
OF_ALL = (BOUND, "ftml", "hsml-dynamic")
"""Ways that train on all families so far: their curves are not those of the new family."""
NOTE = (
    "Each way takes as many steps in a stage; joint training takes those of all stages so far, "
    "from scratch. `Tasks to 90%` is the median, over stages and seeds, of the training tasks "
    "until a new family has 90% of the score of joint training after the same stage; the number "
    "of stages in which it has that at the end is in brackets. Tasks are counted on validation "
    "tasks, for the part that is trained; the loser of a trial counts. An SD is over seeds; with "
    "one seed or two a figure is an indication."
)


SHARE = 0.9
"""Of the bound's score, that a new family has to reach."""


def reaches(score: float, bound: float, metric: str) -> bool:
    """Whether a score is at least `SHARE` of the bound's; an error at most the bound's divided by
    `SHARE`."""
    return score <= bound / SHARE if metric == "mse" else score >= bound * SHARE


def tasks_to(
    tasks: Sequence[int], scores: Sequence[float], bound: float, metric: str
) -> int | None:
    """The tasks after which a learner first reached `SHARE` of the score of the `bound`; None if it
    never did."""
    pairs = zip(tasks, scores, strict=True)
    return next((seen for seen, score in pairs if reaches(score, bound, metric)), None)


def tasks_to_bound(
    stages: Sequence[JsonView], bound: Sequence[JsonView], metric: str
) -> list[int | None]:
    """For each stage of one family, the training tasks until the family reaches `SHARE` of the
    bound's test score after the same stage; None if it does not.

    The tasks are counted along the curve of validation scores, which are those of the part that is
    trained: a new vertex is scored as if each task read it. So a family counts only if the whole
    learner reaches the score on test tasks at the end of the stage, too. The tasks of the loser of
    a trial are counted.
    """
    found: list[int | None] = []
    for record, best in zip(stages, bound, strict=True):
        if len(record["stage"]) > 1:
            continue
        (family,) = record["stage"]
        score = best["scores"][family]
        if score is None or not reaches(number_of(record["scores"][family]), score, metric):
            found.append(None)
            continue
        curve = record["curve"]
        most = max((point["tasks"] for point in curve), default=0)
        trial = record["tasks"] - most
        tasks = [point["tasks"] + min(point["tasks"], trial) for point in curve]
        found.append(tasks_to(tasks, [number_of(one["score"]) for one in curve], score, metric))
    return found


def growing_table(study: JsonView) -> Table:
    """A row for each way through each order, over its seeds."""
    metric, rows = study["metric"], study["rows"]
    groups: dict[tuple[str, str], list[JsonView]] = {}
    for row in rows.values():
        groups.setdefault((row["order"], row["way"]), []).append(row)
    orders = list(dict.fromkeys(order for order, _ in groups))
    lines = []
    for order in orders:
        own = [(way, found) for (name, way), found in groups.items() if name == order]
        sign = 1 if metric == "mse" else -1
        own.sort(
            key=lambda one: (
                sign * fmean([measures_of(r["stages"], metric).final_mean for r in one[1]])
            )
        )
        lines += [Line(f"{order}: {way}", _cells(way, found, rows, metric)) for way, found in own]
    columns = (
        *("order: way", "seeds", f"final {METRIC_NAMES[metric]}", "forgetting"),
        *("backward transfer", "vertices", "training tasks", "replayed"),
        f"tasks to {SHARE:.0%} of {BOUND} (stages)",
    )
    return Table("Ways to meet a stream", tuple(map(Column, columns)), tuple(lines))


def _cells(
    way: str, found: Sequence[JsonView], rows: Mapping[str, JsonView], metric: str
) -> tuple[Cell, ...]:
    streams = [measures_of(row["stages"], metric) for row in found]
    seeds = sorted(row["seed"] for row in found)
    reached: list[int | None] = []
    for row in found:
        bound = rows.get(f"{row['order']}/{row['seed']}/{BOUND}")
        if bound is not None and way not in OF_ALL:
            reached += tasks_to_bound(row["stages"], bound["stages"], metric)
    told = [n for n in reached if n is not None]
    to = f"{median(told):,.0f} ({len(told)} of {len(reached)})" if told else "never"
    return (
        Cell(", ".join(map(str, seeds))),
        Cell(_spread([s.final_mean for s in streams], metric)),
        Cell(_share([s.forgetting for s in streams])),
        Cell(f"{fmean([s.backward_transfer for s in streams]):+.3f}"),
        Cell(" / ".join(f"{s.vertices}" for s in streams)),
        Cell(f"{fmean([s.tasks for s in streams]):,.0f}"),
        Cell(f"{fmean([s.replayed for s in streams]):,.0f}"),
        Cell(to if reached else "-"),
    )


def _spread(values: Sequence[float], metric: str) -> str:
    scale, digits = (100, 1) if metric == "accuracy" else (1, 3)
    spread = f" (SD {scale * stdev(values):.{digits}f})" if len(values) > 1 else ""
    return f"{scale * fmean(values):.{digits}f}{'%' if metric == 'accuracy' else ''}{spread}"


def _share(values: Sequence[float]) -> str:
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
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--steps", type=int, default=1_000, help="outer steps of a stage")
    parser.add_argument("--replay", type=float, default=0.5, help="share of replayed tasks")
    parser.add_argument("--held", type=int, default=200, help="held-out tasks of a decision")
    parser.add_argument("--tested", type=int, default=400, help="test tasks of a family")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true", help="print the measures and end")
    parser.add_argument("--verbose", action="store_true", help="print each stage")
    given = parser.parse_args()
    setting = SETTINGS["pictures" if given.pictures else "functions"]
    orders = given.orders or list(setting.orders)
    if odd := [name for name in orders if name not in setting.orders]:
        parser.error(f"expected orders of {', '.join(setting.orders)}, got {odd[0]!r}")
    out = given.out or setting.file
    found = read_json(out) if out.exists() else {}
    rows: dict[str, Any] = found.get("rows", {})
    if given.table:
        print(markdown(growing_table({"metric": setting.metric, **found})))
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
