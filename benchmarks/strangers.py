"""Learners on families that they have never seen, against what ten lines of scikit-learn do:
logistic regression and an SVM on pixels and on edges (histograms of oriented gradients).

Draws of 5-way tasks from zips of pictures; `starter` in place of a zip stands for the test classes
of the starter pictures, whose families the learner that ships knows. `together` is what `arml
adapt` predicts with: the first learner and logistic regression on pixels and on edges, with shares
that leave-one-out on the support set finds. Rows are added to `results/strangers.json`.
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

import arml
from arml.datasets.folders import ImageFamily, load_families
from arml.datasets.starter import load_starter
from arml.predict.quick import quick_learner
from arml.predict.shared import locate
from arml.predict.simple import Uses, edges, flat
from common import HERE, machine, write

RESULTS = HERE / "results" / "strangers.json"
WAYS, QUERIES = 5, 15
TOGETHER, STARTER = "together", "starter"


def families(data: list[str], size: int) -> Iterator[ImageFamily]:
    """Those of zips, and of the starter pictures their test classes."""
    if zips := [one for one in data if one != STARTER]:
        yield from load_families(zips, size=size)
    if STARTER in data:
        every, split = load_starter()
        for family in every:
            tested = [i for i, c in enumerate(family.classes) if c in split[family.name]["test"]]
            counts, first = family.counts[tested], family.first[tested]
            rows = [np.arange(start, start + n) for start, n in zip(first, counts, strict=True)]
            images = family.images[np.concatenate(rows)]
            names = tuple(family.classes[i] for i in tested)
            yield ImageFamily(f"{STARTER}'s {family.name}", names, images, counts, family.digest)


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
    """The mean accuracy of each with its 95% interval over draws; and of the first learner together
    with the simple classifiers, its gain over each, and the mean shares."""
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {}
    first, shares = next(iter(learners)), list[dict[Uses, float]]()
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
            note(name, predictor.predict_proba(query).argmax(axis=1))
            if name == first:
                every = predictor.using("together")
                note(TOGETHER, every.predict_proba(query).argmax(axis=1))
                shares.append(dict(every.found_shares()))
    rows = {}
    for name, scores in found.items():
        mean, half = interval(scores)
        rows[name] = {"accuracy": mean, "ci95": half}
        if name != TOGETHER:
            gain = interval(np.subtract(found[TOGETHER], scores))
            rows[name] |= dict(zip(("gain", "gain_ci95"), gain, strict=True))
    mean_shares = {key: round(float(np.mean([s[key] for s in shares])), 3) for key in shares[0]}
    return {"rows": rows, "shares": mean_shares}


def interval(values: Any) -> tuple[float, float]:
    """The mean, and half of its 95% interval."""
    half = 1.96 * np.std(values, ddof=1) / len(values) ** 0.5
    return round(float(np.mean(values)), 4), round(float(half), 4)


def main() -> None:
    """Measure each family that is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="zips with one folder for each class, or starter")
    parser.add_argument("--learners", nargs="+", default=["starter"], metavar="[NAME=]LEARNER")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    before = machine()
    pairs = (word.rpartition("=") for word in given.learners)
    learners = {
        name or Path(place).name: quick_learner(locate(place)[0]) or arml.load(place)
        for name, _, place in pairs
    }
    done = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    size = next(iter(learners.values())).problem.features[0]
    for family in families(given.data, size):
        found = measured(family, learners, shots=given.shots, draws=given.draws)
        done[f"{family.name}, {given.shots}-shot, {given.draws} draws"] = found
        for name, row in found["rows"].items():
            print(f"{family.name}: {name}: {row['accuracy']:.1%} ± {row['ci95']:.1%}", flush=True)
        print(found["shares"], flush=True)
        if not given.no_write:
            write("strangers", done, before)


if __name__ == "__main__":
    main()
