"""Simple classifiers, which learn a task from its examples alone: logistic regression on the inputs
as they are, or on the edges of pictures.

They have seen no other task. Where pictures are unlike those of a learner's meta-training, one of
them may predict better; leave-one-out shows it (`arml.predict.trust`).

[1] Dalal and Triggs, Histograms of Oriented Gradients for Human Detection, CVPR 2005: the edges.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from arml.core.problem import Problem
from arml.predict.inputs import floats

Uses = Literal["learner", "inputs", "edges"]
"""What a predictor predicts with."""
WORDS: dict[Uses, str] = {
    "learner": "the learner",
    "inputs": "logistic regression on the inputs",
    "edges": "logistic regression on the edges",
}
PENALTY = 0.001
"""Weight of half the squared weights beside the mean loss, for inputs of mean square 1."""
DIRECTIONS, CELLS = 9, 4
"""Of the histograms of edges, and cells along a side."""


def choices(problem: Problem) -> tuple[Uses, ...]:
    """What a predictor of such a problem can use."""
    if problem.kind == "regression" or len(problem.features) == 2:
        return ("learner",)
    pictures = len(problem.features) == 3 and min(problem.features[:2]) >= 16
    return ("learner", "inputs", "edges") if pictures else ("learner", "inputs")


def check_uses(uses: str, allowed: tuple[Uses, ...]) -> None:
    """Raise `ValueError` in one line for what a predictor cannot use."""
    if uses not in allowed:
        raise ValueError(
            f"expected one of {', '.join(allowed)} to predict with, got {uses!r}: choose another"
        )


def check_exported(uses: Uses) -> None:
    """Raise `ValueError` in one line for a predictor whose answers no ONNX file can give."""
    if uses != "learner":
        raise ValueError(
            f"expected a predictor that uses its learner, got one that uses {WORDS[uses]}, which "
            "cannot be exported: save it again by `arml adapt` with --uses learner, or export "
            "predictor.using('learner')"
        )


def simple_function(
    x: np.ndarray, y: Int[np.ndarray, " n"], uses: Uses
) -> Callable[[np.ndarray], Float[np.ndarray, "m ways"]]:
    """The log-odds of new inputs, learned from `x` with classes `y`, of which none is empty."""
    read = edges if uses == "edges" else flat
    predict = logistic(read(x), y, int(y.max()) + 1)
    return lambda inputs: predict(read(inputs))


def flat(x: np.ndarray) -> Float[np.ndarray, "n inputs"]:
    """Each input as one row."""
    return np.asarray(floats(x), np.float64).reshape(len(x), -1)


def edges(x: np.ndarray) -> Float[np.ndarray, "n inputs"]:
    """Histograms of the directions of edges [1]: nine directions in cells of a quarter of the side,
    which are normalised in blocks of two by two.

    Differences: cells do not share their pixels' votes with their neighbours, and a picture is
    divided into four by four cells whatever its size.
    """
    pictures = np.asarray(floats(x), np.float64)
    down, right = np.gradient(pictures, axis=(1, 2))
    strongest = np.argmax(np.square(down) + np.square(right), axis=-1, keepdims=True)
    down, right = (np.take_along_axis(g, strongest, axis=-1)[..., 0] for g in (down, right))
    size, bins = np.hypot(down, right), DIRECTIONS * (np.arctan2(down, right) % np.pi) / np.pi
    low = np.floor(bins).astype(int)
    votes = np.zeros((*size.shape, DIRECTIONS))
    for bin, share in ((low, 1 - (bins - low)), (low + 1, bins - low)):
        held = np.take_along_axis(votes, (bin % DIRECTIONS)[..., None], axis=-1)
        np.put_along_axis(
            votes, (bin % DIRECTIONS)[..., None], held + (size * share)[..., None], axis=-1
        )
    rows, columns = (np.array_split(np.arange(n), CELLS) for n in size.shape[1:])
    cells = np.stack(
        [np.stack([votes[:, r][:, :, c].sum(axis=(1, 2)) for c in columns], 1) for r in rows], 1
    )
    corners = [cells[:, i : i + CELLS - 1, j : j + CELLS - 1] for i in (0, 1) for j in (0, 1)]
    blocks = np.concatenate(corners, axis=-1)
    for _ in range(2):  # once more after large values are cut
        blocks = blocks / (np.linalg.norm(blocks, axis=-1, keepdims=True) + 1e-3)
        blocks = np.minimum(blocks, 0.2)
    return blocks.reshape(len(x), (CELLS - 1) ** 2 * 4 * DIRECTIONS)


def logistic(
    x: Float[np.ndarray, "n inputs"], y: Int[np.ndarray, " n"], ways: int
) -> Callable[[Float[np.ndarray, "m inputs"]], Float[np.ndarray, "m ways"]]:
    """Logistic regression: the mean loss, and `PENALTY` times half the squared weights.

    Inputs are centred, and divided by the root of their mean squared length. The best weights are
    X^T A, and L-BFGS finds A, which has a row for each example.
    """
    # Here, because SciPy takes most of a second to load.
    from scipy.optimize import minimize

    middle = x.mean(axis=0)
    scale = np.sqrt(np.mean(np.sum(np.square(x - middle), axis=1))) + 1e-12
    inputs, n = (x - middle) / scale, len(x)
    products = inputs @ inputs.T + 1  # the bias is the weight of an input of 1
    target = np.eye(ways)[y]

    def objective(a: np.ndarray) -> tuple[float, np.ndarray]:
        a = a.reshape(n, ways)
        logits = products @ a
        top = logits.max(axis=1, keepdims=True)
        each = np.exp(logits - top)
        total = each.sum(axis=1, keepdims=True)
        loss = np.mean(np.log(total) + top) - np.sum(target * logits) / n
        slope = (each / total - target) / n + PENALTY * a
        return loss + PENALTY / 2 * np.sum(a * logits), (products @ slope).ravel()

    start = np.zeros(n * ways)
    a = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    weights = a.reshape(n, ways)
    return lambda new: ((new - middle) / scale @ inputs.T + 1) @ weights


def softmax(logits: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
    """The probabilities of log-odds."""
    chances = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return chances / chances.sum(axis=1, keepdims=True)
