"""TNP: its loss is a Gaussian likelihood, the order of examples is irrelevant, and it learns the
posterior of a Bayesian linear regression."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import arml
from arml.algorithms.tnp import TNPOptions
from arml.core.episodes import Examples, Problem, Task, TaskDistribution
from arml.nn.networks import MLPOptions

KEY = jax.random.key(0)
NOISE, SHOTS = 0.2, 5


class Lines(TaskDistribution):
    """y = w x + noise, with w from a standard normal."""

    problem = Problem("regression", (1,), 1, SHOTS, 10)
    families = ("line",)

    def sample(self, key):
        keys = jax.random.split(key, 3)
        x = jax.random.uniform(keys[0], (SHOTS + 10, 1), minval=-2.0, maxval=2.0)
        y = x * jax.random.normal(keys[1]) + NOISE * jax.random.normal(keys[2], x.shape)
        support, query = Examples(x[:SHOTS], y[:SHOTS]), Examples(x[SHOTS:], y[SHOTS:])
        return Task(support, query, jnp.array(0))


TASKS = Lines()


def learner(problem=TASKS.problem, **options):
    net = MLPOptions(hidden=(4,)).build(problem, key=KEY)
    return TNPOptions(**{"width": 16, "layers": 2, "heads": 2, **options}).build(
        net, problem, key=KEY
    )


def test_the_loss_is_the_likelihood_of_a_gaussian():
    task, made = jax.jit(TASKS.sample)(KEY), learner()
    answers = eqx.filter_jit(lambda made, task: made.answers(task.support)(task.query.x))
    mean, raw = jnp.split(answers(made, task), 2, axis=1)
    scale = 0.01 + np.log1p(np.exp(raw))
    wanted = -norm.logpdf(task.query.y, mean, scale).mean() - 0.5 * np.log(2 * np.pi)
    loss = eqx.filter_jit(lambda made, task: made.meta_loss(task, key=KEY))
    assert float(loss(made, task)) == pytest.approx(wanted, rel=1e-4)


def test_the_order_of_the_examples_is_irrelevant():
    task, made = TASKS.sample(KEY), learner()
    turned = Examples(*(part[::-1] for part in task.support))
    one, other = (made.adapt(s, key=KEY).predict(task.query.x) for s in (task.support, turned))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("optax_promotes")
def test_it_approaches_the_posterior_of_bayesian_linear_regression():
    outer = arml.OuterOptions(outer_rate=0.003, schedule="cosine")
    made = learner(width=32)
    trained = arml.fit(made, TASKS, steps=600, batch=25, seed=0, outer=outer).learner
    tasks = jax.vmap(TASKS.sample)(jax.random.split(jax.random.key(7), 200))

    def both(task):
        x, y = task.support.x[:, 0], task.support.y[:, 0]
        precision = 1 + jnp.sum(x**2) / NOISE**2
        w = jnp.sum(x * y) / NOISE**2 / precision
        exact = w * task.query.x
        found = trained.answers(task.support)(task.query.x)
        sd = jnp.sqrt(NOISE**2 + task.query.x**2 / precision)
        return found[:, :1] - exact, exact, (0.01 + jax.nn.softplus(found[:, 1:])) / sd

    off, exact, ratio = jax.jit(jax.vmap(both))(tasks)
    assert float(jnp.mean(off**2)) < 0.06 * float(jnp.mean(exact**2))
    assert 0.8 < float(jnp.median(ratio)) < 1.3


def test_heads_divide_the_width():
    with pytest.raises(ValueError, match=r"width must be a multiple of heads \(3\), got 16"):
        TNPOptions(width=16, heads=3).check()
