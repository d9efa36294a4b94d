"""The tab of pictures: it predicts pictures from a few labelled ones, estimates its accuracy, and
saves and opens predictors. A function raises `ValueError` in one line for an invalid request."""

import base64
import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import msgspec
import numpy as np

from arml.datasets.archives import Member
from arml.datasets.decode import logged
from arml.datasets.starter import load_starter
from arml.photographs.inputs import THUMBNAIL_PIXELS
from arml.photographs.reading import Bad, as_image, pixels_of
from arml.predict.base import Predictor, TaskLearner
from arml.predict.files import MAX_SENT_BYTES, packed, unpacked, zipped
from arml.predict.inputs import normal, places_of
from arml.predict.kinds import inputs_of
from arml.predict.loading import load_predictor
from arml.predict.reliability import Evaluation, Reliability
from arml.predict.together import warning
from arml.results.files import Json, read_as

NAME_LENGTH = 60
"""The most characters that the name of a class may have."""
MAX_MISTAKES = 12
"""The number of mistakes that are shown, the worst first."""
MAX_NOTES = 5
"""The number of lines about doubtful pictures, and of other names, that are shown."""
_EXAMPLE_WAYS, _EXAMPLE_SHOTS, _EXAMPLE_QUERIES = 3, 5, 2
"""Classes of the example, and their labelled pictures and queries."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    pictures: int = 300
    """Pictures of all classes and queries together."""
    megabytes: int = 128
    """Size of the request, which is a third larger than its files because of base64."""
    rows: int = 2_000
    """Rows of a table: examples and queries together."""
    columns: int = 200
    """Columns of a table."""


@dataclass(frozen=True)
class Tab:
    """The learner of the tab of pictures."""

    learner: TaskLearner
    name: str
    choose: bool = False
    """Whether `starter` may be used instead, as in `arml adapt` without the name of a learner."""
    model: Path | None = None
    """The file of its frozen model; None for the model of the package."""


class SentPicture(msgspec.Struct):
    """A picture that the page sent, in base64."""

    data: bytes
    name: str = "a picture"


class SentClass(msgspec.Struct):
    """The pictures of a class."""

    name: str
    pictures: list[SentPicture]


class SentPictures(msgspec.Struct):
    """A request: pictures to predict, and either labelled pictures or a saved predictor."""

    classes: list[SentClass] = []
    predictor: bytes | None = None
    queries: list[SentPicture] = []
    labels: list[str | None] | None = None
    """The label of each query, or None if it is unknown."""


def classified(tab: Tab, content: object, limits: Limits) -> Json:
    """The predictions for the queries: the `classes`, the `probabilities` of each query, its
    `novelty` if the predictor measures it, and a `remark` on the predictor. `problems` has the
    index of each query that cannot be read, with the reason, and `left_out` the same for examples.
    `evaluation` compares the predictions with the `labels` of the request. `own` has the index of
    each label among the classes, or null. `notes` are lines about doubtful pictures and labels."""
    sent = _read(content)
    n = len(sent.queries)
    if not n:
        raise ValueError("no pictures to predict: add one")
    bad: Bad = {}
    with _noted() as notes:
        predictor, remark, left_out = _learned(tab, sent, limits)
        inputs = predictor.learner.read(_members(sent.queries), bad=bad)
    chances = predictor.predict_proba(inputs)
    novelty = predictor.novelty(inputs) if predictor.can("novelty") else None
    labels = sent.labels or [None] * n
    if len(labels) != n:
        raise ValueError(f"labels must be {n} texts or null, one for each picture to predict")
    labels = [None if i in bad else normal(label or "") or None for i, label in enumerate(labels)]
    own, unknown = _places(labels, predictor.labels)
    if predictor.prior_in_words:
        remark += f"; {predictor.prior_in_words}"
    if np.bincount(predictor.y).max() == 1:
        remark += "; one example a class: the probabilities are not checked"
    return {
        "classes": [str(name) for name in predictor.labels],
        "probabilities": [None if i in bad else row for i, row in enumerate(chances.tolist())],
        "novelty": None if novelty is None else novelty.tolist(),
        "problems": _texts(bad),
        "left_out": _texts(left_out),
        "remark": remark,
        "notes": [*unknown, *notes],
        "own": own,
        "evaluation": _evaluation(predictor.labels, chances, own),
    }


def trusted(tab: Tab, content: object, limits: Limits) -> Json:
    """How well labelled pictures predict each other: a `summary`, the `classes` with their
    accuracy, and the `confusion` matrix. Each of the `doubtful` pictures has its index (`place`) in
    the request, the other `label` that is predicted, and the `probability` of that label.
    `left_out` and `notes` are as in `classified`."""
    asked = _read(content)
    with _noted() as notes:
        predictor, _, bad = _learned(tab, asked, limits)
    names = [one.name for known in asked.classes for one in known.pictures]
    labels = [known.name for known in asked.classes for _ in known.pictures]
    notes += filter(None, [warning(names, labels, "pictures")])
    found = predictor.reliability()
    assert isinstance(found, Reliability)
    chances = dict(zip(found.checked.tolist(), found.probabilities, strict=True))
    sent = [place for place in range(len(predictor.y) + len(bad)) if place not in bad]
    doubtful = [_wrong(sent[k], found.classes, chances[k]) for k in found.doubtful.tolist()]
    overview = found.overview([f"example {place + 1}" for place in sent])
    summary = {**_summary(found), "summary": "\n".join(overview)}
    return {**summary, "doubtful": doubtful, "left_out": _texts(bad), "notes": notes}


def packed_predictor(tab: Tab, content: object, limits: Limits) -> Json:
    """The predictor of labelled pictures: a `zip` of the folder that `arml predict` reads."""
    with _noted() as notes:
        predictor, _, bad = _learned(tab, _read(content), limits)
    packet = io.BytesIO()
    with zipfile.ZipFile(packet, "w") as archive:
        for name, data in packed(predictor.save).items():
            archive.writestr(f"predictor/{name}", data)
    text = base64.b64encode(packet.getvalue()).decode()
    return {"zip": text, "left_out": _texts(bad), "notes": notes}


def opened_predictor(tab: Tab, content: object) -> Json:
    """The `classes` of a saved predictor. **Raises** `ValueError` for any other file."""
    kept = _opened(_read(content).predictor or b"", tab)
    return {"classes": [str(name) for name in kept.labels]}


def preview(content: object) -> Json:
    """The only query as a `picture` that every browser can show."""
    queries = _read(content).queries
    if len(queries) != 1:
        raise ValueError(f"expected one picture to preview, got {len(queries)}: send one")
    (pixels,) = pixels_of(_members(queries), THUMBNAIL_PIXELS, crop=1.0)
    return {"picture": as_image(pixels)}


def example_pictures(seed: int) -> Json:
    """Pictures of three test classes of the starter set: `classes` and `queries`."""
    rng = np.random.default_rng(seed)
    families, split = load_starter()
    family = families[rng.integers(len(families))]
    chosen = rng.choice(split[family.name]["test"], _EXAMPLE_WAYS, replace=False)
    classes, queries = [], []
    for name in chosen:
        i = family.classes.index(str(name))
        first = family.first[i]
        drawn = rng.choice(family.counts[i], _EXAMPLE_SHOTS + _EXAMPLE_QUERIES, replace=False)
        files = [cv2.imencode(".png", family.images[first + j])[1].tobytes() for j in drawn]
        shown = [f"data:image/png;base64,{base64.b64encode(file).decode()}" for file in files]
        classes.append({"name": str(name), "pictures": shown[:_EXAMPLE_SHOTS]})
        queries += shown[_EXAMPLE_SHOTS:]
    return {"family": family.name, "classes": classes, "queries": queries}


def _read(content: object) -> SentPictures:
    return read_as(SentPictures, content, "the request", "use the page")


def _learned(tab: Tab, sent: SentPictures, limits: Limits) -> tuple[Predictor, str, Bad]:
    """The predictor, a remark that names its learner and the reason for it, and the problem of each
    example that is left out, by its index."""
    pictures = [picture for known in sent.classes for picture in known.pictures]
    n = len(pictures) + len(sent.queries)
    if n > limits.pictures:
        raise ValueError(
            f"{n} pictures are too many, at most {limits.pictures} are allowed: leave some out, or "
            "use arml adapt"
        )
    if sent.predictor is not None:
        return _opened(sent.predictor, tab), "a saved predictor", {}
    if not sent.classes:
        raise ValueError("no classes: add two or more")
    names = [normal(known.name) for known in sent.classes]
    for name, known in zip(names, sent.classes, strict=True):
        if not 0 < len(name) <= NAME_LENGTH:
            raise ValueError(
                f"the name of a class must have 1 to {NAME_LENGTH} letters, got {name!r:.80}"
            )
        if names.count(name) > 1:
            raise ValueError(f"two classes are named {name!r}: rename one")
        if not known.pictures:
            raise ValueError(f"no picture of {name!r}: add one")
    labels = [name for name, known in zip(names, sent.classes, strict=True) for _ in known.pictures]
    members, bad = _members(pictures), Bad()
    vectors = tab.learner.read(members, bad=bad)
    kept = [place for place in range(len(labels)) if place not in bad]
    gone = {*labels} - {labels[i] for i in kept}
    if gone:
        each = ", ".join(f"{members[i].where} ({problem})" for i, problem in bad.items())
        raise ValueError(f"no picture of {min(gone)!r} can be read: add one; left out: {each}")
    members, labels = [members[i] for i in kept], [labels[i] for i in kept]
    predictor = tab.learner.adapt(vectors[kept], labels)
    if tab.choose:
        starter, reason = inputs_of(tab.learner).better(predictor, members, labels)
        if starter is not None:
            return starter, f"starter ({reason})", bad
        return predictor, f"{tab.name} ({reason})", bad
    return predictor.using(predictor.models[-1]), tab.name, bad


def _opened(data: bytes, tab: Tab) -> Predictor:
    """The predictor in a zip of its folder, as `packed_predictor` wrote it."""
    try:
        predictor = unpacked(partial(load_predictor, model=tab.model), zipped(data, MAX_SENT_BYTES))
    except (ValueError, OSError) as error:
        raise ValueError(f"this is not a predictor that the page saved: {error}") from error
    if predictor.classes is None or inputs_of(predictor.learner).tab != "pictures":
        raise ValueError("this predictor does not read pictures: use arml predict")
    return predictor


def _members(pictures: Sequence[SentPicture]) -> list[Member]:
    return [Member(picture.name[:80], partial(bytes, picture.data)) for picture in pictures]


def _texts(bad: Bad) -> Json:
    return {str(place): problem for place, problem in bad.items()}


@contextmanager
def _noted() -> Iterator[list[str]]:
    """The different lines that the reader of pictures logs meanwhile, a few of many. The server
    answers one request at a time."""
    notes = list[str]()
    with logged() as lines:
        yield notes
    more = len(lines) - MAX_NOTES
    notes += sorted(lines)[:MAX_NOTES] + [f"and {more} more such lines"] * (more > 0)


def _places(
    labels: Sequence[str | None], classes: np.ndarray
) -> tuple[list[int | None], list[str]]:
    """The index of each label among the classes, or None, and a line about labels that are not."""
    known: dict[str | None, int] = {}
    for label in {*labels} - {None}:
        with suppress(ValueError):
            known[label] = int(places_of([label], classes)[0])
    odd = sorted({label for label in labels if label is not None and label not in known})
    shown = ", ".join(odd[:MAX_NOTES]) + ", ..." * (len(odd) > MAX_NOTES)
    notes = [f"labels that are not classes are ignored: {shown}"] if odd else []
    return [known.get(label) for label in labels], notes


def _evaluation(classes: np.ndarray, chances: np.ndarray, own: Sequence[int | None]) -> Json | None:
    """The accuracy on the queries with known classes, and the worst `mistakes`; None without."""
    known = [place for place, index in enumerate(own) if index is not None]
    if not known:
        return None
    labels = np.array([own[place] for place in known])
    found = Evaluation(classes, labels, chances[known])
    mistakes = [
        {**_wrong(known[i], classes, chances[known[i]]), "own": str(classes[labels[i]])}
        for i in found.mistakes[:MAX_MISTAKES].tolist()
    ]
    return {**_summary(found), "mistakes": mistakes}


def _summary(found: Evaluation) -> Json:
    """The accuracy as a text, the accuracy of each class, and the confusion matrix."""
    known = found.by_class
    each = [{"name": str(n), "accuracy": known.get(n)} for n in found.classes.tolist()]
    return {"summary": str(found), "classes": each, "confusion": found.confusion.tolist()}


def _wrong(place: int, classes: np.ndarray, chances: np.ndarray) -> Json:
    best = int(chances.argmax())
    return {"place": place, "label": str(classes[best]), "probability": float(chances[best])}
