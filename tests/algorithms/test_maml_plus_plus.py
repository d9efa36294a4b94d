"""MAML++: each step has its own rates, and at first all steps count."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.maml import MAMLOptions
from arml.algorithms.maml_plus_plus import StepRates, importance
from arml.core.inner import GradientDescent, with_steps
from arml.training.fit import OuterOptions, make_step, start
from small import KEY, REGRESSION, Same, meta, network, task


def test_each_step_has_its_own_rate_and_further_steps_that_of_the_last():
    """On |w|^2 / 2 a step with the rate r multiplies w by 1 - r."""
    rule = StepRates(jnp.array([[0.1], [0.2], [0.5]]))
    found = GradientDescent(rule, 5)(lambda w: jnp.sum(w**2) / 2, jnp.ones(3))
    np.testing.assert_allclose(found, 0.9 * 0.8 * 0.5**3, rtol=1e-6)


@pytest.mark.parametrize(
    ("step", "weights"),
    [(0, [0.25] * 4), (50, [0.125] * 3 + [0.625]), (99, [0.0075] * 3 + [0.9775])],
)
def test_the_weights_of_the_steps_are_the_authors(step, weights):
    """4 inner steps, until the outer step 100; at step 99 the floor of 0.03 / 4 holds."""
    np.testing.assert_allclose(importance(jnp.array(step), 100, 4), weights, rtol=1e-5)
    np.testing.assert_array_equal(importance(jnp.array(100 + step), 100, 4), [0, 0, 0, 1])


def test_a_training_counts_all_steps_at_first_and_then_the_last():
    options, on = MAMLOptions(inner_rate=0.01, inner_steps=3), task()
    plain = options.build(network(), REGRESSION, key=KEY)
    made = replace(options, multi_step=1).build(network(), REGRESSION, key=KEY)
    each = [meta(with_steps(plain, n), on)[0] for n in (1, 2, 3)]
    optimiser = OuterOptions(optimiser="sgd", outer_rate=1e-9).build(2)
    step = eqx.filter_jit(make_step(optimiser, batch=1, key=KEY))
    state, first = step(Same(REGRESSION, on), start(made, optimiser))
    second = step(Same(REGRESSION, on), state)[1]
    np.testing.assert_allclose(first.loss, np.mean(each), rtol=1e-4)
    np.testing.assert_allclose([second.loss, meta(made, on)[0]], each[-1], rtol=1e-4)
