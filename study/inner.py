"""CAVIA on 2-D regression, with a search of its inner rate, inner steps and outer rate; and ALFA
trained once as its recipe has it.

    python -m study.inner                     # results/inner.json; resumable

As for the other methods of `results/contexts.json`, gradients are clipped at 10, the rate rises
over 2% of the steps and falls as half a cosine, 1,000 validation tasks choose, and 4,000 test tasks
score. The inner rate and steps are chosen after short trainings at one outer rate, among those with
at most the 5 steps that the other methods take; then the outer rate after whole trainings. The
chosen setting is trained with further seeds.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

import arml
from arml.results.comparisons import error_of
from arml.training.provenance import commit
from study.data import RESULTS, load

OUT = Path("runs/inner")
OUTER = arml.OuterOptions(clip=10.0, warmup=0.02, schedule="cosine")
INNER = [(rate, steps) for steps in (1, 2, 5, 10, 20) for rate in (0.03, 0.1, 0.3, 1.0)]
MOST = 5
"""Inner steps of the methods of the comparison."""
OUTER_RATES = (0.0005, 0.001, 0.002, 0.004)
SHORT, WHOLE = 10_000, 70_000
SEEDS = 5


def trained(made: arml.Experiment, *name: object) -> arml.Run:
    """The run of an experiment, which is trained in a folder of its own."""
    folder = OUT / "-".join(map(str, name))
    every = replace(made, validate_every=made.steps, checkpoint_every=5_000, interval=1_000)
    arml.run(every, folder)
    print(*name, flush=True)
    return arml.Run(folder)


def cavia(inner: tuple[float, int], outer: float, steps: int, seed: int) -> arml.Run:
    """CAVIA with these options."""
    made = arml.recipe("regression2d/cavia")
    algorithm: Any = replace(made.algorithm, inner_rate=inner[0], inner_steps=inner[1])
    made = replace(made, algorithm=algorithm, outer=replace(OUTER, outer_rate=outer))
    made = replace(made, steps=steps, seed=seed)
    return trained(made, "cavia", *inner, outer, steps, seed)


def score(run: arml.Run, split: Any, n: int) -> np.ndarray:
    """The errors on the first `n` tasks of a part; infinite if the training diverged."""
    found = arml.evaluate(run, run.tasks(split), n=n, split=split, chunk=100, progress=False)
    return np.nan_to_num(found.values.astype(float), nan=np.inf)


def difference(a: np.ndarray, b: np.ndarray | None = None) -> list[float]:
    """The mean of `a - b` `[trainings, tasks]`, with half of its 95% interval over trainings and
    tasks; a single training counts as exact."""
    sides = [a] if b is None else [a, b]
    gaps = a.mean(axis=0) - (0.0 if b is None else b.mean(axis=0))
    error, degrees = error_of(gaps, [m.mean(axis=1) for m in sides if len(m) > 1])
    return [round(float(x), 4) for x in (gaps.mean(), student.ppf(0.975, degrees) * error)]


def main() -> None:
    """Carry out what is left, and write what there is after each part."""
    study = load(RESULTS / "laptop").table("regression2d")
    assert study is not None
    known = {row.label: np.stack([s.values for s in row.scores.values()]) for row in study.rows}
    content: dict[str, Any] = {"commit": commit(), "command": "python -m study.inner"}

    def write() -> None:
        (RESULTS / "inner.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def against(test: np.ndarray) -> dict[str, Any]:
        others = ("ARML, extended", "HSML", "ARML, paper's text", "MAML")
        return {
            "seeds": test.mean(axis=1).round(4).tolist(),
            "mse": difference(test),
            **{f"less {name}": difference(test, known[name]) for name in others},
        }

    short = {}
    for inner in INNER:
        short[inner] = float(score(cavia(inner, 0.002, SHORT, 0), "validation", 1_000).mean())
        found = {f"rate {r:g}, {s} steps": round(v, 4) for (r, s), v in short.items()}
        content["cavia"] = {"steps": SHORT, "validation, inner": found}
        write()
    allowed = [inner for inner in INNER if inner[1] <= MOST]
    chosen = min(allowed, key=lambda inner: short[inner])
    tried = {
        rate: float(score(cavia(chosen, rate, WHOLE, 0), "validation", 1_000).mean())
        for rate in OUTER_RATES
    }
    outer = min(tried, key=lambda rate: tried[rate])
    content["cavia"] |= {"outer rate": outer, "steps of whole trainings": WHOLE}
    content["cavia"]["validation, outer"] = {f"{k:g}": round(v, 4) for k, v in tried.items()}
    for name, inner, seeds in (("searched", chosen, SEEDS), ("authors", (1.0, 1), 1)):
        runs = [cavia(inner, outer, WHOLE, seed) for seed in range(seeds)]
        test = np.stack([score(run, "test", 4_000) for run in runs])
        own = {"inner rate": inner[0], "inner steps": inner[1]}
        content["cavia"][name] = own | against(test)
        write()
    made = trained(arml.recipe("regression2d/alfa"), "alfa")
    content["alfa"] = {"steps": WHOLE, **against(score(made, "test", 4_000)[None])}
    write()


if __name__ == "__main__":
    main()
