"""Ways to score one trained learner: as it was trained, or with its encoder's input reordered."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float

from arml.core.episodes import Examples
from arml.core.learner import Conditioned, MetaLearner
from arml.nn.prototypes import ClassMeans
from arml.nn.relational import Relational
from arml.results.files import RunError


class Reversed(eqx.Module):
    """ARML's encoder, whose samples and class prototypes come in reverse order. The network that
    adapts sees the support set as it is."""

    encode: Relational

    def __call__(self, support: Examples) -> tuple[Float[Array, " code"], Float[Array, ""]]:
        x, y = support
        if isinstance(self.encode.structure, ClassMeans):
            y = self.encode.structure.ways - 1 - y
        return self.encode(Examples(x[::-1], y[::-1]))


def reversed_order(learner: MetaLearner) -> MetaLearner:
    """The learner with a `Reversed` encoder.

    **Raises** `RunError` for a learner that has none to reverse.
    """
    if not isinstance(learner, Conditioned) or not isinstance(learner.encode, Relational):
        raise RunError(
            f"expected a run of ARML to reverse, got {type(learner).__name__}; score it as trained"
        )
    changed: MetaLearner = eqx.tree_at(lambda m: m.encode, learner, Reversed(learner.encode))
    return changed


VARIANTS: dict[str, Callable[[MetaLearner], MetaLearner]] = {
    "as trained": lambda learner: learner,
    "reversed": reversed_order,
}
