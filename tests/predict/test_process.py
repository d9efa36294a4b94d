"""A Gaussian process, against scikit-learn, against differences, and on units of any size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from arml.predict.process import MOST, fitted_process, process_function, unlikely


def points(
    n: int, targets: int = 1, seed: int = 0, noise: float = 0.2
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 5, (n, 2)).astype(np.float32)
    y = np.stack([np.sin(x[:, 0]) * (k + 1) + x[:, 1] for k in range(targets)], axis=1)
    return x, (y + noise * rng.normal(size=y.shape)).astype(np.float32)


@pytest.mark.parametrize("n", [2, 9, 40])
def test_its_likelihood_and_its_predictions_are_those_of_scikit_learn(n):
    x, y = points(n)
    logs = np.array([0.4, -0.3, 0.2, -1.0])
    lengths, signal, noise = np.exp(logs[:2]), np.exp(2 * logs[2]), np.exp(2 * logs[3])
    kernel = ConstantKernel(signal) * RBF(lengths) + WhiteKernel(noise)
    middle, scale = x.mean(axis=0), x.std(axis=0)
    theirs = GaussianProcessRegressor(kernel, alpha=0, normalize_y=True, optimizer=None)
    theirs.fit((x - middle) / scale, y[:, 0])
    loss, _ = unlikely(logs, (x - middle) / scale, (y - y.mean()) / y.std())
    wanted = -theirs.log_marginal_likelihood_value_ - n / 2 * np.log(2 * np.pi)
    assert loss == pytest.approx(wanted, rel=1e-5)
    new, _ = points(300, seed=1)
    np.testing.assert_allclose(
        process_function(x, y, logs)(new)[:, 0], theirs.predict((new - middle) / scale), atol=1e-4
    )


def test_its_gradient_against_differences():
    x, y = (each.astype(float) for each in points(12, targets=2))
    logs = np.array([0.5, 1.5, 0.3, -0.7])
    slope = approx_fprime(logs, lambda at: unlikely(at, x, y)[0], 1e-6)
    np.testing.assert_allclose(unlikely(logs, x, y)[1], slope, rtol=1e-4, atol=1e-4)


def test_the_units_of_inputs_and_targets_do_not_matter():
    x, y = points(15)
    new, _ = points(20, seed=2)
    wanted = process_function(x, y, fitted_process(x, y))(new)

    for unit, offset in ((1e4, -3e5), (1e-12, 0)):

        def other(values, unit=unit, offset=offset):
            return unit * values.astype(float) + offset

        turned = process_function(other(x), other(y), fitted_process(other(x), other(y)))
        np.testing.assert_allclose(turned(other(new)), other(wanted), rtol=1e-3)


def test_it_learns_a_function_and_which_input_matters():
    x, y = points(60)
    new, wanted = points(300, seed=3)
    found = process_function(x, y, fitted_process(x, y))(new)
    assert np.mean((found - wanted) ** 2) < 0.08  # 0.04 is the noise
    logs = fitted_process(x, np.sin(2 * x[:, :1]))
    assert logs[1] > logs[0] + 1


@pytest.mark.parametrize("n", [1, 2, 5])
def test_one_value_is_predicted_where_all_are_alike(n):
    x, y = np.ones((n, 3)), np.full((n, 2), 7.0)
    found = process_function(x, y, fitted_process(x, y))(np.zeros((4, 3)))
    np.testing.assert_allclose(found, 7)
    assert process_function(x, y, fitted_process(x, y))(np.zeros((0, 3))).shape == (0, 2)


def test_many_examples_are_fitted_by_some_and_used_all():
    x, y = points(2 * MOST)
    logs = fitted_process(x, y)
    assert logs.shape == (4,)
    x[0], y[0] = 9, 20  # far from all others
    assert process_function(x, y, logs)(x[:1])[0, 0] > 10


@pytest.mark.parametrize("noise", [0, 0.2])
def test_the_traced_function_is_the_same(noise):
    x, y = points(60, targets=2, noise=noise)
    logs = fitted_process(x, y)
    new, _ = points(10, seed=4)
    traced = jax.jit(process_function(x, y, logs, jnp))(new)
    np.testing.assert_allclose(traced, process_function(x, y, logs)(new), atol=0.01)
