"""The learner `photos` on zips of pictures that it was not made with: its accuracy against the
learner `starter`, logistic regression on pixels and on edges (HOG) and a fine-tuned Conv-4, and how
well novelty tells pictures of no class.

    python benchmarks/photos.py accuracy clothing.zip foods.zip stamps.zip --shots 1 5 --draws 20
    python benchmarks/photos.py heads clothing.zip foods.zip stamps.zip --shots 0 1 5 --draws 40
    python benchmarks/photos.py novelty clothing.zip foods.zip stamps.zip --draws 40
    python benchmarks/photos.py estimates clothing.zip foods.zip stamps.zip --shots 1 2 5 --draws 40

Each draw is a 5-way task; all sides see the same pictures. A row is the mean over draws with its
95% interval, and the gain of `photos` over it, paired by draw. `heads` compares classifiers of the
same vectors; 0 shots are 1 to 12 examples of a class. `novelty` is the AUROC of pictures from the
other zips, and of other classes of the same zip, of several measures. `estimates` are how far the
accuracy that `reliability` states, and the probabilities, are from the accuracy on new pictures; at
one shot the temperature is the one that suits the other zips. The results are in
`results/photos.json`. Those of `accuracy` and of speed are of an earlier measurement: today's folds
choose other temperatures, which change no label, and other weights of the models of `starter`.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import arml
from arml.datasets.decode import decode
from arml.datasets.folders import open_source
from arml.nn.edges import histograms
from arml.photographs.learner import PhotoLearner
from arml.predict.base import softmax
from arml.predict.encoded import EncodedPredictor
from arml.predict.head import TEMPERATURE_GRID, unit_roots
from common import HERE, machine, write

RESULTS = HERE / "results" / "photos.json"
WAYS, QUERIES, MOST, UNEVEN = 5, 10, 40, 12


class Family(NamedTuple):
    """The pictures of a zip, at most `MOST` of each class."""

    name: str
    vectors: np.ndarray
    small: np.ndarray
    """`[n, 64, 64, 3]`."""
    labels: np.ndarray


def load(path: Path, learner: PhotoLearner, classes: int = 120) -> Family:
    """A zip, or a file `.npz` of vectors `x` and labels `y`; of more classes or pictures than the
    limits some are taken at equal distances."""
    if path.suffix == ".npz":
        kept = np.load(path)
        return Family(path.stem, kept["x"], np.zeros((0, 64, 64, 3)), kept["y"])
    with open_source(path) as listed:
        names = [c for c, images in listed.classes.items() if len(images) >= 8]
        picked = np.linspace(0, len(names) - 1, min(classes, len(names))).round().astype(int)
        members = [
            (member, label)
            for label, place in enumerate(picked)
            for member in listed.classes[names[place]][:MOST]
        ]
        data = [member.read() for member, _ in members]
    small = np.stack([decode(one, size=64, where=path.name) for one in data])
    return Family(path.stem, learner.read(data), small, np.array([k for _, k in members]))


class Draw(NamedTuple):
    """The places of the examples and of the queries of a task, and their labels."""

    support: np.ndarray
    y: np.ndarray
    query: np.ndarray
    wanted: np.ndarray


def draws(family: Family, shots: int, n: int, seed: int = 0) -> Iterator[Draw]:
    """`n` tasks; none if the family has too few classes of enough pictures."""
    rng = np.random.default_rng(seed)
    counts = np.bincount(family.labels)
    enough = np.flatnonzero(counts >= shots + 3)
    for _ in range(n if len(enough) >= WAYS else 0):
        parts: list[list[int]] = [[], [], [], []]
        for label, k in enumerate(rng.choice(enough, WAYS, replace=False)):
            places = rng.permutation(np.flatnonzero(family.labels == k))
            own = shots or int(rng.integers(1, min(UNEVEN, len(places) - 3) + 1))
            query = places[own : own + QUERIES]
            for part, more in zip(
                parts, (places[:own], [label] * own, query, [label] * len(query)), strict=True
            ):
                part.extend(more)
        yield Draw(*map(np.array, parts))


Side = Callable[[Family, Draw], np.ndarray]
"""From a task to the probabilities of its queries `[n, classes]`."""


def of(read: Callable[[Family], np.ndarray], fit: Callable[[np.ndarray, np.ndarray], Any]) -> Side:
    """Fits a model to the vectors of the examples, and predicts the queries with it."""

    def side(family: Family, draw: Draw) -> np.ndarray:
        x = read(family)
        return fit(x[draw.support], draw.y).predict_proba(x[draw.query])

    return side


def pixels(family: Family) -> np.ndarray:
    """The pixels of pictures of 32 px, in [0, 1]."""
    halves = family.small.reshape(len(family.small), 32, 2, 32, 2, 3).mean(axis=(2, 4))
    return halves.reshape(len(halves), -1) / 255


def hog(family: Family) -> np.ndarray:
    """Histograms of oriented gradients of pictures of 32 px, those of `arml adapt`."""
    return histograms(small_of(family, 32) / 255, np)


def small_of(family: Family, size: int) -> np.ndarray:
    return np.stack(
        [cv2.resize(p, (size, size), interpolation=cv2.INTER_AREA) for p in family.small]
    )


def of_conv4(steps: int = 60, rate: float = 1e-3) -> Side:
    """The Conv-4 of `starter`, fine-tuned with a linear head on the examples: Adam, all layers."""
    body = arml.load("starter").of_classes(0).body
    size, optimiser = 32, optax.adam(rate)

    @eqx.filter_jit
    def step(net: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(net: Any) -> Any:
            logits = net[0](x) @ net[1]
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        gradient = eqx.filter_grad(loss)(net)
        updates, state = optimiser.update(gradient, state)
        return eqx.apply_updates(net, updates), state

    def side(family: Family, draw: Draw) -> np.ndarray:
        x = small_of(family, size).astype(np.float32) / 255
        support, y = jnp.asarray(x[draw.support]), jnp.asarray(draw.y)
        net = body, jnp.zeros((body(support).shape[1], WAYS))
        state = optimiser.init(eqx.filter(net, eqx.is_inexact_array))
        for _ in range(steps):
            net, state = step(net, state, support, y)
        return np.asarray(jax.nn.softmax(net[0].given(support)(x[draw.query]) @ net[1]))

    return side


def interval(values: Any) -> list[float]:
    """The mean, and half of its 95% interval."""
    half = 1.96 * np.std(values, ddof=1) / len(values) ** 0.5
    return [round(float(np.mean(values)), 4), round(float(half), 4)]


def calibration(chances: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """The expected calibration error."""
    top, right = chances.max(axis=1), chances.argmax(axis=1) == labels
    which = np.minimum((top * bins).astype(int), bins - 1)
    return sum(
        float(np.mean(which == k) * abs(top[which == k].mean() - right[which == k].mean()))
        for k in np.unique(which)
    )


def compared(family: Family, sides: dict[str, Side], shots: int, n: int) -> dict[str, Any]:
    """The rows of one family: the scores of each side, and the gain of the first over it."""
    scores: dict[str, list[float]] = {name: [] for name in sides}
    chances: dict[str, list[np.ndarray]] = {name: [] for name in sides}
    labels = []
    for draw in draws(family, shots, n):
        labels.append(draw.wanted)
        for name, side in sides.items():
            chances[name].append(side(family, draw))
            scores[name].append(float(np.mean(chances[name][-1].argmax(axis=1) == draw.wanted)))
    if not labels:
        return {}
    first, wanted, rows = next(iter(sides)), np.concatenate(labels), {}
    for name in sides:
        every = np.concatenate(chances[name])
        own = every[np.arange(len(wanted)), wanted]
        rows[name] = {
            "accuracy": interval(scores[name]),
            "log_loss": round(float(-np.log(np.maximum(own, 1e-9)).mean()), 3),
            "calibration_error": round(calibration(every, wanted), 3),
        }
        if name != first:
            rows[name]["gain"] = interval(np.subtract(scores[first], scores[name]))
    return rows


def measures(predictor: EncodedPredictor, x: np.ndarray) -> dict[str, np.ndarray]:
    """Measures of how far vectors are from all classes."""
    head, z, known = predictor.head, unit_roots(x), unit_roots(predictor.x)
    means = np.stack([known[predictor.y == k].mean(axis=0) for k in range(WAYS)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    logits = head.logits(x)
    u = z - head.middle
    shrunk = u @ head.factor.T
    own = np.sum(u * u, axis=1) - np.sum(shrunk * shrunk, axis=1)
    away = own[:, None] - 2 * (u @ head.weights) * head.lengths + head.lengths**2
    return {
        "novelty": predictor.novelty(x),
        "one minus the cosine": 1 - (z @ means.T).max(axis=1),
        "energy": -np.log(np.exp(logits).sum(axis=1)),
        "distance in the metric": away.min(axis=1),
        "one minus the top probability": 1 - predictor.predict_proba(x).max(axis=1),
    }


def strange(families: list[Family], learner: PhotoLearner, shots: int, n: int) -> dict[str, Any]:
    """The AUROC of each measure."""
    rows = {}
    rng = np.random.default_rng(0)
    for family in families:
        others = np.concatenate([f.vectors for f in families if f is not family])
        found: dict[str, list[float]] = {}
        for draw in draws(family, shots, n):
            predictor = learner.adapt(family.vectors[draw.support], draw.y)
            known = family.vectors[draw.query]
            of_task = np.isin(family.labels, family.labels[draw.support])
            for kind, pool in (("other sets", others), ("other classes", family.vectors[~of_task])):
                new = pool[rng.choice(len(pool), min(len(known), len(pool)), replace=False)]
                above = float(np.mean(predictor.novelty(new) > 1))
                found.setdefault(f"{kind}, above 1", []).append(above)
                truth = np.repeat([0, 1], [len(known), len(new)])
                for name, score in measures(predictor, np.concatenate([known, new])).items():
                    auroc = float(roc_auc_score(truth, score))
                    found.setdefault(f"{kind}, {name}", []).append(auroc)
            flagged = np.mean(predictor.novelty(known) > 1)
            found.setdefault("known pictures above 1", []).append(float(flagged))
        rows[family.name] = {key: interval(values) for key, values in found.items()}
    return rows


def estimated(families: list[Family], learner: PhotoLearner, shots: int, n: int) -> dict[str, Any]:
    """How far the estimate and the top probabilities are above the accuracy, in each family."""
    tasks = {}
    for family in families:
        for draw in draws(family, shots, n):
            predictor = learner.adapt(family.vectors[draw.support], draw.y)
            cosines = predictor.head.logits(family.vectors[draw.query]) * predictor.head.temperature
            tasks.setdefault(family.name, []).append((predictor, cosines, draw.wanted))
    rows = {}
    for name, own in tasks.items():
        found: dict[str, list[float]] = {"accuracy": [], "top probability above": []}
        if shots == 1:
            others = [task for other, every in tasks.items() if other != name for task in every]
            common = min(TEMPERATURE_GRID, key=lambda t: sum(loss(c / t, y) for _, c, y in others))
        for predictor, cosines, wanted in own:
            chances = softmax(cosines / (common if shots == 1 else predictor.head.temperature))
            right = float(np.mean(chances.argmax(axis=1) == wanted))
            found["accuracy"].append(right)
            found["top probability above"].append(float(chances.max(axis=1).mean()) - right)
            if shots > 1:
                gap = predictor.reliability().accuracy - right
                found.setdefault("estimate above", []).append(gap)
        rows[name] = {key: interval(values) for key, values in found.items()}
        rows[name] |= {"temperature": round(float(common), 3)} if shots == 1 else {}
    return rows


def loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """The mean cross-entropy."""
    return float(-np.log(softmax(logits)[np.arange(len(labels)), labels]).mean())


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("accuracy", "heads", "novelty", "estimates"))
    parser.add_argument(
        "data", nargs="+", type=Path, help="zips with a folder for each class, .npz"
    )
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--draws", type=int, default=50)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    before, learner = machine(), PhotoLearner()
    done = json.loads(RESULTS.read_text())["results"]
    families = [load(path, learner) for path in given.data]
    starter, regression = arml.load("starter"), LogisticRegression(max_iter=1000)
    balanced = LogisticRegression(max_iter=1000, class_weight="balanced")
    photos = {"photos": of(lambda family: family.vectors, learner.adapt)}
    sides = {
        "accuracy": photos
        | {
            "starter": of(
                lambda family: small_of(family, 32),
                lambda x, y: starter.adapt(x, y).using("ensemble"),
            ),
            "pixels": of(pixels, regression.fit),
            "hog": of(hog, regression.fit),
            "conv4": of_conv4(),
        },
        "heads": photos
        | {
            "logistic regression": of(
                lambda family: unit_roots(family.vectors) * 10, regression.fit
            ),
            "the same, balanced": of(lambda family: unit_roots(family.vectors) * 10, balanced.fit),
        },
    }
    for shots in given.shots:
        size = f"{shots}-shot" if shots else "uneven"
        rows = done.setdefault(f"{given.what}, {size}, {given.draws} draws", {})
        if given.what in sides:
            for one in families:
                rows[one.name] = compared(one, sides[given.what], shots, given.draws)
        else:
            measure = strange if given.what == "novelty" else estimated
            rows |= measure(families, learner, shots, given.draws)
        print(size, json.dumps(rows, indent=1), flush=True)
        write("photos", done, before)


if __name__ == "__main__":
    main()
