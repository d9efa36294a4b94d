"""Pictures as the inputs of a learner: its pixels, or the vectors of its frozen model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Eye(NamedTuple):
    """How pictures become the inputs of a learner."""

    size: int
    """Pixels a side."""
    read: Callable[[np.ndarray], np.ndarray]
    """Converts pixels `[n, size, size, 3]` to its inputs."""


def eye_of(owner: Any, model: Path | None = None) -> Eye | None:
    """How pictures become the inputs of a learner or predictor; None if it is one of tables.

    **Arguments**

    - `model`: the frozen model of a learner on features, if it is not the one that ships.

    **Raises** `ValueError` for a model that a learner of pixels does not use, and as `remade`.
    """
    if len(owner.problem.features) == 3:
        if model is not None:
            raise ValueError("expected no --model, because this learner reads pixels: leave it out")
        return Eye(owner.problem.features[0], lambda pixels: pixels)
    if owner.portable.inputs is None:
        return None
    from arml.datasets.extractor import remade

    extractor = remade(owner.portable.inputs, model)
    return Eye(extractor.size, extractor)
