"""Ways to score one trained learner: as it was trained, or with its encoder's input reordered."""

from collections.abc import Callable

import equinox as eqx

from arml.core.learner import MetaLearner
from arml.results.files import RunError


def reversed_order(learner: MetaLearner) -> MetaLearner:
    """The learner whose encoder reads its input in reverse order.

    **Raises** `RunError` for a learner that has no such encoder.
    """
    encoder = learner.encoder()
    turned = None if encoder is None else encoder.reversed()
    if turned is None:
        raise RunError(
            f"expected a run of ARML to reverse, got {type(learner).__name__}; score it as trained"
        )
    return eqx.tree_at(lambda m: m.encoder(), learner, turned)


VARIANTS: dict[str, Callable[[MetaLearner], MetaLearner]] = {
    "as trained": lambda learner: learner,
    "reversed": reversed_order,
}
