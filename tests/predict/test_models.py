"""Models beside the learner, their ensemble, and the check of a predictor that uses them."""

import multiprocessing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import arml
from arml.nn.edges import EDGE_DIRECTIONS, SIDE_CELLS, histograms
from arml.predict.base import softmax
from arml.predict.folds import equal_inputs, folds
from arml.predict.learner import calibrated, mean_cross_entropy, temperature
from arml.predict.models import PRIOR_EXAMPLES, fitted, model_weights, models_of, process
from untrained import untrained

PICTURES = arml.Problem("classification", (16, 16, 3), 3, 2, 2, inputs="pictures")
VECTORS = arml.Problem("classification", (4,), 3, 5, 5)


def corners(each: int, spread: float = 0.3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), each)
    return 3 * np.eye(3, 4)[y] + spread * rng.normal(size=(len(y), 4)), y


@pytest.mark.parametrize("ways", [2, 4])
def test_logistic_regression_minimises_its_loss(ways):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(ways), 6)
    x = rng.normal(size=(len(y), 30)) + 2 * np.eye(ways, 30)[y]
    function = fitted("logistic", x, y, ways)
    odds = function(x)
    assert odds.shape == (len(y), ways)
    assert odds.argmax(axis=1).tolist() == y.tolist()
    new = rng.normal(size=(5, 30)).astype(np.float32)
    traced = jax.jit(fitted("logistic", x, y, ways, jnp))(new)
    np.testing.assert_allclose(softmax(np.asarray(traced)), softmax(function(new)), atol=1e-4)
    if ways == 2:  # against the loss itself, of one vector of weights
        rows = (x - x.mean(axis=0)) / np.sqrt(np.mean(np.sum((x - x.mean(axis=0)) ** 2, axis=1)))

        def loss(w):
            z = (rows @ w[:-1] + w[-1]) * np.where(y == 1, 1, -1)
            return np.logaddexp(0, -z).mean() + 0.001 / 2 * np.sum(w[:-1] ** 2)

        best = minimize(loss, np.zeros(31)).x
        margin = odds[:, 1] - odds[:, 0]
        np.testing.assert_allclose(margin, rows @ best[:-1] + best[-1], atol=0.05)


def test_edges_against_a_loop_over_pixels():
    """Each pixel votes for the two directions beside its own."""
    pictures = np.random.default_rng(3).uniform(size=(3, 17, 20, 3))
    down, right = np.gradient(pictures, axis=(1, 2))
    votes = np.zeros((len(pictures), SIDE_CELLS, SIDE_CELLS, EDGE_DIRECTIONS))
    cells = [
        {i: k for k, part in enumerate(np.array_split(range(n), SIDE_CELLS)) for i in part}
        for n in pictures.shape[1:3]
    ]
    for n, i, j in np.ndindex(pictures.shape[:3]):
        size, at = max(
            (np.hypot(d, r), np.arctan2(d, r) % np.pi * EDGE_DIRECTIONS / np.pi)
            for d, r in zip(down[n, i, j], right[n, i, j], strict=True)
        )
        for k, share in ((int(at), 1 - at % 1), (int(at) + 1, at % 1)):
            votes[n, cells[0][i], cells[1][j], k % EDGE_DIRECTIONS] += size * share
    block = np.stack([votes[:, i : i + 2, j : j + 2] for i in range(3) for j in range(3)], 1)
    block = block.reshape(len(pictures), 9, 4 * EDGE_DIRECTIONS)
    for _ in range(2):
        block = np.minimum(block / (np.linalg.norm(block, axis=-1, keepdims=True) + 1e-3), 0.2)
    np.testing.assert_allclose(histograms(pictures, np).reshape(block.shape), block, atol=1e-9)


def test_weights_are_where_the_slope_is_the_same_in_each_direction():
    rng, prior = np.random.default_rng(0), np.array([0.5, 0.25, 0.25])
    own = rng.beta(np.linspace(1, 4, 3), 2, size=(40, 3))
    found = model_weights(own)
    slope = (own / (own @ found)[:, None]).sum(axis=0) + PRIOR_EXAMPLES * prior / found
    np.testing.assert_allclose(slope, 40 + PRIOR_EXAMPLES, rtol=1e-2)
    np.testing.assert_allclose(model_weights(np.zeros((0, 3))), prior)
    assert model_weights(np.tile([0.2, 0.99], (500, 1)))[1] > 0.99
    sure = np.tile([1.0, 0.5], (500, 1))
    sure[:3, 0] = 0  # sure and wrong costs much, and not all
    assert 0.9 < model_weights(sure)[0] < 0.999


def test_which_models_there_are():
    assert models_of(PICTURES) == ("learner", "logistic", "edges", "ensemble")
    numbers = arml.Problem("regression", (7,), 1, 2, 2)
    assert models_of(numbers, 300) == ("learner", "process", "ensemble")
    assert models_of(numbers, 301) == ("learner",)
    few = untrained("protonet", *PICTURES.features)
    predictor = few.adapt(np.zeros((2, 16, 16, 3)), ["a", "b"])
    with pytest.raises(ValueError, match="choose learner or logistic or edges or ensemble"):
        predictor.using("x")


def test_a_predictor_uses_the_model_that_it_is_told(tmp_path):
    few = untrained("protonet", *PICTURES.features)
    rng = np.random.default_rng(2)
    y = np.repeat(["ash", "elm", "oak"], 3)
    x = rng.uniform(size=(3, 16, 16, 3))[np.unique(y, return_inverse=True)[1]]
    x = np.clip(x + 0.3 * rng.normal(size=x.shape), 0, 1).astype(np.float32)
    predictor = few.adapt(x, y)
    pixels, every = predictor.using("logistic"), predictor.using("ensemble")
    assert predictor.model == "learner"
    assert pixels.predict(x).tolist() == y.tolist()
    found = every.reliability()
    assert found.model == "ensemble"
    assert {*found.others} == {"learner", "logistic", "edges"}
    for name, one in (("pixels", pixels), ("every", every)):
        one.save(tmp_path / name)
        kept = arml.load_predictor(tmp_path / name)
        np.testing.assert_allclose(kept.predict_proba(x), one.predict_proba(x), rtol=1e-5)
        assert kept.model == one.model
    assert kept.weights == every.weights
    assert sum(kept.weights.values()) == pytest.approx(1)
    mean = sum(w * predictor.using(one).predict_proba(x) for one, w in kept.weights.items())
    np.testing.assert_allclose(every.predict_proba(x), mean, rtol=1e-5)
    for one in (predictor, pixels, predictor.using("edges"), every):
        assert one.predict(x[:0]).shape == (0,)
    assert every.add(x[:1], ["fir"]).model == "ensemble"


def test_a_check_predicts_by_predictors_of_the_others():
    few, (x, y) = untrained("protonet", 4), corners(3, spread=2)
    found = few.adapt(x, y).reliability()
    assert found.model == "learner"
    total = np.zeros((9, 3))
    for train, test in folds(y, equal_inputs(x), repeats=3):
        total[test] += few.adapt(x[train], y[train]).predict_proba(x[test])
    np.testing.assert_allclose(found.probabilities, total / 3, rtol=1e-4, atol=1e-6)
    with pytest.raises(
        ValueError, match=r"cannot give .*; those of functions, pictures, tables, vectors can"
    ):
        few.adapt(x, y).interval(x)


def test_a_query_of_no_class_is_told():
    few, (x, y) = untrained("protonet", 4), corners(8)
    predictor = few.adapt(x, y).using("logistic")
    between = np.full((1, 4), [1.0, 1, 1, 0])
    assert predictor.predict(between, none="none")[0] == "none"
    assert np.mean(predictor.predict(x, none="none") == "none") < 0.2
    assert predictor.predict(between)[0] in {0, 1, 2}


def test_an_interval_is_as_wide_as_the_check_says():
    few, rng = arml.load("regression2d"), np.random.default_rng(1)
    x = rng.uniform(0, 5, (20, 2))
    y = 2 * x[:, 0] - x[:, 1] + 0.5 * rng.normal(size=20)
    predictor = few.adapt(x, y)
    low, high = predictor.interval(x, 0.8)
    half = predictor.reliability().half_width(0.8)
    np.testing.assert_allclose([low + half, high - half], [predictor.predict(x)] * 2, rtol=1e-5)
    nine, copied = range(9), [0, *range(8)]
    assert few.adapt(x[nine], y[nine]).is_enough(0.9)
    assert not few.adapt(x[copied], y[copied]).is_enough(0.9)
    with pytest.raises(ValueError, match=r"20 examples are too few for a level of 0\.99"):
        predictor.interval(x, 0.99)


def _predict_in_a_fork(predictor, x, queue):
    try:
        queue.put(str(predictor.predict(x)))
    except RuntimeError as error:
        queue.put(str(error))


@pytest.mark.filterwarnings("ignore")
def test_a_forked_process_is_refused_at_once():
    few, (x, y) = untrained("protonet", 4), corners(2)
    predictor = few.adapt(x, y)
    predictor.predict(x)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_predict_in_a_fork, args=(predictor, x, queue))
    process.start()
    assert 'get_context("spawn")' in queue.get(timeout=30)
    process.join()


def test_a_temperature_that_does_not_help_is_not_taken():
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(400, 3))
    y = np.array([rng.choice(3, p=row) for row in softmax(3 * logits)])
    found = calibrated(logits, y)
    assert found == temperature(logits, y) == pytest.approx(1 / 3, abs=0.1)
    assert mean_cross_entropy(logits, y, found) < mean_cross_entropy(logits, y)
    # The halves ask for opposite temperatures.
    both = np.concatenate([5 * np.eye(3)[[0] * 20], 0.1 * np.eye(3)[[0] * 20]])
    assert calibrated(both, np.array([0, 1] * 10 + [0] * 20)) == 1.0


def test_a_gaussian_process_is_scikit_learns():
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    rng = np.random.default_rng(0)
    x, new = rng.uniform(0, 5, (12, 2)), rng.uniform(0, 5, (7, 2))
    y = np.sin(x[:, :1]) + x[:, 1:] / 3 + 0.1 * rng.normal(size=(12, 1))
    kernel = ConstantKernel() * RBF(np.ones(2), (0.05, 50.0)) + WhiteKernel(0.1, (1e-3, 10.0))
    middle, unit = x.mean(axis=0), x.std(axis=0)
    other = GaussianProcessRegressor(kernel, normalize_y=True)
    want = other.fit((x - middle) / unit, y[:, 0]).predict((new - middle) / unit)
    np.testing.assert_allclose(process(x, y)(new)[:, 0], want, rtol=1e-6)
    traced = jax.jit(process(x, y, jnp))(jnp.asarray(new, jnp.float32))
    np.testing.assert_allclose(traced[:, 0], want, rtol=1e-3, atol=1e-3)


def test_no_model_of_a_function_has_seen_the_target_that_it_predicts():
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 5, (6, 2))
    y = np.where(x[:, 0] > 2.5, 3.0, -3.0)  # steps are no family of its training
    predictor = arml.adapt("regression2d", x, y).using("ensemble")
    assert sum(predictor.weights.values()) == pytest.approx(1)
    other = y.copy()
    other[0] = 5.0
    again = arml.adapt("regression2d", x, other).using("ensemble")
    train, test = np.arange(1, 6), np.arange(1)
    mine, theirs = predictor._refit(train, test), again._refit(train, test)
    assert {*mine} == {"learner", "process", "ensemble"}
    for name, found in mine.items():
        np.testing.assert_array_equal(found, theirs[name])
    assert predictor.reliability().model == "ensemble"
