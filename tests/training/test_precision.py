"""Training in bfloat16: it learns, and the learner stays in float32."""

import equinox as eqx
import jax
import numpy as np
import pytest

import arml
from arml.experiment.contract import Blobs
from arml.nn.networks import MLPOptions
from arml.tasks.functions import functions_2d

TASKS = functions_2d(shots=5, queries=5)
OUTER = arml.OuterOptions(outer_rate=0.01, clip=10.0)


@pytest.mark.parametrize("method", ["maml", pytest.param("arml-paper", marks=pytest.mark.slow)])
def test_a_recipe_learns_in_bfloat16(method):
    with jax.numpy_dtype_promotion("standard"):
        learner = arml.build(method, TASKS, network=MLPOptions(hidden=(16,), init="he"))
        exact, half = (
            arml.fit(learner, TASKS, steps=200, batch=8, interval=20, outer=OUTER, precision=kind)
            for kind in ("float32", "bfloat16")
        )
    losses = [record["loss"] for record in half.history]
    assert losses[-1] < 0.8 * losses[0]
    # The tasks are the same, so the curves are, to the three digits of a bfloat16.
    np.testing.assert_allclose(losses, [r["loss"] for r in exact.history], rtol=0.2)
    assert losses != [record["loss"] for record in exact.history]
    trained = jax.tree.leaves(eqx.filter(half.learner, eqx.is_inexact_array))
    assert {a.dtype for a in trained} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("method", "kind"),
    [("r2d2", "regression"), ("r2d2", "classification"), ("tapnet", "classification")],
)
def test_methods_that_solve_systems_train_in_bfloat16(method, kind):
    tasks = TASKS if kind == "regression" else Blobs(arml.Problem(kind, (4,), 3, 2, 4))
    with jax.numpy_dtype_promotion("standard"):
        learner = arml.build(method, tasks, network=MLPOptions(hidden=(8,)))
        fitted = arml.fit(learner, tasks, steps=4, batch=2, interval=2, precision="bfloat16")
    assert np.isfinite(fitted.history[-1]["loss"])
