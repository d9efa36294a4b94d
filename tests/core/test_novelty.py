"""Novelty: what it says of vectors near and far, and which learners can tell."""

import equinox as eqx
import jax
import numpy as np
import pytest

import arml
from arml.algorithms import ALGORITHMS
from arml.core.episodes import Problem
from arml.core.novelty import LEVEL, Novelty, threshold
from arml.experiment import Portable
from arml.nn.networks import MLPOptions
from arml.predict.embedding import embeds, measured_novelty
from arml.tasks.functions import functions_2d

REGRESSION = Problem("regression", (2,), 1, 3, 2)
VECTORS = Problem("classification", (5,), 3, 2, 2, classes=8)


def test_it_is_above_one_for_few_of_the_known_and_all_of_the_far():
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 3.0, 0.0])  # the last is silent in all that was seen
    bank, held, new = (rng.normal(size=(n, 3)) * scale for n in (500, 400, 2000))
    novelty = Novelty(bank.astype(np.float32), 1.0, None)
    at = threshold(novelty.distances(held))
    assert abs(np.mean(novelty.distances(new) > at) - (1 - LEVEL)) < 0.03
    far = new + np.array([9.0, 0.0, 0.0])
    assert np.all(novelty.distances(far) > at)
    speaking = new + np.array([0.0, 0.0, 2.0])
    assert np.all(novelty.distances(speaking) > at)


def test_the_threshold_is_exceeded_by_few_even_when_it_is_set_on_few():
    assert threshold(np.arange(9.0)) == 8
    assert threshold(np.arange(100.0)) == 95  # of 100, the 96th: (100 + 1) * .95


@pytest.mark.parametrize(
    ("problem", "known"),
    [
        (REGRESSION, {"arml", "arml-official", "arml-paper", "hsml", "mumomaml"}),
        (
            VECTORS,
            {"arml", "arml-official", "arml-paper", "hsml", "anil"}
            | {"protonet", "tapnet", "tadam", "versa"},
        ),
    ],
    ids=["regression", "classification"],
)
def test_which_methods_have_an_embedding_that_tasks_share(problem, known):
    found = set()
    for name, algorithm in ALGORITHMS.items():
        if problem.kind not in algorithm.kinds:
            continue
        options = algorithm.options(problem)

        def made(key, options=options):
            net = MLPOptions(hidden=(4,)).build(problem, key=key)
            return options.build(net, problem, key=key)

        if embeds(eqx.filter_eval_shape(made, jax.random.key(0)), problem):
            found.add(name)
    assert found == known


@pytest.fixture(scope="module")
def few():
    """An ARML for functions, and what its meta-training saw."""
    tasks = functions_2d(shots=3, queries=2)
    options = ALGORITHMS["arml"].options(REGRESSION)
    net = MLPOptions(hidden=(4,), init="he").build(REGRESSION, key=jax.random.key(0))
    learner = options.build(net, REGRESSION, key=jax.random.key(1))
    return learner, measured_novelty(learner, tasks, tasks, tasks=20, chunk=30)


def test_a_support_set_far_from_all_that_was_seen_is_novel(few):
    learner, novelty = few
    experiment = arml.Experiment("own", ALGORITHMS["arml"].options(REGRESSION))
    portable = Portable(experiment, learner, REGRESSION, ("functions",), novelty=novelty)
    known = arml.FewShotLearner(portable)
    x = np.array([[1.0, 1.0], [2.0, 1.0], [4.0, 1.0]])
    near = known.adapt(x, [1.0, 2.0, 3.0]).support_novelty()
    far = known.adapt(x, [500.0, -400.0, 900.0]).support_novelty()
    assert 0 < near < far
    assert far > 1
    with pytest.raises(ValueError, match="use support_novelty"):
        known.adapt(x, [1.0, 2.0, 3.0]).novelty(x)


def test_a_learner_that_cannot_tell_says_so(few):
    learner, _ = few
    experiment = arml.Experiment("own", ALGORITHMS["arml"].options(REGRESSION))
    portable = Portable(experiment, learner, REGRESSION, ("functions",))
    predictor = arml.FewShotLearner(portable).adapt([[1.0, 1.0]], [1.0])
    with pytest.raises(ValueError, match="`arml export RUN"):
        predictor.support_novelty()
