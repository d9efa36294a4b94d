"""The answers of `arml adapt` and `predict`, as rows of a table."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

ENOUGH = 9
"""Examples from which 90% intervals can be made."""


def vertices(weights: np.ndarray, most: int = 3) -> str:
    """The vertices with the largest weights, as text: `V2 0.61, V0 0.22`."""
    order = np.argsort(-weights)[:most]
    return ", ".join(f"V{i} {weights[i]:.2f}" for i in order)


def numbers_of(
    predictor: Any, names: Sequence[Any], batches: Iterator[np.ndarray]
) -> Iterator[list[Any]]:
    """The header and the rows of a regression's answers."""
    sure = len(predictor.x) >= ENOUGH
    yield ["row", "prediction", *(["low", "high"] if sure else [])]

    def numbers(batch: np.ndarray) -> np.ndarray:
        answers = [predictor.predict(batch), *(predictor.interval(batch) if sure else ())]
        return np.stack(answers, axis=-1)

    for name, values in zip(names, _each(numbers(b) for b in batches), strict=True):
        yield [name, *(f"{number:.6g}" for number in np.ravel(values))]


def labels_of(
    predictor: Any, names: Sequence[Any], chances: np.ndarray, novelty: Sequence[float]
) -> Iterator[list[Any]]:
    """The header and the rows of a classification's answers; there may be no `novelty`."""
    reading = predictor.reading()
    # A row of the reading is a class only if the prototypes are the classes.
    by_class = reading is not None and len(reading) == len(predictor.classes)
    read = [vertices(row) for row in reading] if by_class else None
    more = [*(["vertices"] if read else []), *(["novelty"] if novelty else [])]
    yield ["row" if isinstance(names[0], int) else "file", "label", "probability", *more]
    for i, (name, chance) in enumerate(zip(names, chances, strict=True)):
        best = int(np.argmax(chance))
        row = [name, predictor.classes[best], f"{chance[best]:.4f}"]
        if read is not None:
            row.append(read[best])
        if novelty:
            row.append(f"{novelty[i]:.2f}")
        yield row


def _each(batches: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    for batch in batches:
        yield from batch
