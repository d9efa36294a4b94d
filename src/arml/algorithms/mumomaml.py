"""MUMOMAML (later MMAML): an encoder reads the support set and modulates each hidden unit of the
shared initialisation before its activation. Then the task descends. The modulation identifies the
task's mode of the task distribution, and stays constant while the weights adapt.

[1] Vuorio, Sun, Hu and Lim, Toward Multimodal Model-Agnostic Meta-Learning, 2018; and Multimodal
    Model-Agnostic Meta-Learning via Task-Aware Modulation, NeurIPS 2019.
[2] The authors' code, vuoristo/MMAML-Regression and shaohua0116/MMAML-Classification.

Differences
- The default modulation is the sigmoid, as in ARML's own gate: ARML's paper does not name the one
  that it compares with. The authors' programs default to FiLM.
- The authors' network has three hidden layers of 100, or convolutions of stride 2 whose channels
  double.
- The modulation by attention, a softmax over the units, is left out.
- The image encoder halves images by max-pooling, the authors' encoder by strides; its normalisation
  has no scale. As in the authors' code it does not read labels.
- On images FiLM follows the pooling; in the authors' code it precedes it. The two differ where
  1 + gamma < 0.
- The authors do not classify vectors. Here the encoder reads these in sequence, each with its
  one-hot label, as it reads the inputs of a regression with their targets.
- The inner gradient is not clipped; the authors clip it at 10 or 20 (`inner_clip`).
- Biases start at zero, and convolutions and the image encoder's dense layer are Glorot-uniform.
  Other weights start as in the authors' code, with PyTorch's defaults.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.algorithms.conditioned import Conditioned, Encoder, Modulate
from arml.algorithms.method import Method
from arml.core.checks import Size
from arml.core.episodes import Examples, Problem
from arml.core.inner import InnerOptions, usual_rate
from arml.core.learner import Network
from arml.nn.modulation import UNITS, UnitModulation
from arml.nn.networks import ConvBlock, Linear, linear, uniform


class LSTMCell(eqx.Module):
    """A long short-term memory unit [Hochreiter and Schmidhuber, 1997; Gers et al., 2000]. Columns
    of the gates are input, forget, candidate, output, as in PyTorch."""

    input_gates: Linear
    state_gates: Float[Array, "state gates"]

    @classmethod
    def drawn(cls, inputs: int, state: int, *, key: PRNGKeyArray) -> "LSTMCell":
        """Weights are drawn as in PyTorch; biases are zero."""
        key_input, key_state = jax.random.split(key)
        init = uniform(state**-0.5)
        return cls(
            linear(inputs, 4 * state, init=init, key=key_input),
            init(key_state, (state, 4 * state), jnp.float32),
        )

    def __call__(
        self, projected: Float[Array, " gates"], carry: tuple[Array, Array]
    ) -> tuple[Float[Array, " state"], Float[Array, " state"]]:
        """The next state and memory cell, from the input's products and the previous ones."""
        state, memory = carry
        gates = projected + state @ self.state_gates
        enter, forget, candidate, leave = jnp.split(gates, 4)
        memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
        return jax.nn.sigmoid(leave) * jnp.tanh(memory), memory


class BidirectionalLSTM(eqx.Module):
    """Each layer reads the one below in both directions; the code is the last state of both
    directions of the top layer. It depends on the order of the sequence."""

    layers: tuple[tuple[LSTMCell, LSTMCell], ...]

    @classmethod
    def drawn(
        cls, features: int, state: int, *, layers: int, key: PRNGKeyArray
    ) -> "BidirectionalLSTM":
        """`layers` layers, each with a state of `state` numbers in each direction."""
        sizes = (features, *(2 * state for _ in range(layers - 1)))
        pairs = zip(sizes, jax.random.split(key, (layers, 2)), strict=True)
        return cls(
            tuple(
                (LSTMCell.drawn(n, state, key=ahead), LSTMCell.drawn(n, state, key=back))
                for n, (ahead, back) in pairs
            )
        )

    def __call__(self, sequence: Float[Array, "n features"]) -> Float[Array, " code"]:
        for forwards, backwards in self.layers:
            states = self._read(forwards, sequence), self._read(backwards, sequence, reverse=True)
            sequence = jnp.concatenate(states, axis=1)
        half = sequence.shape[1] // 2
        return jnp.concatenate([sequence[-1, :half], sequence[0, half:]])

    def _read(
        self, cell: LSTMCell, sequence: Float[Array, "n features"], *, reverse: bool = False
    ) -> Float[Array, "n state"]:
        def step(carry: tuple[Array, Array], projected: Array) -> tuple[tuple[Array, Array], Array]:
            carry = cell(projected, carry)
            return carry, carry[0]

        zeros = jnp.zeros(len(cell.state_gates), sequence.dtype)
        products = cell.input_gates(sequence)
        return jax.lax.scan(step, (zeros, zeros), products, reverse=reverse)[1]


class SequenceEncoder(Encoder):
    """Reads the pairs of x and y (one-hot if `ways`) in order; the code depends on this order."""

    read: BidirectionalLSTM
    ways: int = eqx.field(static=True)

    def __call__(self, support: Examples) -> tuple[Float[Array, " code"], float]:
        x, y = support
        labels = jax.nn.one_hot(y, self.ways, dtype=x.dtype) if self.ways else y
        return self.read(jnp.concatenate([x, labels], axis=1)), 0.0


class ImageEncoder(Encoder):
    """Convolutional blocks, the mean over positions, a dense layer with ReLU, and the mean over the
    images. The code depends neither on labels nor on order."""

    blocks: tuple[ConvBlock, ...]
    dense: Linear

    @classmethod
    def drawn(cls, channels: int, filters: int, width: int, *, key: PRNGKeyArray) -> "ImageEncoder":
        """Four blocks, the first with `filters` filters and each next with twice as many."""
        *keys, key_dense = jax.random.split(key, 5)
        sizes = (channels, *(filters * 2**i for i in range(4)))
        triples = zip(sizes[:-1], sizes[1:], keys, strict=True)
        blocks = tuple(ConvBlock.drawn(c, o, key=k) for c, o, k in triples)
        return cls(blocks, linear(sizes[-1], width, key=key_dense))

    def __call__(self, support: Examples) -> tuple[Float[Array, " code"], float]:
        x = support.x
        for block in self.blocks:
            x, _ = block(x)  # normalised by the support set's own statistics
        return jnp.mean(jax.nn.relu(self.dense(jnp.mean(x, axis=(1, 2)))), axis=0), 0.0


@dataclass(frozen=True, kw_only=True)
class MUMOMAMLOptions(InnerOptions):
    """MUMOMAML: a code of the support set modulates each hidden unit of the initialisation."""

    modulation: Literal["sigmoid", "film"] = "sigmoid"
    """Operation on hidden units before their activation."""
    width: Size = 40
    """Units of the encoder: of the LSTM in each direction, or of the dense layer for images."""
    filters: Size = 32
    """Channels of the image encoder's first block; each of the next three has twice as many."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> Conditioned:
        key_encode, key_modulate = jax.random.split(key)
        code = self.width * (1 if problem.spatial else 2)
        modulate: Modulate = UnitModulation.drawn(
            net, code, UNITS[self.modulation], features=problem.features, key=key_modulate
        )
        # Learned rates have the structure of the network that descends: the modulated one.
        start = modulate(net, jnp.zeros(code, jnp.float32))
        return Conditioned(
            net=net,
            encode=self.encoder(problem, key=key_encode),
            modulate=modulate,
            inner=self.descent(start),
            problem=problem,
        )

    def encoder(self, problem: Problem, *, key: PRNGKeyArray) -> Encoder:
        """The encoder of images, or of pairs of vectors and labels or targets."""
        if problem.spatial:
            return ImageEncoder.drawn(problem.features[2], self.filters, self.width, key=key)
        ways = problem.outputs if problem.kind == "classification" else 0
        inputs = problem.features[0] + problem.outputs
        read = BidirectionalLSTM.drawn(inputs, self.width, layers=2, key=key)
        return SequenceEncoder(read, ways)


def mumomaml(problem: Problem) -> MUMOMAMLOptions:
    """The authors' encoders, and the rates of ARML's comparison."""
    width = 128 if problem.spatial else 40
    return MUMOMAMLOptions(inner_rate=usual_rate(problem), width=width)


METHODS = (
    Method(
        name="mumomaml",
        options_class=MUMOMAMLOptions,
        paper="Vuorio, Sun, Hu and Lim, 2018 and NeurIPS 2019",
        preset=mumomaml,
    ),
)
