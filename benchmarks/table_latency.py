"""How long `arml adapt tables` takes on iris in a new process, and a prediction in a warm one.

    python benchmarks/table_latency.py OUT.json

Five rows of each class are the examples, the other 135 are predicted. The first process compiles
its programs; later ones find them in JAX's cache, which is empty at the beginning.
"""

import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import sklearn.datasets

from arml.predict.learner import load
from arml.results.files import write_json

REPEATS = 20


def main() -> None:
    data = sklearn.datasets.load_iris()
    order = np.random.default_rng(0).permutation(150)
    few = np.concatenate([order[data.target[order] == k][:5] for k in range(3)])
    rest = np.setdiff1d(order, few)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, places, header in (("few", few, ["class"]), ("rest", rest, [])):
            with (folder / f"{part}.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow([*data.feature_names, *header])
                labels = [[data.target_names[data.target[i]]] if header else [] for i in places]
                rows = zip(places, labels, strict=True)
                writer.writerows([*data.data[i], *label] for i, label in rows)
        words = ["adapt", "tables", "--support", "few.csv", "--target", "class"]
        words += ["--query", "rest.csv", "--out", "answers.csv"]
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
        found = {}
        for name, more in (("new process", ["--no-trust"]), ("with its check", [])):
            for attempt in ("first", "again"):
                begun = time.perf_counter()
                command = [sys.executable, "-m", "arml", *words, *more]
                subprocess.run(
                    command, cwd=folder, env=environment, check=True, capture_output=True
                )
                found[f"{name}, {attempt}, s"] = round(time.perf_counter() - begun, 2)
    learner = load("tables")
    x, y = data.data[few], data.target[few]

    def took(work) -> float:
        work()
        times = []
        for _ in range(REPEATS):
            begun = time.perf_counter()
            work()
            times.append(time.perf_counter() - begun)
        return round(1e3 * float(np.median(times)), 2)

    predictor = learner.adapt(x, y)
    found["warm: adapt and predict 135 rows, ms"] = took(
        lambda: learner.adapt(x, y).predict_proba(data.data[rest])
    )
    found["warm: predict 135 rows, ms"] = took(lambda: predictor.predict_proba(data.data[rest]))
    found["warm: predict one row, ms"] = took(lambda: predictor.predict_proba(data.data[:1]))
    write_json(Path(sys.argv[1]), found)
    print(found)


if __name__ == "__main__":
    main()
