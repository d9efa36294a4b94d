"""Another model of pictures: a convolution of random weights."""

import json
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import arml
from arml.app.server import served
from arml.datasets.decode import cropped
from arml.datasets.features import IMAGENET_CHANNELS
from arml.predict.head import fit_head
from arml.predict.onnx import Graph
from small_pictures import coloured

SIZE, WIDTH = 32, 32


def network(path: Path) -> None:
    """Bytes `[n, size, size, 3]` to vectors; the colours are normalised inside."""
    net, rng = Graph({"arml.saw": "nothing"}), np.random.default_rng(0)
    kernel, bias = rng.normal(size=(WIDTH, 3, 5, 5)) / 5, 0.1 * rng.normal(size=WIDTH)
    x = net("Cast", "pictures", to=TensorProto.FLOAT)
    x = net("Sub", x, 255 * np.array(IMAGENET_CHANNELS[0], np.float32))
    x = net("Div", x, 255 * np.array(IMAGENET_CHANNELS[1], np.float32))
    x = net("Transpose", x, perm=[0, 3, 1, 2])
    x = net("Conv", x, kernel.astype(np.float32), bias.astype(np.float32), strides=[2, 2])
    net("Flatten", net("GlobalAveragePool", net("Relu", x)), output="vectors", axis=1)
    shape, graph = ["n", SIZE, SIZE, 3], net.file.graph
    graph.input.append(helper.make_tensor_value_info("pictures", TensorProto.UINT8, shape))
    graph.output.append(helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["n", WIDTH]))
    net.file.opset_import[0].version = 17
    onnx.save(net.file, path)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Pictures of three colours, and the model."""
    place = tmp_path_factory.mktemp("backbone")
    coloured(place / "own", "a", "b", "c", n=2)
    coloured(place / "more", "a", "b", "c", n=4, seed=9)
    network(place / "eye.onnx")
    return place


def test_a_model_alone_learns_predicts_and_is_exported_as_one_file(place, command, monkeypatch):
    monkeypatch.chdir(place)
    answers, said = command("adapt eye.onnx --support own --query more --save kept")
    assert "eye.onnx: pictures of 32 px; output 'vectors' [n, 32]" in said
    assert "cross-validated accuracy" in said
    assert answers.startswith("file,label,probability,novelty\n")
    assert "give it with --model" in command("predict kept more", code=2)[1]
    assert "more/a/0.png,a," in command("predict kept more --model eye.onnx")[0]

    # The head, from onnxruntime's own vectors.
    session = onnxruntime.InferenceSession("eye.onnx")
    read = [cv2.imread(str(path))[..., ::-1] for path in sorted(Path("own").rglob("*.png"))]
    size = (SIZE, SIZE)
    kept = [cropped(one, True) for one in read]
    small = np.stack([cv2.resize(one, size, interpolation=cv2.INTER_AREA) for one in kept])
    (vectors,) = session.run(None, {"pictures": small})
    logits = fit_head(vectors, np.repeat([0, 1, 2], 2), 3).logits(vectors)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    predictor = arml.load_predictor("kept", "eye.onnx")
    np.testing.assert_allclose(predictor.predict_proba(read), chances, atol=2e-3)

    # The exported file has the model inside: it reads pictures of any size.
    command("export kept --onnx whole.onnx --model eye.onnx")
    whole = onnxruntime.InferenceSession("whole.onnx")
    got, novelty = whole.run(["probabilities", "novelty"], {"pictures": np.stack(read)})
    np.testing.assert_allclose(got, predictor.predict_proba(read), atol=5e-3)
    np.testing.assert_allclose(novelty, predictor.novelty(read), atol=0.02)
    got, _ = whole.run(None, {"pictures": small[:5]})
    np.testing.assert_allclose(got, predictor.predict_proba(small[:5]), atol=1e-4)
    assert json.loads(whole.get_modelmeta().custom_metadata_map["classes"]) == ["a", "b", "c"]


def test_the_page_has_the_model(place):
    tab = served(place / "eye.onnx").pictures
    assert (tab.name, tab.learner.extractor.size, tab.choose) == ("eye.onnx", SIZE, False)
    with pytest.raises(ValueError, match="this learner uses no frozen model"):
        served(Path("starter"), place / "eye.onnx")
