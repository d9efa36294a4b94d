"""The learner of photographs: its head against the formulas, its pictures, its files."""

import csv
import io
import json
import pickle
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import arml
from arml.photographs.learner import PhotoLearner
from arml.predict.folds import equal_inputs
from arml.predict.head import (
    CENTRE_VARIANCE,
    COVARIANCE_SHRINKAGE,
    DEGREES_OF_FREEDOM,
    HEAD_TEMPERATURE,
    fit_head,
    fit_metric,
    traced_factor,
    unit_roots,
)
from arml.predict.kinds import named_kind
from arml.results.files import RunError
from small_pictures import COLOURS, blob, coloured


def vectors(rng, n=12, d=20, ways=3):
    y = np.arange(n) % ways
    centres = 2 * rng.random((ways, d))
    return (centres[y] + rng.random((n, d))).astype(np.float32), y


def encoded(pixels, kind="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def learner():
    return PhotoLearner()


@pytest.fixture
def predictor(learner):
    pictures = [blob(colour, i) for i, colour in enumerate(COLOURS[:2] * 3)]
    return learner.adapt(pictures, ["red", "blue"] * 3)


@pytest.mark.parametrize("shares", [(4, 4, 4), (9, 2, 1)])
def test_head_is_a_cosine_in_the_regularised_metric(rng, shares):
    x, y = vectors(rng)
    y = np.sort(y) if shares[0] == 4 else np.repeat([0, 1, 2], shares)
    head, z = fit_head(x, y, 3), unit_roots(x)
    counts = np.array(shares)
    centres = np.stack([z[y == k].mean(axis=0) for k in range(3)])
    # Generalised least squares of the class means, whose variances are 1 + CENTRE_VARIANCE / n.
    precision = np.linalg.inv(np.eye(3) + CENTRE_VARIANCE * np.diag(1 / counts))
    u = z - np.ones(3) @ precision @ centres / precision.sum()
    means = np.stack([u[y == k].mean(axis=0) for k in range(3)])
    rows = u - means[y]
    metric = np.linalg.inv(
        np.eye(20) + rows.T @ rows / (len(x) - 3 + DEGREES_OF_FREEDOM) / COVARIANCE_SHRINKAGE
    )
    length = np.sqrt(np.einsum("kd,de,ke->k", means, metric, means))
    wanted = u @ metric @ means.T / length / np.linalg.norm(u, axis=1, keepdims=True)
    np.testing.assert_allclose(head.logits(x) * head.temperature, wanted, atol=2e-5)
    away = u[:, None] - means
    nearest = np.einsum("nkd,de,nke->nk", away, metric, away).min(axis=1)
    novelty = nearest * (1 - wanted.max(axis=1)) / head.bound
    np.testing.assert_allclose(head.answers(x)[1], novelty, rtol=1e-3, atol=1e-6)
    # The same by products of matrices, as a page learns.
    again = jax.jit(partial(fit_metric, factor=traced_factor, xp=jnp))(
        x, np.eye(3)[y], np.ones(len(y))
    )
    again = again._replace(temperature=head.temperature, bound=head.bound, prior=head.prior)
    for a, b in zip(again.answers(x, jnp), head.answers(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_copies_and_the_order_of_the_examples_change_neither_temperature_nor_bound(rng):
    x, y = vectors(rng, n=30)
    y[::7] = (y[::7] + 1) % 3
    once = fit_head(x, y, 3, same=equal_inputs(x))
    order = np.repeat(rng.permutation(30), 2)
    twice = fit_head(x[order], y[order], 3, same=equal_inputs(x[order]))
    weights = fit_head(x, y, 3, np.full(30, 2.0), equal_inputs(x))
    assert twice.temperature == weights.temperature
    np.testing.assert_allclose([twice.bound, once.bound], weights.bound, rtol=0.2)
    order = rng.permutation(30)
    moved = fit_head(x[order], y[order], 3, same=equal_inputs(x[order]))
    np.testing.assert_allclose(moved[4:6], once[4:6], rtol=1e-5)
    # Copies of one example a class leave nothing to be left out.
    few = fit_head(x[[0, 0, 1, 1]], np.array([0, 0, 1, 1]), 2, same=np.array([0, 0, 1, 1]))
    assert few.bound > 0.01


def test_one_example_of_each_class_gives_the_cosine_of_centred_vectors(rng):
    x, y = vectors(rng, n=3)
    head, z = fit_head(x, y, 3), unit_roots(x)
    u = z - z.mean(axis=0)
    unit = u / np.linalg.norm(u, axis=1, keepdims=True)
    assert head.temperature == HEAD_TEMPERATURE * (1 + 1 / 3)
    np.testing.assert_allclose(head.logits(x) * head.temperature, unit @ unit.T, atol=2e-5)


def test_a_class_with_many_examples_is_not_preferred(rng):
    d = 200
    centres = 1 + rng.random((2, d))
    many = centres[0] + rng.normal(0, 0.3, (30, d))
    one = centres[1] + rng.normal(0, 0.3, (1, d))
    new = centres[1] + rng.normal(0, 0.3, (50, d))
    head = fit_head(np.abs(np.concatenate([many, one])), np.array([0] * 30 + [1]), 2)
    assert np.mean(head.logits(np.abs(new)).argmax(axis=1) == 1) > 0.95


def test_more_examples_of_a_class_do_not_hide_it(rng):
    d, new = 200, np.arange(300) % 3
    centres = rng.random((3, d))
    for n in (4, 40, 300):
        y = np.repeat([0, 1, 2], [n, 4, 4])
        x, queries = (np.abs(centres[k] + rng.normal(0, 1.5, (len(k), d))) for k in (y, new))
        right = fit_head(x, y, 3).logits(queries).argmax(axis=1) == new
        first = right[new == 0].mean() if n == 4 else first
        assert right[new == 0].mean() > first - 0.03


def test_a_prior_multiplies_the_odds(predictor, learner, tmp_path):
    pictures = [blob(colour, i) for i, colour in enumerate(COLOURS[:2])]
    chances = predictor.predict_proba(pictures)
    uneven = learner.adapt(predictor.x[:5], predictor.classes[predictor.y[:5]])
    assert "equally frequent" in uneven.prior_in_words
    assert predictor.prior_in_words == ""
    for one, prior in ((predictor, "blue=90, red=10"), (uneven, "examples"), (uneven, [2, 3])):
        moved = one.with_prior(prior)
        odds = [9, 1] if one is predictor else [2, 3]  # blue, red
        wanted = one.predict_proba(pictures) * odds
        wanted /= wanted.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(moved.predict_proba(pictures), wanted, rtol=1e-4)
        shutil.rmtree(tmp_path / "kept", ignore_errors=True)
        moved.save(tmp_path / "kept")
        for same in (arml.load_predictor(tmp_path / "kept"), pickle.loads(pickle.dumps(moved))):
            np.testing.assert_array_equal(
                same.predict_proba(pictures), moved.predict_proba(pictures)
            )
            assert same.prior_in_words == moved.prior_in_words
        traced = jax.nn.softmax(moved._traced()(moved.learner.read(pictures))[0])
        np.testing.assert_allclose(traced, wanted, rtol=1e-3)
        assert moved.add(pictures[:1], ["red"]).prior_in_words.startswith("answers assume")
    np.testing.assert_array_equal(predictor.predict_proba(pictures), chances)  # as it was
    assert "worse" not in str(uneven.reliability().lines([*"abcde"]))
    with pytest.raises(ValueError, match="the prior has no share for the new class 'green': use"):
        predictor.with_prior([1, 2]).add(pictures[:1], ["green"])
    for bad in ("much", "red=1", "1,2,3", "red=1,red=2", {"red": 1, "blue": 0}, [1, np.nan], None):
        with pytest.raises(ValueError, match="prior equal, examples, or a share"):
            predictor.with_prior(bad)


def test_temperature_follows_the_examples(rng):
    x, y = vectors(rng, n=60)
    clear = fit_head(x, y, 3).temperature
    mixed = fit_head(x, rng.permutation(y), 3).temperature
    assert clear < HEAD_TEMPERATURE < mixed


def test_all_kinds_of_pictures_have_the_same_vector(learner, tmp_path):
    pixels = blob((200, 120, 40))
    (tmp_path / "a.png").write_bytes(encoded(pixels))
    opaque = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    kinds = [tmp_path / "a.png", str(tmp_path / "a.png"), encoded(pixels), pixels, pixels / 255]
    kinds += [Image.fromarray(pixels), opaque, Image.fromarray(opaque), io.BytesIO(kinds[2])]
    found = learner.read(kinds)
    assert found.shape == (9, 1280)
    assert np.all(found == found[0])
    # A picture's vector does not depend on the others of its batch.
    np.testing.assert_array_equal(learner.read([blob((0, 90, 0)), pixels])[1], found[0])
    np.testing.assert_array_equal(learner.read(found), found)
    np.testing.assert_array_equal(learner.read(str(tmp_path / "a.png")), found[:1])
    np.testing.assert_array_equal(learner.read(tmp_path), found[:1])
    grey = pixels[..., 0]
    a, b = learner.read([grey, np.repeat(grey[..., None], 3, axis=2)])
    np.testing.assert_array_equal(a, b)


def test_a_folder_of_classes_is_learned_and_a_file_or_a_folder_predicted(learner, tmp_path):
    for name, tone in (("red", (200, 0, 0)), ("green", (0, 200, 0))):
        for i in range(2):
            path = tmp_path / name / f"{i}.png"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encoded(blob(tone)))
    predictor = arml.adapt("photos", tmp_path)
    assert predictor.predict(str(tmp_path / "red" / "0.png")) == ["red"]
    assert predictor.predict(tmp_path / "green").tolist() == ["green"] * 2
    (tmp_path / "green" / "1.png").write_bytes(b"no")
    assert predictor.predict(tmp_path / "green", errors="skip").tolist() == ["green", None]
    with pytest.raises(ValueError, match="expected labels y"):
        arml.adapt("photos", [blob((1, 2, 3))])


def test_vectors_of_files_are_kept_by_content(learner, tmp_path, monkeypatch):
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    own = PhotoLearner()
    data = encoded(blob((10, 200, 30)))
    first = own.read([data])
    (kept,) = (tmp_path / "cache").rglob("*.npy")
    np.save(kept, first[0] + 1)
    np.testing.assert_array_equal(own.read([data]), first + 1)
    kept.write_bytes(b"damaged")
    np.testing.assert_array_equal(own.read([data]), first)
    monkeypatch.setenv("ARML_CACHE", "/proc/none")  # cannot be written
    np.testing.assert_array_equal(PhotoLearner().read([data]), first)


def test_predicts_adds_and_checks(predictor, caplog):
    new = [blob((210, 40, 20), 50), b"", blob((20, 20, 200), 51)]
    assert predictor.predict(new, errors="skip").tolist() == ["red", None, "blue"]
    assert "picture 2 cannot be read: an empty file" in caplog.text
    chances = predictor.predict_proba(new, errors="skip")
    np.testing.assert_allclose(chances.sum(axis=1), [1, np.nan, 1])
    assert np.isnan(predictor.novelty(new, errors="skip")).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="'raise' or 'skip'"):
        predictor.predict(new, errors="no")
    assert predictor.evaluate(new[::2], ["red", "blue"]).accuracy == 1
    assert predictor.reliability().accuracy > 0.9
    more = predictor.add([blob((20, 200, 20), 60), blob((30, 210, 30), 61)], ["green"] * 2)
    assert more.classes.tolist() == ["blue", "green", "red"]
    assert more.predict([blob((25, 190, 25), 62)]).tolist() == ["green"]
    assert predictor.classes.tolist() == ["blue", "red"]
    strange = np.random.default_rng(0).integers(0, 255, (6, 6, 3), np.uint8)
    strange = strange.repeat(20, 0).repeat(20, 1)
    known, other = predictor.novelty([blob((220, 30, 30), 70), strange])
    assert other > max(1, known)
    assert predictor.predict([strange], none="unknown").tolist() == ["unknown"]


def test_saved_and_pickled_predictors_are_the_same(predictor, tmp_path):
    new = [blob((210, 40, 20), 50)]
    predictor.save(tmp_path / "p")
    for other in (arml.load_predictor(tmp_path / "p"), pickle.loads(pickle.dumps(predictor))):
        np.testing.assert_array_equal(other.predict_proba(new), predictor.predict_proba(new))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="name another folder"):
        predictor.save(tmp_path / "other")
    file = tmp_path / "p" / "config.json"
    file.write_text(file.read_text().replace('"red"', '"rod"'))
    with pytest.raises(RunError, match="altered"):
        arml.load_predictor(tmp_path / "p")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nowhere.jpg"], "nowhere.jpg: expected a file that can be read"),
        ([b"", blob((1, 2, 3)), b"no"], "2 pictures cannot be read: picture 1 .an empty file., pi"),
        (blob((1, 2, 3)), "put it in a list"),
        ([b"no picture"], "picture 1: expected an image"),
        ("one.jpg", "one.jpg: expected a file that can be read, got No such file"),
        (np.zeros((2, 5)), "or their vectors"),
        (np.full((1, 4, 4, 3), 7.0), "bytes, or floats from 0 to 1"),
        ([np.zeros((4, 4, 5), np.uint8)], "expected pixels"),
        ([], "no pictures"),
    ],
)
def test_bad_pictures_are_refused_in_one_line(learner, given, said):
    with pytest.raises(ValueError, match=said) as error:
        learner.adapt(given, ["a", "b"])
    assert "\n" not in str(error.value)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Four pictures of each of two colours to learn from, and four others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    for part, seed in (("own", 0), ("photos", 9)):
        coloured(tmp_path / part, "red", "blue", n=4, seed=seed)
    return tmp_path


def test_the_command_answers_what_it_can_and_shows_what_it_knows(place, command):
    """One bad file among the examples and the queries, in a folder and in a zip."""
    for bad in ("photos/bad.png", "own/red/bad.png", "photos/IMG.PSD", "photos/.DS_Store"):
        Path(bad).write_bytes(b"")
    shutil.make_archive("photos", "zip", "photos")
    _, said = command("adapt --support own")
    assert "100% with 2, 100% with 3, 100% with 4" in said
    assert "left out 1 of 9 pictures, which cannot be read: own/red/bad.png (an empty file)" in said
    answers, said = command(
        "adapt --support own --query photos --save kept --report page.html",
        "--sort-into sorted --above 0.6",
    )
    assert "1 of 9 pictures cannot be read, and have no label: photos/bad.png (an emp" in said
    assert "the least certain answers, to label next: photos/" in said
    rows = answers.splitlines()
    assert rows[0] == "file,label,probability,novelty,problem"
    assert rows[1] == "photos/bad.png,,,,an empty file"
    assert len([*Path("sorted/red").iterdir()]) == len([*Path("sorted/blue").iterdir()]) == 4
    page = Path("page.html").read_text()
    assert "an empty file" in page
    assert page.count("<img") >= 8
    shutil.make_archive("kept", "zip", "kept")
    answers, said = command("predict kept.zip photos.zip --sort-into again")
    assert "photos.zip: blue/0.png,blue," in answers
    assert "left out one file whose name" in said
    assert "IMG.PSD" in said.replace(" ", "")
    assert sorted(row.split(",")[1:] for row in answers.splitlines()) == sorted(
        row.split(",")[1:] for row in rows
    )
    found = json.loads(command("evaluate kept --query own --json")[0])
    assert (found["n"], found["accuracy"]) == (8, 1)
    shutil.copytree("own/blue", "one/blue")
    for file in shutil.copytree(place / "own", place / "broken").glob("red/*"):
        file.write_bytes(b"no picture")
    for words, refused in (
        ("predict kept photos --strict", "photos/bad.png: expected an image"),
        ("predict kept photos --sort-into sorted", "is not empty"),
        ("adapt --support own --save new --strict", "own/red/bad.png: expected an image"),
        ("adapt --support one --save new", "expected 2 or more classes, got 1 class"),
        ("adapt --support broken --save new", "no picture of red can be read"),
        ("adapt --support own --query photos --strict", "bad.png: expected an image"),
    ):
        _, said = command(words, code=2)
        assert refused in said
        assert "learned from" not in said


def test_a_broken_link_is_left_out_like_a_damaged_file(place, command):
    for link in ("own/red/gone.png", "photos/gone.png"):
        Path(link).symlink_to("nowhere")
    answers, said = command("adapt --support own --query photos")
    problem = "a broken link or a special file"
    left_out = f"left out 1 of 9 pictures, which cannot be read: own/red/gone.png ({problem})"
    assert left_out in said
    assert f"photos/gone.png,,,,{problem}" in answers
    _, said = command("adapt --support own --strict", code=2)
    assert f"own/red/gone.png: expected a file that can be read, got {problem}" in said


def test_a_saved_predictor_is_replaced_only_by_one_of_its_classes(place, command):
    assert "replaced" not in command("adapt --support own --save kept --no-reliability")[1]
    _, said = command("adapt --support own --save kept --no-reliability")
    assert "replaced the predictor in kept" in said
    shutil.copytree("own", "other")
    Path("other/red").rename("other/grey")
    _, said = command("adapt --support other --save kept", code=2)
    assert said.endswith(
        "kept holds a predictor of other classes (blue, red): name another folder, or delete it"
    )
    more = arml.load_predictor("kept").add([*Path("other/grey").glob("*.png")], ["grey"] * 4)
    more.save("kept")
    assert arml.load_predictor("kept").classes.tolist() == ["blue", "grey", "red"]
    with pytest.raises(RunError, match=r"other classes \(blue, grey, red\)"):
        arml.adapt("photos", "own").save("kept")
    texts = arml.adapt("texts", [f"one {i}" for i in range(12)], ["blue", "grey", "red"] * 4)
    with pytest.raises(RunError, match=r"kept holds an arml predictor of .*, not an arml .*texts:"):
        texts.save("kept")


def test_the_command_line_needs_no_learner_and_no_jax(place, command):
    words = "--support own --query photos --save kept"
    script = (
        f"import sys; from arml.cli import main; assert main({['adapt', *words.split()]}) == 0; "
        "assert not {'jax', 'equinox'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "learner: photos" in done.stderr
    # A folder of the name of the learner is no learner.
    answers, said = command("adapt photos", words)
    assert answers == done.stdout
    assert "learner: photos" not in said
    assert "accuracy 100% (mean of 3 repeats over 8 examples" in said
    assert answers.startswith("file,label,probability,novelty\nphotos/blue/0.png,blue,")
    # The pictures 0 and 1 of a class show one thing.
    _, said = command("adapt photos --support own --save kept --group", r"[01]?(\d?)\.png")
    assert "6 groups of pictures" in said
    assert "8 examples in 6 groups" in said
    kept = arml.load_predictor(place / "kept")
    assert len({*kept.groups.tolist()}) == 6
    more = kept.add([*Path("photos/blue").glob("*.png")][:2], ["blue"] * 2, groups=[*"ab"])
    assert len({*more.groups.tolist()}) == 8
    with pytest.raises(ValueError, match="the examples have groups: give groups="):
        kept.add([*Path("photos/blue").glob("*.png")][:1], ["blue"])
    assert command("predict kept photos --none")[0].count("\n") == 9
    Path("few.csv").write_text("a,b\n1,x\n2,y\n")
    for words, refused in (
        ("adapt photos --support own --save kept --group (", "is not a regular expression"),
        (r"adapt photos --support own --group sign\d", "does not match the path"),
        ("predict kept photos --above 0.9", "--above is for --sort-into: leave it out"),
        ("predict kept photos --sort-into new --above 80", "a probability from 0 to 1"),
        ("features own --out F --model nowhere.onnx", "no ONNX model at nowhere.onnx"),
        ("adapt --support own --save kept --none", "--none is for --query: leave it out"),
        ("adapt --support few.csv --target b", "a table needs a learner"),
    ):
        assert refused in command(words, code=2)[1]


def test_the_patch_that_matters_is_the_coloured_one(place, command):
    rng = np.random.default_rng(0)
    for name, colour in zip(("red", "blue"), COLOURS, strict=False):
        for i in range(4):
            pixels = 128 + rng.integers(-20, 20, (64, 64, 3))
            pixels[34:46, 18:30] = colour
            Path(f"own/{name}/{i}.png").write_bytes(encoded(pixels.astype(np.uint8)))
    words = "adapt photos --support own --query own/red --no-reliability --matter"
    for answer in csv.DictReader(command(words)[0].splitlines()):
        assert answer["matters"].startswith("row 3 of 4, column 2 of 4 (")


def test_starter_is_tried_only_if_most_pictures_are_grey(predictor, monkeypatch):
    monkeypatch.setattr("arml.photographs.inputs.load", {}.__getitem__)
    grey, red = blob((90, 90, 90))[..., :1].repeat(3, axis=2), blob((200, 30, 30))
    assert named_kind("photographs").better(predictor, [red, grey, red] * 20, ["a"] * 60)[0] is None
    with pytest.raises(KeyError, match="starter"):
        named_kind("photographs").better(predictor, [grey, red, grey] * 20, ["a"] * 60)


def test_copies_alone_choose_without_a_number_that_is_none(learner):
    grey = [np.full((40, 40, 3), level, np.uint8) for level in (20, 20, 20, 200, 200, 200)]
    predictor = learner.adapt(grey, list("aaabbb"))
    chosen, reason = named_kind("photographs").better(predictor, grey, list("aaabbb"))
    assert chosen is not None
    assert "nan" not in reason
    assert np.all(predictor.novelty([blob((90, 40, 10))]) < 10)


def test_a_sample_weight_counts_an_example_as_often_as_it_says(rng, learner):
    x, y = vectors(rng, n=14)
    twice, weight = np.arange(14) < 5, 1.0 + (np.arange(14) < 5)
    a = fit_head(x, y, 3, weight, left_out=False)
    b = np.concatenate([x, x[twice]]), np.concatenate([y, y[twice]])
    b = fit_head(*b, 3, left_out=False)
    np.testing.assert_allclose(a.logits(x), b.logits(x), rtol=1e-4, atol=1e-4)
    x = np.abs(rng.normal(size=(8, 1280))).astype(np.float32)
    labels = ["a", "b", "c", "a", "b", "a", "b", "a"]
    some = learner.adapt(x, labels, [1, 1, 0, 1, 1, 1, 1, 1])
    kept = learner.adapt(np.delete(x, 2, axis=0), labels[:2] + labels[3:])
    assert some.classes.tolist() == ["a", "b"]
    np.testing.assert_allclose(some.predict_proba(x), kept.predict_proba(x), rtol=1e-5)
    again = pickle.loads(pickle.dumps(learner.adapt(x, labels, np.arange(1.0, 9))))
    assert again.sample_weight.tolist() == [*range(1, 9)]
    assert again.add(x[:1], ["d"]).sample_weight.tolist() == [*range(1, 9), 1]
    with pytest.raises(ValueError, match="finite and 0 or more"):
        learner.adapt(x, labels, -np.ones(8))
