"""Labelled queries: against scikit-learn, and on the command line."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, recall_score

import arml
from arml.cli import main
from arml.predict.inputs import places_of
from arml.predict.reliability import Evaluation
from small_pictures import coloured

KINDS = np.array(["ash", "elm", "oak"])


def test_marks_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    labels, chances = rng.integers(3, size=50), rng.dirichlet([1, 1, 1], 50)
    marks, guesses = Evaluation(KINDS, labels, chances), chances.argmax(axis=1)
    assert marks.accuracy == accuracy_score(labels, guesses)
    np.testing.assert_array_equal(marks.confusion, confusion_matrix(labels, guesses))
    recalls = recall_score(labels, guesses, average=None)
    np.testing.assert_allclose([marks.by_class[name] for name in KINDS], recalls)
    assert {*marks.mistakes} == {*np.flatnonzero(labels != guesses)}
    own = chances[marks.mistakes, labels[marks.mistakes]]
    assert list(np.sort(own)) == list(own)
    assert str(marks) in marks.lines([str(i) for i in range(50)])[0]
    assert repr(marks) == f"Evaluation({marks})"
    marks = Evaluation(KINDS, np.array([0, 0, 1]), np.array([[9, 1, 0], [2, 8, 0], [6, 4, 0]]) / 10)
    assert marks.mistakes.tolist() == [1, 2]
    assert "b: labelled ash, predicted as elm (80%)" in marks.lines("abc")[2]
    assert "accuracy 33% (1 of 3; 95% interval 6% to 79%)" in str(marks)


def test_labels_are_classes_of_any_type():
    np.testing.assert_array_equal(places_of(["7", "3"], np.array([3, 7])), [1, 0])
    np.testing.assert_array_equal(places_of(["7.0", 3.0], np.array([3, 7])), [1, 0])
    np.testing.assert_array_equal(places_of([True, "0"], np.array([0, 1])), [1, 0])
    np.testing.assert_array_equal(
        places_of(["gro\u0308\u00dfe"], np.array(["gr\u00f6\u00dfe"])), [0]
    )
    with pytest.raises(ValueError, match=r"'5' is not one of .*classes \(3, 7\)"):
        places_of(["5"], np.array([3, 7]))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Pictures of three colours, and a predictor that `arml adapt` saved."""
    place = tmp_path_factory.mktemp("marks")
    coloured(place / "own", "red", "blue", "green", n=2)
    coloured(place / "more", "red", "blue", "green", n=3, seed=9)
    # One of them lies in the wrong folder.
    (place / "more" / "red" / "0.png").rename(place / "more" / "blue" / "red.png")
    adapt = f"adapt starter --support {place}/own --save {place}/kept --no-reliability"
    assert main(adapt.split()) == 0
    return place


def test_a_predictor_is_evaluated(place, command):
    kept, more = place / "kept", place / "more"
    _, said = command("evaluate", kept, code=2)
    assert "no labelled queries for the predictor: name a folder" in said
    _, warned = command("evaluate", kept, "--query", place / "own")
    assert "warning: 6 of 6 queries equal examples that the predictor learned from" in warned
    said, warned = command("evaluate", kept, "--query", more, "--out", place / "found.json")
    assert "warning" not in warned
    assert "predicted as" in said
    found = json.loads((place / "found.json").read_text())
    predictor, files = arml.load_predictor(kept), sorted(more.rglob("*.png"))
    labels = [file.parent.name for file in files]
    right = np.sum(predictor.predict(files) == labels)
    assert (found["n"], found["accuracy"]) == (9, right / 9)
    assert np.array(found["confusion"])[0].sum() == 4  # blue, with the one of red
    assert len(found["mistakes"]) == 9 - right == 9 - np.trace(found["confusion"])
    assert f"accuracy {right / 9:.0%} ({right} of 9" in said
    # With the check, and of the same weights.
    _, said = command("adapt starter --support", place / "own", "--save", place / "two")
    assert "predicting with a weighted mean: the learner" in said
    assert arml.load_predictor(place / "two").weights == predictor.weights
    predictor.using("edges").save(kept)
    assert json.loads(command("evaluate", kept, "--query", more, "--json")[0])["by"] == "edges"


def test_a_table_of_categories_is_evaluated_and_options_of_runs_are_refused(tmp_path, command):
    trees = {"oak": (25, "rough"), "birch": (12, "smooth")}
    rows = [f"{trees[k][0] + i % 3};{trees[k][1]};{k}" for i in range(4) for k in trees]
    kept, table = tmp_path / "kept", tmp_path / "trees.csv"
    table.write_text("\n".join(["height;bark;tree", *rows]))
    command("adapt tables --support", table, "--target tree --save", kept)
    said, warned = command("evaluate", kept, "--query", table, "--json")
    assert "warning: 8 of 8 queries equal examples" in warned
    found = json.loads(said)
    guesses = arml.load_predictor(kept).predict({"height": ["25"], "bark": ["rough"]})
    assert guesses.tolist() == ["oak"]
    assert (found["n"], found["accuracy"]) == (8, 1)
    for words, said in (
        (f"{kept} --tasks 10", "--tasks is for runs"),
        (f"{kept} --split validation", "--split is for runs: leave it out"),
        (f"{kept} --query {tmp_path}/none", "nothing at"),
        (f"{kept} --query {tmp_path}", "is not a table, and kept reads tables"),
        (f"{kept} --query {table} --target bark", "no column 'bark', which the examples have"),
        (f"{kept} --query {table} --target leaf", "no column 'leaf'"),
        ("starter", "starter is a learner, not a run or a predictor: `arml adapt starter --supp"),
        (f"{tmp_path} --query {table}", "--query is for predictors: leave it out"),
    ):
        assert said in command("evaluate", words, code=2)[1]


def test_a_table_of_numbers_has_an_error(tmp_path, command):
    kept, table = tmp_path / "kept", tmp_path / "points.csv"
    table.write_text("\n".join(["x1,x2,height", *(f"{i},{i % 3},{i + 1}" for i in range(5))]))
    command("adapt regression2d --support", table, "--target height --save", kept)
    found = json.loads(command("evaluate", kept, "--query", table, "--json")[0])
    predictor = arml.load_predictor(kept)
    expected = np.mean((predictor.predict(predictor.x) - predictor.y[:, 0]) ** 2)
    assert found["mse"] == pytest.approx(expected, rel=1e-5)
    assert found["variance"] == 2
    marks = predictor.evaluate(predictor.x, iter(predictor.y[:, 0]))
    assert marks.as_json() == pytest.approx(found)
    assert marks.error == pytest.approx(expected**0.5, rel=1e-5)
    assert predictor.evaluate(predictor.x, predictor.y).error == marks.error
    with pytest.raises(ValueError, match=r"one answer for each of the 5 inputs, got .* \[4\]"):
        predictor.evaluate(predictor.x, range(4))
    nothing = predictor.evaluate(predictor.x[:0], [])
    assert (str(nothing), nothing.as_json()["mse"]) == ("no examples with a known number", None)

    said = " ".join(command("evaluate", kept, "--query", table)[0].split())
    assert f"root mean squared error {expected**0.5:.4g}, in the unit of the target, on 5" in said
    assert f"it would be {2**0.5:.4g}" in said


def test_answers_may_be_a_column_of_a_frame_and_inputs_nullable_numbers(place):
    photos = arml.load("photos").adapt(sorted((place / "more").rglob("*.png"))[:6], [*"rgbrgb"])
    frame = pd.DataFrame(photos.x).astype("Float64")
    assert photos.evaluate(frame, pd.DataFrame({"r": [*"rgbrgb"]})).accuracy == 1
    with pytest.raises(ValueError, match=r"of the 6 inputs, got answers of shape \[6, 2\]"):
        photos.evaluate(frame, np.array([["r", "g"]] * 6))
