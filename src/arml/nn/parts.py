"""Base networks made from your own parts, and the parts that methods find in any base network.

`network` makes a base network from blocks and a head. A block is any function of a whole set,
`[n, ...] -> [n, ...]`; a method that modulates units (MUMOMAML, TADAM, ARML on pictures) acts on
the block's outputs. MT-Net and LLAMA act on all `Linear` and `Convolution` layers in the network.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from arml.nn.networks import BaseNetwork, Block, Body, Convolution, Linear, Statistics

Film = Callable[[Array], Array]


class Plain(eqx.Module):
    """A block that does not normalise; `film`, if any, acts on its output."""

    block: Callable[[Array], Array]
    film: Film | None = None

    def __call__(self, x: Array, statistics: Statistics = None) -> tuple[Array, None]:
        y = self.block(x)
        return (y if self.film is None else self.film(y)), None


class Alone(eqx.Module):
    """A network of one's own that is a function of a set, and no more."""

    function: Callable[[Array], Array]

    def __call__(self, x: Array) -> Array:
        return self.function(x)

    def given(self, x: Array) -> Callable[[Array], Array]:
        return self.function


class Filmed(eqx.Module):
    """A block that has no field `film`: here `film` acts on its output."""

    block: Block
    film: Film

    def __call__(self, x: Array, statistics: Statistics = None) -> tuple[Array, Statistics]:
        y, statistics = self.block(x, statistics)
        return self.film(y), statistics


def network(
    blocks: Iterable[Callable[[Array], Array]], head: Callable[[Array], Array]
) -> BaseNetwork:
    """A base network from functions of a whole set. Every method can use it.

        keys = jax.random.split(jax.random.key(0))
        net = arml.network([arml.linear(1, 8, key=keys[0])], arml.linear(8, 1, key=keys[1]))

    **Arguments**

    - `blocks`: Equinox modules whose arrays are the parameters. In sequence they make the features,
      `[n, *features] -> [n, ...]`, which are then flattened.
    - `head`: from features to outputs, `[n, d] -> [n, outputs]`. Use `arml.linear`, so that all
      methods find its weights.
    """
    return BaseNetwork(Body(tuple(map(Plain, blocks)), "batch"), head)


def filmed(body: Body, films: Iterable[Film]) -> Body:
    """The body with a modulation in each block. A block with a field `film` applies it before its
    activation; for other blocks it acts on the output."""

    def one(block: PyTree, film: Film) -> Block:
        own = any(field.name == "film" for field in fields(block))
        return replace(block, film=film) if own else Filmed(block, film)

    pairs = zip(body.blocks, films, strict=True)
    return replace(body, blocks=tuple(one(block, film) for block, film in pairs))


def widths(body: Body, features: tuple[int, ...]) -> list[int]:
    """How many units each block has for its film to scale and shift: the last axis of its
    output."""

    def outputs(x: Array) -> list[Array]:
        found = []
        for block in body.blocks:
            x, _ = block(x)
            found.append(x)
        return found

    one = jax.ShapeDtypeStruct((1, *features), jnp.float32)
    return [output.shape[-1] for output in jax.eval_shape(outputs, one)]


def with_body(net: object, method: str) -> BaseNetwork:
    """`net`, as a network with a body and a head.

    **Raises** `ValueError` in one line if it has none.
    """
    if not isinstance(net, BaseNetwork):
        raise ValueError(
            f"{method} needs a network with a body and a head, got {type(net).__name__}: make it "
            "with arml.network(blocks, head)"
        )
    return net


N = TypeVar("N")


def is_layer(node: object) -> bool:
    """Whether a node is a `Linear` or `Convolution` layer."""
    return isinstance(node, Linear | Convolution)


def layers(net: PyTree, is_leaf: Callable[[object], bool] = is_layer) -> list[PyTree]:
    """The layers of a network, in the order of its fields."""
    return [node for node in jax.tree.leaves(net, is_leaf=is_leaf) if is_leaf(node)]


def with_layers(net: N, given: Iterable[PyTree], is_leaf: Callable[[object], bool] = is_layer) -> N:
    """The network with its layers replaced by those given, in the same order."""
    others = iter(given)
    return jax.tree.map(lambda node: next(others) if is_leaf(node) else node, net, is_leaf=is_leaf)
