"""Are the accuracy and the intervals that a predictor of tables prints right on new rows?

    python benchmarks/estimates.py [--tables 120] [--out benchmarks/results/estimates.json]

Random tables of 10 to 60 rows and 5, 60, 500 or 2,000 columns, a third of which are pure noise. Of
the others three columns decide the label, with noise. The estimate that the predictor prints is
compared with the truth on 1,000 new rows: accuracies and their 95% intervals, the error of numbers,
and the share of new numbers within 80% intervals. Each table is kept in the file, and a stopped run
continues.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import arml
from common import HERE, machine

COLUMNS, LEVEL, NEW = (5, 60, 500, 2000), 0.8, 1000
LEARNERS = {"classes": "tables", "numbers": "tables-regression"}


def table(seed: int, kind: str) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """The facts of a table, its inputs `[rows + NEW, columns]`, and its labels or numbers."""
    rng = np.random.default_rng([seed, kind == "classes"])
    n, d, signal = int(rng.integers(10, 61)), COLUMNS[seed % 4], seed // 4 % 3 > 0
    ways = int(rng.integers(2, 5)) if kind == "classes" else 0
    x = rng.normal(size=(n + NEW, d))
    weights, strength = rng.normal(size=(3, max(ways, 1))), signal * rng.uniform(0.5, 3)
    score = strength * x[:, :3] @ weights
    if kind == "classes":
        y = np.argmax(score + rng.gumbel(size=score.shape), axis=1)
        y[: 2 * ways] = np.arange(2 * ways) % ways  # two examples of each class at least
        x[: 2 * ways, :3] = _matching(rng, y[: 2 * ways], weights, strength)
    else:
        y = score[:, 0] + rng.normal(size=len(x))
    return {"seed": seed, "kind": kind, "rows": n, "columns": d, "signal": bool(signal)}, x, y


def _matching(rng: Any, y: np.ndarray, weights: np.ndarray, strength: float) -> np.ndarray:
    """The first three columns of rows whose labels are `y`."""
    found = []
    for label in y:
        while True:
            x = rng.normal(size=3)
            if np.argmax(strength * x @ weights + rng.gumbel(size=weights.shape[1])) == label:
                found.append(x)
                break
    return np.array(found)


def measured(learner: Any, seed: int, kind: str) -> dict[str, Any]:
    """The estimate and the truth of one table."""
    facts, x, y = table(seed, kind)
    n = facts["rows"]
    predictor = learner.adapt(x[:n], y[:n])
    reliability, predicted = predictor.reliability(), predictor.predict(x[n:])
    if kind == "classes":
        low, high = reliability.interval
        truth = float(np.mean(predicted == y[n:]))
        return facts | {"low": low, "high": high, "estimate": reliability.accuracy, "truth": truth}
    low, high = predictor.interval(x[n:], LEVEL)
    held = float(np.mean((low <= y[n:]) & (y[n:] <= high)))
    truth = float(np.sqrt(np.mean((predicted - y[n:]) ** 2)))
    return facts | {"estimate": float(reliability.error[0]), "truth": truth, "held": held}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the tables."""
    classes, numbers = ([row for row in rows if row["kind"] == kind] for kind in LEARNERS)
    said: dict[str, Any] = {}
    if classes:
        off = np.array([row["estimate"] - row["truth"] for row in classes])
        said["classes"] = {
            "tables": len(off),
            "mean difference": float(off.mean()),
            "interval of the mean": float(1.96 * off.std() / len(off) ** 0.5),
            "mean absolute difference": float(np.abs(off).mean()),
            "95% intervals that hold the truth": float(
                np.mean([row["low"] <= row["truth"] <= row["high"] for row in classes])
            ),
            "accuracy": float(np.mean([row["truth"] for row in classes])),
        }
    if numbers:
        ratio = np.log([row["estimate"] / row["truth"] for row in numbers])
        said["numbers"] = {
            "tables": len(ratio),
            "estimated error / true error": float(np.exp(ratio.mean())),
            "held by 80% intervals": float(np.mean([row["held"] for row in numbers])),
            "error": float(np.mean([row["truth"] for row in numbers])),
        }
    return said


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=120, help="tables of each kind")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "estimates.json")
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["tables"] if options.out.exists() else []
    done = {(row["seed"], row["kind"]) for row in rows}
    learners = {kind: arml.load(name) for kind, name in LEARNERS.items()}
    for seed in range(options.tables):
        for kind, learner in learners.items():
            if (seed, kind) not in done:
                rows.append(measured(learner, seed, kind))
        found = {"summary": summary(rows), "machine": machine(), "tables": rows}
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(summary(rows), indent=2))


if __name__ == "__main__":
    main()
