"""A pretrained photo model as the eye: a residual network of the shape that torchvision's
`resnet18` is exported in, narrow and with random weights."""

import base64
import json
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import arml
from arml.app import pictures
from arml.app.pictures import Limits
from arml.app.server import served
from arml.cli import main
from arml.datasets.decode import cropped
from arml.predict.head import fit_head

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
SIZE, WIDTH = 32, 4


class Network:
    """Nodes and random weights of a convolutional network."""

    def __init__(self) -> None:
        self.nodes, self.weights, self.rng = [], [], np.random.default_rng(0)

    def node(self, kind: str, *inputs: str, **attributes) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def convolve(self, x: str, before: int, after: int, side: int, stride: int) -> str:
        """With the statistics of the batch normalisation folded in, as the exporter does."""
        kernel = self.rng.normal(size=(after, before, side, side)) / (side * before**0.5)
        given = (x, self.weight(kernel), self.weight(0.1 * self.rng.normal(size=after)))
        pads = [side // 2] * 4
        return self.node("Conv", *given, kernel_shape=[side] * 2, strides=[stride] * 2, pads=pads)

    def block(self, x: str, before: int, after: int, stride: int) -> str:
        y = self.node("Relu", self.convolve(x, before, after, 3, stride))
        y = self.convolve(y, after, after, 3, 1)
        short = x if before == after else self.convolve(x, before, after, 1, stride)
        return self.node("Relu", self.node("Add", y, short))


def resnet18(path: Path, opset: int, batch: int | str = "n") -> Path:
    """Bytes `[n, size, size, 3]` to vectors, as `docs/backbone.py` exports it."""
    net = Network()
    x = net.node("Cast", "pictures", to=TensorProto.FLOAT)
    x = net.node("Sub", x, net.weight(255 * np.array([0.485, 0.456, 0.406])))
    x = net.node("Div", x, net.weight(255 * np.array([0.229, 0.224, 0.225])))
    x = net.node("Transpose", x, perm=[0, 3, 1, 2])
    x = net.node("Relu", net.convolve(x, 3, WIDTH, 7, 2))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    before = WIDTH
    for stage in range(4):
        after = WIDTH * 2**stage
        x = net.block(net.block(x, before, after, 1 + (stage > 0)), after, after, 1)
        before = after
    x = net.node("GlobalAveragePool", x)
    net.nodes.append(helper.make_node("Flatten", [x], ["vectors"], axis=1))
    shape = [batch, SIZE, SIZE, 3]
    graph = helper.make_graph(
        net.nodes,
        "resnet18",
        [helper.make_tensor_value_info("pictures", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, [batch, before])],
        initializer=net.weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    helper.set_model_props(made, {"arml.saw": "nothing"})
    onnx.save(made, path)
    return path


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
    resnet18(place / "eye.onnx", 17)
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


def test_a_model_that_cannot_be_part_of_the_file_is_refused(place, tmp_path):
    eye = resnet18(tmp_path / "two.onnx", 18, batch=2)
    pictures = np.random.default_rng(0).integers(0, 256, (4, SIZE, SIZE, 3), dtype=np.uint8)
    predictor = arml.load(eye).adapt(pictures, list("aabb"))
    with pytest.raises(ValueError, match="2 pictures at once"):
        predictor.to_onnx(tmp_path / "whole.onnx")
