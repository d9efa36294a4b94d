"""Do the 95% intervals of an accuracy hold? The check of classes, on many simulated tables.

    python benchmarks/intervals.py [--tables 500] [--own 60]

Tables of 10, 20, 30 and 60 rows by 5 columns, of pure noise, and with a signal of a random size. A
linear discriminant with ridge, and the nearest neighbour, stand for the learner, because they learn
a fold in microseconds. The folds, the repeats and the interval are those of every predictor. The
learner `tables` itself takes a second for a table, so it gets fewer of them (`--own`). The truth is
the accuracy on 2,000 new rows of what learned from all examples. The result is
`results/intervals.json`: the share of the tables whose interval holds the truth, the mean
difference, and the mean width.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import binomtest

import arml
from arml.predict.base import softmax
from arml.predict.folds import Places
from arml.predict.reliability import Reliability, classification_reliability
from common import machine, write

ROWS, COLUMNS, NEW = (10, 20, 30, 60), 5, 2_000
Model = Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]


def discriminant(x: np.ndarray, y: np.ndarray, new: np.ndarray, ways: int) -> np.ndarray:
    """The probabilities `[n, ways]` of new rows."""
    member = np.eye(ways)[y]
    means = (member.T @ x) / np.maximum(member.sum(axis=0), 1)[:, None]
    rows = x - means[y]
    metric = np.linalg.inv(rows.T @ rows / len(x) + 0.3 * np.eye(x.shape[1]))
    along = means @ metric
    return softmax(new @ along.T - 0.5 * np.sum(along * means, axis=1))


def neighbour(x: np.ndarray, y: np.ndarray, new: np.ndarray, ways: int) -> np.ndarray:
    """The same, by the label of the nearest row."""
    away = np.sum(x * x, axis=1) - 2 * new @ x.T
    return np.eye(ways)[y[away.argmin(axis=1)]]


MODELS: dict[str, Model | None] = {
    "discriminant": discriminant,
    "neighbour": neighbour,
    "tables": None,
}
"""None is the learner of the package."""


def table(rng: np.random.Generator, n: int, signal: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows `[n + NEW, columns]` of 2 to 4 classes, their labels, and the number of classes."""
    ways = int(rng.integers(2, 5))
    y = np.r_[rng.permutation(np.arange(n) % ways), rng.integers(ways, size=NEW)]
    centres = rng.normal(size=(ways, COLUMNS)) * rng.uniform(0.3, 1.5) * signal
    return centres[y] + rng.normal(size=(len(y), COLUMNS)), y, ways


def measured(n: int, signal: bool, model: Model | None, seed: int) -> list[float]:
    """The ends of the interval, and of one for as many independent tests; the estimate, and the
    truth, of one table."""
    x, y, ways = table(np.random.default_rng([seed, n, signal]), n, signal)

    def refit(train: Places, test: Places) -> dict[str, np.ndarray]:
        assert model is not None
        return {"model": model(x[train], y[train], x[test], ways)}

    if model is None:
        predictor = arml.load("tables").adapt(x[:n], y[:n])
        found, answers = predictor.reliability(), predictor.predict(x[n:])
        assert isinstance(found, Reliability)
    else:
        found = classification_reliability(refit, y[:n], np.arange(ways))
        answers = model(x[:n], y[:n], x[n:], ways).argmax(axis=1)
    truth = answers == y[n:]
    count = len(found.labels)
    plain = binomtest(round(found.accuracy * count), count).proportion_ci(method="wilson")
    return [*found.interval, plain.low, plain.high, found.accuracy, float(truth.mean())]


def row(name: str, n: int, signal: bool, tables: int) -> dict[str, Any]:
    """The means over the tables of a size."""
    each = [measured(n, signal, MODELS[name], seed) for seed in range(tables)]
    low, high, plain_low, plain_high, estimate, truth = np.array(each).T
    return {
        "model": name,
        "rows": n,
        "signal": signal,
        "tables": tables,
        "held": float(np.mean((low <= truth) & (truth <= high))),
        "held by Wilson's": float(np.mean((plain_low <= truth) & (truth <= plain_high))),
        "estimate above": round(float(np.mean(estimate - truth)), 4),
        "deviation": round(float(np.std(estimate - truth)), 4),
        "width": round(float(np.mean(high - low)), 4),
        "accuracy": round(float(np.mean(truth)), 4),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=500)
    parser.add_argument("--own", type=int, default=60)
    given, before = parser.parse_args(), machine()
    kinds = [
        (name, n, signal, given.tables if MODELS[name] else given.own)
        for name, n, signal in product(MODELS, ROWS, (False, True))
    ]
    with ProcessPoolExecutor(2) as pool:
        rows = []
        for found in pool.map(row, *zip(*kinds, strict=True)):
            rows.append(found)
            print(found, flush=True)
            write("intervals", rows, before, sources=("predict/reliability.py", "predict/folds.py"))


if __name__ == "__main__":
    main()
