"""Classifiers that know the examples only, against scikit-learn and against geometry."""

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import arml
from arml.algorithms import ALGORITHMS
from arml.experiment.building import build
from arml.experiment.loaded import Portable
from arml.experiment.options import Experiment
from arml.nn.edges import CELLS, DIRECTIONS
from arml.nn.networks import Conv4Options
from arml.predict.simple import (
    PENALTY,
    check_uses,
    choices,
    edges,
    fitted,
    flat,
    logistic,
    simple_function,
    weights_of,
)

PICTURES = arml.Problem("classification", (16, 16, 3), 3, 2, 2)


@pytest.mark.parametrize(("each", "inputs"), [(6, 9), (25, 200)])
def test_logistic_regression_against_scikit_learn(each, inputs):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), each)
    x = rng.normal(size=(4 * each, inputs)) + 2 * np.eye(4, inputs)[y]
    new = rng.normal(size=(50, inputs))
    # Its penalty is on the weights of a loss that is summed, and not on the bias: a column of ones.
    middle = x.mean(axis=0)
    scale = np.sqrt(np.mean(np.sum(np.square(x - middle), axis=1)))

    def prepared(x):
        return np.concatenate([(x - middle) / scale, np.ones((len(x), 1))], axis=1)

    theirs = LogisticRegression(
        C=1 / (PENALTY * len(x)), fit_intercept=False, tol=1e-8, max_iter=10_000
    ).fit(prepared(x), y)
    weights, offset = weights_of(x, logistic(x, y, 4))
    ours = new @ weights + offset
    ours -= ours.mean(axis=1, keepdims=True)
    wanted = theirs.decision_function(prepared(new))
    np.testing.assert_allclose(ours, wanted - wanted.mean(axis=1, keepdims=True), atol=0.02)


def test_edges_tell_directions_and_not_light():
    ramp = np.linspace(0, 1, 16)
    right = np.broadcast_to(ramp[None, :, None], (16, 16, 3))
    down = np.broadcast_to(ramp[:, None, None], (16, 16, 3))
    pictures = np.stack([right, down, 0.5 * right + 0.2, 1 - right])
    found = edges(pictures).reshape(4, -1, DIRECTIONS)
    assert {*found[0].argmax(axis=1)} == {0}
    assert {*found[1].argmax(axis=1)} == {DIRECTIONS // 2}  # between two of nine
    np.testing.assert_allclose(found[2], found[0], atol=0.02)
    np.testing.assert_allclose(found[3], found[0], atol=0.02)
    assert edges(pictures[:0]).shape == (0, found[0].size)
    np.testing.assert_allclose(
        edges(np.rint(255 * pictures).astype(np.uint8)), edges(pictures), atol=0.05
    )


@pytest.mark.parametrize("shape", [(5, 16, 16, 3), (3, 17, 30, 1)])
def test_edges_against_a_loop_over_pixels(shape):
    """Each pixel votes for the two directions beside its own."""
    pictures = np.random.default_rng(3).uniform(size=shape)
    down, right = np.gradient(pictures, axis=(1, 2))
    votes = np.zeros((len(pictures), CELLS, CELLS, DIRECTIONS))
    cells = [
        {i: k for k, part in enumerate(np.array_split(range(n), CELLS)) for i in part}
        for n in shape[1:3]
    ]
    for n, i, j in np.ndindex(shape[:3]):
        size, at = max(
            (np.hypot(d, r), np.arctan2(d, r) % np.pi * DIRECTIONS / np.pi)
            for d, r in zip(down[n, i, j], right[n, i, j], strict=True)
        )
        for k, share in ((int(at), 1 - at % 1), (int(at) + 1, at % 1)):
            votes[n, cells[0][i], cells[1][j], k % DIRECTIONS] += size * share
    found = edges(pictures).reshape(len(pictures), CELLS - 1, CELLS - 1, 4 * DIRECTIONS)
    block = np.stack([votes[:, i : i + 2, j : j + 2] for i in range(3) for j in range(3)], 1)
    block = block.reshape(len(pictures), 9, 4 * DIRECTIONS)
    for _ in range(2):
        block = np.minimum(block / (np.linalg.norm(block, axis=-1, keepdims=True) + 1e-3), 0.2)
    np.testing.assert_allclose(found.reshape(block.shape), block, atol=1e-9)


def test_a_simple_function_learns_its_examples():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 256, (6, 16, 16, 3), np.uint8), np.array([0, 0, 1, 1, 2, 2])
    assert flat(x).shape == (6, 768)
    for uses in ("inputs", "edges"):
        function = simple_function(x, y, uses, fitted(x, y, uses))
        assert function(x).argmax(axis=1).tolist() == y.tolist()


def test_a_predictor_uses_what_it_is_told(tmp_path):
    experiment = Experiment(
        "own",
        ALGORITHMS["protonet"].options(PICTURES),
        network=Conv4Options(filters=2, normalisation="support"),
    )
    with jax.numpy_dtype_promotion("standard"):
        learner = build(experiment, PICTURES)
    few = arml.FewShotLearner(Portable(experiment, learner, PICTURES, ("own",)))
    rng = np.random.default_rng(2)
    y = np.repeat(["ash", "elm", "oak"], 3)
    # Noise around pictures of stripes: an untrained network sees less than pixels show.
    x = rng.uniform(size=(3, 16, 16, 3))[np.unique(y, return_inverse=True)[1]]
    x = np.clip(x + 0.3 * rng.normal(size=x.shape), 0, 1).astype(np.float32)
    predictor = few.adapt(x, y)
    assert predictor.uses == "learner"
    pixels = predictor.using("inputs")
    assert predictor.uses == "learner"
    assert pixels.predict(x).tolist() == y.tolist()
    np.testing.assert_allclose(pixels.predict_proba(x).sum(axis=1), 1)
    trust = predictor.trust()
    assert {*trust.others} == {"inputs", "edges", "together"}
    assert trust.others["inputs"] == pixels.trust().accuracy
    every = predictor.using("together")
    for name, means in (("pixels", pixels), ("every", every)):
        means.save(tmp_path / name)
        kept = arml.load_predictor(tmp_path / name)
        np.testing.assert_allclose(kept.predict_proba(x), means.predict_proba(x), rtol=1e-6)
        assert kept.uses == means.uses
    assert kept.shares == every.trust().shares
    mean = sum(s * predictor.using(one).predict_proba(x) for one, s in kept.shares.items())
    np.testing.assert_allclose(every.predict_proba(x), mean, rtol=1e-6)
    for means in (predictor, pixels, predictor.using("edges"), every):
        assert means.predict(x[:0]).shape == (0,)
    assert {*kept.fits} == {"inputs", "edges"}
    others = predictor.restored("together", {"together": 1.0}, {})
    assert others.shares == predictor.shares  # not these
    own = predictor.restored("together", {"learner": 0.2, "inputs": 0.2, "edges": 0.6}, {})
    before = own.predict_proba(x)
    assert own.trust().shares != own.shares  # a check changes no shares
    np.testing.assert_array_equal(own.predict_proba(x), before)
    assert pixels.add(x[:1], ["fir"]).uses == "inputs"
    more = every.add(x[:1], ["fir"])
    assert more.uses == "together"
    assert more.shares is None  # they are found anew
    with pytest.raises(ValueError, match="one of learner, inputs, edges, together to predict with"):
        check_uses("x", choices(PICTURES))


def test_what_can_be_used():
    assert choices(PICTURES) == ("learner", "inputs", "edges", "together")
    vectors = arml.Problem("classification", (7,), 3, 2, 2)
    assert choices(vectors) == ("learner", "inputs", "together")
    assert choices(arml.Problem("regression", (7,), 1, 2, 2)) == ("learner", "process", "together")
    assert choices(arml.Problem("regression", (8, 8, 3), 1, 2, 2)) == ("learner",)
