"""How often a rule says that two methods differ where they do not.

Scores are drawn from the runs of a study: two methods of a table with three runs or more are made
equal in the mean and keep everything else that was measured, which is how their runs vary, how hard
each task is for each of them, and the rest of each run and task, with its heavy tails. Each draw
has new runs and new test tasks. Four rules judge it at the level 0.05:

- `runs and tasks`: `arml.report.statistics.compare`, which the study's verdicts use;
- `tasks, same sign`: a test over tasks, and every run (by its number) has the same sign: the rule
  that the study had before;
- `runs alone`: Welch's test over the means of the runs;
- `bootstrap`: a hierarchical bootstrap, of runs and of tasks, percentiles.

`python benchmarks/verdicts.py results/laptop results/verdicts.json` writes the rates; `--quick`
prints a few of them.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ttest_ind

from arml.report.statistics import LEVEL, compare, difference_of
from arml.report.study import StudyRow, load_study
from arml.results.files import write_json
from arml.results.scores import Scores

TABLES = ("regression2d", "ablations-regression2d", "starter-1shot")
RUNS, RESAMPLES, BOOTSTRAPS = (1, 3, 5), 200, 200
"""The bootstrap takes a hundred times as long as the others: it judges the first draws only."""


class Method:
    """A method of a study, its mean taken away: what its runs and tasks vary by."""

    def __init__(self, values: np.ndarray) -> None:
        """`values` `[runs, tasks]`, as measured."""
        values = values.astype(np.float64)
        runs, tasks = values.mean(1, keepdims=True), values.mean(0, keepdims=True)
        self.sd = float(runs.std(ddof=1))
        self.tasks = tasks[0] - values.mean()
        # Residuals about fitted means are too small by this factor.
        self.rest = (values - runs - tasks + values.mean()) * np.sqrt(
            len(values) / (len(values) - 1)
        )

    def draw(self, runs: int, which: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        """Scores `[runs, tasks]` of new runs on the tasks `which`."""
        own = self.rest[noise.integers(len(self.rest), size=runs)][:, which]
        own = own * noise.choice([-1.0, 1.0], (runs, 1))
        return self.sd * noise.standard_normal((runs, 1)) + self.tasks[which] + own


def rules(a: np.ndarray, b: np.ndarray, noise: np.random.Generator | None) -> dict[str, bool]:
    """Which rules say that two methods with these scores `[runs, tasks]` differ."""
    runs = len(a)
    families = np.zeros(a.shape[1], np.uint8)
    first, second = (
        {i: Scores(row, families, "") for i, row in enumerate(some)} for some in (a, b)
    )
    over_both = compare(first, second)
    over_tasks = difference_of((a - b).mean(0)).p
    signs = np.sign((a - b).mean(1))
    said = {
        "runs and tasks": over_both.p is not None and over_both.p < LEVEL,
        "tasks, same sign": over_tasks is not None
        and over_tasks < LEVEL
        and bool(abs(signs.sum()) == runs),
    }
    if runs > 1:
        said["runs alone"] = bool(ttest_ind(a.mean(1), b.mean(1), equal_var=False).pvalue < LEVEL)
    if runs > 1 and noise is not None:
        shares = noise.multinomial(a.shape[1], np.full(a.shape[1], 1 / a.shape[1]), RESAMPLES)
        by_run = [shares @ some.T / a.shape[1] for some in (a, b)]  # [resamples, runs]
        chosen = [
            np.take_along_axis(some, noise.integers(runs, size=some.shape), 1).mean(1)
            for some in by_run
        ]
        low, high = np.quantile(chosen[0] - chosen[1], [0.025, 0.975])
        said["bootstrap"] = bool(low > 0 or high < 0)
    return said


def measured(rows: list[StudyRow]) -> list[Method]:
    """The rows with three runs or more."""
    return [
        Method(np.stack([s.values for s in row.scores.values()]))
        for row in rows
        if len(row.scores) > 2
    ]


def rates(
    methods: list[Method],
    runs: int,
    *,
    repeats: int,
    same: bool = False,
    bootstraps: int = BOOTSTRAPS,
    gain: float = 0.0,
    seed: int = 0,
) -> dict[str, float]:
    """How often each rule finds a difference between two of the methods, or two sets of runs of
    one (`same`), where there is none, or one of `gain` standard deviations of a run."""
    noise = np.random.default_rng(seed)
    count: dict[str, int] = {}
    for drawn in range(repeats):
        i, j = noise.choice(len(methods), 2, replace=False)
        pair = (methods[i], methods[i if same else j])
        which = noise.integers(len(pair[0].tasks), size=len(pair[0].tasks))
        a, b = (method.draw(runs, which, noise) for method in pair)
        a = a + gain * np.sqrt((pair[0].sd ** 2 + pair[1].sd ** 2) / 2)
        for name, said in rules(a, b, noise if drawn < bootstraps else None).items():
            count[name] = count.get(name, 0) + said
    judged = {"bootstrap": min(bootstraps, repeats)}
    return {name: found / judged.get(name, repeats) for name, found in count.items()}


def main() -> None:
    """Write, or with `--quick` print, the rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    repeats = 100 if options.quick else 1000
    study = load_study(options.study)
    found: dict[str, Any] = {
        "format": 1,
        "repeats": repeats,
        "bootstraps": BOOTSTRAPS,
        "tables": {},
    }
    for name in TABLES:
        table = study.table(name)
        assert table is not None
        methods = measured(list(table.rows))
        entry: dict[str, Any] = {"methods": len(methods), "equal": {}, "retrained": {}, "power": {}}
        for runs in RUNS:
            entry["equal"][runs] = rates(methods, runs, repeats=repeats)
            entry["retrained"][runs] = rates(methods, runs, repeats=repeats, same=True)
        for runs in (3, 5):
            entry["power"][runs] = {
                gain: rates(methods, runs, repeats=repeats // 4, bootstraps=0, gain=gain)[
                    "runs and tasks"
                ]
                for gain in (1, 2, 4)
            }
        found["tables"][name] = entry
        print(name, entry, flush=True)
    if options.out:
        write_json(options.out, found)


if __name__ == "__main__":
    main()
