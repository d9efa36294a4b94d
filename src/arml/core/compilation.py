"""Compiler options for XLA, chosen by how a program is used.

On a CPU most of the wait before the first step is compilation. The settings change rounding at
most. On other devices XLA's defaults stand.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, PyTree

P = ParamSpec("P")
R = TypeVar("R")
Settings = Mapping[str, bool | int]

ONCE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""For a program that runs once, such as the drawing of initial weights: compile it quickly."""
LARGE = {"xla_cpu_use_fusion_emitters": False}
"""For one whose time goes into convolutions, or that runs for seconds at most: these emitters take
most of the compilation, and speed up long loops over small arrays only."""


def jit(function: Callable[P, R], settings: Settings, *, donate: str = "none") -> Callable[P, R]:
    """`eqx.filter_jit` with those of `settings` that this XLA knows; `donate` as there."""
    options = {"donate": donate, "compiler_options": known(settings)}
    compiled: Callable[P, R] = eqx.filter_jit(function, **options)  # type: ignore[call-overload]
    return compiled


def known(settings: Settings) -> Settings:
    """Those of `settings` that this XLA knows; on another device than a CPU none."""
    if jax.default_backend() != "cpu":
        return {}
    return {name: value for name, value in settings.items() if _known(name, value)}


@cache
def _known(name: str, value: bool | int) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except Exception:  # XLA's settings come and go, and it raises of several kinds
        return False
    return True


def short(function: Callable[P, R]) -> Callable[P, R]:
    """`eqx.filter_jit` for a function that is called for seconds at most: quickly compiled."""
    # When first called, as the device is not to be touched before.
    compiled = cache(lambda: jit(function, LARGE))

    def call(*arguments: P.args, **named: P.kwargs) -> R:
        return compiled()(*arguments, **named)

    return call


def vmap(function: Callable[..., R]) -> Callable[..., R]:
    """`jax.vmap(function)`; of a single element, `function` itself, which is traced and compiled
    sooner."""

    def mapped(*arguments: PyTree) -> R:
        if len(jax.tree.leaves(arguments)[0]) > 1:
            return jax.vmap(function)(*arguments)
        result = function(*jax.tree.map(lambda a: a[0], arguments))
        one: R = jax.tree.map(lambda a: a[None], result)
        return one

    return mapped


def unbatched(function: Callable[..., R]) -> Callable[..., R]:
    """`function`, whose `vmap` is a loop on a CPU: for functions that call LAPACK.

    jaxlib shares a batch of matrices among threads, and waits for them in one of the same threads:
    as many such calls at once as there are threads never end. For a single matrix it does not wait.
    """
    # Defaults that are no arrays would become arguments.
    looped: Callable[..., R] = sequential_vmap(lambda *arguments: function(*arguments))

    def call(*arguments: Array) -> R:
        return (looped if jax.default_backend() == "cpu" else function)(*arguments)

    return call
