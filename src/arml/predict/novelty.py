"""The novelty of one's own examples and queries, by the bank that was exported with the learner."""

import numpy as np
from jaxtyping import Float

from arml.core.episodes import Examples
from arml.core.novelty import Novelty
from arml.experiment.loaded import Portable
from arml.predict.embedding import embeds, query_vectors, vectors
from arml.predict.inference import by_chunks
from arml.predict.inputs import checked_inputs


def query_novelty(portable: Portable, support: Examples, x: object) -> Float[np.ndarray, " n"]:
    """The novelty of single queries.

    **Raises** `ValueError` for regression, for a learner without a bank, and as `checked_inputs`.
    """
    known, inputs = _known(portable), checked_inputs(x, portable.problem, "queries")
    bound = bounds(portable, support)[1]
    if bound is None:
        raise ValueError(
            "expected a classification task for the novelty of single queries, got regression: "
            "use support_novelty()"
        )
    return known.distances(_embedded(portable, support, inputs)) / bound


def support_novelty(portable: Portable, support: Examples, inputs: np.ndarray) -> float:
    """The novelty of a support set, whose inputs are `inputs`.

    **Raises** `ValueError` for a learner without a bank.
    """
    known = _known(portable)
    if portable.problem.kind == "classification":
        own = _embedded(portable, support, inputs)
    else:
        own = np.asarray(vectors(portable.learner, support, portable.problem))
    return float(known.distances(own).mean() / bounds(portable, support)[0])


def bounds(portable: Portable, support: Examples) -> tuple[float, float | None]:
    """The distances that few known support sets like this one exceed, and few of its queries."""
    known = _known(portable)
    if portable.problem.kind == "regression":
        return known.support, known.query
    return known.bounds(np.bincount(np.asarray(support.y)))


def _embedded(
    portable: Portable, support: Examples, inputs: np.ndarray
) -> Float[np.ndarray, "n d"]:
    return by_chunks(
        lambda x: query_vectors(portable.learner, support, x),
        inputs,
        _known(portable).bank.shape[1],
    )


def _known(portable: Portable) -> Novelty:
    if portable.novelty is not None:
        return portable.novelty
    if not embeds(portable.learner, portable.problem):
        raise ValueError(
            f"expected a learner whose embedding is the same for all tasks, got "
            f"{portable.experiment.recipe}: novelty is a distance in that embedding; choose "
            "another learner, such as one that ships"
        )
    raise ValueError(
        "expected a learner with measured bounds of novelty, got one without: `arml export RUN "
        "--out FOLDER` measures them; load that folder"
    )
