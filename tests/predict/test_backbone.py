"""A pretrained photo model as the eye: a residual network of the shape that torchvision's
`resnet18` is exported in, narrow and with random weights."""

import base64
import json
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import arml
from arml.app import pictures
from arml.app.pictures import Limits
from arml.app.server import served
from arml.cli import main
from arml.datasets.decode import cropped
from arml.datasets.features import IMAGENET
from arml.predict.head import fit_head
from arml.predict.onnx import Graph

SIZE, WIDTH = 32, 4


def resnet18(path: Path) -> None:
    """Bytes `[n, size, size, 3]` to vectors; the colours are normalised inside."""
    net, rng = Graph({"arml.saw": "nothing"}), np.random.default_rng(0)

    def convolve(x: str, before: int, after: int, side: int, stride: int) -> str:
        """With the statistics of the batch normalisation folded in, as the exporter does."""
        kernel = rng.normal(size=(after, before, side, side)) / (side * before**0.5)
        given = (kernel.astype(np.float32), 0.1 * rng.normal(size=after).astype(np.float32))
        pads = [side // 2] * 4
        return net("Conv", x, *given, kernel_shape=[side] * 2, strides=[stride] * 2, pads=pads)

    def block(x: str, before: int, after: int, stride: int) -> str:
        y = net("Relu", convolve(x, before, after, 3, stride))
        y = convolve(y, after, after, 3, 1)
        short = x if before == after else convolve(x, before, after, 1, stride)
        return net("Relu", net("Add", y, short))

    x = net("Cast", "pictures", to=TensorProto.FLOAT)
    x = net("Sub", x, 255 * np.array(IMAGENET[0], np.float32))
    x = net("Div", x, 255 * np.array(IMAGENET[1], np.float32))
    x = net("Transpose", x, perm=[0, 3, 1, 2])
    x = net("Relu", convolve(x, 3, WIDTH, 7, 2))
    x = net("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    before = WIDTH
    for stage in range(4):
        after = WIDTH * 2**stage
        x = block(block(x, before, after, 1 + (stage > 0)), after, after, 1)
        before = after
    net("Flatten", net("GlobalAveragePool", x), output="vectors", axis=1)
    shape = ["n", SIZE, SIZE, 3]
    graph = net.file.graph
    graph.input.append(helper.make_tensor_value_info("pictures", TensorProto.UINT8, shape))
    graph.output.append(helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["n", before]))
    net.file.opset_import[0].version = 17
    onnx.save(net.file, path)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Noisy pictures of three colours, and the model."""
    place = tmp_path_factory.mktemp("backbone")
    rng = np.random.default_rng(0)
    for part, n in (("own", 2), ("more", 4)):
        for name, colour in {"a": (200, 30, 30), "b": (30, 200, 30), "c": (30, 30, 200)}.items():
            folder = place / part / name
            folder.mkdir(parents=True)
            for i in range(n):
                pixels = np.clip(rng.normal(colour, 30, (48, 40, 3)), 0, 255).astype(np.uint8)
                cv2.imwrite(str(folder / f"{i}.png"), pixels)
    resnet18(place / "eye.onnx")
    return place


def test_a_model_alone_learns_predicts_and_is_exported_as_one_file(place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    assert main(["adapt", "eye.onnx", "--support", "own", "--query", "more", "--save", "kept"]) == 0
    said = capsys.readouterr()
    assert "eye.onnx: pictures of 32 px; output 'vectors' [n, 32]" in said.err
    assert "cross-validated accuracy" in said.err
    assert said.out.startswith("file,label,probability,novelty\n")
    assert main(["predict", "kept", "more"]) == 2
    assert "give it with --model" in capsys.readouterr().err
    assert main(["predict", "kept", "more", "--model", "eye.onnx"]) == 0
    assert "more/a/0.png,a," in capsys.readouterr().out

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
    assert main(["export", "kept", "--onnx", "whole.onnx", "--model", "eye.onnx"]) == 0
    whole = onnxruntime.InferenceSession("whole.onnx")
    got, novelty = whole.run(["probabilities", "novelty"], {"pictures": np.stack(read)})
    np.testing.assert_allclose(got, predictor.predict_proba(read), atol=5e-3)
    np.testing.assert_allclose(novelty, predictor.novelty(read), atol=0.02)
    got, _ = whole.run(None, {"pictures": small[:5]})
    np.testing.assert_allclose(got, predictor.predict_proba(small[:5]), atol=1e-4)
    assert json.loads(whole.get_modelmeta().custom_metadata_map["classes"]) == ["a", "b", "c"]


def test_the_page_answers_by_the_model(place):
    tab = served(place / "eye.onnx").pictures
    assert (tab.name, tab.learner.pictures.size, tab.choose) == ("eye.onnx", SIZE, False)

    def sent(paths: list[Path]) -> list[dict[str, str]]:
        return [{"data": base64.b64encode(path.read_bytes()).decode()} for path in paths]

    own = {name: sorted((place / "own" / name).glob("*.png")) for name in "abc"}
    queries = sorted((place / "more").rglob("*.png"))
    classes = [{"name": name, "pictures": sent(paths)} for name, paths in own.items()]
    content = {"classes": classes, "queries": sent(queries)}
    answer = pictures.classified(tab, content, Limits())
    files = [path for paths in own.values() for path in paths]
    predictor = arml.load(place / "eye.onnx").adapt(files, list("aabbcc"))
    want = predictor.predict_proba(queries)
    np.testing.assert_allclose(answer["probabilities"], want, rtol=1e-4, atol=1e-6)
    assert pictures.trusted(tab, content, Limits())["summary"] == str(predictor.reliability())
    with pytest.raises(ValueError, match="this learner uses no frozen model"):
        served(Path("starter"), place / "eye.onnx")


def test_features_of_the_model_are_learned_from(place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    assert main(["features", "more", "--model", "eye.onnx", "--out", "features"]) == 0
    assert "the model was trained on: nothing" in capsys.readouterr().out
    vectors = np.load(next(Path("features").rglob("vectors.npy")))
    assert vectors.shape == (12, 8 * WIDTH)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), (8 * WIDTH) ** 0.5, rtol=1e-5)
