"""Learners as scikit-learn estimators: its own checks, and users' own arrays, labels and frames."""

import copy
import pickle
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import arml
from arml.datasets.starter import load_starter
from arml.predict.learner import TrainedPredictor
from arml.results.files import RunError
from small_pictures import COLOURS, blob, coloured
from untrained import untrained


def learner(*features: int) -> arml.FewShotLearner:
    return untrained("protonet", *features, ways=4)


def blobs(features: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in their own corners."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 6)
    return rng.normal(size=(18, features)) + 6 * np.eye(3, features)[y], y


REASONS = (
    "but the learner reads",
    "cannot use sample weights",
)
"""What learners refuse to do."""
TABLES = {
    "check_dtype_object": "its column of texts, all different, is no category",
    "check_estimators_nan_inf": "an empty cell is a missing one",
    "check_sample_weight_equivalence_on_dense_data": "32 bits depend on the order of rows, by 6e-7",
    "check_fit2d_1sample": "the error for a single row is worded differently",
}
CLASSIFIERS = {
    "check_class_weight_classifiers": "they multiply probabilities, and do not turn sure answers"
}


def passes_the_checks(estimator, expected=CLASSIFIERS):
    with warnings.catch_warnings():
        # They warn of what they do, and of older releases of what they import.
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    chains = {name: [error, error.__cause__, error.__context__] for name, error in failed.items()}
    for name, chain in chains.items():
        refused = any(reason in str(error) for error in chain for reason in REASONS)
        assert refused or name in expected, (name, chain)
    return len(results) - len(failed)


@pytest.mark.parametrize("features", [1, 2, 10])
def test_scikit_learns_own_checks_of_a_classifier(features):
    uses = "auto" if features == 10 else "learner"
    assert passes_the_checks(arml.FewShotClassifier(learner(features), uses)) > 20


@pytest.mark.parametrize("features", [1, 2])
def test_scikit_learns_own_checks_of_a_regressor(features):
    own = untrained("versa", features, kind="regression", width=8)
    assert passes_the_checks(arml.FewShotRegressor(own)) > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "expected", "least"),
    [
        (lambda: arml.FewShotClassifier(learner(10), "logistic"), CLASSIFIERS, 20),
        (lambda: arml.FewShotClassifier("tables"), {**TABLES, **CLASSIFIERS}, 40),
        (lambda: arml.FewShotRegressor("tables"), TABLES, 40),
    ],
)
def test_scikit_learns_own_checks_of_sample_weights_and_tables(estimator, expected, least):
    assert passes_the_checks(estimator(), expected) > least


@pytest.mark.parametrize(
    "names",
    [["oak", "elm", "ash"], [30, -7, 4], [2.0, 1.0, 4.0], pd.Categorical(["oak", "elm", "ash"])],
    ids=["strings", "numbers", "floats", "categories"],
)
def test_labels_are_ones_own_and_classes_of_any_size(names):
    x, y = blobs(3)
    labels = np.asarray(names)[y]
    model = arml.FewShotClassifier(learner(3)).fit(x[4:], labels[4:])
    assert list(model.classes_) == sorted(names)
    assert list(model.predict(x)) == list(labels)
    assert model.score(x, labels) == 1
    assert model.predict_proba(x).shape == (18, 3)


def test_frames_and_columns_of_pandas():
    x, y = blobs(3)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["kind"] = np.array(["oak", "elm", "ash"])[y]
    model = arml.FewShotClassifier(learner(3))
    model.fit(frame[["a", "b", "c"]], frame["kind"])
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert list(model.predict(frame[["a", "b", "c"]])) == list(frame["kind"])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["c", "b", "a"]])
    # The predictor behind it takes them as well.
    few = learner(3).adapt(frame[["a", "b", "c"]], frame["kind"].astype(object))
    assert list(few.predict(frame[["a", "b", "c"]])) == list(frame["kind"])
    for missing in (None, np.nan, pd.NA):
        with pytest.raises(ValueError, match="a label for every input"):
            learner(3).adapt(x, [missing, *frame["kind"][1:]])


def test_arrays_of_jax_and_pytorch():
    x, y = blobs(3)
    model = arml.FewShotClassifier(learner(3)).fit(x, y)
    expected = model.predict_proba(x.astype(np.float32))
    given = jnp.asarray(x, jnp.float32)
    np.testing.assert_allclose(model.fit(given, jnp.asarray(y)).predict_proba(given), expected)
    torch = pytest.importorskip("torch")
    given = torch.tensor(x, dtype=torch.float32)
    np.testing.assert_allclose(model.fit(given, torch.tensor(y)).predict_proba(given), expected)


def test_images_as_they_are_and_as_flat_rows():
    rng = np.random.default_rng(0)
    images, y = rng.integers(0, 256, (4, 16, 16, 3), dtype=np.uint8), ["a", "a", "b", "b"]
    model = arml.FewShotClassifier(learner(16, 16, 3)).fit(images, y)
    assert model.n_features_in_ == 768
    expected = model.predict_proba(images)
    flat = images.reshape(4, -1) / 255
    np.testing.assert_allclose(model.fit(flat, y).predict_proba(flat), expected, atol=1e-5)
    with pytest.raises(ValueError, match="channels last"):
        model.fit(np.moveaxis(images, -1, 1), y)
    for given, advice in (
        (images * 1.0, "got float64 from 0 to 255: divide by 255, or pass bytes"),
        (images.astype(int), r"got int64 from 0 to 255: pass bytes, by .astype\(np.uint8\)"),
        (
            images.astype(np.uint16) // 2 * 16,
            "uint16 from 0 to 2032: divide all .* such as 2047",
        ),
    ):
        with pytest.raises(ValueError, match=advice):
            model.fit(given, y)
    with pytest.raises(ValueError, match=r'with FewShotClassifier\("tables"\)'):
        arml.FewShotClassifier().fit(pd.DataFrame({"a": [1, 2, 3, 4], "b": [5, 6, 7, 9]}), y)


def test_in_a_pipeline_a_search_a_cross_validation_and_another_process():
    x, y = blobs(3)
    blind = replace(learner(3), learner=jax.tree.map(lambda leaf: 0 * leaf, learner(3).learner))
    pipeline = make_pipeline(StandardScaler(), arml.FewShotClassifier(uses="learner"))
    grid = {"fewshotclassifier__learner": [blind, learner(3)]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(x, y)
    assert search.best_index_ == 1
    assert cross_val_score(search.best_estimator_, x, y, cv=3).mean() > 0.7
    points = np.random.default_rng(0).uniform(0, 5, (10, 2))
    line = arml.FewShotRegressor("regression2d").fit(points, points[:, 0])
    for model, queries in ((clone(search.best_estimator_).fit(x, y), x), (line, points)):
        packed = pickle.dumps(model)
        assert b"tanh" not in packed  # data, and no functions
        np.testing.assert_array_equal(pickle.loads(packed).predict(queries), model.predict(queries))
    restore, (files, model) = learner(3).__reduce__()
    with pytest.raises(RunError, match="altered"):
        restore({**files, "weights.safetensors": files["weights.safetensors"][:-1] + b"?"}, model)


def test_pictures_need_no_learner_to_be_named():
    y = ["red", "blue"] * 4
    photographs = np.stack([blob(colour, i) for i, colour in enumerate(COLOURS[:2] * 4)])
    model = arml.FewShotClassifier().fit(photographs, y)
    assert "FewShotClassifier()" in repr(model)
    assert model.predictor_.learner.kind.many == "pictures"
    assert model.predict(list(photographs[:2])).tolist() == ["red", "blue"]
    sizes = [*photographs[:4], *photographs[4:, :30]]  # a list of pictures of different sizes
    assert model.fit(sizes, y).predict(sizes[2:4]).tolist() == ["red", "blue"]
    again = pickle.loads(pickle.dumps(clone(model).fit(photographs, y)))
    np.testing.assert_array_equal(
        again.predict_proba(photographs), model.fit(photographs, y).predict_proba(photographs)
    )
    # Of one grey drawing of each class none can be left out: the learner of drawings takes them.
    families, split = load_starter()
    glyphs = next(family for family in families if family.name == "glyphs")
    first = [glyphs.first[glyphs.classes.index(name)] for name in split["glyphs"]["test"][:3]]
    model.fit(glyphs.images[first], ["alpha", "beta", "gamma"])
    assert isinstance(model.predictor_, TrainedPredictor)
    new = glyphs.images[[place + k for place in first for k in range(1, 6)]]
    assert model.score(new, np.repeat(["alpha", "beta", "gamma"], 5)) > 0.6


def test_sample_weights_where_the_model_can_use_them():
    (x, y), own = blobs(4), learner(4)
    weight = 1.0 + (np.arange(18) % 3 == 0)
    model = arml.FewShotClassifier(own, uses="logistic").fit(x, y, weight)
    twice = np.concatenate([np.arange(18), np.arange(0, 18, 3)])
    other = clone(model).fit(x[twice], y[twice])
    np.testing.assert_allclose(model.predict_proba(x), other.predict_proba(x), atol=1e-3)
    assert model.reliability().accuracy == 1
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict_proba(x), model.predict_proba(x), rtol=1e-6)
    zero = clone(model).fit(x, y, np.where(y == 2, 0, 1))
    assert zero.classes_.tolist() == [0, 1]
    for uses in ("auto", "learner"):
        with pytest.raises(ValueError, match="cannot use sample weights: leave them out"):
            arml.FewShotClassifier(own, uses=uses).fit(x, y, weight)
    with pytest.raises(ValueError, match="tables cannot use sample weights"):
        arml.FewShotClassifier("tables").fit(x, y, weight / 2)


def test_it_predicts_by_the_named_model_and_refuses_what_does_not_fit(tmp_path):
    x, y = blobs(3)
    few = learner(3)
    for estimator, inputs, labels, said in (
        (arml.FewShotRegressor(few), x, y, "use the other estimator"),
        (arml.FewShotClassifier(few), x[:, :2], y, r"2 feature\(s\), but the learner reads 3"),
        (arml.FewShotClassifier(-1), x, y, "expected a learner that"),
        (arml.FewShotClassifier(few), x, np.zeros(18), "got 1 class"),
        (arml.FewShotClassifier(tmp_path / "none"), x, y, "no learner at"),
        (
            arml.FewShotClassifier("tables", uses="logistic"),
            x,
            y,
            "model 'logistic' .* choose learner",
        ),
        (arml.FewShotClassifier(few, uses="edges"), x, y, "choose learner or logistic or ensem"),
    ):
        with pytest.raises(ValueError, match=said):
            estimator.fit(inputs, labels)
    every = arml.FewShotClassifier(few, uses="ensemble").fit(x, y)
    wanted = few.adapt(x, y).using("ensemble").predict_proba(x)
    np.testing.assert_allclose(every.predict_proba(x), wanted, rtol=1e-6)


def test_files_are_learned_by_every_learner_of_pictures(tmp_path):
    """Searched, cloned, copied, pickled, saved: from files, as in the command."""
    files = sorted(coloured(tmp_path / "own", "red", "blue", n=4).rglob("*.png"))
    labels = [file.parent.name for file in files]
    search = GridSearchCV(arml.FewShotClassifier(), {"learner": ["photos", "starter"]}, cv=2)
    assert search.fit(files, labels).cv_results_["mean_test_score"].min() > 0.7
    photos = arml.load("photos")
    again = [copy.deepcopy(photos), pickle.loads(pickle.dumps(photos))]
    again.append(clone(arml.FewShotClassifier(photos)).learner)
    assert all(one.adapt(files, labels).predict(files).tolist() == labels for one in again)
    arml.FewShotClassifier("starter").fit(files, labels).predictor_.save(tmp_path / "kept")
    assert arml.load_predictor(tmp_path / "kept").predict(files).tolist() == labels


def vectors(n, other, scale=1.0):
    """Vectors of two classes, `n` and `other` of them, and their labels."""
    draw = np.random.default_rng(0)
    x = np.abs(draw.normal(1, scale, (n + other, 1280)))
    x[n:, :40] *= 1.6
    return x.astype(np.float32), ["common"] * n + ["rare"] * other


def test_balanced_classes_of_photographs_are_balanced_once():
    x, y = vectors(60, 12)
    given = {"class_weight": "balanced"}
    both = [arml.FewShotClassifier("photos", **more).fit(x, y) for more in ({}, given)]
    plain, balanced = (one.predict_proba(x) for one in both)
    np.testing.assert_allclose(plain, balanced, rtol=1e-4)


def test_a_prior_is_also_checked_where_folds_are_large():
    """With the expected temperature, and not their own, the folds find 54%."""
    x, y = vectors(250, 25, scale=0.3)
    found = arml.load("photos").adapt(x, y, prior="examples").reliability()
    assert found.balanced > 0.99
