"""Estimators of scikit-learn as models: the same answers as by scikit-learn's own route, on the
same folds; saved, wrapped and refused."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import arml
from arml.cli import main
from arml.predict.folds import folds

N = 64  # beyond 60 examples each is left out once
NUMBERS, CATEGORIES = ["size", "age"], ["site", "sex"]


def table(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"size": rng.normal(50, 9, n), "age": rng.normal(3, 1, n)})
    x["site"] = rng.choice(["hill", "lake", "wood"], n)
    x["sex"] = rng.choice(["f", "m"], n)
    x.loc[::7, "age"] = np.nan
    x["kind"] = np.where(x["size"] + 9 * (x["site"] == "lake") + rng.normal(0, 4, n) > 53, "b", "a")
    return x


def route(estimator, fill: bool):
    """scikit-learn's own: numbers to unit scale, gaps at the mean, one column for each value."""
    numbers = make_pipeline(StandardScaler(), *([SimpleImputer()] if fill else []))
    columns = (numbers, NUMBERS), (OneHotEncoder(drop="if_binary"), CATEGORIES)
    return make_pipeline(make_column_transformer(*columns, sparse_threshold=0), estimator)


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), KNeighborsClassifier(), HistGradientBoostingClassifier(max_iter=5)],
    ids=lambda one: type(one).__name__,
)
def test_a_check_of_a_table_is_that_of_scikit_learn_on_the_same_folds(estimator):
    x = table()
    y = x.pop("kind")
    predictor = arml.adapt(estimator, x, y)
    found = predictor.reliability()
    fill = not isinstance(estimator, HistGradientBoostingClassifier)
    wanted, places = np.zeros((N, 2)), (y == "b").to_numpy().astype(int)
    for train, test in folds(places, predictor._same, most=predictor.most):
        own = route(estimator, fill).fit(x.iloc[train], y.iloc[train])
        wanted[test] = own.predict_proba(x.iloc[test])
    np.testing.assert_allclose(found.probabilities, wanted, atol=2e-3)
    assert found.model == type(estimator).__name__
    assert found.accuracy == np.mean(wanted.argmax(axis=1) == places)
    assert "logistic regression" in found.others
    own = route(estimator, fill).fit(x, y)
    np.testing.assert_allclose(predictor.predict_proba(x), own.predict_proba(x), atol=2e-3)
    assert predictor.evaluate(x, y).accuracy == own.score(x, y)
    groups = np.arange(N) // 2
    assert predictor.reliability(groups).independent == N // 2


def test_numbers_stay_as_they_are_for_a_regressor():
    x = table().drop(columns="kind")
    y = np.round(np.exp(x["size"].to_numpy() / 20))  # counts, which are above 0
    predictor = arml.adapt(PoissonRegressor(), x, y)
    np.testing.assert_allclose(
        predictor.predict(x), route(PoissonRegressor(), True).fit(x, y).predict(x), rtol=1e-3
    )
    low, high = predictor.interval(x, 0.8)
    assert 0.7 < np.mean((low <= y) & (y <= high)) <= 1
    model = arml.FewShotRegressor(PoissonRegressor()).fit(x, y)
    np.testing.assert_allclose(model.predict(x), predictor.predict(x))


def test_vectors_of_photographs_with_weights_saved_and_pickled(tmp_path):
    rng = np.random.default_rng(0)
    learner = arml.load("photos", LogisticRegression(C=0.3))
    x = rng.random((N, learner.dimension), np.float32)
    y = np.where(x[:, :9].sum(axis=1) > 4.5, "oak", "elm")
    weight = rng.uniform(0.5, 2, N)
    predictor, places = learner.adapt(x, y, weight), (y == "oak").astype(int)
    wanted = np.zeros((N, 2))
    for train, test in folds(places, predictor._same):
        own = LogisticRegression(C=0.3).fit(x[train], y[train], weight[train])
        wanted[test] = own.predict_proba(x[test])
    found = predictor.reliability()
    np.testing.assert_allclose(found.probabilities, wanted, atol=2e-3)
    assert (found.model, [*found.others]) == ("LogisticRegression", ["learner"])
    assert predictor.can("novelty")
    assert not predictor.can("to_onnx")
    with pytest.raises(
        ValueError, match="by LogisticRegression from photographs cannot be written as an ONNX"
    ):
        predictor.to_onnx(tmp_path / "file.onnx")
    predictor.save(tmp_path / "kept")
    for again in (arml.load_predictor(tmp_path / "kept"), pickle.loads(pickle.dumps(predictor))):
        np.testing.assert_allclose(again.predict_proba(x), predictor.predict_proba(x), atol=1e-6)
        assert again.learner.estimator.C == 0.3
    more = predictor.add(x[:2], ["ash", "ash"])
    assert [*more.classes] == ["ash", "elm", "oak"]
    assert more.learner.estimator.C == 0.3
    with pytest.raises(ValueError, match="KNeighborsClassifier cannot use sample weights"):
        arml.load("photos", KNeighborsClassifier()).adapt(x, y, weight)


def test_an_estimator_around_an_estimator_and_one_of_no_library(tmp_path):
    x = table()
    y = x.pop("kind")

    class Share:
        """Always the shares of the classes."""

        def fit(self, x, y):
            self.shares = np.bincount(y) / len(y)

        def predict(self, x):
            return np.full(len(x), self.shares.argmax())

        def predict_proba(self, x):
            return np.tile(self.shares, (len(x), 1))

    model = arml.FewShotClassifier(Share()).fit(x, y)
    np.testing.assert_allclose(model.predict_proba(x)[0], [np.mean(y == k) for k in "ab"])
    assert model.reliability().model == "Share"
    with pytest.raises(ValueError, match="a predictor by Share cannot be saved without pickle"):
        model.predictor_.save("kept")
    with pytest.raises(ValueError, match="a learner by Share cannot be saved without pickle"):
        arml.load(Share()).save("kept")
    arml.load(LogisticRegression(C=0.3)).save(tmp_path / "kept")
    assert arml.load(tmp_path / "kept").estimator.C == 0.3
    model = arml.FewShotClassifier(LogisticRegression()).set_params(learner__C=1e-6).fit(x, y)
    assert np.ptp(model.predict_proba(x)) < 0.2 + np.ptp([np.mean(y == k) for k in "ab"])


@pytest.mark.parametrize(
    ("chances", "said"),
    [
        (np.full((4, 3), 1 / 3), r"shape \[4, 2\] from Own\.predict_proba, got shape \[4, 3\]"),
        (np.full((4, 2), np.nan), "predict_proba, got NaN or infinity"),
    ],
)
def test_an_estimator_with_probabilities_needs_no_predict_and_bad_ones_are_named(chances, said):
    class Own:
        good = True

        def fit(self, x, y):
            return self

        def predict_proba(self, x):
            return np.tile([0.2, 0.8], (len(x), 1)) if self.good else chances

    predictor = arml.adapt(Own(), {"a": [1.0, 2.0, 3.0, 4.0]}, [*"xyxy"])
    assert predictor.predict({"a": [5.0]}) == ["y"]
    Own.good = False
    with pytest.raises(ValueError, match=said):
        predictor.predict({"a": [5.0, 6.0, 7.0, 8.0]})


def test_paths_are_not_taken_for_texts(tmp_path):
    files = [tmp_path / f"{i}.jpg" for i in range(4)]
    for file in files:
        file.touch()
    with pytest.raises(ValueError, match=r"load their learner, as in arml\.load\('photos'"):
        arml.adapt(LogisticRegression(), [*map(str, files)], [*"xyxy"])


@pytest.mark.parametrize(
    ("learner", "model", "line"),
    [
        ("texts", 3, "expected a file or an estimator as the model, got int"),
        (LogisticRegression, None, r"got a class: give LogisticRegression\(\)"),
        (LinearSVC(), None, "LinearSVC has no predict_proba: wrap it in CalibratedClassifierCV"),
        ("tables", PoissonRegressor(), "with predict_proba, got PoissonRegressor"),
        ("tables-regression", "logistic-regression", "predicts classes; for numbers use ridge-reg"),
        ("tables", "ridge-regression", "predicts numbers; for classes use logistic-regression"),
        ("regression2d", PoissonRegressor(), "inputs that become vectors"),
        ("tables", "random-forst", "or name one of logistic-regression, "),
        ("tables", "tabicl", "tabicl is not installed: pip install tabicl"),
        (object(), None, "an estimator of scikit-learn"),
    ],
)
def test_what_cannot_be_learned_by_is_refused_in_one_line(learner, model, line):
    with pytest.raises(ValueError, match=line):
        arml.load(learner, model)


def test_the_command_line_takes_a_model_by_name_and_keeps_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x = table()
    x.to_csv("all.csv", index=False)
    command = "adapt tables --model gradient-boosting --support all.csv --target kind --save kept"
    main(command.split())
    said = capsys.readouterr().err
    assert "predicted by HistGradientBoostingClassifier" in said
    assert "next: arml predict kept FILES" in said
    main(["predict", "kept", "all.csv", "--out", "out.csv"])
    own = HistGradientBoostingClassifier(random_state=0)
    wanted = route(own, False).fit(x.drop(columns="kind"), x["kind"]).predict(x)
    np.testing.assert_array_equal(pd.read_csv("out.csv")["label"], wanted)
