"""Novelty: what it says of vectors near and far, and which learners can tell."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml
from arml.algorithms import ALGORITHMS
from arml.core.calibration import temperature
from arml.core.episodes import Problem
from arml.core.novelty import LEVEL, Novelty, class_threshold, enough, threshold
from arml.experiment.loaded import Portable
from arml.nn.networks import MLPOptions
from arml.predict.embedding import embeds, measured_novelty
from arml.predict.exporting import exported
from arml.predict.inference import inductive
from arml.tasks.functions import functions_2d
from arml.training.evaluate import predictions

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


def test_a_vector_that_overflowed_is_infinitely_far():
    bank = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    found = Novelty(bank, 1.0, None).distances(np.array([[0, 0], [np.nan, 0], [0, np.inf]]))
    assert found[0] < 1
    assert list(found[1:]) == [np.inf, np.inf]


def test_the_threshold_is_exceeded_by_few_even_when_it_is_set_on_few():
    assert threshold(np.arange(9.0)) == 8
    assert threshold(np.arange(100.0)) == 95  # of 100, the 96th: (100 + 1) * .95


def test_a_new_class_seldom_exceeds_a_threshold_of_few_classes():
    """Examples of a class are alike: 40 of each of 20 classes are 20 draws, not 800."""
    rng = np.random.default_rng(0)
    alarms, naive = [], []
    for _ in range(300):
        of_class = rng.exponential(size=(21, 1)) + 0.1 * rng.exponential(size=(21, 40))
        known, new = of_class[:20].ravel(), of_class[20]
        at = class_threshold(known, np.repeat(np.arange(20), 40))
        alarms.append(np.mean(new > at))
        naive.append(np.mean(new > threshold(of_class[:4].ravel())))
    assert np.mean(alarms) < 1 - LEVEL + 0.02
    assert np.mean(naive) > 0.12  # of four classes, as if their examples were independent
    assert enough(19)
    assert not enough(18)


@pytest.mark.parametrize(
    ("problem", "known"),
    [
        (
            REGRESSION,
            {"arml", "arml-film", "arml-layers", "arml-official", "arml-paper", "hsml", "mumomaml"},
        ),
        (
            VECTORS,
            {"arml", "arml-film", "arml-official", "arml-paper", "hsml", "anil"}
            | {"protonet", "tapnet", "tadam", "versa"},
        ),
    ],
    ids=["regression", "classification"],
)
def test_which_methods_have_an_embedding_that_tasks_share(problem, known):
    found = set()
    for name, algorithm in ALGORITHMS.items():
        if not algorithm.suits(problem):
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


class Classes(arml.TaskDistribution):
    """Tasks among so many classes of vectors, each in its own place."""

    families: tuple[str, ...] = eqx.field(static=True, default=("vectors",))
    problem: Problem = eqx.field(static=True, default=VECTORS)
    many: int = eqx.field(static=True, default=30)

    def sample(self, key):
        chosen = jax.random.permutation(key, self.many)[:3]
        places = jax.random.normal(jax.random.key(7), (self.many, 5))
        y = jnp.repeat(jnp.arange(3), 2)
        noise = jax.random.normal(jax.random.fold_in(key, 1), (2, 6, 5))
        support, query = (arml.Examples(places[chosen[y]] + 0.1 * noise[i], y) for i in (0, 1))
        return arml.Task(support, query, jnp.zeros((), jnp.int32), chosen)


def test_few_validation_classes_give_no_threshold():
    options = ALGORITHMS["protonet"].options(VECTORS)
    net = MLPOptions(hidden=(4,), init="he").build(VECTORS, key=jax.random.key(0))
    learner = options.build(net, VECTORS, key=jax.random.key(1))
    many, few = Classes(many=30), Classes(many=10)
    novelty = measured_novelty(learner, many, many, tasks=60, chunk=20)
    assert 0 < novelty.support <= novelty.query * 1.5
    assert measured_novelty(learner, many, few, tasks=20, chunk=20) is None


@pytest.mark.slow
@pytest.mark.usefixtures("optax_promotes")
def test_an_export_adapts_once_for_the_calibration_and_the_novelty(tmp_path):
    tasks = Classes()
    small = {
        "batch": 2,
        "interval": 1,
        "validate_every": 1,
        "checkpoint_every": 1,
        "validation_tasks": 2,
    }
    arml.run("protonet", tmp_path / "run", tasks=tasks, steps=1, **small)
    found = exported(tmp_path / "run", tmp_path / "learner", tasks=60)
    learner = inductive(found.learner)
    seen = predictions(learner, tasks, split="validation", n=60, chunk=20)
    logits = seen.outputs.reshape(-1, VECTORS.outputs)
    assert found.temperature == pytest.approx(temperature(logits, seen.targets.ravel()), rel=1e-5)
    alone = measured_novelty(learner, tasks, tasks, tasks=60, chunk=20)
    assert np.allclose(found.novelty.bank, alone.bank, rtol=1e-3)
    assert found.novelty.support == pytest.approx(alone.support, rel=1e-3)
    assert found.novelty.query == pytest.approx(alone.query, rel=1e-3)
