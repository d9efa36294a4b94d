"""Novelty does not cry wolf: test tasks of known families are rarely above 1."""

from pathlib import Path

import numpy as np
import pytest

import arml
from arml.predict.embedding import task_vectors
from arml.tasks.options import StarterOptions

TASKS = 40
ALARMS = 0.125
"""Of 40 tasks at 5% each, more than five are above 1 with a probability of 1.4%."""


def test_functions_of_known_families():
    learner = arml.load("regression2d")
    tasks = learner.portable.experiment.tasks.build(Path()).test
    own = task_vectors(learner.portable.learner, tasks, split="test", n=TASKS, chunk=TASKS)[0]
    known = learner.portable.novelty
    distances = np.array([known.distances(each).mean() for each in own])
    assert np.mean(distances > known.support) <= ALARMS


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """What the learner makes of the queries of test tasks: five classes, 15 of each in order."""
    learner = arml.load("starter").portable.learner
    options = StarterOptions(shots=3, ways=5)
    tasks = options.build(tmp_path_factory.mktemp("split") / "split.json").test
    found = task_vectors(learner, tasks, split="test", n=TASKS, chunk=10)[2]
    return found.reshape(TASKS, 5, -1, found.shape[-1])


@pytest.mark.parametrize(("ways", "shots"), [(2, 1), (2, 3), (3, 1), (3, 5), (5, 3)])
def test_pictures_of_known_families_in_small_and_large_sets(ways, shots, vectors, monkeypatch):
    predictor = arml.load("starter").adapt(*_pictures(ways, shots))
    rng, alarms = np.random.default_rng(0), 0
    for task in vectors:
        classes, some = rng.permutation(5)[:ways], rng.permutation(task.shape[1])[:shots]
        chosen = task[classes][:, some].reshape(ways * shots, -1)
        # The embedding was computed above, for all tasks at once.
        monkeypatch.setattr("arml.predict.novelty._embedded", lambda *given, own=chosen: own)
        alarms += predictor.support_novelty() > 1
    assert alarms / TASKS <= ALARMS


def _pictures(ways: int, shots: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((ways * shots, 32, 32, 3), np.uint8), np.repeat(np.arange(ways), shots)
