"""Summarise the results of `benchmarks/tables.py`: means, ranks, wins and paired differences.

    python benchmarks/table_summary.py RESULT.json...

Several files of the same tasks are joined. A difference is of the first method less another, paired
over the tasks, averaged within a table; its interval is 1.96 standard errors over the tables.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np


def joined(paths: list[Path]) -> tuple[str, dict[tuple[str, int], dict[str, np.ndarray]]]:
    """The kind, and by table and size the mean scores of each method over the seeds."""
    found: dict[Any, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        for row in content["tasks"]:
            for name, score in row["scores"].items():
                found[row["table"], row["size"]][name].append(np.array(score[:2], float))
    means = {
        place: {name: np.mean(scores, axis=0) for name, scores in methods.items()}
        for place, methods in found.items()
    }
    return content["kind"], means


def main() -> None:
    kind, means = joined([Path(name) for name in sys.argv[1:]])
    better = 1 if kind == "classification" else -1
    columns = ("accuracy", "log loss") if better == 1 else ("RMSE", "80% interval")
    for size in sorted({size for _, size in means}):
        some = [scores for (_, n), scores in means.items() if n == size]
        names = list(some[0])
        values = np.array([[scores[name] for name in names] for scores in some])
        order = np.argsort(np.argsort(-better * values[:, :, 0], axis=1), axis=1) + 1
        print(f"\n{len(some)} tables, {size} examples{' a class' if better == 1 else ''}\n")
        head = ["", *columns, "mean rank", "wins of the first", f"{columns[0]}: first less it"]
        print("|" + "|".join(head) + "|\n" + "|---" * len(head) + "|")
        for i, name in enumerate(names):
            off = values[:, 0, 0] - values[:, i, 0]
            half = 1.96 * off.std(ddof=1) / np.sqrt(len(off))
            wins = f"{np.sum(better * off > 0)} of {len(off)}" if i else ""
            paired = f"{off.mean():+.3f} ± {half:.3f}" if i else ""
            first, second = values[:, i].mean(axis=0)
            shown = [
                name,
                f"{first:.3f}",
                "" if np.isnan(second) else f"{second:.3f}",
                f"{order[:, i].mean():.1f}",
                wins,
                paired,
            ]
            print("|" + "|".join(shown) + "|")


if __name__ == "__main__":
    main()
