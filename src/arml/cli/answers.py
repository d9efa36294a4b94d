"""The answers of `arml adapt` and `predict`, as rows of a table."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from arml.predict.photos import PhotoPredictor
    from arml.predict.predictor import Predictor


def vertices(weights: np.ndarray) -> str:
    """The three vertices with the largest weights, as text: `V2 0.61, V0 0.22`."""
    order = np.argsort(-weights)[:3]
    return ", ".join(f"V{i} {weights[i]:.2f}" for i in order)


def numbers_of(
    predictor: "Predictor", names: Sequence[Path | int], batches: Iterable[Any], level: float
) -> Iterator[list[object]]:
    """The header and the rows of a regression's answers."""
    from arml.predict.reliability import digits_of  # scikit-learn, which classes do not need

    digits = digits_of(predictor.y)
    sure = len(predictor.y) >= level / (1 - level) - 1e-9
    yield ["row", "prediction", *([f"low {level:.0%}", f"high {level:.0%}"] if sure else [])]

    def numbers(batch: Any) -> np.ndarray:
        answers = [predictor.predict(batch), *(predictor.interval(batch, level) if sure else ())]
        return np.stack(answers, axis=-1)

    for name, values in zip(names, chain.from_iterable(map(numbers, batches)), strict=True):
        yield [name, *(f"{number:.{digits}g}" for number in np.ravel(values))]


def labels_of(
    predictor: "Predictor | PhotoPredictor",
    names: Sequence[Path | int],
    chances: np.ndarray,
    novelty: Sequence[float],
    none: str = "",
    strange: np.ndarray | None = None,
) -> Iterator[list[object]]:
    """The header and the rows of a classification's answers; there may be no `novelty`. Those that
    are `strange` are labelled `none`."""
    assert predictor.classes is not None
    reading = predictor.reading()
    # A row of the reading is a class only if the prototypes are the classes.
    read = None
    if reading is not None and len(reading) == len(predictor.classes):
        read = [vertices(row) for row in reading]
    more = [*(["vertices"] if read else []), *(["novelty"] if novelty else [])]
    yield ["row" if isinstance(names[0], int) else "file", "label", "probability", *more]
    for i, (name, chance) in enumerate(zip(names, chances, strict=True)):
        best = int(np.argmax(chance))
        label = none if strange is not None and strange[i] else predictor.classes[best]
        row = [name, label, f"{chance[best]:.4f}"]
        if read is not None:
            row.append(read[best])
        if novelty:
            row.append(f"{novelty[i]:.2f}")
        yield row
