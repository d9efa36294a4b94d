"""MAML++: two changes that stabilise MAML's training. Each inner step has its own learned rate for
each array (`step_rates` of `maml`). At first the query loss after every inner step counts, not only
after the last (`multi_step`), which shortens the path of gradients to the initialisation.

[1] Antoniou, Edwards and Storkey, How to Train Your MAML, ICLR 2019.
[2] The authors' code, AntreasAntoniou/HowToTrainYourMAMLPytorch.

Differences
- The weights of the steps change with every outer step; in [2] with every epoch of 500.
- A task may take more steps than in training; each further step uses the rates of the last.
- The falling outer rate of [1] is an option of the outer optimiser here. Normalisation does not
  have separate statistics and offsets for each step.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from arml.core.inner import Rule


class StepRates(Rule):
    """A learned rate for each array and step."""

    rates: Float[Array, "steps arrays"]

    @classmethod
    def initial(cls, part: PyTree, rate: float, steps: int) -> "StepRates":
        """All of them `rate`, for the arrays of `part`."""
        return cls(jnp.full((max(steps, 1), len(jax.tree.leaves(part))), rate, jnp.float32))

    def __call__(self, part: PyTree, gradient: PyTree, step: int | Array) -> PyTree:
        now = list(self.rates[jnp.minimum(step, len(self.rates) - 1)])
        rates = jax.tree.unflatten(jax.tree.structure(part), now)
        return jax.tree.map(lambda w, r, g: w - r * g, part, rates, gradient)


def importance(step: Int[Array, ""], until: int, steps: int) -> Float[Array, " steps"]:
    """The weights of the losses after each inner step, whose sum is one. They are equal at first.
    Those of the earlier steps fall linearly to 3%, and are zero from the outer step `until` on."""
    left = 1 - jnp.minimum(step / until, 1)
    earlier = jnp.where(left > 0, jnp.maximum(left, 0.03), 0) / steps
    return jnp.full(steps, earlier).at[-1].set(1 - (steps - 1) * earlier)
