"""The learners of tables that ship, as a user meets them."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit
from sklearn.ensemble import BaggingClassifier
from sklearn.tree import DecisionTreeClassifier

import arml
from arml.predict.folds import equal_rows
from arml.predict.reliability import ALWAYS_THE_MEAN
from arml.tables.predictor import MOST_ROWS, TablePredictor, widening

RNG = np.random.default_rng(0)
N = 16
TREES = "random forest", "gradient boosting"


def rows(n: int, seed: int) -> tuple[dict[str, list[object]], list[str]]:
    """Oaks are tall and rough, elms low and smooth; some cells are missing."""
    rng = np.random.default_rng(seed)
    y = ["oak" if i % 2 else "elm" for i in range(n)]
    height = [
        None if rng.uniform() < 0.1 else (20 if k == "oak" else 10) + 2 * rng.normal() for k in y
    ]
    bark = ["" if rng.uniform() < 0.1 else ("rough" if k == "oak" else "smooth") for k in y]
    noise = rng.normal(size=n).tolist()
    return {"height": height, "bark": bark, "noise": noise}, y


def boxes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A label that trees find and lines do not."""
    x = RNG.uniform(size=(n, 4))
    return x, np.where((x[:, 0] > 0.5) ^ (x[:, 1] > 0.5), "high", "low")


@pytest.fixture(scope="module")
def predictor() -> TablePredictor:
    found = arml.load("tables").adapt(*rows(N, 0))
    assert isinstance(found, TablePredictor)
    return found


@pytest.fixture(scope="module")
def many() -> tuple[np.ndarray, np.ndarray, TablePredictor]:
    """Rows, their labels, and the predictor of the first 120."""
    x, y = boxes(420)
    return x, y, arml.load("tables").adapt(x[:120], y[:120])


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name: str, columns: dict[str, object]) -> None:
    pd.DataFrame(columns).to_csv(name, index=False)


# Predictions.


def test_a_table_of_numbers_and_categories_with_gaps(predictor, tmp_path):
    table, y = rows(40, 1)
    chances = predictor.predict_proba(table)
    assert chances.shape == (40, 2)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert np.mean(predictor.predict(table) == y) > 0.9
    # The order of columns is free, and others may be there.
    other = {"more": ["x"] * 40, **{name: table[name] for name in reversed(table)}}
    np.testing.assert_array_equal(predictor.predict_proba(other), chances)
    predictor.save(tmp_path / "trees")
    again = arml.load_predictor(tmp_path / "trees")
    assert isinstance(again, TablePredictor)
    np.testing.assert_array_equal(again.predict_proba(table), chances)


def test_frames_through_adapt_and_an_estimator():
    bark = pd.array(["rough", "smooth", pd.NA, "smooth"] * 4, dtype="string")
    frame = pd.DataFrame({"bark": bark, "count": [10**19, 1] * 8, "Id": range(16)})
    y = pd.Series(["oak", "elm"] * 8, dtype="string")
    reason = "column 'Id' is not used: is a row number, judging by its name; --keep or keep="
    with pytest.warns(UserWarning, match=reason):
        found = arml.load("tables").adapt(frame, y)
    with pytest.warns(UserWarning, match=reason):
        estimator = arml.FewShotClassifier("tables").fit(frame, y)
    kept = arml.FewShotClassifier("tables").fit(frame, y, keep=["Id"]).predictor_
    assert {*kept.matter()} - {*found.matter()} == {"Id"}
    np.testing.assert_array_equal(found.predict(frame), y.to_numpy())
    np.testing.assert_array_equal(estimator.predict(frame), y.to_numpy())


def test_more_classes_than_in_training():
    y = np.arange(36) % 12
    x = np.stack([np.cos(y), np.sin(y)], axis=1) + 0.02 * RNG.normal(size=(36, 2))
    found = arml.load("tables").adapt(x, y)
    assert np.mean(found.predict(x) == y) > 0.8
    assert found.predict_proba(x).shape == (36, 12)


def test_beyond_few_rows_a_mean_of_models_predicts(many, tmp_path):
    x, y, found = many
    assert math.isclose(sum(found.weights.values()), 1)
    assert "random forest" in found.model
    checked = found.reliability()
    assert {*checked.others} == {"learner", "logistic regression", *TREES}
    assert "predicted by " + found.model in str(checked)
    accuracy = np.mean(found.predict(x[120:]) == y[120:])
    assert checked.others["logistic regression"] < 0.7 < accuracy
    assert found.matter()["0"] > 0.1 > found.matter()["2"]
    found.save(tmp_path / "many")
    again = arml.load_predictor(tmp_path / "many")
    assert again.weights == found.weights
    np.testing.assert_array_equal(again.predict_proba(x[:9]), found.predict_proba(x[:9]))


@pytest.mark.slow
def test_beyond_its_rows_the_learner_does_not_predict():
    x, y = boxes(MOST_ROWS + 100)
    found = arml.load("tables").adapt(x, y)
    assert {*found.weights} <= {"logistic regression", *TREES}
    assert np.mean(found.predict(x) == y) > 0.9


def test_small_differences_of_large_targets():
    x = RNG.normal(size=(30, 2))
    y = 6 * x[:, 0]
    near = arml.load("tables-regression").adapt(x, y)
    far = arml.load("tables-regression").adapt(x, y + 1.7e9)
    np.testing.assert_allclose(far.predict(x) - 1.7e9, near.predict(x), atol=1e-3)
    widths = [np.subtract(*one.interval(x, 0.8)[::-1]) for one in (near, far)]
    np.testing.assert_allclose(*widths, rtol=1e-3)


def test_a_regression_has_quantiles():
    x = RNG.normal(size=(60, 3))
    y = 5 + 2 * x[:, 0] + 0.1 * RNG.normal(size=60)
    found = arml.load("tables-regression").adapt(x[:30], y[:30])
    error = np.mean((found.predict(x[30:]) - y[30:]) ** 2) / np.var(y)
    assert error < 0.2
    wide, narrow = (found.interval(x[30:], level) for level in (0.9, 0.5))
    assert np.all(wide[0] < narrow[0])
    assert np.all(narrow[1] < wide[1])
    assert np.mean((wide[0] < y[30:]) & (y[30:] < wide[1])) > 0.7
    drops = found.matter()
    assert max(drops, key=drops.get) == "0"


def test_which_columns_matter(predictor):
    drops = predictor.matter()
    assert set(drops) == {"height", "bark", "noise"}
    assert max(drops["height"], drops["bark"]) > drops["noise"]
    row = {"height": [20.0, None], "bark": [None, "smooth"], "noise": [0.0, 0.0]}
    found = predictor.decisive(row)
    assert [text.split()[0] for text in found] == ["height", "bark"]
    assert found[0].startswith(f"height ({predictor.predict_proba(row)[0].max():.3g} to ")


def test_an_interval_holds_the_share_of_new_targets_that_it_states():
    """For examples and queries drawn alike, the rank among n + 1 distances is uniform. Few examples
    get the wider of their distances and the distribution."""
    level, n = 0.8, 24
    held = [RNG.standard_cauchy() <= widening(RNG.standard_cauchy(n), level) for _ in range(20_000)]
    assert np.mean(held) == pytest.approx(math.ceil(level * (n + 1)) / (n + 1), abs=0.01)
    for distances, wide in (([0.1, 0.2], stdtrit(4, 0.95)), ([0.1, 9], 9), ([], stdtrit(4, 0.95))):
        assert widening(np.array(distances), 0.9) == pytest.approx(wide)


def test_refusals(predictor):
    learner = arml.load("tables")
    with pytest.raises(ValueError, match="no column 'bark'"):
        predictor.predict({"height": [1.0], "noise": [0.0]})
    with pytest.raises(ValueError, match="got an empty text"):
        learner.adapt({"a": [1, 2, 4]}, ["", "x", "x"])
    with pytest.raises(ValueError, match="MultiOutputRegressor"):
        arml.load("tables-regression").adapt(np.eye(4), np.zeros((4, 2)))


# The check of the examples.


def test_a_fold_chooses_its_weights_without_its_own_rows(many):
    """Other labels in a fold change what is predicted for the others, and not for the fold."""
    predictor = many[2]
    train, test = predictor._parts[0]
    labels = np.where(np.isin(np.arange(120), test), 1 - predictor.y, predictor.y)
    given = predictor.learner, predictor.schema, predictor.rows, labels, predictor.classes
    other = TablePredictor(*given)
    vars(other)["_parts"] = predictor._parts
    np.testing.assert_array_equal(
        predictor.choice.mean(train)[test], other.choice.mean(train)[test]
    )
    assert other.weights != predictor.weights


@pytest.mark.slow
def test_the_check_of_noise_with_many_columns_is_at_chance():
    """Columns are chosen by the labels: of 500 columns of noise, some fit 20 labels well. Whoever
    chooses them with all rows finds 95%."""
    accuracies = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(20, 500)), np.arange(20) % 2
        found = arml.load("tables").adapt(x, y)
        accuracies.append(found.reliability().accuracy)
    assert np.mean(accuracies) < 0.65


@pytest.mark.slow
def test_the_check_and_the_intervals_of_numbers_without_relation():
    ratios, held = [], []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(220, 500)), rng.normal(size=220)
        found = arml.load("tables-regression").adapt(x[:20], y[:20])
        checked = found.reliability()
        ratios.append(checked.error[0] / checked.errors[ALWAYS_THE_MEAN][0])
        low, high = found.interval(x[20:], 0.8)
        held.append(np.mean((low < y[20:]) & (y[20:] < high)))
    assert np.mean(ratios) > 0.9
    assert 0.7 < np.mean(held) < 0.9


@pytest.mark.parametrize("apart", [0, 1e-3])
def test_copies_are_left_out_together(apart):
    x, y = RNG.normal(size=(12, 3)), np.arange(12) % 2
    near = np.repeat(x, 2, axis=0) + apart * RNG.normal(size=(24, 3))
    found = arml.load("tables").adapt(near, np.repeat(y, 2)).reliability()
    assert len(found.copies) == found.independent == 12
    assert found.accuracy < 1


def test_rows_of_one_person_are_left_out_together(command):
    rng = np.random.default_rng(5)
    persons, y = np.repeat(np.arange(12), 4), np.repeat(["kind 0", "kind 1"] * 6, 4)
    x = np.repeat(rng.normal(size=(12, 3)), 4, axis=0) + 0.03 * rng.normal(size=(48, 3))
    table = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2]}
    named = {**table, "person": [f"p{one}" for one in persons]}
    with pytest.warns(UserWarning, match="each value of 'person' is in several rows"):
        alone = arml.load("tables").adapt(named, y)
    found = arml.load("tables").adapt(named, y, groups="person")
    assert "person" in found.keys
    assert found.hints == []
    assert found.reliability().accuracy < 0.75 < alone.reliability().accuracy
    # Equal groups in another form; kept in the folder, and by an estimator.
    same = arml.load("tables").adapt(table, y).reliability(groups=persons)
    np.testing.assert_allclose(same.probabilities, found.reliability().probabilities)
    found.save("kept")
    model = arml.FewShotClassifier("tables").fit(x, y, groups=named["person"])
    for again in arml.load_predictor("kept"), model.predictor_:
        np.testing.assert_array_equal(again.groups, found.groups)
    with pytest.raises(ValueError, match=r"expected 48 groups, .* got shape \[3\]"):
        found.reliability(groups=[1, 2, 3])
    # Rows that are added join the groups that are there, by the column or by values.
    rows = {name: cells[:12] for name, cells in named.items()}
    for more, groups in (
        (rows, None),
        (rows, "person"),
        ({**rows, "person": rows["a"]}, persons[:12]),
    ):
        given = [f"p{one}" for one in groups] if isinstance(groups, np.ndarray) else groups
        whole = arml.load_predictor("kept").add(more, y[:12], groups=given)
        np.testing.assert_array_equal(whole.groups, np.append(found.groups, found.groups[:12]))
    for names, said in (
        (None, "the examples have groups: give groups="),
        ("who", "no column 'who'"),
    ):
        with pytest.raises(ValueError, match=said):
            found.add(
                {name: cells for name, cells in rows.items() if name != "person"}, y[:12], names
            )
    with pytest.raises(ValueError, match="prior: learners of tables have no such options"):
        arml.load("tables").adapt(table, y, prior="equal")
    write("own.csv", {**named, "kind": y})
    _, said = command("adapt tables --support own.csv --target kind --group person --save more")
    assert "not used: person (says which rows belong together)" in said
    assert "over 48 examples in 12 groups" in said


# On the command line.


def test_a_csv_file_is_learned_predicted_and_saved(predictor, command):
    (table, y), (more, _) = rows(N, 0), rows(6, 1)
    write("trees.csv", {**table, "same": [1] * N, "tree": y})
    write("more.csv", {"same": [1] * 6, **more})
    words = "adapt tables --support trees.csv --target tree --query more.csv"
    answers, said = command(f"{words} --no-reliability --matter")
    assert "times less probable the right answers are without a column" in said
    assert answers.startswith("row,label,probability,matters\n")
    _, said = command(f"{words} --out answers.csv --save saved")
    assert f"learned from {N} examples (2 classes)" in said
    assert "not used: same (has one value in all rows)" in said
    assert "cross-validated accuracy" in said
    assert "logistic regression" in said
    chances = predictor.predict_proba(more)
    labels = predictor.classes[chances.argmax(axis=1)]
    expected = [f"{i + 2},{labels[i]},{chances[i].max():.4f}" for i in range(6)]
    answers, _ = command("predict saved more.csv")
    assert answers.splitlines() == ["row,label,probability", *expected]
    assert Path("answers.csv").read_text() == answers
    # Cells that cannot be read end no batch.
    odd = {"bark": ["soft", *more["bark"][1:]], "height": [1, 2, "tall", 4, 5, 6]}
    write("odd.csv", {**more, **odd, "same": [1] * 6})
    _, said = command("predict saved odd.csv --columns")
    assert "'soft' in column 'bark' of row 2 is a value that no example has, so the other" in said
    assert "'tall' in column 'height' of row 4 is not a number, so the other columns decide" in said
    assert "bark: category of 2 values: rough, smooth" in said
    with pytest.warns(UserWarning, match="'tall' in column 'height' of row 3 is not a number"):
        predictor.predict({**more, "height": odd["height"]})
    _, said = command("adapt tables --support trees.csv --target noise", code=2)
    assert "'noise' has 16 different values in 16 rows, too many" in said


def test_rows_without_a_target_are_predicted_from_the_others(tmp_path, command):
    lines = [f"{i}/{i + 13}/2024,{i * i % 7},{'ab'[i % 2]}" for i in range(1, 9)]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["when,size,kind", *lines, "9/9/2024,3,", "9/10/2024,1,"]))
    words = "adapt tables --support t.csv --target kind --no-reliability"
    answers, _ = command(f"{words} --save kept")
    assert [line.split(",")[0] for line in answers.splitlines()] == ["row", "10", "11"]
    _, said = command("evaluate kept --query t.csv")
    assert "left out 2 rows without an answer, the first in row 10" in said
    table.write_text("day,n,kind\n3/4/20,1,a\n4/5/20,2,a\n5/6/20,5,b\n6/8/20,7,b\n7/7/20,8,\n")
    assert "choose with --dates" in command(words, code=2)[1]
    command(f"{words} --dates mdy")
    table.write_text("\n".join(["when,size,kind", *lines]))
    assert "nothing to do" in command(words, code=2)[1]


def test_keys_go_through_to_the_answers(tmp_path, command):
    """A file in order of its classes, whose first column counts the rows; a class is named NA, and
    a column as the answers are."""
    names = ["NA"] * (N // 2) + ["null"] * (N // 2)
    height = [10 + i % 3 + 10 * (k == "NA") for i, k in enumerate(names)]
    lines = [f"{i}\tk{i}\t{2 * i % 7}\t{height[i]}\t{names[i]}" for i in range(N)]
    (tmp_path / "known.tsv").write_text("\n".join(["Nr\tlabel\tbatch\theight\tkind", *lines]))
    (tmp_path / "more.csv").write_text("Nr,label,batch,height\n77,a,1,21\n78,b,2,11\n")
    words = "adapt tables --support known.tsv --target kind --query more.csv --no-reliability"
    answers, said = command(f"{words} --without batch")
    assert "not used: Nr (is a row number, judging by its name; --keep or keep= uses it)" in said
    assert "not used: label (texts that differ in nearly every row; --keep or" in said
    header, first, second = (line.split(",") for line in answers.splitlines())
    assert header == ["row", "Nr", "label", "batch", "arml_label", "probability"]
    assert first[:5] == ["2", "77", "a", "1", "NA"]
    assert second[:5] == ["3", "78", "b", "2", "null"]
    assert command(f"{words} --keep Nr")[0].startswith("row,label,arml_label")
    for option, refusal in (
        ("--keep Nr --keep label", "--keep was given twice: give it once"),
        ("--without nothing", "no column 'nothing' to leave out"),
        ("--group nothing", "no column 'nothing' to group by"),
    ):
        assert refusal in command(f"{words} {option}", code=2)[1]


def test_numbers_keep_their_digits_and_have_no_onnx_file(command):
    """Answers have the digits in which targets differ."""
    x = np.arange(12) ** 2
    write("far.csv", {"a": x, "height": 10_000_000 + 3 * x})
    words = "adapt tables-regression --support far.csv --target height --query far.csv"
    answers, _ = command(f"{words} --no-reliability --save saved")
    found = [float(row.split(",")[1]) for row in answers.splitlines()[1:]]
    np.testing.assert_allclose(found, 10_000_000 + 3 * x, atol=30)
    assert len(set(found)) == len(x)
    assert (
        "; those of functions, photographs, pictures, vectors can"
        in command("export saved --onnx line.onnx", code=2)[1]
    )


# Rows that are not independent, and labels that are no classes.


def test_rows_without_a_group_are_refused_or_filled(command):
    x = {"a": RNG.normal(size=8), "person": ["p", None, "", "q", "—", "r", "ditto", "\u3003"]}
    y = ["u", "v"] * 4
    learner = arml.load("tables")
    with pytest.raises(ValueError, match=r"no group in column 'person' of row 2, 3, 5, 7, 8: fill"):
        learner.adapt(x, y, groups="person")
    with pytest.raises(
        ValueError, match="expected a group for every input, got empty cells at number 2"
    ):
        learner.adapt(x, y, groups=x["person"])
    found = learner.adapt(x, y, groups="person", fill_down=True)
    named = learner.adapt({"a": x["a"]}, y, groups=[*"pppqqrrr"])
    np.testing.assert_array_equal(found.groups, named.groups)
    write("t.csv", {**x, "kind": y})
    words = "adapt tables --support t.csv --target kind --group person"
    assert "of row 3, 4, 6, 8, 9: fill" in command(words, code=2)[1]
    assert "in 3 groups" in command(f"{words} --fill-down")[1]


@pytest.mark.parametrize(
    ("kind", "y", "cells"),
    [
        ("tables", "abbaabab", ["x" if c == "a" else "o" for c in "abbaabab"]),
        (
            "tables-regression",
            [3, 1, 4, 1, 5, 9, 2, 6],
            [37.4, 33.8, 39.2, 33.8, 41, 48.2, 35.6, 42.8],
        ),
    ],
)
def test_a_column_that_says_the_answer_is_named(kind, y, cells):
    found = arml.load(kind).adapt({"z": RNG.normal(size=8), "copy": cells}, list(y))
    (note,) = found.reliability().notes
    assert note.startswith("'copy' says the same as the answer")


def test_rows_in_order_of_time_are_also_predicted_from_earlier_ones(command):
    """The rule turns round: the folds see both halves, the last fifth is never right."""
    rng, n = np.random.default_rng(0), 60
    x, late = rng.normal(size=n), np.arange(n) >= 48
    y = np.where((x > 0) ^ late, "up", "down")
    days = pd.date_range("2024-01-01", periods=n).astype(str)
    write("t.csv", {"x": x, "day": days, "step": np.arange(n) + 0.5, "kind": y})
    words = "adapt tables --support t.csv --target kind --without"
    _, said = command(f"{words} step --save kept")
    note = "the last 12 rows by 'day', predicted from those before: accuracy "
    assert float(said.split(note)[1].split("%")[0]) < 20
    assert "(always their most frequent label: " in said
    assert arml.load_predictor("kept").reliability().notes[0] in said
    assert note.replace("day", "step") in command(f"{words} day --order step")[1]
    assert "no column 'kind' to order by" in command(f"{words} day --order kind", code=2)[1]
    assert "predicted from those before" not in command(f"{words} day")[1]
    found = arml.load("tables-regression").adapt({"x": x, "day": days}, x + 5 * late)
    assert "error" in found.reliability().notes[0]
    for options in ({}, {"without": ["day"], "order": "day"}):  # rows that are added have times
        few = arml.load("tables").adapt({"x": x[:30], "day": days[:30]}, y[:30], **options)
        whole = few.add({"x": x[30:], "day": days[30:]}, y[30:])
        assert note in whole.reliability().notes[0]
    one = np.where((np.arange(n) % 2 == 0) & ~late, "b", "a")
    last = arml.load("tables").adapt({"x": x, "day": days}, one).reliability().notes[0]
    assert "the last 12 rows by 'day' are all a: if only their dates differ" in last


def test_numbers_far_outside_the_examples_are_named():
    height = [155.0, 160, 165, 170, 180, 185, 188, 190]
    found = arml.load("tables").adapt({"height": height}, ["f"] * 4 + ["m"] * 4)
    with pytest.warns(UserWarning, match=r"1\.82 in column 'height' of row 2 is far .*155 to 190"):
        found.predict({"height": [200, 1.82]})


def test_measurements_of_one_person_with_fractions_are_named():
    height, x = np.repeat(RNG.normal(170, 9, 10).round(1), 5), RNG.normal(size=50)
    with pytest.warns(UserWarning, match="each value of 'height' is in several rows"):
        arml.load("tables").adapt({"height": height, "x": x}, [*"aaaaabbbbb"] * 5)


def test_targets_with_a_unit_and_labels_that_are_numbers():
    x, hours = RNG.normal(size=(9, 2)), np.arange(9)
    learner = arml.load("tables-regression")
    for unit in ("s", "ms", "ns"):
        y = (hours * 3600).astype("m8[s]").astype(f"m8[{unit}]")
        for same in (y, pd.Series(y), [*pd.Series(y)]):
            assert learner.adapt(x, same).y.tolist() == (hours * 3600).tolist()
    with pytest.raises(ValueError, match="expected numbers as targets, got dates"):
        learner.adapt(x, np.arange(9).astype("M8[s]"))
    with pytest.raises(
        ValueError, match="expected classes, got 9 different numbers in 9 rows: pred"
    ):
        arml.load("tables").adapt(x, hours / 8)
    assert len(arml.load("tables").adapt(x, hours % 3 / 2).classes) == 3


def test_a_bag_of_estimators_and_codes_as_categories(command):
    x, y = boxes(40)
    bag = BaggingClassifier(arml.FewShotClassifier("tables"), n_estimators=2).fit(x, y)
    assert bag.predict(x).shape == (40,)
    counts = np.arange(40) % 3
    found = arml.load("tables").adapt(x, y, counts)
    np.testing.assert_array_equal(found.values, np.repeat(x, counts, axis=0))
    with pytest.raises(ValueError, match="weights that are not whole numbers"):
        arml.load("tables").adapt(x, y, counts / 2)
    write("t.csv", {"code": [1, 2, 3, 1] * 4, "x": RNG.normal(size=16), "kind": ["a", "b"] * 8})
    words = "adapt tables --support t.csv --target kind --no-reliability --columns --category code"
    assert "code: category of 3 values: 1, 2, 3" in command(words)[1]


def test_more_rows_may_have_new_values_of_a_category():
    first = {"colour": ["red", "blue"] * 8, "size": [1.0, 1.1] * 8}, ["s", "v"] * 8
    more = {"colour": ["green"] * 6 + ["amber"] * 6, "size": [1.0, 1.1] * 6}, [*"wwwwwwzzzzzz"]
    added = arml.adapt("tables", *first).add(*more)
    assert added.schema.columns[0].texts == ("blue", "red", "amber", "green")
    query = {"colour": ["green", "amber", "red"], "size": [1.0, 1.0, 1.0]}
    assert added.predict(query).tolist() == ["w", "z", "s"]
    both = {name: first[0][name] + more[0][name] for name in first[0]}
    whole = arml.adapt("tables", both, first[1] + more[1])
    np.testing.assert_allclose(added.predict_proba(query), whole.predict_proba(query), atol=0.05)


def test_rows_of_one_group_are_not_predicted_from_its_earlier_ones():
    """Each person has a random label, which earlier visits give away."""
    rng = np.random.default_rng(0)
    person = np.tile(np.arange(24), 5)
    days = pd.date_range("2024-01-01", periods=120).astype(str)
    rows = {"height": rng.normal(size=24)[person], "day": days, "person": person.astype(str)}
    y = np.array(["ill", "well"])[rng.integers(2, size=24)[person]]
    found = arml.load("tables").adapt(rows, y, groups="person")
    (note,) = found.reliability().notes
    assert note.endswith("are not predicted from those before, which are of the same groups")
    late = person % 5 == np.arange(120) // 24  # each fifth of the days has its own persons
    some = {name: np.asarray(cells)[late] for name, cells in rows.items()}
    (note,) = arml.load("tables").adapt(some, y[late], groups="person").reliability().notes
    assert "predicted from those before: accuracy" in note


def test_a_table_of_queries_without_rows_is_refused(command):
    write("t.csv", {"a": [1, 2, 3, 4, 5, 6], "kind": [*"xyxyxy"]})
    pd.DataFrame({"a": np.zeros(0)}).to_parquet("empty.parquet")
    words = "adapt tables --support t.csv --target kind --no-reliability --query empty.parquet"
    assert "no rows to predict" in command(words, code=2)[1]


def test_rows_that_are_equal_by_chance_are_no_copies():
    """Of a form with few answers, new rows are like old ones; rows of people are not."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(k, size=200) for k in (3, 3, 2))
    values = np.stack([a, b, c], axis=1).astype(float)
    nothing = np.zeros(3, bool)
    assert len({*equal_rows(values, nothing, a)}) == 200
    people = np.stack([np.arange(24) % 24, np.arange(24) % 2], axis=1).astype(float)
    assert len({*equal_rows(np.tile(people, (5, 1)), nothing[:2], np.zeros(120))}) == 24
    x = {"a": a.astype(str), "b": b.astype(str), "c": c.astype(str)}
    found = arml.adapt(DecisionTreeClassifier(), x, np.where(a == b, "u", np.where(c, "v", "w")))
    assert found.reliability().accuracy == 1
    noise, order = rng.integers(2, size=200), rng.permutation(200)
    one, other = (
        arml.adapt(DecisionTreeClassifier(), {k: c[i] for k, c in x.items()}, noise[i])
        .reliability()
        .accuracy
        for i in (np.arange(200), order)
    )
    assert one == other
    assert abs(one - 0.5) < 0.12


def test_rows_that_are_no_examples_also_begin_a_group(command):
    rows = ["person,x,kind"]
    for i, name in enumerate(["ann", "bob", "cat", "dan"]):
        rows += [f"{name},{i},{'' if i % 2 else 'u'}", f",{i + 9},v", f",{i + 5},u"]
    Path("t.csv").write_text("\n".join(rows) + "\n")
    words = "adapt tables --support t.csv --target kind --group person --fill-down"
    assert "in 4 groups" in command(words)[1]
