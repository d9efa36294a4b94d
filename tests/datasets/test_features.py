"""Frozen features: any ONNX model, work that goes on where it stopped, and the same test tasks."""

import csv
import json
from functools import partial
from pathlib import Path

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import small_pictures
from arml.cli import main
from arml.datasets.decode import cropped, resize
from arml.datasets.features import (
    IMAGENET_CHANNELS,
    Extractor,
    extractor_of,
    load_features,
    remade,
    write_features,
)
from arml.predict.onnx import ANY_PICTURES, vectors_of, write
from arml.report.tables import make_rows
from arml.results.files import read_json
from arml.results.folder import read_result
from arml.tasks.options import FoldersOptions, VectorsOptions

pytestmark = pytest.mark.usefixtures("optax_promotes")


def value(name: str, shape: list, kind: int = TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def saved(path: Path, nodes: list, inputs: list, outputs: list, weights: dict) -> Path:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, initializer=tensors)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def model(path: Path, nodes: list, shape: list, out: list, **more) -> Path:
    """An ONNX file with the input x and the output y."""
    kind, weights = more.get("kind", TensorProto.FLOAT), more.get("weights", {})
    return saved(path, nodes, [value("x", shape, kind)], [value("y", out)], weights)


def byte_sum(path: Path) -> Path:
    """Bytes, channels last, one picture of 8 px at once."""
    cast = helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT)
    mean = helper.make_node("ReduceMean", ["f"], ["y"], axes=[1, 2], keepdims=0)
    return model(path, [cast, mean], [1, 8, 8, 3], [1, 3], kind=TensorProto.UINT8)


RAW = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "unit": False, "size": 16}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> list[Path]:
    """Two families of twelve colours, five pictures each."""
    folder, counts = tmp_path_factory.mktemp("data"), [5] * 12
    return [
        small_pictures.pictures(folder / name, seed, counts=counts, size=20)
        for seed, name in enumerate(("inks", "clays"))
    ]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """Floats, channels first, batch and size free; its output has places, to be averaged."""
    path = tmp_path_factory.mktemp("models") / "colour.onnx"
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    return model(path, [node], ["n", 3, "h", "w"], ["n", 3, "h2", "w2"])


def test_pictures_are_prepared_as_the_model_wants_them(tmp_path, tiny):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    mean, std = np.array(IMAGENET_CHANNELS[0]), np.array(IMAGENET_CHANNELS[1])
    expected = ((x / 255 - mean) / std).mean(axis=(1, 2))
    got = Extractor(tiny, size=16, unit=False)(x)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    unit = Extractor(tiny, size=16)(x)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 3**0.5, rtol=1e-5)
    bytes_ = Extractor(byte_sum(tmp_path / "bytes.onnx"), unit=False)
    assert bytes_.size == 8
    x = x[:6, :8, :8]
    np.testing.assert_allclose(bytes_(x), x.mean(axis=(1, 2)), rtol=1e-5)
    assert bytes_.about["mean"] is None
    assert remade(bytes_.about, tmp_path / "bytes.onnx").about == bytes_.about


def test_other_models_are_refused_in_one_line(tmp_path, tiny):
    def refused(path: Path, said: str, **options) -> None:
        with pytest.raises(ValueError, match=said) as caught:
            Extractor(path, **options)
        assert "\n" not in str(caught.value)

    def made(shape: list, out: list, *node: str, **options) -> Path:
        return model(tmp_path / "m.onnx", [helper.make_node(*node, ["y"], **options)], shape, out)

    pixels = ["n", 3, 16, 16]
    (tmp_path / "text.onnx").write_text("hello")
    refused(tmp_path / "text.onnx", "expected an ONNX model, got")
    refused(tmp_path / "none.onnx", "no ONNX model at")
    refused(made(["n", 7], ["n", 7], "Identity", ["x"]), "one input of pictures")
    same = made(pixels, pixels, "Identity", ["x"])
    refused(same, "and --size 32", size=32)
    refused(same, "--pool cls is for tokens, and the output 'y' is", pool="cls")
    refused(same, "output 'z': name one of y", output="z")
    total = made(pixels, ["n"], "ReduceMean", ["x"], axes=[1, 2, 3], keepdims=0)
    refused(total, r"of float32 from 'y': name another with --output")
    refused(made(pixels, pixels, "Log", ["x"]), "finite")
    refused(tiny, "--std above 0", std=(0.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="got a file with"):
        remade(Extractor(tiny, **RAW).about, total)


def test_weights_in_a_second_file_are_read_from_the_models_own_folder_alone(tmp_path):
    one, x = transformer(tmp_path / "one.onnx", FREE), np.full((2, 16, 16, 3), 7, np.uint8)
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "blobs").mkdir()
    path, weights = tmp_path / "blobs/a", tmp_path / "blobs/m.data"
    outside = {"save_as_external_data": True, "location": weights.name, "size_threshold": 150}
    onnx.save(onnx.load(one), path, **outside)
    for name, target in (("m.onnx", path), (weights.name, weights)):  # as in the hub's cache
        (tmp_path / "snapshot" / name).symlink_to(target)
    path = tmp_path / "snapshot/m.onnx"
    found, wanted = Extractor(path), Extractor(one)(x)
    np.testing.assert_array_equal(found(x), wanted)
    whole = tmp_path / "whole.onnx"
    write(whole, partial(vectors_of, extractor=found), {"pictures": ANY_PICTURES}, ["vectors"])
    (got,) = onnxruntime.InferenceSession(whole).run(None, {"pictures": x})
    np.testing.assert_allclose(got, wanted, rtol=1e-4)
    data = weights.read_bytes()
    weights.write_bytes(bytes(len(data)))
    with pytest.raises(ValueError, match=r"expected the model m\.onnx"):
        remade(found.about, path)
    weights.write_bytes(data[:-4])
    with pytest.raises(ValueError, match="size to read: 4608 given file_length: 4604"):
        Extractor(path)
    weights.unlink()
    with pytest.raises(ValueError, match=r"weights are in 'm.data': put that file beside it"):
        Extractor(path)
    path.write_bytes(path.read_bytes().replace(b"m.data", b"/m.dat"))
    with pytest.raises(ValueError, match=r"'/m.dat', outside of its folder"):
        Extractor(path)


def transformer(path: Path, shape: list, *, tokens: int = 5, text: bool = False, half=False):
    """A narrow model of the shape of DINOv2 or CLIP, with random weights: patches of 8 px, one
    token (or more) before them, and their mean through a dense layer as a second output."""
    rng, free, node = np.random.default_rng(0), ["b", "s", "d"], helper.make_node
    kind, dtype = (TensorProto.FLOAT16, np.float16) if half else (TensorProto.FLOAT, np.float32)
    weights = {
        "kernel": (rng.normal(size=(6, 3, 8, 8)) / 14).astype(dtype),
        "first": rng.normal(size=(1, tokens - 4, 6)).astype(dtype),
        "dense": rng.normal(size=(6, 4)).astype(dtype),
        "flat": np.array([0, 6, -1]),
        "rest": np.array([1, 1]),
    }
    nodes = [
        node("Conv", ["pixel_values", "kernel"], ["places"], strides=[8, 8]),
        node("Reshape", ["places", "flat"], ["columns"]),
        node("Transpose", ["columns"], ["patches"], perm=[0, 2, 1]),
        node("Shape", ["places"], ["batch"], start=0, end=1),
        node("Concat", ["batch", "rest"], ["expanded"], axis=0),
        node("Expand", ["first", "expanded"], ["begun"]),
        node("Concat", ["begun", "patches"], ["last_hidden_state"], axis=1),
        node("ReduceMean", ["last_hidden_state"], ["pooled"], axes=[1], keepdims=0),
        node("MatMul", ["pooled", "dense"], ["image_embeds"]),
    ]
    inputs = [value("pixel_values", shape, kind)]
    outputs = [value("last_hidden_state", free, kind)]
    if text:
        inputs.insert(0, value("input_ids", ["t", "l"], TensorProto.INT64))
        nodes.append(node("Cast", ["input_ids"], ["words"], to=kind))
        nodes.append(node("ReduceMean", ["words"], ["logits_per_image"], axes=[1]))
        outputs.insert(0, value("logits_per_image", ["t", 1], kind))
        outputs.append(value("image_embeds", ["b", 4], kind))
    return saved(path, nodes, inputs, outputs, weights)


FREE, STATE = ["b", 3, 16, 16], "last_hidden_state"


def cls(tokens: np.ndarray) -> np.ndarray:
    return tokens[:, 0]


SHAPES = {
    "DINOv2": ({"shape": FREE}, {}, STATE, cls),
    "stretched": ({"shape": FREE}, {"crop": [0.75, 0.5]}, STATE, cls),
    "the mean": ({"shape": FREE}, {"pool": "mean"}, STATE, lambda t: t.mean(axis=1)),
    "all": ({"shape": FREE}, {"pool": "none"}, STATE, lambda t: t.reshape(3, -1)),
    "a square": ({"shape": FREE, "tokens": 9}, {}, STATE, lambda t: t.mean(axis=1)),
    "whole CLIP": ({"shape": FREE, "text": True}, {}, "image_embeds", np.asarray),
    "its tower": ({"shape": FREE, "text": True}, {"output": STATE}, STATE, cls),
    "inside": ({"shape": FREE}, {"output": "pooled"}, "pooled", np.asarray),
    "all symbolic": ({"shape": ["b", "c", "h", "w"]}, {"size": 16}, STATE, cls),
    "one at once": ({"shape": [1, 3, 16, 16]}, {}, STATE, cls),
    "four at once": ({"shape": [4, 3, 16, 16]}, {}, STATE, cls),
    "float16": ({"shape": FREE, "half": True}, {}, STATE, cls),
}
"""The model, the options, the output that is taken, and the vectors of its tokens."""


@pytest.mark.parametrize("name", SHAPES)
def test_models_of_the_web_give_their_vectors_here_and_in_one_file(name, tmp_path):
    made, options, output, taken = SHAPES[name]
    path = transformer(tmp_path / "m.onnx", **made)
    crop = options.get("crop", 0.75)
    found = Extractor(path, unit=False, **{"crop": crop, **options})
    x = np.random.default_rng(2).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    pixels = (
        (x / 255 - np.array(IMAGENET_CHANNELS[0])) / np.array(IMAGENET_CHANNELS[1])
    ).transpose(0, 3, 1, 2)
    whole = onnx.load(path)
    whole.graph.output.extend([onnx.ValueInfoProto(name=output)] if output == "pooled" else [])
    session = onnxruntime.InferenceSession(whole.SerializeToString())
    kind = np.float16 if "half" in made else np.float32
    feed = {"input_ids": np.ones((1, 1), np.int64)} if "text" in made else {}
    size = made["shape"][0] if isinstance(made["shape"][0], int) else 1
    each = [
        session.run([output], {"pixel_values": np.repeat(one[None], size, 0).astype(kind), **feed})
        for one in pixels
    ]
    wanted = taken(np.concatenate([one[0][:1] for one in each])).astype(np.float32)
    np.testing.assert_allclose(found(x), wanted, rtol=1e-3, atol=1e-3)
    assert remade(found.about, path).about == found.about
    assert output in found.summary
    assert "ImageNet's, assumed: --mean, --std" in found.summary
    file, large = tmp_path / "whole.onnx", np.repeat(np.repeat(x, 2, 1), 3, 2)
    traced = partial(vectors_of, extractor=found)
    if size > 1 or name == "one at once":
        with pytest.raises(ValueError, match=f"takes {size} pictures at once"):
            write(file, traced, {"pictures": ANY_PICTURES}, ["vectors"])
        return
    write(file, traced, {"pictures": ANY_PICTURES}, ["vectors"])
    (got,) = onnxruntime.InferenceSession(file).run(None, {"pictures": large})
    small = np.stack([resize(cropped(one, crop), 16) for one in large])
    np.testing.assert_allclose(got, found(small), rtol=0.02, atol=0.02)


def test_scores_of_imagenet_are_doubted_and_the_files_of_hugging_face_are_read(tmp_path):
    weights = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    pool = helper.make_node("ReduceMean", ["x"], ["before"], axes=[2, 3], keepdims=0)
    last = helper.make_node("MatMul", ["before", "w"], ["y"])
    (tmp_path / "onnx").mkdir()
    free = ["n", 3, "h", "w"]
    path = tmp_path / "onnx" / "m.onnx"
    model(path, [pool, last], free, ["n", 1000], weights={"w": weights})
    assert "suit other classes better: --output before" in Extractor(path, size=8).doubt
    assert Extractor(path, size=8, output="before").doubt == ""
    stated = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.1, 0.2, 0.3]}
    stated |= {"size": {"shortest_edge": 16}, "do_center_crop": True}
    stated |= {"crop_size": {"height": 12, "width": 12}}
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps(stated))
    found = extractor_of(path, {"mean": None}, crop=True)
    assert (found.size, found.mean, found.crop) == (12, (0.5, 0.4, 0.3), 0.75)
    assert "assumed" not in found.summary
    lacks = "from preprocessor_config.json, which lacks do_rescale (true), do_normalize (true)"
    assert lacks in found.summary
    assert extractor_of(path, {"size": 20}).size == 20
    x, raw = np.full((1, 16, 16, 3), 51, np.uint8), {"do_rescale": False, "do_normalize": False}
    offset = {"rescale_factor": 1 / 127.5, "rescale_offset": True}
    mean, std = np.array(stated["image_mean"]), np.array(stated["image_std"])
    for more, value, crop in (
        ({"do_center_crop": False, **raw}, 51, False),
        ({"do_center_crop": None, "do_normalize": False}, 0.2, False),
        ({"do_rescale": False}, (51 - mean) / std, 0.75),
        ({"size": {"height": 16, "width": 16}, **offset}, (0.4 - 1 - mean) / std, [0.75, 0.75]),
        ({"do_center_crop": None, "crop_pct": 0.9, "include_top": True}, None, 0.9),
        ({"do_flip_channel_order": True, "do_normalize": None, **raw}, 51, 0.75),
    ):
        file.write_text(json.dumps({**stated, **more}))
        found = extractor_of(path, {}, crop=True)
        value = (0.2 - mean) / std / std if value is None else value
        np.testing.assert_allclose(found.prepared(x)[0, :, 0, 0], value, rtol=1e-4)
        assert found.crop == crop
        assert remade(json.loads(json.dumps(found.about)), path)(x).shape == (1, 1000)
    file.write_text(json.dumps({"do_flip_channel_order": True, "do_resize": False}))
    found = extractor_of(path, {"size": 8})
    np.testing.assert_allclose(
        found.prepared(np.uint8([[[[1, 2, 3]]]]))[0, :, 0, 0] * 255, [3, 2, 1]
    )
    assert "which lacks do_rescale (true), do_normalize (false), do_center_crop (false), size" in (
        found.summary
    )
    file.write_text('{"size": {"height": 8, "width": 9}}')
    with pytest.raises(ValueError, match="expected a preparation of pictures"):
        extractor_of(path, {})


def test_features_are_made_once_and_altered_ones_are_refused(pictures, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("arml.datasets.folders.PICTURES_PER_WRITE", 16)
    extractor, folder = Extractor(tiny, **RAW), tmp_path / "made"

    def stopped(what: str, done: int, total: int) -> None:
        if done == 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_features(extractor, pictures[0], folder, progress=stopped)
    with pytest.raises(ValueError, match="expected a folder that `arml features` made"):
        load_features([folder])
    assert write_features(extractor, pictures[0], folder)[1]
    assert not write_features(extractor, pictures[0], folder)[1]
    assert not write_features(extractor, pictures[0], folder, place=1)[1]
    assert read_json(folder / "features.json")["place"] == 1
    with pytest.raises(ValueError, match="got features of others"):
        write_features(Extractor(tiny, size=16), pictures[0], folder)
    path = folder / "vectors.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ValueError, match="altered or cut short"):
        load_features([folder])


@pytest.fixture(scope="module")
def features(pictures, tiny, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("features") / "colours"
    given = ["features", *map(str, pictures), "--out", str(out), "--model", str(tiny)]
    prepared = "--size 16 --mean 0 0 0 --std 1 1 1 --raw"
    assert main([*given, *prepared.split()]) == 0
    return out


@pytest.mark.slow
def test_test_tasks_are_those_of_the_pictures(pictures, features, tmp_path):
    few = {"ways": 2, "shots": 2, "queries": 3}
    images = FoldersOptions(data=tuple(map(str, pictures)), size=16, **few)
    of_images = images.build(tmp_path / "a.json").test
    of_vectors = VectorsOptions(data=(str(features),), **few).build(tmp_path / "b.json").test
    assert of_images.families == of_vectors.families == ("inks", "clays")
    for i in range(3):
        seen, read = (tasks.sample(jax.random.key(i)) for tasks in (of_images, of_vectors))
        np.testing.assert_allclose(seen.query.x.mean(axis=(1, 2)), read.query.x, atol=1e-5)
        np.testing.assert_array_equal(seen.query.y, read.query.y)


def test_the_nearest_mean_from_pictures_to_an_answer(pictures, features, tiny, tmp_path, command):
    run = tmp_path / "run"
    given = "train features/frozen-protonet --ways 2 --queries 2 --data", features, "--run", run
    command(*given)
    command("evaluate", run, "--tasks 20")
    result = read_result(run / "result.json")
    assert (result["steps"], result["parameters"]) == (0, 0)
    assert result["recipe"] == "features/frozen-protonet (colour.onnx)"
    assert result["protocol"] == "2-way 1-shot, 2 queries, 16 px"
    assert result["inputs"]["saw"] == "unknown"
    assert result["score"]["mean"] > 0.9
    assert make_rows([result])[0].recipe == result["recipe"]
    two = tmp_path / "two"
    for name in ("class0", "class1"):
        (two / name).mkdir(parents=True)
        for i in range(2):
            (two / name / f"{i}.png").symlink_to(pictures[0] / name / f"{i}.png")
    learner = tmp_path / "learner"
    command("export", run, "--out", learner, "--tasks 8")
    asked = "adapt", learner, "--support", two, "--query", pictures[0] / "class1"
    rows = list(csv.reader(command(*asked, "--model", tiny)[0].splitlines()))
    assert [row[1] for row in rows] == ["label", *["class1"] * 5]
    assert "give it with --model" in command(*asked, code=2)[1]
