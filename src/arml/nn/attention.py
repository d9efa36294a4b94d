"""Attention over the cells of a table: over its columns, and over its rows.

The attention maps are tied [1]: one map of columns serves all rows, and one map of rows serves all
columns. So each map uses the whole table, and takes only a few large matrix products. Both are made
from the support set, and rows attend to the support set only: a query's prediction depends on no
other query. There are no positions: a permutation of columns or rows permutes the output in the
same way. Every sum leaves out missing cells.

[1] Rao et al., MSA Transformer, ICML 2021: tied axial attention.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from arml.nn.networks import Linear, linear

Tokens = Float[Array, "rows columns d"]
FEW = -1e9
"""The logit of a cell that may not be attended to."""


class Remembered(NamedTuple):
    """The part of the support set that queries need in one layer."""

    columns: Float[Array, "heads columns columns"]
    """The map of columns."""
    keys: Float[Array, "n columns heads e"]
    values: Float[Array, "n columns heads e"]
    there: Bool[Array, "n columns"]


def standard(x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """Layer normalisation without parameters: the layers after it have their own."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-5)


class Layer(eqx.Module):
    """Attention over columns, over rows, and a small network in each cell."""

    across: Linear
    """Queries, keys and values of the attention over columns."""
    across_out: Linear
    down: Linear
    """The same over rows."""
    down_out: Linear
    alike: Float[Array, " heads"]
    """How much more a row attends to rows with a similar label."""
    wide: Linear
    narrow: Linear
    heads: int = eqx.field(static=True)

    def __call__(
        self,
        h: Tokens,
        there: Bool[Array, "rows columns"],
        film: Float[Array, "2 d"],
        *,
        alike: Float[Array, "rows n"] | None = None,
        support: Remembered | None = None,
    ) -> tuple[Tokens, Remembered]:
        """The cells after one layer, and the part of them that queries will need.

        `alike` says how alike the labels of two rows of the support set are. For queries, `support`
        is the part of the support set that they need. `film` scales and shifts the input of the
        small network.
        """
        seen = there.astype(h.dtype)
        q, k, v = self._split(self.across(standard(h)), seen)
        columns, rows = jnp.any(there, axis=0), jnp.any(there, axis=1)
        scale = (q.shape[-1] * jnp.maximum(jnp.sum(rows), 1).astype(h.dtype)) ** -0.5
        across = _map("rche,rdhe->hcd", q, k, columns, scale)
        across = across if support is None else support.columns
        mixed = jnp.einsum("hcd,rdhe->rche", across, v)
        weight = jnp.einsum("hcd,rd->rch", across, seen)
        h = h + self.across_out(self._merge(mixed, weight))
        q, k, v = self._split(self.down(standard(h)), seen)
        own = Remembered(across, k, v, there)
        others = own if support is None else support
        rows, columns = (jnp.any(others.there, axis=i) for i in (1, 0))
        scale = (q.shape[-1] * jnp.maximum(jnp.sum(columns), 1).astype(h.dtype)) ** -0.5
        bias = 0.0 if alike is None else self.alike[:, None, None] * alike
        down = _map("rche,nche->hrn", q, others.keys, rows, scale, bias)
        mixed = jnp.einsum("hrn,nche->rche", down, others.values)
        weight = jnp.einsum("hrn,nc->rch", down, others.there.astype(h.dtype))
        h = h + self.down_out(self._merge(mixed, weight))
        inside = standard(h) * (1 + film[0]) + film[1]
        return h + self.narrow(jax.nn.gelu(self.wide(inside))), own

    def _split(
        self, x: Float[Array, "rows columns three_d"], seen: Float[Array, "rows columns"]
    ) -> list[Float[Array, "rows columns heads e"]]:
        x = x * seen[..., None]
        return [p.reshape(*x.shape[:2], self.heads, -1) for p in jnp.split(x, 3, axis=-1)]

    def _merge(
        self, x: Float[Array, "rows columns heads e"], weight: Float[Array, "rows columns heads"]
    ) -> Tokens:
        """The mean over the cells that were attended to."""
        x = x / jnp.maximum(weight, 1e-6)[..., None]
        return x.reshape(*x.shape[:2], -1)


def _map(
    product: str,
    q: Array,
    k: Array,
    allowed: Bool[Array, " m"],
    scale: Float[Array, ""],
    bias: Float[Array, "heads n m"] | float = 0.0,
) -> Float[Array, "heads n m"]:
    """Softmax of the products of queries and keys. `scale` brings them to the size of one cell's
    product."""
    logits = jnp.einsum(product, q, k)
    return jax.nn.softmax(jnp.where(allowed, logits * scale + bias, FEW), axis=-1)


def layer(d: int, heads: int, *, key: PRNGKeyArray) -> Layer:
    """A layer of width `d` with Glorot weights."""
    keys = jax.random.split(key, 6)
    return Layer(
        linear(d, 3 * d, key=keys[0]),
        linear(d, d, key=keys[1]),
        linear(d, 3 * d, key=keys[2]),
        linear(d, d, key=keys[3]),
        jnp.ones(heads, jnp.float32),
        linear(d, 2 * d, key=keys[4]),
        linear(2 * d, d, key=keys[5]),
        heads,
    )
