"""The race between methods, and the floor beside it."""

from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from arml.algorithms.protonet import ProtoNetOptions
from arml.core.episodes import Examples, Problem
from arml.core.losses import cross_entropy
from arml.experiment import Experiment
from arml.experiment.race import FLOOR, MOST, PENALTY, START, Logistic, Place, left, race
from arml.nn.networks import MLPOptions
from arml.tasks.options import Splits
from contract import Blobs

KEY = jax.random.key(0)
PROBLEM = Problem("classification", (6,), 3, 2, 4)


@pytest.fixture(autouse=True, scope="module")
def _optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


@dataclass(frozen=True)
class BlobOptions:
    """Blobs, all splits alike."""

    noise: float = 0.3

    def build(self, split: Path, *, progress: object = None) -> Splits:
        tasks = Blobs(PROBLEM, noise=self.noise)
        return Splits(tasks, tasks, tasks, {})

    def check(self) -> None:
        """There is nothing to refuse."""


def entrant(name: str, **outer: float) -> Experiment:
    made = Experiment(
        f"blobs/{name}",
        ProtoNetOptions(scale=0.05, learn_scale=True),
        BlobOptions(),
        MLPOptions(hidden=(8,), init="he"),
        steps=80,
        batch=2,
        chunk=2,
    )
    return replace(made, outer=replace(made.outer, **outer))


def test_logistic_regression_against_scipy():
    """The same decision function as BFGS on the stated loss, from the weights' side."""
    task = Blobs(PROBLEM, noise=2.0).sample(jax.random.key(1))
    ours = eqx.filter_jit(
        lambda support, x: Logistic(ways=3, loss=cross_entropy).adapt(support, key=KEY).predict(x)
    )(task.support, task.query.x)
    x, y = (np.asarray(a, np.float64) for a in (task.support.x, jax.nn.one_hot(task.support.y, 3)))
    middle = x.mean(axis=0)
    scale = (x - middle).std() * 6**0.5
    inputs = np.concatenate([(x - middle) / scale, np.ones((len(x), 1))], axis=1)

    def loss(flat):
        w = flat.reshape(7, 3)
        logits = inputs @ w
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return -np.mean(np.sum(y * log_p, axis=1)) + PENALTY / 2 * np.sum(w**2)

    best = minimize(loss, np.zeros(21), options={"gtol": 1e-8}).x.reshape(7, 3)
    queries = (np.asarray(task.query.x, np.float64) - middle) / scale
    expected = np.concatenate([queries, np.ones((len(queries), 1))], axis=1) @ best
    np.testing.assert_allclose(ours, expected, atol=0.05 * np.abs(expected).max())


def test_logistic_regression_of_pictures():
    support = Examples(jnp.linspace(0, 1, 4 * 12).reshape(4, 2, 2, 3), jnp.array([0, 0, 1, 1]))
    logits = Logistic(ways=2, loss=cross_entropy).adapt(support, key=KEY).predict(support.x)
    np.testing.assert_array_equal(np.argmax(logits, axis=1), support.y)


def test_a_race_has_a_place_for_all():
    heard: list[Place] = []
    entrants = [entrant("one", outer_rate=0.01), replace(entrant("two"), steps=0)]
    places = race(entrants, seconds=0.0, least=3, tasks=6, said=heard.append)
    assert places == heard
    assert [place.name for place in places] == [FLOOR, "blobs/one", "blobs/two"]
    assert [place.steps for place in places] == [0, 3, 0]
    assert all(0 <= place.score <= 1 for place in places)


def test_more_time_is_more_steps():
    places = race([entrant("one")], seconds=60.0, least=1, tasks=2)
    assert places[1].steps == 8  # a tenth


def test_the_steps_that_are_left_follow_the_pace_of_the_race():
    winner = replace(entrant("one"), interval=20)
    place = Place(winner.recipe, 0.9, 0.01, steps=30, seconds=6.0)
    assert left(winner, place, seconds=START + 221) == 1_000  # 0.2 s a step and a tenth more
    assert left(winner, place, seconds=START + 232) == 1_040
    assert left(winner, place, seconds=0.0) == 30
    assert left(winner, place, seconds=1e6) == MOST
