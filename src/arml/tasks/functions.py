"""Six families of noisy functions of two inputs: the 2-D regression of ARML.

A task is one function of a random family. Its support set is `shots` random points with Gaussian
noise on the values. The query points and their noise are drawn independently. The families differ
in form, so one shared initialisation does not suit all of them.

[1] H. Yao et al., Automated Relational Meta-learning, ICLR 2020, section 4.2.
[2] The authors' code, `data_generator.py`.

Differences: the paper draws both inputs from U[0, 5], which is the default; the code from U[-5, 5]
(`low=-5.0`). Paper and code put the first four families, which ignore the second input, in the
plane y = 1; `flat=False` draws their second input like any other.
"""

import json
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from arml.core.episodes import Examples, Facts, Problem, Task, TaskDistribution

Coefficients = Float[Array, "4"]
_Points = Float[Array, " n"]
FAMILY_NAMES = ("sinusoid", "line", "quadratic", "cubic", "quadratic surface", "ripple")
FAMILY_FUNCTIONS: tuple[Callable[[Coefficients, _Points, _Points], _Points], ...] = (
    lambda c, x, y: c[0] * jnp.sin(c[1] * x + c[2]),
    lambda c, x, y: c[0] * x + c[1],
    lambda c, x, y: (c[0] * x + c[1]) * x + c[2],
    lambda c, x, y: ((c[0] * x + c[1]) * x + c[2]) * x + c[3],
    lambda c, x, y: c[0] * x * x + c[1] * y * y,
    lambda c, x, y: jnp.sin(-c[0] * (x * x + y * y)) + c[1],
)
"""Functions of the coefficients and both inputs."""
FLAT_FAMILIES = 4
"""The first families, which ignore the second input."""
BAYES_FLOORS: dict[tuple[float, float], float] = {(0.0, 5.0): 0.127, (-5.0, 5.0): 0.153}
"""Mean squared error of the Bayes-optimal predictor by the range of the inputs, with defaults
elsewhere. `study/floor.py` measures it."""

# The uniform priors [1, section 4.2]. A coefficient that a family does not have is fixed at zero.
PRIOR_LOW = np.array(
    [
        [0.1, 0.8, 0.0, 0.0],  # amplitude, frequency, phase
        [-3.0, -3.0, 0.0, 0.0],
        [-0.2, -2.0, -3.0, 0.0],  # highest power first
        [-0.1, -0.2, -2.0, -3.0],
        [-1.0, -1.0, 0.0, 0.0],
        [-0.2, -3.0, 0.0, 0.0],
    ],
    np.float32,
)
PRIOR_HIGH = np.array(
    [
        [5.0, 1.2, 2 * np.pi, 0.0],
        [3.0, 3.0, 0.0, 0.0],
        [0.2, 2.0, 3.0, 0.0],
        [0.1, 0.2, 2.0, 3.0],
        [1.0, 1.0, 0.0, 0.0],
        [0.2, 3.0, 0.0, 0.0],
    ],
    np.float32,
)


def evaluate_family(
    index: Int[Array, ""] | int, coefficients: Coefficients, xy: Float[Array, "n 2"]
) -> Float[Array, "n 1"]:
    """The noiseless function of family `index` at the points `xy`; the coefficients are in the
    order of `PRIOR_LOW`."""
    x, y = xy[:, 0], xy[:, 1]
    # All six at once: a branch would cost more.
    values = jnp.stack([function(coefficients, x, y) for function in FAMILY_FUNCTIONS])
    return values[index][:, None]


class Functions(TaskDistribution):
    """2-D regression over six families of functions, each equally probable.

    Inputs are `[n, 2]`, both coordinates U[low, high]. Targets are `[n, 1]`, the function plus
    Gaussian noise of standard deviation `noise`. With `flat` the families that ignore the second
    input are in the plane y = 1. Shots and queries of `problem` count the points.

    **Raises** `ValueError` if the range is empty or the noise is negative.
    """

    problem: Problem = eqx.field(static=True, default=Problem("regression", (2,), 1, 10, 10))
    low: float = eqx.field(static=True, default=0.0)
    high: float = eqx.field(static=True, default=5.0)
    noise: float = eqx.field(static=True, default=0.3)
    flat: bool = eqx.field(static=True, default=True)
    families: tuple[str, ...] = eqx.field(static=True, default=FAMILY_NAMES, init=False)

    def __check_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ValueError(
                f"inputs need a finite range with low < high, got low={self.low}, "
                f"high={self.high}: give low=0, high=5 for the paper's"
            )
        if not (np.isfinite(self.noise) and self.noise >= 0):
            raise ValueError(
                f"noise is a standard deviation, 0 or more and finite, got {self.noise}: "
                "give 0 for noiseless targets"
            )

    def sample(self, key: PRNGKeyArray) -> Task:
        """Draw ONE task, jittable: support inputs `[shots, 2]`, query inputs `[queries, 2]`."""
        uniform_key, noise_key = jax.random.split(key)
        shots, n = self.problem.shots, self.problem.shots + self.problem.queries
        # One draw for everything uniform: random calls are the larger part of a task's cost.
        uniform = jax.random.uniform(uniform_key, (1 + 4 + 2 * n,))
        family = jnp.floor(uniform[0] * len(FAMILY_NAMES)).astype(jnp.int32)
        low, high = jnp.asarray(PRIOR_LOW)[family], jnp.asarray(PRIOR_HIGH)[family]
        coefficients = low + (high - low) * uniform[1:5]
        xy = self.low + (self.high - self.low) * uniform[5:].reshape(n, 2)
        if self.flat:
            xy = xy.at[:, 1].set(jnp.where(family < FLAT_FAMILIES, 1.0, xy[:, 1]))
        z = evaluate_family(family, coefficients, xy)
        z = z + self.noise * jax.random.normal(noise_key, z.shape)
        return Task(Examples(xy[:shots], z[:shots]), Examples(xy[shots:], z[shots:]), family)

    def protocol(self) -> Facts:
        return {
            **super().protocol(),
            "inputs": f"U[{self.low:g}, {self.high:g}]",
            "noise": self.noise,
            "all families over both inputs": not self.flat,
        }

    def identity(self) -> str:
        # The text of the first version, so that its scores can still be paired with new scores.
        drawn = {
            "kind": "FunctionsOptions",
            "shots": self.problem.shots,
            "queries": self.problem.queries,
            **{name: getattr(self, name) for name in ("low", "high", "noise", "flat")},
        }
        return json.dumps([drawn, [], None], sort_keys=True)

    def floor(self) -> float | None:
        usual = functions_2d(low=self.low, high=self.high, queries=self.problem.queries)
        return (
            BAYES_FLOORS.get((self.low, self.high)) if self.identity() == usual.identity() else None
        )


def functions_2d(*, shots: int = 10, queries: int = 10, **more: Any) -> Functions:
    """The paper's 2-D regression tasks; `low=-5.0` gives the range of the authors' code. Arguments
    and errors: see `Functions`."""
    return Functions(Problem("regression", (2,), 1, shots, queries), **more)
