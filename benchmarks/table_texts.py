"""Tables with free texts: the learners of tables with their words, and without.

    python benchmarks/table_texts.py FOLDER --draws 6

FOLDER has CSV files, and `targets.json` with the column to predict of each
(`{"wine.csv": "points"}`), a regression if it has more than ten different numbers. A draw is 40
or 120 rows and up to 300 others, which all sides see. The texts, the columns of free texts of a
draw, are used, left out, or shuffled over all rows, so that they say nothing. A figure is the
accuracy and the log loss; of numbers the RMSE over the deviation of the targets. A run goes on
where the last one ended.

`clothing` are 1,000 of the Women's E-Commerce Clothing Reviews without the rating (whether a piece
is recommended); `wine` 956 reviews with country, price and variety; `messages` SMS spam beside two
columns of noise; `reviews` customer reviews beside two of noise and one that tells a little.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import arml
from arml.predict.base import Predictor
from common import HERE, machine, write

RESULTS = HERE / "results" / "table_texts.json"
ROWS, QUERIES = (40, 120), 300
SOURCES = ("tables", "predict/models.py", "predict/folds.py")


def scored(predictor: Predictor, x: pd.DataFrame, y: np.ndarray) -> list[float]:
    if predictor.classes is None:
        return [float(np.sqrt(np.mean((predictor.predict(x) - y) ** 2)) / y.std())]
    chances, places = predictor.predict_proba(x), np.searchsorted(predictor.classes, y)
    own = np.maximum(chances[np.arange(len(y)), places], 1e-6)
    return [float(np.mean(chances.argmax(axis=1) == places)), float(-np.log(own).mean())]


def draw(frame: pd.DataFrame, target: str, n: int, seed: int) -> dict[str, list[float]]:
    rng = np.random.default_rng([seed, n])
    frame = frame.iloc[rng.permutation(len(frame))[: n + QUERIES]]
    known, query = frame[:n], frame[n:]
    query = query[query[target].isin(known[target])] if frame[target].nunique() <= 10 else query
    number = frame[target].nunique() > 10
    learner = arml.load("tables-regression" if number else "tables")
    y, wanted = known[target].to_numpy(), query[target].to_numpy()
    x, queries = known.drop(columns=target), query.drop(columns=target)
    used = learner.adapt(x, y)
    texts = [used.schema.columns[i].name for i in used.schema.texts]
    mixed = [one.assign(**{c: rng.permutation(one[c]) for c in texts}) for one in (x, queries)]
    return {
        "used": scored(used, queries, wanted),
        "left out": scored(learner.adapt(x, y, without=texts), queries, wanted),
        "shuffled": scored(learner.adapt(mixed[0], y), mixed[1], wanted),
    }


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=6)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = json.loads(RESULTS.read_text())["results"]["draws"] if RESULTS.exists() else {}
    before, targets = machine(), json.loads((options.folder / "targets.json").read_text())
    for seed in range(options.draws):
        for file, target in targets.items():
            frame = pd.read_csv(options.folder / file)
            for n in ROWS:
                if (name := f"{Path(file).stem}, {n}, {seed}") not in rows:
                    rows[name] = draw(frame, target, n, seed)
                    kinds = {key.rpartition(",")[0] for key in rows}
                    means = {
                        kind: {
                            side: np.round(
                                np.mean(
                                    [rows[k][side] for k in rows if k.startswith(f"{kind},")],
                                    axis=0,
                                ),
                                4,
                            ).tolist()
                            for side in rows[name]
                        }
                        for kind in sorted(kinds)
                    }
                    write("table_texts", {"means": means, "draws": rows}, before, sources=SOURCES)
                    print(name, rows[name], flush=True)


if __name__ == "__main__":
    main()
