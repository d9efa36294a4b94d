"""The learner of functions that ships, a Gaussian process that never saw another task, and their
mean with weights from examples that are left out: on tasks of the six families that the learner was
trained on, and of five that nobody trained on."""

import argparse
import warnings
from collections.abc import Callable, Iterator

import equinox as eqx
import numpy as np

import arml
from arml.tasks.functions import functions_2d
from arml.training.evaluate import split_keys
from common import machine, write

SHOTS, QUERIES = 10, 50
STRANGERS: dict[str, Callable[..., np.ndarray]] = {
    "plane": lambda c, x, y: c[0] * x + c[1] * y + c[2],
    "product": lambda c, x, y: c[0] * x * y / 2 + c[1],
    "decay": lambda c, x, y: 4 * c[0] * np.exp(-(0.5 + abs(c[1])) * x) + c[2],
    "bend": lambda c, x, y: 2 * c[0] * abs(x - 2.5 - c[1]) + c[2],
    "step": lambda c, x, y: 3 * c[0] * (x > 2.5 + c[1]) + c[2],
}
"""Functions of points in [0, 5] x [0, 5], with coefficients from U[-1, 1]."""

Points = tuple[np.ndarray, np.ndarray]


def known(n: int) -> Iterator[Points]:
    """Points of the six families: the first tasks of the test split."""
    sample = eqx.filter_jit(functions_2d(shots=SHOTS, queries=QUERIES).sample)
    for key in split_keys("test", 0, n):
        task = sample(key)
        parts = [np.concatenate(both) for both in zip(task.support, task.query, strict=True)]
        yield parts[0], parts[1][:, 0]


def strangers(n: int) -> Iterator[Points]:
    """Points of the other five, one after the other."""
    rng = np.random.default_rng(0)
    for i in range(n):
        x, c = rng.uniform(0, 5, (SHOTS + QUERIES, 2)), rng.uniform(-1, 1, 3)
        y = [*STRANGERS.values()][i % len(STRANGERS)](c, *x.T)
        yield x, y + 0.3 * rng.normal(size=len(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    given, before, done = parser.parse_args(), machine(), {}
    warnings.simplefilter("ignore")
    learner = arml.load("regression2d")
    for group, tasks in {"known families": known, "other functions": strangers}.items():
        errors: dict[str, list[float]] = {}
        for x, y in tasks(given.tasks):
            predictor = learner.adapt(x[:SHOTS], y[:SHOTS])
            for name in predictor.models:
                off = predictor.using(name).predict(x[SHOTS:]) - y[SHOTS:]
                errors.setdefault(name, []).append(float(np.mean(off**2)))
        for name, each in errors.items():
            half = 1.96 * float(np.std(each, ddof=1)) / given.tasks**0.5
            found = {"mse": float(np.mean(each)), "ci95": half, "median": float(np.median(each))}
            done[f"{name}, {group}"] = {**found, "tasks": given.tasks, "examples": SHOTS}
            print(name, group, done[f"{name}, {group}"], flush=True)
    write("functions", done, before)


if __name__ == "__main__":
    main()
