"""Autoencoders that summarise a set of vectors: the mean code represents the set, and the
reconstruction error stabilises the training (Eq. 8 and 9 of ARML's paper)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.nn.networks import MLP, Linear, linear, mlp, truncated_normal

Rows = Float[Array, "n features"]
Coded = tuple[Float[Array, " code"], Float[Array, ""]]
Summary = Callable[[Rows], Coded]
"""Maps a sequence to its code and its reconstruction error."""
Total = Callable[[Rows], Float[Array, ""]]
"""Reduces squared errors by their mean, as in the authors' code, or by their sum: the squared
Frobenius norm of the paper's text, which is n * features times as large."""


class GRUCell(eqx.Module):
    """A gated recurrent unit in its first form: the reset gate multiplies the state *before* the
    candidate's matrix product [Cho et al., 2014], as TensorFlow's GRUCell does.

    The first half of the gates' columns is for reset, the second for update. Input and state have
    separate weights, so a whole sequence of inputs is multiplied in one product.
    """

    input_gates: Linear
    state_gates: Float[Array, "state gates"]
    input_candidate: Linear
    state_candidate: Float[Array, "state state"]

    @classmethod
    def drawn(cls, inputs: int, state: int, *, key: PRNGKeyArray) -> "GRUCell":
        """Glorot-uniform weights for the stacked input and state. The biases of the gates are 1."""
        key_gates, key_candidate = jax.random.split(key)
        gates = linear(inputs + state, 2 * state, bias=1.0, key=key_gates)
        candidate = linear(inputs + state, state, key=key_candidate)
        return cls(
            Linear(gates.weight[:inputs], gates.bias),
            gates.weight[inputs:],
            Linear(candidate.weight[:inputs], candidate.bias),
            candidate.weight[inputs:],
        )

    def project(
        self, x: Float[Array, "*n inputs"]
    ) -> tuple[Float[Array, "*n gates"], Float[Array, "*n state"]]:
        """The part of the gates and of the candidate that comes from the inputs."""
        return self.input_gates(x), self.input_candidate(x)

    def __call__(
        self,
        projected: tuple[Float[Array, " gates"], Float[Array, " state"]],
        state: Float[Array, " state"],
    ) -> Float[Array, " state"]:
        gates, candidate = projected
        gates = jax.nn.sigmoid(gates + state @ self.state_gates)
        reset, update = jnp.split(gates, 2)
        candidate = jnp.tanh(candidate + (reset * state) @ self.state_candidate)
        return update * state + (1 - update) * candidate


class GRUAutoencoder(eqx.Module):
    """The authors' aggregator: the code is the mean of the encoder's states. The decoder starts
    from the last state and reads its own outputs, which rebuild the sequence in reverse order.

    The code depends on the order of the sequence.
    """

    encoder: GRUCell
    decoder: GRUCell
    output: Linear
    total: Total = eqx.field(static=True, default=jnp.mean)

    @classmethod
    def drawn(
        cls, features: int, code: int, *, total: Total = jnp.mean, key: PRNGKeyArray
    ) -> "GRUAutoencoder":
        """Initial weights as in the authors' code: those of the output layer are truncated normal
        with deviation 1, and its biases are .1."""
        key_encoder, key_decoder, key_output = jax.random.split(key, 3)
        return cls(
            GRUCell.drawn(features, code, key=key_encoder),
            GRUCell.drawn(features, code, key=key_decoder),
            linear(code, features, init=truncated_normal(1.0), bias=0.1, key=key_output),
            total,
        )

    def __call__(self, sequence: Rows) -> Coded:
        n, features = sequence.shape

        def encode(state: Array, projected: tuple[Array, Array]) -> tuple[Array, Array]:
            state = self.encoder(projected, state)
            return state, state

        def decode(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            state, previous = carry
            state = self.decoder(self.decoder.project(previous), state)
            output = self.output(state)
            return (state, output), output

        zeros = jnp.zeros(self.output.weight.shape[0], sequence.dtype)
        last, states = jax.lax.scan(encode, zeros, self.encoder.project(sequence))
        start = (last, jnp.zeros(features, sequence.dtype))
        _, outputs = jax.lax.scan(decode, start, None, length=n)
        error = self.total(jnp.square(sequence - outputs[::-1]))  # Eq. (8), (9): L_q, L_t
        return jnp.mean(states, axis=0), error  # Eq. (8), (9): q, t


class MLPAutoencoder(eqx.Module):
    """Each vector is encoded and decoded separately; the code is the mean (ablation VI).

    The code does not depend on the order of the set.
    """

    encoder: MLP
    decoder: MLP
    total: Total = eqx.field(static=True, default=jnp.mean)

    @classmethod
    def drawn(
        cls, features: int, code: int, *, total: Total = jnp.mean, key: PRNGKeyArray
    ) -> "MLPAutoencoder":
        """Encoder and decoder have one hidden layer, as wide as the code."""
        key_encoder, key_decoder = jax.random.split(key)
        encoder = mlp((features, code, code), key=key_encoder)
        return cls(encoder, mlp((code, code, features), key=key_decoder), total)

    def __call__(self, sequence: Rows) -> Coded:
        codes = jnp.tanh(self.encoder(sequence))  # bounded, as a GRU's states are
        error = self.total(jnp.square(sequence - self.decoder(codes)))  # Eq. (8), (9)
        return jnp.mean(codes, axis=0), error
