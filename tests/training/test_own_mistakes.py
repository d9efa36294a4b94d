"""Mistakes in tasks, methods and networks of one's own: each has an error that names its place."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml
from arml.core.losses import loss_of, mse
from small import one_line

pytestmark = pytest.mark.usefixtures("optax_promotes")
LINES = arml.Problem("regression", (1,), 1, shots=3, queries=4)
KINDS = arml.Problem("classification", (1,), 2, shots=1, queries=1)


class Lines(arml.TaskDistribution):
    problem = LINES
    families = ("lines",)

    def sample(self, key):
        keys = jax.random.split(key)
        x = jax.random.normal(keys[0], (7, 1))
        return parts(x, x * jax.random.normal(keys[1], (1,)), 3)


def parts(x, y, n):
    return arml.Task(arml.Examples(x[:n], y[:n]), arml.Examples(x[n:], y[n:]), jnp.array(0))


class Global(Lines):
    def sample(self, key):
        x = np.random.default_rng(0).normal(size=(7, 1)).astype(np.float32)
        return parts(jnp.asarray(x), jnp.asarray(2 * x), 3)


class Choosing(Lines):
    def sample(self, key):
        task = super().sample(key)
        return task if task.support.x[0, 0] > 0 else super().sample(key)


class Steep(Lines):
    families = ("lines", "steep lines")

    def sample(self, key):
        task, family = super().sample(key), jax.random.randint(key, (), 0, 2)
        y = jnp.where(family == 1, jnp.nan, task.query.y)
        return task._replace(query=arml.Examples(task.query.x, y), family=family)


class Flat(Lines):
    def sample(self, key):
        task = super().sample(key)
        return task._replace(query=arml.Examples(task.query.x, task.query.y[:, 0]))


class FromOne(Lines):
    problem = KINDS

    def sample(self, key):
        return parts(jax.random.normal(key, (4, 1)), jnp.array([1, 2, 1, 2]), 2)


class Astray(Lines):
    families = ("lines", "more lines")

    def sample(self, key):
        return super().sample(key)._replace(family=jax.random.randint(key, (), 0, 3))


class Net(arml.MetaLearner):
    """Learns nothing of a task."""

    net: eqx.Module
    loss: arml.Loss = eqx.field(static=True)

    def adapt(self, support, *, key):
        return arml.Adapted(self.net)


class Bare(Net):
    def adapt(self, support, *, key):
        return self.net


class Called(Net):
    def adapt(self, support, *, key):
        return arml.Adapted(self.net(support.x))


def net(kind=Net, problem=LINES):
    width = problem.outputs
    return kind(arml.nn.linear(1, width, key=jax.random.key(0)), loss_of(problem))


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (Choosing(), "Choosing: expected a sample(key) that JAX can trace, got: Attempted boolean"),
        (Steep(), "step 1, on a task of the family 'steep lines': query.y of Steep has numbers"),
    ],
)
def test_wrong_tasks(tasks, said):
    with pytest.raises(ValueError, match=one_line(re.escape(said))):
        arml.fit(net(problem=tasks.problem), tasks, steps=1, batch=8)


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (FromOne(), "support.y of FromOne has classes from 1 to 2, not 0 to 1: change its sample"),
        (Astray(), "family of Astray has families from 0 to 2, not 0 to 1: change its sample"),
        (Flat(), "Flat: expected query.y of shape (4, 1), as its problem says, got (4,)"),
        (Lines, "expected tasks, got the class Lines: give an instance, as by Lines()"),
    ],
)
def test_wrong_numbers_are_refused_before_any_work(tasks, said):
    learner = net(problem=tasks.problem)
    for use, amount in ((arml.fit, {"steps": 5}), (arml.evaluate, {"n": 5})):
        with pytest.raises(ValueError, match=re.escape(said)):
            use(learner, tasks, **amount)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "regresion"}, "kind must be regression or classification, got 'regresion'"),
        ({"features": 1}, r"features must be a shape such as \(2,\), got 1"),
        ({"outputs": 0}, "outputs must be 1 or more, got 0"),
        ({"queries": -1}, "queries must be 1 or more, got -1"),
    ],
)
def test_problems_that_cannot_be(change, said):
    made = object.__new__(arml.Problem)  # without the tests' own check of types
    for name, value in (vars(LINES) | change).items():
        object.__setattr__(made, name, value)
    with pytest.raises(ValueError, match=said):
        made.__post_init__()


class Numbered(Lines):
    def sample(self, key):
        return super().sample(key)._replace(family=0)


def test_a_family_may_be_a_plain_number():
    one, two = (arml.evaluate(net(), Numbered(), n=n).values for n in (1, 2))
    np.testing.assert_allclose(one, two[:1], rtol=1e-6)


def test_tasks_that_are_all_equal():
    with pytest.warns(UserWarning, match="Global: sample does not use its key, so all tasks are"):
        scores = arml.evaluate(net(), Global(), n=3)
    assert np.ptp(scores.values) == 0
    assert np.ptp(arml.evaluate(net(), Lines(), n=3).values) > 0


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Bare, "Bare: expected adapt to return arml.Adapted(predict), where predict is"),
        (Called, "is a function of inputs, got"),
    ],
)
def test_wrong_methods(kind, said):
    for use, amount in ((arml.fit, {"steps": 1, "batch": 2}), (arml.evaluate, {"n": 2})):
        with pytest.raises(ValueError, match=re.escape(said)):
            use(net(kind), Lines(), **amount)


def test_predictions_are_not_broadcast():
    """Without the check, predictions `[n]` beside targets `[n, 1]` give a loss over `[n, n]`."""
    with pytest.raises(ValueError, match=r"of shape \(4, 1\), as the targets, got \(4,\)"):
        mse.__wrapped__(jnp.zeros(4), jnp.zeros((4, 1)))  # without the tests' own check of types


def test_builders_that_return_nothing():
    from arml.core.registry import options_of

    def forgotten(net, problem, *, key, rate: float = 0.1):
        Net(net, loss_of(problem))

    with pytest.raises(ValueError, match=r"ForgottenOptions: .* an arml.MetaLearner, got NoneType"):
        arml.build(options_of(forgotten)(), LINES)

    def lost(problem, *, key, width: int = 2):
        arml.nn.linear(1, width, key=key)

    with pytest.raises(ValueError, match="LostOptions: expected build to return a network, got No"):
        arml.build("maml", LINES, network=options_of(lost)())
