"""The race between methods, and the floor beside it."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from arml.algorithms.maml import MAMLOptions
from arml.algorithms.protonet import ProtoNetOptions
from arml.core.episodes import Examples, Problem
from arml.experiment.loaded import Run
from arml.experiment.options import Experiment
from arml.experiment.race import MOST, Place, paced, race, trained
from arml.experiment.running import run
from arml.experiment.simple import FLOOR, PENALTY, SIMPLE, simple_scores
from arml.nn.networks import MLPOptions
from arml.tasks.options import FunctionsOptions, Splits, splits_of
from arml.training.evaluate import evaluate
from contract import Blobs

KEY = jax.random.key(0)
PROBLEM = Problem("classification", (6,), 3, 2, 4)


pytestmark = pytest.mark.usefixtures("optax_promotes")


@dataclass(frozen=True)
class BlobOptions:
    """Blobs, all splits alike."""

    noise: float = 0.3

    def build(self, split: Path, *, progress: object = None) -> Splits:
        tasks = Blobs(PROBLEM, noise=self.noise)
        return Splits(tasks, tasks, tasks, {})

    def check(self) -> None:
        """There is nothing to refuse."""


MEAN = "nearest class mean of the inputs"


def entrant(name: str, **outer: float) -> Experiment:
    made = Experiment(
        f"blobs/{name}",
        ProtoNetOptions(scale=0.05, learn_scale=True),
        BlobOptions(),
        MLPOptions(hidden=(8,), init="he"),
        steps=80,
        interval=4,
        batch=2,
        chunk=2,
    )
    return replace(made, outer=replace(made.outer, **outer))


def test_logistic_regression_against_scipy():
    """The same decision function as BFGS on the stated loss, from the weights' side."""
    task = Blobs(PROBLEM, noise=2.0).sample(jax.random.key(1))
    ours = eqx.filter_jit(lambda support, x: SIMPLE[FLOOR](3).adapt(support, key=KEY).predict(x))(
        task.support, task.query.x
    )
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
    logits = SIMPLE[FLOOR](2).adapt(support, key=KEY).predict(support.x)
    np.testing.assert_array_equal(np.argmax(logits, axis=1), support.y)


def test_the_nearest_mean_against_numpy():
    task = Blobs(PROBLEM, noise=2.0).sample(jax.random.key(1))
    ours = SIMPLE[MEAN](3).adapt(task.support, key=KEY).predict(task.query.x)
    x, y = np.asarray(task.support.x), np.asarray(task.support.y)
    means = np.stack([x[y == k].mean(axis=0) for k in range(3)])
    far = np.linalg.norm(np.asarray(task.query.x)[:, None] - means, axis=-1)
    np.testing.assert_allclose(ours, -(far**2), rtol=1e-4)


def test_simple_classifiers_are_scored_on_the_tasks_of_a_split():
    tasks = Blobs(PROBLEM, noise=2.0)
    done: list[int] = []
    found = simple_scores(tasks, 6, split="test", chunk=3, watch=done.append)
    assert done == [3, 6, 9, 12]
    assert found[FLOOR] == evaluate(SIMPLE[FLOOR](3), tasks, 6).score
    assert found[MEAN]["n"] == 6
    line = FunctionsOptions().build(Path())
    assert simple_scores(splits_of(line).test, 6, split="test", chunk=3) == {}


def test_a_race_has_a_place_for_all():
    heard: list[Place] = []
    entrants = [entrant("one", outer_rate=0.01), replace(entrant("two"), steps=0)]
    places = race(entrants, seconds=0.0, least=3, tasks=6, said=heard.append)
    assert places == heard
    assert [place.name for place in places] == [FLOOR, "blobs/one", "blobs/two"]
    assert [place.steps for place in places] == [0, 4, 0]
    assert all(0 <= place.score <= 1 for place in places)


def test_more_time_is_more_steps():
    places = race([entrant("one")], seconds=60.0, least=1, tasks=2)
    assert places[1].steps == 8  # a tenth


def test_the_steps_fit_in_the_time_at_the_pace_of_the_first():
    one, now = replace(entrant("one"), scan=False), time.monotonic()
    steps = [paced(one, ends=now + minutes * 60).steps for minutes in (0.0, 1.0, 1e6)]
    assert steps[0] == one.interval
    assert steps[0] < steps[1] <= steps[2] == MOST
    assert all(n % one.interval == 0 for n in steps)
    assert paced(replace(one, steps=0), ends=now).steps == 0


def test_a_training_that_the_race_made_whole_is_kept(tmp_path):
    every = {"interval": 4, "checkpoint_every": 40, "validate_every": 80, "validation_tasks": 4}
    tasks = FunctionsOptions(shots=3, queries=3)
    one = replace(entrant("one"), algorithm=MAMLOptions(), tasks=tasks, steps=8, **every)
    said: list[str] = []
    made = trained(one, splits_of(one.tasks).train, seconds=0.0, least=8, doing=said.append)
    assert said[-1].endswith("step 8")
    assert run(one, tmp_path / "run", begun=made[0]) == Run(tmp_path / "run").step == 8
    assert [record["step"] for record in Run(tmp_path / "run").metrics] == [4, 8]


def test_the_winner_goes_on_from_its_steps_in_the_race(tmp_path):
    """It ends as if it had been trained in one piece."""
    every = {"interval": 4, "checkpoint_every": 40, "validate_every": 80, "validation_tasks": 4}
    tasks = FunctionsOptions(shots=3, queries=3)
    one = replace(entrant("one", schedule="cosine"), algorithm=MAMLOptions(), tasks=tasks, **every)
    begun, _ = trained(one, splits_of(tasks).train, seconds=0.0, least=8)
    assert begun.step == 8
    ends = [tmp_path / name for name in ("on", "whole")]
    assert run(one, ends[0], begun=begun) == run(one, ends[1]) == 80
    read = [(end / "metrics.jsonl").read_text() for end in ends]
    assert read[0] == read[1]
    learners = [eqx.filter(Run(end).learner, eqx.is_array) for end in ends]
    for a, b in zip(*map(jax.tree.leaves, learners), strict=True):
        np.testing.assert_array_equal(a, b)
