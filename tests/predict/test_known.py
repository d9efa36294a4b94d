"""Novelty does not cry wolf: test tasks of known families are rarely above 1."""

from pathlib import Path

import numpy as np
import pytest

import arml
from arml.predict.embedding import set_vectors, task_vectors

TASKS = 60
ALARMS = 0.12
"""Of 60 tasks at 5% each, more than seven are above 1 with a probability of 1.1%."""


def test_functions_of_known_families():
    learner = arml.load("regression2d")
    tasks = learner.portable.experiment.tasks.build(Path()).test
    own = task_vectors(learner.portable.learner, tasks, split="test", n=TASKS, chunk=TASKS)[0]
    known = learner.portable.novelty
    distances = np.array([known.distances(each).mean() for each in own])
    assert np.mean(distances > known.support) <= ALARMS


@pytest.mark.parametrize(
    "shape",
    [pytest.param((2, 1), id="2 x 1"), pytest.param((5, 3), id="5 x 3", marks=pytest.mark.slow)],
)
def test_pictures_of_known_families_in_small_and_large_sets(shape, tmp_path):
    portable = arml.load("starter").portable
    tasks = portable.experiment.tasks.build(tmp_path / "split.json").test
    found = set_vectors(portable.learner, tasks, shape, split="test", n=TASKS, chunk=1)
    known = portable.novelty
    support, query = known.bounds(np.full(shape[0], shape[1]))
    distances = [known.distances(each.reshape(-1, each.shape[-1])).mean() for each in found.own]
    assert np.mean(np.array(distances) > support) <= ALARMS
    single = known.distances(found.queries.reshape(-1, found.queries.shape[-1]))
    assert np.mean(single > query) <= ALARMS
