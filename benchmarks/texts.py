"""The learner `texts` on public texts, beside tuned logistic regression on TF-IDF and on the same
vectors.

    python benchmarks/texts.py FOLDER --draws 6

FOLDER has a CSV file for each set, with the columns `text` and `label`; its name is the set's. A
draw is 4, 8, 16 or 32 labelled texts of each class (of at most ten classes) and up to 200 others.
All sides see the same texts. TF-IDF is scikit-learn's of words and of n-grams of two to five
characters; `C` of its logistic regression is chosen from five by folds. A figure is the mean over
draws of the balanced accuracy, or of the log loss. `sms`, `mr` and `trec` served to choose the
classifier of `texts`; the others did not. A run goes on where the last one ended.
"""

import argparse
import csv
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_union
from sklearn.preprocessing import Normalizer

import arml
from arml.predict.base import Predictor
from arml.texts.learner import TextLearner
from common import HERE, machine, write

RESULTS = HERE / "results" / "texts.json"
SHOTS, CLASSES, QUERIES = (4, 8, 16, 32), 10, 200
SOURCES = ("texts", "predict/encoded.py", "predict/head.py", "predict/folds.py")
DEVELOPMENT = ("sms", "mr", "trec")
WORDS = make_union(
    TfidfVectorizer(sublinear_tf=True),
    TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
)
Texts = list[str]
Side = Callable[[Texts, np.ndarray, Texts], np.ndarray]


def tuned(before: Any) -> Callable[[object, np.ndarray, object], np.ndarray]:
    """Logistic regression after this step, with `C` by four or five folds."""

    def side(x: object, y: np.ndarray, queries: object) -> np.ndarray:
        grid, folds = {"C": [0.1, 1, 10, 100, 1000]}, min(5, np.bincount(y).min())
        model = LogisticRegression(max_iter=500)
        search = GridSearchCV(model, grid, scoring="neg_log_loss", cv=folds)
        x, queries = before.fit_transform(x), before.transform(queries)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return search.fit(x, y).predict_proba(queries)

    return side


def learned(learner: TextLearner) -> Side:
    def side(x: Texts, y: np.ndarray, queries: Texts) -> np.ndarray:
        predictor: Predictor = learner.adapt(learner.read(x), y)
        return predictor.predict_proba(learner.read(queries))

    return side


def sides() -> dict[str, Side]:
    whole = arml.load("texts")
    assert isinstance(whole, TextLearner)
    assert whole.encoder is not None
    vectors, width = tuned(Normalizer()), whole.encoder.dimension

    def encoded(x: Texts, y: np.ndarray, queries: Texts) -> np.ndarray:
        return vectors(whole.read(x)[:, :width], y, whole.read(queries)[:, :width])

    return {
        "texts": learned(whole),
        "texts without an encoder": learned(TextLearner(None)),
        "logistic regression on TF-IDF": tuned(WORDS),
        "logistic regression on the encoder": encoded,
    }


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The distinct texts of a file, and their labels."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = {row["text"]: row["label"] for row in csv.DictReader(file)}
    return np.array([*rows], object), np.array([*rows.values()])


def draw(labels: np.ndarray, shots: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The places of examples and of others, and the places of the labels among the classes."""
    rng = np.random.default_rng(seed)
    _, y = np.unique(labels, return_inverse=True)
    enough = np.flatnonzero(np.bincount(y) >= shots + 10)
    chosen = np.sort(rng.permutation(enough)[:CLASSES])
    each = [rng.permutation(np.flatnonzero(y == k)) for k in chosen]
    support = np.concatenate([places[:shots] for places in each])
    query = rng.permutation(np.concatenate([places[shots:] for places in each]))[:QUERIES]
    return support, query, np.searchsorted(chosen, y)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=6)
    options = parser.parse_args()
    found = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    rows, every, before = found.get("draws", {}), sides(), machine()
    for seed in range(options.draws):
        for path in sorted(options.folder.glob("*.csv")):
            texts, labels = read(path)
            for shots in SHOTS:
                name = f"{path.stem}, {shots}, {seed}"
                if every.keys() <= rows.get(name, {}).keys():
                    continue
                support, query, y = draw(labels, shots, seed)
                own = rows.setdefault(name, {})
                for side, predict in every.items():
                    if side in own:
                        continue
                    chances = predict(texts[support].tolist(), y[support], texts[query].tolist())
                    kinds, wanted = np.arange(chances.shape[1]), y[query]
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # of a class without queries
                        right = balanced_accuracy_score(wanted, chances.argmax(axis=1))
                    loss = log_loss(wanted, np.maximum(chances, 1e-7), labels=kinds)
                    own[side] = [round(float(right), 5), round(float(loss), 5)]
                rows[name] = own
                results = {"development": DEVELOPMENT, "means": means(rows), "draws": rows}
                write("texts", results, before, sources=SOURCES)


def means(rows: dict[str, dict[str, list[float]]]) -> dict[str, object]:
    """For each set and number of examples the means of each side; and of our gain over each other
    side, with its interval over draws."""
    grouped: dict[str, list[dict[str, list[float]]]] = {}
    for name, row in rows.items():
        if "texts" in row:
            grouped.setdefault(name.rpartition(", ")[0], []).append(row)
    found: dict[str, object] = {}
    for name, draws in sorted(grouped.items()):
        own: dict[str, object] = {"draws": len(draws)}
        for side in draws[0]:
            values = np.array([each[side] for each in draws])
            gain = values - np.array([each["texts"] for each in draws])
            apart = 1.96 * gain.std(axis=0, ddof=min(1, len(draws) - 1)) / len(draws) ** 0.5
            own[side] = {
                "balanced accuracy": round(float(values[:, 0].mean()), 4),
                "log loss": round(float(values[:, 1].mean()), 4),
                "gain of texts": [round(-float(gain[:, 0].mean()), 4), round(float(apart[0]), 4)],
            }
        found[name] = own
    return found


if __name__ == "__main__":
    main()
