"""A small table with gaps, for the tests of learners of tables."""

import jax
import jax.numpy as jnp
import numpy as np

from arml.core.episodes import Examples, Problem

COLUMNS, WAYS, N, M = 5, 3, 12, 4


def table(kind: str, seed: int = 0) -> tuple[Examples, jax.Array]:
    """A support set with gaps, an empty row and an empty column; and queries."""
    rng = np.random.default_rng(seed)
    x = np.ones((N + M, COLUMNS, 3), np.float32)
    x[..., 0] = rng.normal(size=(N + M, COLUMNS)) * [1, 10, 0.1, 1, 1] + [0, 50, 0, 0, 0]
    x[:, 3, 0] = x[:, 3, 0] > 0
    x[..., 2] = np.arange(COLUMNS) == 3
    x[rng.uniform(size=x.shape[:2]) < 0.2] = 0
    x[N - 1] = 0
    x[:, 4] = 0
    y = rng.permutation(np.arange(N) % WAYS)
    if kind == "regression":
        y = (x[:N, :1, 0] + y[:, None]).astype(np.float32)
        return Examples(jnp.asarray(x[:N]), jnp.asarray(y)), jnp.asarray(x[N:])
    return Examples(jnp.asarray(x[:N]), jnp.asarray(y, jnp.int32)), jnp.asarray(x[N:])


def problem(kind: str) -> Problem:
    each = (WAYS, N // WAYS, 2) if kind == "classification" else (1, N, M)
    return Problem(kind, (COLUMNS, 3), *each)
