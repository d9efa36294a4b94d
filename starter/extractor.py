"""The small image model that the package carries: the body of a ProtoNet run as an ONNX file.

    arml train starter/protonet --run RUN --shots 3 --train-ways 20 --queries 5 --steps 1500
    python starter/extractor.py RUN src/arml/data/extractors/starter-protonet.onnx

Batch normalisation is frozen at the statistics of all meta-train pictures, so that a vector depends
on its own picture alone. The file takes bytes `[n, 32, 32, 3]` and says what it saw.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from arml.datasets.extractor import SAW
from arml.datasets.starter import SIZE, load_starter
from arml.experiment.running import Run
from arml.nn.convolution import max_pool
from arml.nn.normalisation import batch_norm, moments
from arml.results.files import write_bytes

CHUNK = 512
EPSILON = 1e-3


def train_pictures() -> np.ndarray:
    """The pictures of the meta-train classes, in [0, 1]."""
    families, split = load_starter()
    kept = [
        family.images[first : first + count]
        for family in families
        for name, first, count in zip(family.classes, family.first, family.counts, strict=True)
        if name in split[family.name]["train"]
    ]
    return (np.concatenate(kept) / np.float32(255)).astype(np.float32)


def frozen(block, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The statistics of a block's convolution over all of `x`, and the block's output with them."""
    parts = [x[i : i + CHUNK] for i in range(0, len(x), CHUNK)]
    measure = jax.jit(lambda part: moments(block.layer(part)))
    found = [[np.asarray(value, np.float64) for value in measure(part)] for part in parts]
    share = np.array([len(part) for part in parts])[:, None] / len(x)
    means, variances = (np.stack(values) for values in zip(*found, strict=True))
    mean = (share * means).sum(0)
    variance = (share * (variances + (means - mean) ** 2)).sum(0)
    statistics = mean.astype(np.float32), variance.astype(np.float32)

    @jax.jit
    def whole(part):
        z = batch_norm(max_pool(block.layer(part)), block.offset.value, statistics=statistics)
        return jax.nn.relu(z)

    return *statistics, np.concatenate([np.asarray(whole(part)) for part in parts])


def exported(run: Path) -> onnx.ModelProto:
    """The model."""
    portable = Run(run).portable()
    x = train_pictures()
    weights = {"full": np.float32(255)}
    nodes = [
        helper.make_node("Cast", ["pictures"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["floats", "full"], ["unit"]),
        helper.make_node("Transpose", ["unit"], ["x0"], perm=[0, 3, 1, 2]),
    ]
    for i, block in enumerate(portable.learner.body.blocks):
        mean, variance, x = frozen(block, x)
        weights |= {
            f"kernel{i}": np.asarray(block.layer.kernel).transpose(3, 2, 0, 1),
            f"bias{i}": np.asarray(block.layer.bias),
            f"scale{i}": np.ones_like(mean),
            f"offset{i}": np.asarray(block.offset.value),
            f"mean{i}": mean,
            f"variance{i}": variance,
        }
        named = [f"{name}{i}" for name in ("scale", "offset", "mean", "variance")]
        nodes += [
            helper.make_node("Conv", [f"x{i}", f"kernel{i}", f"bias{i}"], [f"z{i}"], pads=[1] * 4),
            helper.make_node("MaxPool", [f"z{i}"], [f"p{i}"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("BatchNormalization", [f"p{i}", *named], [f"n{i}"], epsilon=EPSILON),
            helper.make_node("Relu", [f"n{i}"], [f"x{i + 1}"]),
        ]
    last = len(portable.learner.body.blocks)
    nodes.append(helper.make_node("Flatten", [f"x{last}"], ["features"]))
    dimension = int(np.prod(x.shape[1:]))
    graph = helper.make_graph(
        nodes,
        "arml-starter-protonet",
        [helper.make_tensor_value_info("pictures", TensorProto.UINT8, ["n", SIZE, SIZE, 3])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", dimension])],
        [numpy_helper.from_array(np.ascontiguousarray(v), name) for name, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    step = (portable.trained or {}).get("step")
    helper.set_model_props(
        model, {SAW: f"the meta-train classes of arml's starter set (ProtoNet, {step} steps)"}
    )
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    run, out = map(Path, sys.argv[1:])
    write_bytes(out, exported(run).SerializeToString())
