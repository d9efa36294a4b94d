"""Networks that were trained elsewhere: the same numbers as a network in NumPy, under the names of
published codes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.signal import correlate

import arml
from arml.experiment.weights import given_weights, read_state
from arml.nn.networks import Conv4Options
from arml.nn.residual import ResNet12Options, WideResNetOptions
from arml.results.files import RunError

KEY = jax.random.key(0)
PICTURES = arml.Problem("classification", (16, 16, 3), 5, 1, 1, inputs="pictures")


def drawn(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def norm(rng, channels, prefix):
    arrays = {"weight": drawn(rng, channels), "bias": drawn(rng, channels)}
    arrays |= {"running_mean": np.zeros(channels), "running_var": np.ones(channels)}
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


NAMES = {
    "Snell": ("encoder.{}.0", "encoder.{}.1", "fc"),
    "Chen": ("feature.trunk.{}.C", "feature.trunk.{}.BN", "classifier"),
    "Antoniou": ("layer_dict.conv{}.conv", "layer_dict.conv{}.norm_layer", "layer_dict.linear"),
}


def conv4(names, filters=8, outputs=5):
    convolution, normalisation, head = NAMES[names]
    rng, state = np.random.default_rng(0), {}
    for i, channels in enumerate((3, *(filters,) * 3)):
        state[f"{convolution.format(i)}.weight"] = drawn(rng, filters, channels, 3, 3)
        state[f"{convolution.format(i)}.bias"] = drawn(rng, filters)
        state |= norm(rng, filters, normalisation.format(i))
    return state | {
        f"{head}.weight": drawn(rng, outputs, filters),
        f"{head}.bias": drawn(rng, outputs),
    }


def by_numpy(state, names, x):
    """Conv-4 as PyTorch computes it, `[n, channels, rows, columns]`, by batch statistics."""
    convolution, normalisation, head = NAMES[names]
    for i in range(4):
        kernel, bias = (state[f"{convolution.format(i)}.{part}"] for part in ("weight", "bias"))
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        z = [[correlate(one, k, "valid")[0] for k in kernel] for one in padded]
        z = np.array(z) + bias[:, None, None]
        z = (z - z.mean((0, 2, 3), keepdims=True)) / np.sqrt(z.var((0, 2, 3), keepdims=True) + 1e-3)
        scale, shift = (state[f"{normalisation.format(i)}.{part}"] for part in ("weight", "bias"))
        z = np.maximum(z * scale[:, None, None] + shift[:, None, None], 0)
        n, c, h, w = z.shape
        x = z.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))
    return x.reshape(len(x), -1) @ state[f"{head}.weight"].T + state[f"{head}.bias"]


@pytest.mark.parametrize("names", NAMES)
def test_conv4_of_published_codes_gives_their_numbers(tmp_path, names):
    state = conv4(names)
    if names == "Chen":  # whose code has each layer under a second name, too
        for i in range(4):
            for layer, again in (("C", 0), ("BN", 1)):
                old, new = f"feature.trunk.{i}.{layer}.", f"feature.trunk.{i}.trunk.{again}."
                state |= {k.replace(old, new): v for k, v in state.items() if k.startswith(old)}
    save_file(state, tmp_path / "net.safetensors")
    options = Conv4Options(filters=8)
    net, whole = given_weights(options.build(PICTURES, key=KEY), str(tmp_path / "net.safetensors"))
    x = drawn(np.random.default_rng(1), 6, 3, 16, 16)
    ours = net(jnp.asarray(x.transpose(0, 2, 3, 1)))
    assert whole
    # A block divides by a sum of squares, which amplifies the rounding of the ones before it.
    np.testing.assert_allclose(ours, by_numpy(state, names, x), rtol=2e-3, atol=2e-3)


def resnet12(filters):
    rng, state, inputs = np.random.default_rng(0), {}, 3
    for i, channels in enumerate(filters, 1):
        for j, c in enumerate((inputs, channels, channels), 1):
            state[f"encoder.layer{i}.0.conv{j}.weight"] = drawn(rng, channels, c, 3, 3)
            state |= norm(rng, channels, f"encoder.layer{i}.0.bn{j}")
        state[f"encoder.layer{i}.0.downsample.0.weight"] = drawn(rng, channels, inputs, 1, 1)
        state |= norm(rng, channels, f"encoder.layer{i}.0.downsample.1")
        inputs = channels
    return state | {"fc.weight": drawn(rng, 64, inputs), "fc.bias": drawn(rng, 64)}


def wide(width, blocks):
    rng, inputs = np.random.default_rng(0), 16
    state = {"module.conv1.weight": drawn(rng, 16, 3, 3, 3)}
    for group in (1, 2, 3):
        channels = 2 ** (3 + group) * width
        for i in range(blocks):
            at = f"module.block{group}.layer.{i}"
            state |= norm(rng, inputs, f"{at}.bn1") | norm(rng, channels, f"{at}.bn2")
            state[f"{at}.conv1.weight"] = drawn(rng, channels, inputs, 3, 3)
            state[f"{at}.conv2.weight"] = drawn(rng, channels, channels, 3, 3)
            if inputs != channels:
                state[f"{at}.convShortcut.weight"] = drawn(rng, channels, inputs, 1, 1)
            inputs = channels
    return state | norm(rng, inputs, "module.bn1")


def test_residual_networks_take_each_layer_where_it_belongs(tmp_path):
    file = str(tmp_path / "net.safetensors")
    save_file(state := resnet12((8, 12, 16, 20)), file)
    options = ResNet12Options(filters=(8, 12, 16, 20))
    net, whole = given_weights(options.build(PICTURES, key=KEY), file)
    block = net.body.blocks[2]
    for layer, name in ((1, "conv2"), (3, "downsample.0")):
        theirs = state[f"encoder.layer3.0.{name}.weight"].transpose(2, 3, 1, 0)
        np.testing.assert_array_equal(block.layers[layer].kernel, theirs)
    theirs = state["encoder.layer3.0.downsample.1.weight"]
    np.testing.assert_array_equal(block.norms[3].scale.value, theirs)
    assert not whole  # a head of 64 classes
    save_file(state := wide(2, 2), file)
    net, _ = given_weights(WideResNetOptions(width=2, blocks=2).build(PICTURES, key=KEY), file)
    first, *blocks, pool = net.body.blocks
    for ours, name in (
        (first.block.kernel, "conv1"),
        (blocks[2].layers[2].kernel, "block2.layer.0.convShortcut"),
        (blocks[3].layers[1].kernel, "block2.layer.1.conv2"),
    ):
        theirs = state[f"module.{name}.weight"].transpose(2, 3, 1, 0)
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(pool.norm.offset.value, state["module.bn1.bias"])


def test_a_learner_begins_with_them_and_results_name_the_file(tmp_path):
    file = str(tmp_path / "net.safetensors")
    save_file(conv4("Snell", outputs=64), file)
    options = Conv4Options(filters=8, weights=file)
    with pytest.warns(UserWarning, match="the scale of its last normalisation cannot be used"):
        learner = arml.build("maml", PICTURES, network=options, seed=1)
    kernel = read_state(file)["encoder.3.0.weight"].transpose(2, 3, 1, 0)
    scale = np.abs(read_state(file)["encoder.2.1.weight"])
    sign = np.sign(read_state(file)["encoder.3.1.weight"])
    ours = learner.net.body.blocks[3].layer.kernel
    np.testing.assert_allclose(ours, kernel * scale[:, None] * sign, rtol=1e-5)
    other = arml.build("maml", PICTURES, network=Conv4Options(filters=8), seed=1)
    np.testing.assert_array_equal(learner.net.head.weight, other.net.head.weight)
    for wrong, says in (
        (
            {"filters": 16, "weights": file},
            r"kernel 0 of shape \[3, 3, 3, 16\], got \[3, 3, 3, 8\]",
        ),
        ({"weights": str(tmp_path / "none.pt")}, "found no file: check --network.weights"),
    ):
        with pytest.raises(RunError, match=says):
            arml.build("maml", PICTURES, network=Conv4Options(**wrong))
    bad = {**read_state(file), "encoder.0.0.bias": np.full(8, np.nan, np.float32)}
    save_file(bad, tmp_path / "nan.safetensors")
    with pytest.raises(RunError, match=r"expected finite weights, got NaN .* encoder\.0\.0\.bias"):
        given_weights(learner.net, str(tmp_path / "nan.safetensors"))
    with pytest.raises(RunError, match="expected 16 convolutions, got 4"):
        arml.build("maml", PICTURES, network=ResNet12Options(weights=file))
    (tmp_path / "evil.pt").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(RunError, match=r"PyTorch is not installed|only tensors"):
        read_state(tmp_path / "evil.pt")
