"""The learner of functions that ships, by the number of examples, alone and together with arml's
Gaussian process as `arml adapt` predicts, beside two regressions of scikit-learn that never saw
another task: a Gaussian process, whose kernel is fitted to the examples, and ridge regression on
squares and products of the inputs. All are scored on the same tasks: of the six families that it
was trained on, and of five that nobody trained on."""

import argparse
import itertools
import json
import warnings
from collections.abc import Callable, Iterator

import equinox as eqx
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import arml
from arml.predict.simple import choices
from arml.results.intervals import score_of
from arml.tasks.functions import functions_2d
from arml.training.evaluate import split_keys
from common import HERE, machine, write

RESULTS = HERE / "results" / "regression_learner.json"
QUERIES = 50
STRANGERS: dict[str, Callable[..., np.ndarray]] = {
    "plane": lambda c, x, y: c[0] * x + c[1] * y + c[2],
    "product": lambda c, x, y: c[0] * x * y / 2 + c[1],
    "decay": lambda c, x, y: 4 * c[0] * np.exp(-(0.5 + abs(c[1])) * x) + c[2],
    "bend": lambda c, x, y: 2 * c[0] * abs(x - 2.5 - c[1]) + c[2],
    "step": lambda c, x, y: 3 * c[0] * (x > 2.5 + c[1]) + c[2],
}
"""Functions of points in [0, 5] x [0, 5], with coefficients from U[-1, 1]."""

Points = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def known(shots: int, n: int) -> Iterator[Points]:
    """Tasks of the six families: the first of the test split."""
    sample = eqx.filter_jit(functions_2d(shots=shots, queries=QUERIES).sample)
    for key in split_keys("test", 0, n):
        task = sample(key)
        (x, y), query = task.support, task.query
        yield np.asarray(x), np.asarray(y[:, 0]), np.asarray(query.x), np.asarray(query.y[:, 0])


def strangers(shots: int, n: int) -> Iterator[Points]:
    """Tasks of the other five, in turns."""
    rng = np.random.default_rng(0)
    for _, function in zip(range(n), itertools.cycle(STRANGERS.values()), strict=False):
        x, c = rng.uniform(0, 5, (shots + QUERIES, 2)), rng.uniform(-1, 1, 3)
        y = function(c, *x.T) + 0.3 * rng.normal(size=len(x))
        yield x[:shots], y[:shots], x[shots:], y[shots:]


GROUPS = {"known families": known, "other functions": strangers}


def process() -> GaussianProcessRegressor:
    """One scale for each input, and noise."""
    kernel = ConstantKernel() * RBF(np.ones(2), (0.1, 100)) + WhiteKernel(0.1, (1e-3, 10))
    return GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0
    )


def squares() -> Pipeline:
    """All terms up to degree two; the penalty is chosen by leave-one-out."""
    return make_pipeline(StandardScaler(), PolynomialFeatures(2), RidgeCV(np.logspace(-3, 3, 13)))


def main() -> None:
    """Score each of them at each number of examples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learner", default="regression2d")
    parser.add_argument("--shots", type=int, nargs="+", default=[5, 10, 20, 50])
    parser.add_argument("--tasks", type=int, default=200)
    given = parser.parse_args()
    before = machine()
    done = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    few = arml.load(given.learner)
    warnings.simplefilter("ignore")  # a kernel's scale at its bound, a set that is not fitted
    for (group, tasks), shots in itertools.product(GROUPS.items(), given.shots):
        errors: dict[str, list[float]] = {}
        for x, y, new, wanted in tasks(shots, given.tasks):
            predicted = {"Gaussian process": process().fit(x, y).predict(new)}
            predicted["squares"] = squares().fit(x, y).predict(new)
            own = few.adapt(x, y)
            predicted |= {uses: own.using(uses).predict(new) for uses in choices(few.problem)}
            for name, values in predicted.items():
                errors.setdefault(name, []).append(float(np.mean((values - wanted) ** 2)))
        for name, each in errors.items():
            key = f"{name}, {group}, {shots} examples"
            done[key] = {**score_of(np.array(each)), "median": float(np.median(each))}
            print(key, done[key], flush=True)
        write("regression_learner", done, before)


if __name__ == "__main__":
    main()
