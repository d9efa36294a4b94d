"""Weights of a base network that was trained elsewhere: a safetensors file, or a PyTorch state.

Published codes name the layers of Conv-4, ResNet-12 and WRN-28-10 in many ways, but in one order:
by block, then convolutions before the shortcut. So names are sorted with their numbers as numbers,
and kernels, normalisations and the last linear layer are taken in that order; every shape is
checked. A 3 x 3 kernel that reads the picture comes first.

Differences
- Running averages are left out: our networks normalise by the statistics of the current data.
- Conv-4 here has no scale after its normalisation. Each scale is folded into the next layer, which
  is exact: a ReLU and a maximum commute with a positive scale, and the sign goes into the kernel.
  That of the last block is folded into the head, or left out with it.
- A head of other classes is left out: the learner begins with a new one.
"""

import hashlib
import re
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from safetensors.numpy import load_file

from arml.nn.networks import BaseNetwork, Conv2d, ConvBlock, Linear
from arml.nn.residual import Norm
from arml.results.files import Json, RunError, brief

State = Mapping[str, np.ndarray]
Layer = dict[str, Any]
"""`weight` and `bias`."""
MIN_SCALE = 1e-5
"""A smaller scale counts as this one: it cannot be divided by."""


def read_state(file: Path | str) -> State:
    """The arrays of a safetensors file, or of a PyTorch state (which needs PyTorch), by name. No
    code in the file is run. **Raises** `RunError` in one line for a file that holds none."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise RunError(f"expected weights at {file}, found no file: check --network.weights")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if find_spec("torch") is None:
            raise RunError(
                f"{file} is not a .safetensors file, and PyTorch is not installed to read it: "
                "install torch, or write it with safetensors.torch.save_file where it is"
            )
        import torch  # type: ignore[import-not-found]

        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except RunError:
        raise
    except Exception as error:  # damaged files, and objects that are refused, of many kinds
        why = brief(error, 160)
        raise RunError(
            f"{file}: expected a safetensors file, or a PyTorch file of only tensors ({why}); "
            "save only the state_dict"
        ) from error
    states = [
        {name: one.numpy() for name, one in some.items() if hasattr(one, "numpy")}
        for some in _dictionaries(loaded)
    ]
    # Beside the weights a file may hold the optimiser's state, for example.
    return max(states, key=lambda state: sum(a.ndim == 4 for a in state.values()), default={})


def _dictionaries(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
        for one in value.values():
            yield from _dictionaries(one)


def source_of_weights(file: str) -> Json | None:
    """The name and the digest of the file, for results; None without one."""
    if not file:
        return None
    content = Path(file).expanduser().read_bytes()
    return {"file": Path(file).name, "sha256": hashlib.sha256(content).hexdigest()}


def _natural(name: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _by_layer(state: State) -> dict[str, Layer]:
    """The arrays of each layer, by the layer's name, in natural order."""
    found: dict[str, Layer] = {}
    for name in sorted(state, key=_natural):
        layer, _, what = name.rpartition(".")
        found.setdefault(layer, {})[what] = np.asarray(state[name], np.float32)
    return {layer: some for layer, some in found.items() if "weight" in some}


def _once(layers: list[Layer], wanted: int) -> list[Layer]:
    """Layers that a file has under two names, one after the other, once."""
    pairs = zip(layers[::2], layers[1::2], strict=False)
    twice = all(np.array_equal(a["weight"], b["weight"]) for a, b in pairs)
    return layers[::2] if len(layers) == 2 * wanted and twice else layers


def given_weights(net: BaseNetwork, file: str) -> tuple[BaseNetwork, bool]:
    """The network with the weights of a file, and whether its head is also the file's. **Raises**
    `RunError` in one line if the file is of another network."""
    state = read_state(file)
    for name, array in state.items():
        if not np.all(np.isfinite(array)):
            raise RunError(f"{file}: expected finite weights, got NaN or infinity in {name}")
    layers = [*_by_layer(state).values()]
    conv4, head = bool(_nodes(net, ConvBlock)), net.head
    convolutions, norms = _nodes(net.body, Conv2d), _nodes(net.body, ConvBlock if conv4 else Norm)
    kernels, scales = (
        _once([one for one in layers if one["weight"].ndim == axes], len(ours))
        for axes, ours in ((4, convolutions), (1, norms))
    )
    for what, ours, theirs in (
        ("convolutions", convolutions, kernels),
        ("normalisations", norms, scales),
    ):
        if len(ours) != len(theirs):
            raise RunError(
                f"{file}: expected {len(ours)} {what}, got {len(theirs)}: choose the --network "
                "that it was trained with"
            )
    # PyTorch's axes are outputs, inputs, rows, columns.
    kernels = [{"bias": 0.0, **k, "weight": k["weight"].transpose(2, 3, 1, 0)} for k in kernels]
    first = convolutions[0].kernel.shape[:3]
    kernels.sort(key=lambda kernel: kernel["weight"].shape[:3] != first)  # the others stay in order
    for i, (layer, given) in enumerate(zip(convolutions, kernels, strict=True)):
        _check(file, f"kernel {i}", layer.kernel.shape, given["weight"].shape)
    for i, (layer, given) in enumerate(zip(norms, scales, strict=True)):
        _check(file, f"normalisation {i}", layer.offset.value.shape, given["weight"].shape)
    last = next((one for one in reversed(layers) if one["weight"].ndim == 2), None)
    own = (
        last is not None
        and isinstance(head, Linear)
        and last["weight"].T.shape == head.weight.shape
    )
    weight = last["weight"].T if own and last is not None else None
    if weight is not None and conv4:  # PyTorch flattens channels first, and our networks last
        channels, outputs = norms[-1].offset.value.shape[0], weight.shape[1]
        weight = weight.reshape(channels, -1, outputs).swapaxes(0, 1)
    if conv4:
        if weight is None and np.ptp(np.abs(scales[-1]["weight"])) > 0:
            warnings.warn(
                f"{file}: the scale of its last normalisation cannot be used without a head of "
                "these classes, so distances between its features are not those of its training",
                stacklevel=2,
            )
        weight = _folded(kernels, scales, weight)

    def places(net: Any) -> list[Any]:
        kind = ConvBlock if conv4 else Norm
        found = [part for c in _nodes(net.body, Conv2d) for part in (c.kernel, c.bias)]
        for norm in _nodes(net.body, kind):
            found += [norm.offset.value] if conv4 else [norm.offset.value, norm.scale.value]
        return found + ([net.head.weight, net.head.bias] if own else [])

    values: list[Any] = [k[part] for k in kernels for part in ("weight", "bias")]
    for one in scales:
        values += [one["bias"]] if conv4 else [one["bias"], one["weight"]]
    values += [weight, last.get("bias", 0.0)] if own and last is not None else []

    def shaped(value: Any, place: Array) -> Array:
        array = jnp.asarray(value, jnp.float32)
        return jnp.full(place.shape, array) if not array.ndim else array.reshape(place.shape)

    return eqx.tree_at(places, net, [*map(shaped, values, places(net))]), own


def _nodes(tree: object, kind: type) -> list[Any]:
    """The parts of this kind, in the order of their fields."""
    found = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, kind))
    return [node for node in found if isinstance(node, kind)]


def _check(file: str, what: str, wanted: tuple[int, ...], got: tuple[int, ...]) -> None:
    if wanted != got:
        raise RunError(
            f"{file}: expected {what} of shape {list(wanted)}, got {list(got)}: choose the "
            "--network, its filters and the tasks' channels that it was trained with"
        )


def _folded(
    kernels: list[Layer], scales: list[Layer], head: np.ndarray | None
) -> np.ndarray | None:
    """Fold Conv-4's scales into the next layers, in place; returns the head `[positions, channels,
    outputs]` with that of the last."""
    for i, one in enumerate(scales):
        size = np.maximum(np.abs(one["weight"]), MIN_SCALE)
        sign = np.where(one["weight"] < 0, -1, 1).astype(np.float32)
        one["bias"] = one["bias"] / size
        kernels[i] |= {part: kernels[i][part] * sign for part in ("weight", "bias")}
        if i + 1 < len(kernels):
            kernels[i + 1]["weight"] = kernels[i + 1]["weight"] * size[:, None]
    return None if head is None else head * size[:, None]
