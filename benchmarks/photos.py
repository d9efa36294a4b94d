"""No speed: the learner `photos` on zips of pictures that it was not made with, against the learner
`starter`, logistic regression on pixels and on edges (HOG), and a Conv-4 that is fine-tuned.

    python benchmarks/photos.py accuracy clothing.zip foods.zip stamps.zip --shots 1 5 --draws 50
    python benchmarks/photos.py heads clothing.zip foods.zip stamps.zip
    python benchmarks/photos.py chosen clothing.zip foods.zip stamps.zip cards.zip --draws 10
    python benchmarks/photos.py novelty clothing.zip foods.zip stamps.zip
    python benchmarks/photos.py speed clothing.zip --torch build/photos-venv/bin/python

Each draw is a 5-way task; all sides see the same pictures. A row is the mean over draws with its
95% interval, and the gain of `photos` over it, paired by draw. `heads` compares classifiers of the
same vectors, also on classes of 1, 2, 5 or 12 examples in one task (`uneven`). `novelty` is the
AUROC of pictures from the other zips, and of other classes of the same zip. The results are in
`results/photos.json`.

The network was trained on ImageNet, whose 1,000 classes are animals, plants, food, clothes, tools
and vehicles: photographs of such things are like those it has seen. Rare things (microscopy,
defects, drawings) gain less.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score

from arml.datasets.decode import decode
from arml.datasets.folders import open_source
from arml.nn.edges import histograms
from arml.predict import photos
from arml.predict.photos import PhotoLearner, PhotoPredictor, fit_head, unit_roots
from common import HERE, machine, write

RESULTS = HERE / "results" / "photos.json"
WAYS, QUERIES, MOST = 5, 10, 40
UNEVEN = (1, 2, 5, 12)


class Family(NamedTuple):
    """The pictures of a zip, at most `MOST` of each class."""

    name: str
    vectors: np.ndarray
    small: np.ndarray
    """`[n, 64, 64, 3]`."""
    labels: np.ndarray


def load(path: Path, learner: PhotoLearner, classes: int = 120) -> Family:
    """Classes and pictures are chosen evenly, where there are more."""
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
    return Family(path.stem, learner.embed(data), small, np.array([k for _, k in members]))


class Draw(NamedTuple):
    """The places of the examples and of the queries of a task, and their labels."""

    support: np.ndarray
    y: np.ndarray
    query: np.ndarray
    wanted: np.ndarray


def draws(family: Family, shots: int, n: int, seed: int = 0) -> Iterator[Draw]:
    """Tasks; with 0 shots classes have `UNEVEN` numbers of examples."""
    rng = np.random.default_rng(seed)
    counts = np.bincount(family.labels)
    enough = np.flatnonzero(counts >= (shots or max(UNEVEN)) + 3)
    for _ in range(n if len(enough) >= WAYS else 0):
        parts: list[list[int]] = [[], [], [], []]
        for label, k in enumerate(rng.choice(enough, WAYS, replace=False)):
            places = rng.permutation(np.flatnonzero(family.labels == k))
            own = shots or int(rng.choice(UNEVEN))
            query = places[own : own + QUERIES]
            for part, more in zip(
                parts, (places[:own], [label] * own, query, [label] * len(query)), strict=True
            ):
                part.extend(more)
        yield Draw(*map(np.array, parts))


Side = Callable[[Family, Draw], np.ndarray]
"""From a task to the probabilities of its queries `[n, classes]`."""


def of_photos(learner: PhotoLearner) -> Side:
    def side(family: Family, draw: Draw) -> np.ndarray:
        predictor = learner.adapt(family.vectors[draw.support], draw.y)
        return predictor.predict_proba(family.vectors[draw.query])

    return side


def of_regression(read: Callable[[Family], np.ndarray]) -> Side:
    """Logistic regression."""

    def side(family: Family, draw: Draw) -> np.ndarray:
        x = read(family)
        model = LogisticRegression(max_iter=1000).fit(x[draw.support], draw.y)
        return model.predict_proba(x[draw.query])

    return side


def pixels(family: Family) -> np.ndarray:
    """Of 32 px."""
    halves = family.small.reshape(len(family.small), 32, 2, 32, 2, 3).mean(axis=(2, 4))
    return halves.reshape(len(halves), -1) / 255


def hog(family: Family) -> np.ndarray:
    """Histograms of oriented gradients of 32 px: those that `arml adapt` has."""
    return histograms(small_of(family, 32) / 255, np)


def small_of(family: Family, size: int) -> np.ndarray:
    return np.stack(
        [cv2.resize(p, (size, size), interpolation=cv2.INTER_AREA) for p in family.small]
    )


def of_starter() -> Side:
    """The learner of drawings, in an ensemble with logistic regression on pixels and edges."""
    import arml

    learner = arml.load("starter")
    size = learner.problem.features[0]

    def side(family: Family, draw: Draw) -> np.ndarray:
        x = small_of(family, size)
        predictor = learner.adapt(x[draw.support], draw.y).using("ensemble")
        return predictor.predict_proba(x[draw.query])

    return side


def of_conv4(steps: int = 60, rate: float = 1e-3) -> Side:
    """The Conv-4 of `starter`, fine-tuned with a linear head on the examples: Adam, all layers."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    import arml

    body = arml.load("starter").portable.learner.body
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
    """The rows of one family; the first side is compared with the others."""
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


def heads() -> dict[str, Side]:
    """Classifiers of the same vectors."""

    def of(read: Callable[[np.ndarray], np.ndarray], model: Callable[[], Any]) -> Side:
        def side(family: Family, draw: Draw) -> np.ndarray:
            z = read(family.vectors)
            z = z - z[draw.support].mean(axis=0)
            fitted = model().fit(z[draw.support], draw.y)
            if hasattr(fitted, "predict_proba"):
                return fitted.predict_proba(z[draw.query])
            return softmax(fitted.decision_function(z[draw.query]))

        return side

    def means(read: Callable[[np.ndarray], np.ndarray], scale: float, centred: bool) -> Side:
        def side(family: Family, draw: Draw) -> np.ndarray:
            z = read(family.vectors)
            z = z - z[draw.support].mean(axis=0) * centred
            found = np.stack([z[draw.support][draw.y == k].mean(axis=0) for k in range(WAYS)])
            cosines = unit(z[draw.query]) @ unit(found).T
            return softmax(scale * cosines)

        return side

    def ours(family: Family, draw: Draw) -> np.ndarray:
        head = fit_head(family.vectors[draw.support], draw.y, WAYS)
        return softmax(head.logits(family.vectors[draw.query]))

    return {
        "photos": ours,
        "class means, ten times the cosine": means(unit, 10, False),
        "class means, centred, roots": means(unit_roots, 9, True),
        "logistic regression": of(unit, lambda: LogisticRegression(C=10, max_iter=1000)),
        "logistic regression, roots": of(
            unit_roots, lambda: LogisticRegression(C=10, max_iter=1000)
        ),
        "logistic regression, roots, balanced": of(
            unit_roots, lambda: LogisticRegression(C=10, max_iter=1000, class_weight="balanced")
        ),
        "ridge, roots": of(unit_roots, lambda: RidgeClassifier(alpha=0.3)),
    }


GRID = {
    "TEMPERATURE": (0.08, 0.11, 0.15),
    "WEIGHT": (2.0, 5.0, 15.0),
    "SHRINKAGE": (0.0025, 0.005, 0.01, 0.02),
}
"""Constants of the head from which `chosen` chooses."""


def chosen(families: list[Family], shots: Sequence[int], n: int) -> dict[str, Any]:
    """The calibration of sets of pictures that had no part in the choice of the head's constants:
    those with the smallest log loss on every second set are applied to the others, and vice versa.
    """
    usual = {name: getattr(photos, name) for name in GRID}
    sides = {"photos": heads()["photos"]}
    found: dict[tuple[float, ...], dict[str, Any]] = {}
    for constants in product(*GRID.values()):
        for name, value in zip(GRID, constants, strict=True):
            setattr(photos, name, value)
        found[constants] = {
            f"{family.name}, {s}-shot": compared(family, sides, s, n)["photos"]
            for family in families
            for s in shots
        }
    for name, value in usual.items():
        setattr(photos, name, value)
    rows = {}
    for part in (0, 1):
        choosing = {family.name for family in families[part::2]}

        def loss(constants: tuple[float, ...], names: set[str] = choosing) -> float:
            rows = found[constants].items()
            return float(np.mean([r["log_loss"] for k, r in rows if k.split(",")[0] in names]))

        best = min(found, key=loss)
        rows[f"chosen on {', '.join(sorted(choosing))}"] = {
            "constants": dict(zip(GRID, best, strict=True)),
            "others": {k: r for k, r in found[best].items() if k.split(",")[0] not in choosing},
        }
    return rows


def unit(x: np.ndarray) -> np.ndarray:
    """Scaled to length 1."""
    return x / np.linalg.norm(x, axis=1, keepdims=True).clip(1e-9)


def softmax(logits: np.ndarray) -> np.ndarray:
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def strange(families: list[Family], learner: PhotoLearner, shots: int, n: int) -> dict[str, Any]:
    """The AUROC of novelty, and of one minus the largest probability."""
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
                truth = np.repeat([0, 1], [len(known), len(new)])
                for name, score in scores_of(predictor, np.concatenate([known, new])).items():
                    key = f"{kind}, {name}"
                    found.setdefault(key, []).append(float(roc_auc_score(truth, score)))
                flagged = np.mean(predictor.novelty(known) > 1)
                found.setdefault("known pictures above 1", []).append(float(flagged))
        rows[family.name] = {key: interval(values) for key, values in found.items()}
    return rows


def scores_of(predictor: PhotoPredictor, vectors: np.ndarray) -> dict[str, np.ndarray]:
    """Two measures of how strange pictures are."""
    unsure = 1 - predictor.predict_proba(vectors).max(axis=1)
    return {"novelty": predictor.novelty(vectors), "one minus the top probability": unsure}


OURS = """
import json, re, sys, time
from pathlib import Path
from arml.predict import photos
from arml.predict.photos import PhotoLearner
learner, files = PhotoLearner(), sorted(Path(sys.argv[1]).iterdir())
rates = []
for _ in range(2):  # the second time their vectors are kept
    begun = time.perf_counter()
    learner.embed(files)
    rates.append(round(len(files) / (time.perf_counter() - begun), 1))
# Not ru_maxrss: it begins with that of the process which started this one.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps({"a second": rates[0], "again": rates[1], "peak megabytes": round(peak)}))
"""


def speed(path: Path, learner: PhotoLearner, torch: str | None, n: int = 60) -> dict[str, Any]:
    """Photographs of a zip, enlarged to 12 megapixels: pictures a second, decoding included, before
    and after their vectors are kept, each side in a process of its own; the first answer of
    `arml adapt` for 25 labelled and 20 other pictures; seconds of the head and of scikit-learn's
    logistic regression on their vectors.

    **Arguments**

    - `torch`: the Python that has the packages of `photos_torch.py`.
    """
    rows: dict[str, Any] = {"pictures": n, "load of other programs": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large, labels = enlarged(path, folder, n)
        cache = {**os.environ, "ARML_CACHE": str(folder / "cache"), "JAX_PLATFORMS": "cpu"}
        rows["pictures, photos"] = json.loads(
            ran([sys.executable, "-c", OURS, str(folder / "all")], cache).stdout
        )
        if torch is not None:
            script = [torch, str(HERE / "photos_torch.py"), str(folder / "all")]
            rows["pictures, PyTorch"] = json.loads(
                ran([*script, str(folder / "torch.npy")], dict(os.environ)).stdout.splitlines()[-1]
            )  # the package prints, too
        adapt = [sys.executable, "-m", "arml", "adapt", "--support", "own", "--query", "new"]
        for run in ("first", "again"):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            begun = time.perf_counter()
            ran([*adapt, "--out", f"{run}.csv"], {**cache, "ARML_CACHE": str(folder / "c")}, folder)
            seconds = time.perf_counter() - begun
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            rows[f"arml adapt of 25 + 20, {run}"] = {
                "seconds": round(seconds, 2),
                "seconds of one core": round(spent, 2),
            }
        learner.cache = folder / "kept"
        x = learner.embed(large)
    z, y, new = unit_roots(x), labels, np.repeat(x, 17, axis=0)[:1000]
    model = LogisticRegression(C=10, max_iter=1000)
    for name, fit, predict in (
        ("photos", lambda: fit_head(x, y, WAYS), lambda head: head.logits(new)),
        ("scikit-learn", lambda: model.fit(z, y), lambda fit: fit.predict_proba(unit_roots(new))),
    ):
        spent = []
        for _ in range(5):
            times = [time.perf_counter()]
            fitted = fit()
            times.append(time.perf_counter())
            predict(fitted)
            times.append(time.perf_counter())
            spent.append(np.diff(times))
        to_fit, to_predict = np.median(spent, axis=0).round(4).tolist()
        rows[f"seconds on vectors, {name}"] = {f"fit {n}": to_fit, "predict 1000": to_predict}
    return rows


def enlarged(path: Path, folder: Path, n: int) -> tuple[list[Path], np.ndarray]:
    """Write photographs of 12 megapixels: all of them in `all`, and as classes in `own` and `new`.
    Their paths, and the places of their classes."""
    with open_source(path) as listed:
        kinds = [images for images in listed.classes.values() if len(images) >= n // WAYS][:WAYS]
        data = [image.read() for images in kinds for image in images[: n // WAYS]]
    files = []
    for i, one in enumerate(data):
        kind, place = divmod(i, n // WAYS)
        picture = decode(one, size=1024, where=path.name)
        picture = cv2.resize(picture, (4000, 3000), interpolation=cv2.INTER_CUBIC)
        encoded = cv2.imencode(".jpg", picture[..., ::-1])[1].tobytes()
        part = "own" if place < 5 else "new"
        places = [folder / "all" / f"{i:03}.jpg"]
        places += [folder / part / f"kind {kind}" / f"{i}.jpg"] * (place < 9)
        for file in places:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encoded)
        files.append(places[0])
    return files, np.repeat(np.arange(WAYS), n // WAYS)


def ran(words: list[str], environment: dict[str, str], folder: Path | None = None) -> Any:
    """A command that must succeed."""
    return subprocess.run(
        words, env=environment, cwd=folder, check=True, capture_output=True, text=True
    )


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("accuracy", "heads", "chosen", "novelty", "speed"))
    parser.add_argument("data", nargs="+", type=Path, help="zips with a folder for each class")
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--sides", nargs="+", help="of `accuracy`; all if not given")
    parser.add_argument("--torch", help="of `speed`: a Python with PyTorch, see `photos_torch.py`")
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    before, learner = machine(), PhotoLearner()
    done = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    sides: dict[str, Side] = heads() if given.what == "heads" else {}
    if given.what == "accuracy":
        makers = {
            "photos": lambda: of_photos(learner),
            "starter": of_starter,
            "pixels": lambda: of_regression(pixels),
            "hog": lambda: of_regression(hog),
            "conv4": of_conv4,
        }
        sides = {name: makers[name]() for name in given.sides or makers}
    if given.what == "speed":
        done["speed"] = {path.stem: speed(path, learner, given.torch) for path in given.data}
        print(done["speed"])
        write("photos", done, before)
        return
    families = [load(path, learner) for path in given.data]
    if given.what == "chosen":
        done["constants chosen on other sets"] = chosen(families, given.shots, given.draws)
        print(json.dumps(done["constants chosen on other sets"], indent=1))
        write("photos", done, before)
        return
    for shots in given.shots:
        title = f"{given.what}, {f'{shots}-shot' if shots else 'uneven'}, {given.draws} draws"
        rows = done.setdefault(title, {})
        if given.what == "novelty":
            rows |= strange(families, learner, shots, given.draws)
            print(title, json.dumps(rows, indent=1), flush=True)
        for family in families if sides else ():
            found = compared(family, sides, shots, given.draws)
            rows[family.name] = rows.get(family.name, {}) | found
            for name, row in found.items():
                print(f"{title}: {family.name}: {name}: {row}", flush=True)
            if not given.no_write:
                write("photos", done, before)
        if not given.no_write:
            write("photos", done, before)


if __name__ == "__main__":
    main()
