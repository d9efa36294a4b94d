"""Classes of one's own, split into those of the training and those of the test."""

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import arml
from arml.results.scores import pairing

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(12, 3)).astype(np.float32)
LABELS = np.repeat(np.arange(12), 6)
X = CENTRES[LABELS] + 0.01 * RNG.normal(size=(72, 3)).astype(np.float32)
SHAPE = {"ways": 3, "shots": 2, "queries": 3}


def classes_of(tasks, n=20):
    """The labels of the vectors in some tasks: the nearest centres."""
    drawn = jax.vmap(tasks.sample)(jax.random.split(jax.random.key(0), n))
    x = np.asarray(drawn.support.x).reshape(-1, 1, 3)
    return {*np.argmin(((x - CENTRES) ** 2).sum(-1), axis=1).tolist()}


def test_no_class_is_in_two_parts():
    splits = arml.Splits.of_classes((X, LABELS), **SHAPE)
    parts = [classes_of(part) for part in splits[:3]]
    assert [len(part) for part in parts] == [6, 3, 3]
    assert set.union(*parts) == set(range(12))
    assert splits.train.problem == arml.Problem("classification", (3,), 3, 2, 3, classes=6)
    assert not splits.shared


def test_neither_the_order_of_examples_nor_a_data_set_in_place_of_arrays_changes_a_part():
    whole = arml.Splits.of_classes((X, LABELS), **SHAPE)
    order = np.argsort(RNG.permutation(72) + 1000 * (LABELS % 5), kind="stable")
    shuffled = arml.Splits.of_classes((X[order], LABELS[order]), **SHAPE)
    assert classes_of(shuffled.test) == classes_of(whole.test)
    pairs = arml.Splits.of_classes([*zip(X, map(float, LABELS), strict=True)], **SHAPE)
    assert pairs.test.identity() == whole.test.identity()
    named = [{"image": x, "label": np.int64(y)} for x, y in zip(X, LABELS, strict=True)]
    assert arml.Splits.of_classes(named, **SHAPE).test.identity() == whole.test.identity()
    assert classes_of(arml.Splits.of_classes((X, LABELS), seed=1, **SHAPE).test) != classes_of(
        whole.test
    )


def test_a_stated_split_is_kept_and_is_part_of_the_identity():
    parts = {"train": range(6), "validation": range(6, 9), "test": range(9, 12)}
    splits = arml.Splits.of_classes((X, LABELS), parts=parts, **SHAPE)
    assert classes_of(splits.test) == {9, 10, 11}
    other = {**parts, "test": range(6, 9), "validation": range(9, 12)}
    again = arml.Splits.of_classes((X, LABELS), parts=other, **SHAPE)
    assert pairing(splits.test.identity(), "test") != pairing(again.test.identity(), "test")


def picture(i, size=16):
    return np.full((size, size, 3), 20 * (i // 6), np.uint8)


FORMS = {
    "array": np.asarray,
    "grey": lambda pixels: pixels[..., 0],
    "channels first": lambda pixels: np.moveaxis(pixels, -1, 0),
    "pillow": Image.fromarray,
    "tensor": lambda pixels: np.moveaxis(pixels, -1, 0) / np.float32(255),
}


@pytest.mark.parametrize("form", FORMS)
def test_pictures_of_every_form_are_the_same_pictures(form):
    items = [(FORMS[form](picture(i)), i // 6) for i in range(72)]
    task = arml.Splits.of_classes(items, size=8, **SHAPE).test.sample(jax.random.key(0))
    assert task.support.x.shape == (6, 8, 8, 3)
    brightness = np.unique(np.asarray(task.support.x).reshape(6, -1), axis=1)
    assert brightness.shape == (6, 1)
    np.testing.assert_allclose(brightness * 255 % 20, 0, atol=1e-3)


def test_folders_are_families(tmp_path, monkeypatch):
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    for i in range(54):
        place = tmp_path / "own" / f"class{i // 6}"
        place.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(place / f"{i}.png"), picture(i))
    data = {
        "first": tmp_path / "own",
        "second": ([picture(i) for i in range(54)], np.arange(54) // 6),
    }
    splits = arml.Splits.of_classes(data, size=16, **SHAPE)
    assert splits.test.families == ("first", "second")
    assert arml.Splits.of_classes(tmp_path / "own", size=16, **SHAPE).test.families == ("own",)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((X, LABELS[:5]), "own: expected a label for each input, got 72 inputs and 5 labels"),
        ((X[:18], LABELS[:18]), "own: expected at least 3 .* classes"),
        ((X[::3], LABELS[::3]), "own: expected at least 5 examples of each class"),
        ([(1, 2, 3)], "own: expected pictures or vectors of numbers, got an array of int64 and"),
        ([1, 2], "own: expected a folder, a pair of arrays .x, y., or a data set of pairs"),
        ([(picture(0), 0), (picture(0, 8), 0)], "own: expected inputs of one shape, got"),
        ("tests", "expected a size for the pictures of tests, got none: give size=84"),
        ("no-folder", "nothing at no-folder: check the path"),
        ((X, [*LABELS[1:], None]), "own: expected a text or a number as the label .*, got None: d"),
        ((X, [*LABELS[1:], np.nan]), "own: expected a text or a number as the label .*, got nan"),
        ((X, np.eye(12)[LABELS]), r"got an array of shape \(12,\): drop .* \(argmax\)"),
        ([(picture(0).astype(int), 0)], r"own: expected pixels of 8 bits .*, got int64: convert"),
        ([(picture(0), 0), (picture(0) / 255, 0)], "expected pixels of one type, got float32 and"),
        ({}, "expected one family or more with inputs of one shape, got none"),
        ({"a": (X, LABELS), "b": (X[:, :2], LABELS)}, r"got a with \(3,\), b with \(2,\)"),
    ],
)
def test_other_data_are_one_line(data, said):
    with pytest.raises(ValueError, match=said) as raised:
        arml.Splits.of_classes(data, **SHAPE)
    assert "\n" not in str(raised.value)


class Fixed(arml.TaskDistribution):
    """Tasks of three classes, and of no others."""

    problem = arml.Problem("classification", (3,), 3, shots=1, queries=2)
    families = ("fixed",)

    def sample(self, key):
        x = CENTRES[:3] + 0.1 * jax.random.normal(key, (3, 3, 3))
        y = jnp.broadcast_to(jnp.arange(3), (3, 3))
        support = arml.Examples(x[0], y[0])
        return arml.Task(support, arml.Examples(x[1:].reshape(-1, 3), y[1:].ravel()), jnp.array(0))


@pytest.mark.usefixtures("optax_promotes")
def test_scores_on_the_classes_of_the_training_say_so():
    fixed, splits = Fixed(), arml.Splits.of_classes((X, LABELS), **SHAPE)
    fitted = arml.fit(arml.build("protonet", fixed), fixed, steps=2, interval=2)
    with pytest.warns(UserWarning, match="drawn from the training distribution: if its classes"):
        scores = arml.evaluate(fitted, fixed, 4)
    assert scores.shared
    assert repr(scores).endswith("over 4 tasks of the training distribution)")
    # Nothing is known of the training of a bare learner; another distribution is another one.
    for learner, tasks in ((fitted.learner, fixed), (fitted, splits.test), (fitted, splits)):
        assert not arml.evaluate(learner, tasks, 2).shared
