"""ONNX files: the same answers without JAX, from pictures of any size, for every method."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import jax
import numpy as np
import onnxruntime
import pytest

import arml
from arml.algorithms import ALGORITHMS
from arml.cli import main
from arml.datasets.decode import cropped, resize
from arml.datasets.starter import load_starter
from arml.predict.onnx import ANY_PICTURES, resized, write
from untrained import untrained


@pytest.fixture(autouse=True, scope="module")
def _some_parts_promote():
    with jax.numpy_dtype_promotion("standard"):
        yield


def answers(file: Path, **inputs: np.ndarray) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(str(file)).run(None, inputs)


@pytest.fixture(scope="module")
def starter(tmp_path_factory):
    """The learner that ships, adapted to three glyphs, its file, and more pictures."""
    glyphs, place = load_starter()[0][0], tmp_path_factory.mktemp("onnx")
    places = [glyphs.first[i] + j for i in range(3) for j in range(2)]
    predictor = arml.load("starter").adapt(glyphs.images[places], list("aabbcc"))
    predictor.save(place / "kept")
    assert main(["export", str(place / "kept"), "--onnx", str(place / "file.onnx")]) == 0
    return predictor, place / "file.onnx", glyphs.images[100:160]


def test_the_file_of_a_predictor_answers_as_it_does(starter):
    predictor, file, pictures = starter
    assert file.stat().st_size < 0.75e6  # as text in a page less than 1 MB
    session = onnxruntime.InferenceSession(str(file))
    (chances,) = session.run(None, {"pictures": pictures})
    np.testing.assert_allclose(chances, predictor.predict_proba(pictures), atol=1e-4)
    large = cv2.resize(pictures[0], (90, 64))
    (chances,) = session.run(None, {"pictures": large[None]})
    small = resize(large, 32)[None]
    np.testing.assert_allclose(chances, predictor.predict_proba(small), atol=6e-3)
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "uses",
    [*(pytest.param(uses, marks=pytest.mark.slow) for uses in ("logistic", "edges")), "ensemble"],
)
def test_other_models_have_a_file(uses, starter, tmp_path):
    predictor, _, pictures = starter
    simple = predictor.using(uses)
    simple.to_onnx(tmp_path / "simple.onnx")
    (chances,) = answers(tmp_path / "simple.onnx", pictures=pictures)
    np.testing.assert_allclose(chances, simple.predict_proba(pictures), atol=1e-4)


SIZES = [(32, 32), (64, 96), (100, 77), (16, 16), (7, 50), (50, 7), (33, 31), (480, 640)]


@pytest.mark.parametrize("crop", [False, True, 0.6])
def test_pictures_are_resized_as_the_decoder_does(crop, tmp_path):
    file = tmp_path / "resize.onnx"
    write(file, lambda x: resized(x, 32, crop), {"pictures": ANY_PICTURES}, ["resized"])
    session, rng = onnxruntime.InferenceSession(file), np.random.default_rng(0)
    for height, width in SIZES:
        picture = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        (got,) = session.run(None, {"pictures": picture[None]})
        away = np.abs(got[0] - resize(cropped(picture, crop), 32))
        # OpenCV rounds halves up where it halves a side, and interpolates in whole numbers.
        assert away.max() < 1.001, (height, width)
        if min(height, width) > 64:
            assert np.mean(away > 0.5) < 0.01


VECTORS = arml.Problem("classification", (4,), 3, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(n for n, m in ALGORITHMS.items() if m.suits(VECTORS)))
def test_every_method_has_a_file(algorithm, tmp_path):
    few = replace(untrained(algorithm, 4), temperature=1.7)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 4)).astype(np.float32), list("aabbccc")
    predictor = few.adapt(x, y)
    predictor.to_onnx(tmp_path / "file.onnx")
    query = rng.normal(size=(5, 4)).astype(np.float32)
    (chances, *_) = answers(tmp_path / "file.onnx", inputs=query)
    np.testing.assert_allclose(chances, predictor.predict_proba(query), atol=1e-4)


@pytest.mark.parametrize("algorithm", ["arml", pytest.param("versa", marks=pytest.mark.slow)])
def test_functions_have_files(algorithm, tmp_path):
    few = untrained(algorithm, 2, kind="regression")
    rng = np.random.default_rng(0)
    query = rng.normal(size=(5, 2)).astype(np.float32)
    alone = few.adapt(rng.uniform(0, 5, (6, 2)), rng.normal(size=6))
    for predictor in (alone, alone.using("ensemble")):
        predictor.to_onnx(tmp_path / "file.onnx")
        (values,) = answers(tmp_path / "file.onnx", inputs=query)
        np.testing.assert_allclose(values[:, 0], predictor.predict(query), rtol=1e-4, atol=1e-4)


def test_the_package_onnx_is_an_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ValueError, match=r"pip install 'arml\[onnx\]'"):
        write(tmp_path / "file.onnx", lambda x: x, {"pictures": ANY_PICTURES}, ["same"])
