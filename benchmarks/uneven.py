"""The learner `photos` where classes have different numbers of examples, against logistic
regression with equal and with balanced weights of the examples, on the same vectors.

    python benchmarks/uneven.py clothing.zip foods.zip stamps.zip --draws 10

A class that a zip has too few pictures of is the union of several; what is left of a class that
still is too small are its queries. A draw has 25 queries of each class at most. `balanced` is the
mean over the classes of the accuracy and of the log loss; `proportional` weights the classes by
their numbers of examples. `photos` answers the first with the prior `equal`, the second with
`examples`. Each row is the mean over the zips, with the gain over the better of both regressions
(by the mean over the zips): `gain` with its 95% interval over draws, `worst` in the worst zip. The
result is `results/uneven.json`.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from arml.datasets.folders import open_source
from arml.photographs.learner import PhotoLearner
from arml.predict.base import softmax
from arml.predict.head import fit_head, unit_roots
from common import machine, write

SIZES = {
    "60+12+12": (60, 12, 12),
    "40+4+4": (40, 4, 4),
    "16+4+4": (16, 4, 4),
    "5 of each": (5,) * 5,
    "20 of each": (20,) * 3,
    "1 to 12": None,
    "500+20+20": (500, 20, 20),
}
QUERIES, CLASSES, MOST = 25, 50, 100
MEASURES = ("balanced accuracy", "balanced loss", "proportional accuracy", "proportional loss")


def load(path: Path, learner: PhotoLearner) -> tuple[np.ndarray, np.ndarray]:
    """The vectors and labels of a zip, of at most `CLASSES` classes of `MOST` pictures."""
    with open_source(path) as listed:
        names = [name for name, images in listed.classes.items() if len(images) >= 8]
        picked = np.linspace(0, len(names) - 1, min(CLASSES, len(names))).round().astype(int)
        members = [(m, k) for k, at in enumerate(picked) for m in listed.classes[names[at]][:MOST]]
        return learner.read([m.read() for m, _ in members]), np.array([k for _, k in members])


def drawn(y: np.ndarray, sizes: tuple[int, ...], rng: np.random.Generator) -> list[np.ndarray]:
    """The places of the examples and their labels, and those of the queries and theirs."""
    left, counts = [*rng.permutation(y.max() + 1)], np.bincount(y)
    parts: list[tuple[np.ndarray, np.ndarray]] = [()] * len(sizes)  # type: ignore[list-item]
    for k in np.argsort(sizes):
        wanted = sizes[k] + (8 if sizes[k] <= 40 else 20)
        chosen = [next((c for c in left if counts[c] >= wanted), left[0])]
        left.remove(chosen[0])
        while left and counts[chosen].sum() < wanted:
            chosen.append(left.pop(0))
        pool = rng.permutation(np.flatnonzero(np.isin(y, chosen)))
        own = min(sizes[k], len(pool) - min(8, len(pool) // 4))
        parts[k] = pool[:own], pool[own : own + QUERIES]
    each = [[(p[i], np.full(len(p[i]), k)) for k, p in enumerate(parts)] for i in (0, 1)]
    return [np.concatenate(one) for side in each for one in zip(*side, strict=True)]


def scores(equal: Any, examples: Any, wanted: np.ndarray, counts: np.ndarray) -> list[float]:
    """The `MEASURES` of probabilities for two priors."""
    found = []
    for chances, share in ((equal, np.ones(len(counts))), (examples, counts)):
        own = -np.log(np.maximum(chances[np.arange(len(wanted)), wanted], 1e-9))
        weight = (share / share.sum() / np.bincount(wanted, minlength=len(counts)))[wanted]
        found += [weight @ (chances.argmax(axis=1) == wanted), weight @ own]
    return found


def measured(x: np.ndarray, y: np.ndarray, sizes: Any, n: int) -> dict[str, np.ndarray]:
    """The `MEASURES` of each side in `n` draws `[n, measures]`."""
    rng, found = np.random.default_rng(0), dict[str, list[list[float]]]()
    for _ in range(n):
        support, labels, query, wanted = drawn(y, sizes or tuple(rng.integers(1, 13, 5)), rng)
        counts = np.bincount(labels)
        head = fit_head(x[support], labels, len(counts), prior="equal")
        cosines = head.logits(x[query])
        both = [softmax(cosines + p) for p in (0, np.log(counts))]
        found.setdefault("photos", []).append(scores(*both, wanted, counts))
        # In the span of the examples, in which the weights of the regressions lie.
        z, new = unit_roots(x[support]) * 10, unit_roots(x[query]) * 10
        span = np.linalg.qr(z.T.astype(float))[0]
        for name, weight in (("logistic", None), ("balanced logistic", "balanced")):
            model = LogisticRegression(max_iter=1000, class_weight=weight).fit(z @ span, labels)
            chances = model.predict_proba(new @ span)
            found.setdefault(name, []).append(scores(chances, chances, wanted, counts))
    return {name: np.array(rows) for name, rows in found.items()}


def summary(zips: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """The means over the zips, and the gains of `photos`."""
    means = {name: np.array([one[name].mean(axis=0) for one in zips]) for name in zips[0]}
    rows: dict[str, Any] = {}
    for at, measure in enumerate(MEASURES):
        sign = -1 if measure.endswith("loss") else 1
        each = {name: float(found[:, at].mean()) for name, found in means.items()}
        best = max(("logistic", "balanced logistic"), key=lambda name: sign * each[name])
        gains = [sign * (one["photos"] - one[best])[:, at] for one in zips]
        half = 1.96 * sum(g.var(ddof=1) / len(g) for g in gains) ** 0.5 / len(gains)
        rows[measure] = {name: round(value, 4) for name, value in each.items()} | {
            "gain": [round(float(np.mean([g.mean() for g in gains])), 4), round(float(half), 4)],
            "worst": round(min(float(g.mean()) for g in gains), 4),
        }
    return rows


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", type=Path, help="zips with a folder for each class")
    parser.add_argument("--draws", type=int, default=10)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    before, learner = machine(), PhotoLearner()
    families = [load(path, learner) for path in given.data]
    rows: dict[str, Any] = {"zips": [path.stem for path in given.data], "draws": given.draws}
    for name, sizes in SIZES.items():
        rows[name] = summary([measured(x, y, sizes, given.draws) for x, y in families])
        print(name, rows[name], flush=True)
        write("uneven", rows, before, sources=("predict/head.py",))


if __name__ == "__main__":
    main()
