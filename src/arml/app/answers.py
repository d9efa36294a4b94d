"""The answers about pictures: predictions, prototypes, the vertices that were read."""

import base64
import io
import zipfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from arml.algorithms.arml import ARML, ClassMeans
from arml.algorithms.arml_extensions import ExtendedARML
from arml.app.uploads import Limits, read_classes, read_labels, read_pictures, read_queries
from arml.datasets.starter import load_starter
from arml.explain.explaining import default_threshold
from arml.predict.files import packed
from arml.predict.inputs import PictureReader, picture_reader, places_of
from arml.predict.learner import Learner
from arml.predict.photos import PhotoLearner, PhotoPredictor
from arml.predict.predictor import Predictor
from arml.predict.reliability import Evaluation, Reliability
from arml.results.files import Json
from arml.results.folder import png

MISTAKES = 12
"""Mistakes that are shown."""
EXAMPLE = {"classes": 3, "shots": 5, "queries": 2}


def is_of_pictures(learner: Learner) -> bool:
    """Whether it sorts pictures into classes, by their pixels or by a frozen model's vectors."""
    problem = learner.problem
    pictures = len(problem.features) == 3 or learner.portable.inputs is not None
    return problem.kind == "classification" and pictures


class Learned(NamedTuple):
    """A task that was learned from labelled pictures."""

    predictor: Predictor | PhotoPredictor
    seen: UInt8[np.ndarray, "n size size 3"]
    """The labelled pictures, as the learner or its frozen model sees them."""
    asked: UInt8[np.ndarray, "m size size 3"]
    """The queries."""
    inputs: np.ndarray
    """The queries as the learner's inputs."""


def classified(
    learner: Learner, content: object, limits: Limits, reader: PictureReader | None = None
) -> Json:
    """The answer to labelled pictures and queries; `reader` is the learner's, if it is at hand.

    It holds `queries` (each with its `label`, the `probabilities` of the classes, and the picture
    as the learner `seen` it), `classes` (their pictures as seen, their `mean`, the `nearest` to the
    prototype, and the `reading` of the prototype) and the `graph`. Where `labels` of queries came,
    `marks` says how these were predicted.

    **Raises** `ValueError` in one line for a request that cannot be answered.
    """
    learned = _learned(learner, content, limits, reader, asked=True)
    predictor, asked = learned.predictor, learned.asked
    chances = predictor.predict_proba(learned.inputs)
    assert predictor.classes is not None
    best = predictor.classes[np.argmax(chances, axis=1)]
    return {
        "queries": [
            {"seen": as_png(picture), "label": str(label), "probabilities": row.tolist()}
            for picture, label, row in zip(asked, best, chances, strict=True)
        ],
        "classes": _classes(predictor, learned.seen),
        "marks": _marked(predictor.classes, chances, read_labels(content, len(chances))),
        "graph": knowledge_graph(learner),
        "temperature": learner.portable.temperature,
    }


def _marked(classes: np.ndarray, chances: np.ndarray, labels: Sequence[str | None]) -> Json | None:
    """How the queries with labels were predicted: a summary, the accuracy of each class, the
    `confusion` matrix, and the `mistakes`, the surest first; None without labels."""
    known = [place for place, label in enumerate(labels) if label is not None]
    if not known:
        return None
    marks = Evaluation(
        classes, places_of([labels[place] for place in known], classes), chances[known]
    )
    return {
        **_measured(marks),
        "mistakes": [
            {
                "place": known[place],
                "own": labels[known[place]],
                "label": str(classes[marks.probabilities[place].argmax()]),
                "share": float(marks.probabilities[place].max()),
            }
            for place in marks.mistakes[:MISTAKES].tolist()
        ],
    }


def _measured(marks: Evaluation) -> Json:
    """A summary, the accuracy of each class, and the confusion matrix."""
    each = [{"name": str(n), "accuracy": marks.by_class.get(n)} for n in marks.classes]
    return {"said": str(marks), "classes": each, "confusion": marks.confusion.tolist()}


def _learned(
    learner: Learner,
    content: object,
    limits: Limits,
    reader: PictureReader | None = None,
    *,
    asked: bool = False,
) -> Learned:
    """The predictor of labelled pictures, and the queries if any are `asked`."""
    reader = reader or picture_reader(learner)
    assert reader is not None
    labels, texts, names = read_classes(content)
    queries = read_queries(content) if asked else []
    names += [f"query {i}" for i in range(1, len(queries) + 1)]
    pictures = read_pictures(
        texts + queries, names, size=reader.size, limits=limits, crop=reader.crop
    )
    n, inputs = len(labels), reader.read(pictures)
    return Learned(learner.adapt(inputs[:n], labels), pictures[:n], pictures[n:], inputs[n:])


def trusted(
    learner: Learner, content: object, limits: Limits, reader: PictureReader | None = None
) -> Json:
    """How well labelled pictures predict each other: a summary, the `classes` that could be
    checked with their accuracy, the `confusion` matrix, and the `odd` ones, each with its `place`
    in the order sent, the other `label` that is predicted, and the `share` of it.

    **Raises** `ValueError` in one line for a request that cannot be answered.
    """
    trust = _learned(learner, content, limits, reader).predictor.reliability()
    assert isinstance(trust, Reliability)
    chances = dict(zip(trust.checked.tolist(), trust.probabilities, strict=True))
    odd = [
        {
            "place": int(place),
            "label": str(trust.classes[chances[place].argmax()]),
            "share": float(chances[place].max()),
        }
        for place in trust.doubtful.tolist()
    ]
    return {**_measured(trust), "odd": odd}


def kept(
    learner: Learner, content: object, limits: Limits, reader: PictureReader | None = None
) -> Json:
    """The predictor of labelled pictures as a `zip` of the folder that `arml predict` reads.

    **Raises** `ValueError` in one line for a request that cannot be answered.
    """
    predictor = _learned(learner, content, limits, reader).predictor
    packet = io.BytesIO()
    with zipfile.ZipFile(packet, "w") as archive:
        for name, data in packed(predictor.save).items():
            archive.writestr(f"predictor/{name}", data)
    return {"zip": base64.b64encode(packet.getvalue()).decode()}


def _classes(
    predictor: Predictor | PhotoPredictor, seen: UInt8[np.ndarray, "n size size 3"]
) -> list[Json]:
    """Each class: its pictures as they are `seen`, its prototype, and its reading."""
    assert predictor.classes is not None
    trace = inside = None
    if isinstance(predictor, Predictor):
        trace, learner = predictor.trace(), predictor.portable.learner
        inside = learner.encode if isinstance(learner, ARML | ExtendedARML) else None
    by_class = inside is not None and isinstance(inside.structure, ClassMeans)
    away, vectors = None, predictor.embedding(predictor.x)
    if trace is not None and by_class:
        vectors = np.asarray(trace.embeddings)
    if vectors is not None:
        kinds = range(len(predictor.classes))
        means = np.stack([vectors[predictor.y == k].mean(axis=0) for k in kinds])
        away = np.square(vectors - means[predictor.y]).sum(axis=1)
    described = []
    for i, name in enumerate(predictor.classes):
        own = np.flatnonzero(predictor.y == i)
        about: Json = {
            "name": str(name),
            "seen": [as_png(picture) for picture in seen[own]],
            "mean": as_png(np.rint(seen[own].mean(axis=0)).astype(np.uint8)),
        }
        # Equal distances are of one picture, or of an embedding that tells none apart.
        if away is not None and np.ptp(away[own]) > 1e-6 * np.max(away[own]):
            about["nearest"] = int(np.argmin(away[own]))
        if trace is not None and by_class and trace.reading is not None:
            about["reading"] = np.asarray(trace.reading.links)[i].tolist()
        described.append(about)
    return described


def knowledge_graph(learner: Learner) -> Json | None:
    """The links between the vertices, and the least that is drawn; None without a graph."""
    if isinstance(learner, PhotoLearner):
        return None
    inside = learner.portable.learner
    graph = inside.encode.graph if isinstance(inside, ARML | ExtendedARML) else None
    if graph is None:
        return None
    links = np.asarray(graph.connect(graph.vertices), np.float64)
    links = (links + links.T) / 2
    return {"links": links.tolist(), "threshold": default_threshold(links)}


def example_pictures(learner: Learner, seed: int) -> Json:
    """Pictures of some test classes of the starter set: `classes` and `queries`."""
    rng = np.random.default_rng(seed)
    families, split = load_starter()
    family = families[rng.integers(len(families))]
    ways = min(EXAMPLE["classes"], learner.problem.outputs)
    chosen = rng.choice(split[family.name]["test"], ways, replace=False)
    classes, queries = [], []
    for name in chosen:
        i = family.classes.index(str(name))
        first = family.first[i]
        drawn = rng.choice(family.counts[i], EXAMPLE["shots"] + EXAMPLE["queries"], replace=False)
        shown = [as_png(family.images[first + j]) for j in drawn]
        classes.append({"name": str(name), "pictures": shown[: EXAMPLE["shots"]]})
        queries += shown[EXAMPLE["shots"] :]
    return {"family": family.name, "classes": classes, "queries": queries}


def as_png(picture: UInt8[np.ndarray, "h w 3"]) -> str:
    """A picture as the address of its own data."""
    return f"data:image/png;base64,{png(picture)}"
