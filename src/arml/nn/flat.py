"""A base network that reads the cells of a table as one vector, for other methods."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.checks import at_least
from arml.core.episodes import Problem
from arml.nn.networks import BaseNetwork, Body, he, perceptron


class FlatBlock(eqx.Module):
    """Reads the cells of a row as one vector: the values, and which of them are there."""

    block: Callable[[Array], tuple[Array, object]]

    def __call__(
        self, x: Float[Array, "n columns 3"], statistics: None = None
    ) -> tuple[Float[Array, "n units"], None]:
        return self.block(x[..., :2].reshape(len(x), -1))[0], None


@dataclass(frozen=True)
class CellsOptions:
    """A base network for the cells of tables: a hidden layer of 64 over all of them. It tells
    columns apart by their position only, so it serves as a comparison."""

    width: int = 64
    """Units of the hidden layer."""

    def check(self) -> None:
        """Raise `ValueError` if an option is out of range."""
        at_least(self, ("width",), 1)

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> BaseNetwork:
        if len(problem.features) != 2:
            raise ValueError(
                f"the network cells reads tables, but these tasks have inputs of shape "
                f"{problem.features}; use mlp or conv4"
            )
        columns, _ = problem.features
        net = perceptron((2 * columns, self.width, problem.outputs), init=he, key=key)
        (block,) = net.body.blocks
        return BaseNetwork(Body((FlatBlock(block),), "batch"), net.head)
