"""Learners on families that they have never seen, against what ten lines of scikit-learn do:
logistic regression and an SVM on pixels and on edges (histograms of oriented gradients).

Draws of 5-way tasks from zips of pictures. `chosen` is what `arml adapt` predicts with: the
first learner, or logistic regression on pixels or edges where leave-one-out on the support set
favours it. Rows are added to `results/strangers.json`.
"""

import argparse
import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

import arml
from arml.datasets.folders import ImageFamily, load_families
from arml.predict.simple import edges, flat
from common import HERE, machine, write

RESULTS = HERE / "results" / "strangers.json"
WAYS, QUERIES = 5, 15


def draw(family: ImageFamily, shots: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Support and query pictures of one task, with their labels."""
    each = shots + QUERIES
    pictures = []
    for c in rng.choice(len(family.classes), WAYS, replace=False):
        picked = family.first[c] + rng.choice(family.counts[c], each, replace=False)
        pictures.append(family.images[picked])
    support = np.concatenate([some[:shots] for some in pictures])
    query = np.concatenate([some[shots:] for some in pictures])
    return support, np.repeat(range(WAYS), shots), query, np.repeat(range(WAYS), QUERIES)


def measured(
    family: ImageFamily, learners: dict[str, Any], *, shots: int, draws: int
) -> dict[str, Any]:
    """The mean accuracy of each with its 95% interval over draws, and how often each was chosen."""
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {}
    first, chosen = next(iter(learners)), Counter[str]()
    for _ in range(draws):
        support, y, query, wanted = draw(family, shots, rng)

        def note(name: str, predicted: np.ndarray, wanted: np.ndarray = wanted) -> None:
            found.setdefault(name, []).append(float(np.mean(predicted == wanted)))

        for what, read in (("pixels", flat), ("edges", edges)):
            x, new = read(support), read(query)
            for name, model in (
                ("logistic regression", LogisticRegression(max_iter=1000)),
                ("SVM", SVC()),
            ):
                note(f"{name}, {what}", model.fit(x, y).predict(new))
        for name, learner in learners.items():
            predictor = learner.adapt(support, y)
            note(name, predictor.predict(query))
            if name == first:
                best = predictor.trust().best
                chosen[best] += 1
                note(f"{name}, chosen", predictor.using(best).predict(query))
    rows = {}
    for name, scores in found.items():
        half = 1.96 * np.std(scores, ddof=1) / len(scores) ** 0.5
        rows[name] = {"accuracy": round(float(np.mean(scores)), 4), "ci95": round(float(half), 4)}
    return {"rows": rows, "chosen": dict(chosen)}


def main() -> None:
    """Measure each family that is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="zips with one folder for each class")
    parser.add_argument("--learners", nargs="+", default=["starter"], metavar="[NAME=]LEARNER")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    before = machine()
    pairs = (word.rpartition("=") for word in given.learners)
    learners = {name or Path(place).name: arml.load(place) for name, _, place in pairs}
    done = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    size = next(iter(learners.values())).problem.features[0]
    for family in load_families(given.data, size=size):
        found = measured(family, learners, shots=given.shots, draws=given.draws)
        done[f"{family.name}, {given.shots}-shot, {given.draws} draws"] = found
        for name, row in found["rows"].items():
            print(f"{family.name}: {name}: {row['accuracy']:.1%} ± {row['ci95']:.1%}", flush=True)
        print(found["chosen"], flush=True)
        if not given.no_write:
            write("strangers", done, before)


if __name__ == "__main__":
    main()
