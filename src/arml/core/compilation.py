"""Compiler options for XLA, chosen by how a program is used.

On a CPU, compilation takes most of the time before the first step. The options change only
rounding. On other devices XLA's defaults apply.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import PyTree

P = ParamSpec("P")
R = TypeVar("R")
Settings = Mapping[str, bool | int]

RUN_ONCE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""Settings that compile quickly, for a program that runs once or for milliseconds."""
FEW_SECONDS = {"xla_cpu_use_fusion_emitters": False}
"""Settings for a program that mostly computes convolutions, or runs only for seconds. The fusion
emitters take most of the compilation time, and speed up only long loops over small arrays."""


def jit(function: Callable[P, R], settings: Settings, *, donate: str = "none") -> Callable[P, R]:
    """`eqx.filter_jit`; on a CPU with the `settings` that this version of XLA supports."""
    cpu = jax.default_backend() == "cpu"
    known = {name: value for name, value in settings.items() if cpu and _known(name, value)}
    options = {"donate": donate, "compiler_options": known}
    compiled: Callable[P, R] = eqx.filter_jit(function, **options)  # type: ignore[call-overload]
    return compiled


@cache
def _known(name: str, value: bool | int) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except Exception:  # versions of XLA know different settings, and raise different errors
        return False
    return True


def short(function: Callable[P, R], settings: Settings = FEW_SECONDS) -> Callable[P, R]:
    """`eqx.filter_jit` for a function that runs for seconds at most: it compiles quickly."""
    # Made at the first call: importing a module must not touch the device.
    compiled = cache(lambda: jit(function, settings))

    def call(*arguments: P.args, **named: P.kwargs) -> R:
        return compiled()(*arguments, **named)

    return call


def vmap(function: Callable[..., R]) -> Callable[..., R]:
    """`jax.vmap(function)`; a single element goes to `function` itself, which is traced and
    compiled faster."""

    def mapped(*arguments: PyTree) -> R:
        if len(jax.tree.leaves(arguments)[0]) > 1:
            return jax.vmap(function)(*arguments)
        result = function(*jax.tree.map(lambda a: a[0], arguments))
        expanded: R = jax.tree.map(lambda a: jnp.asarray(a)[None], result)
        return expanded

    return mapped


def unbatched(function: Callable[..., R]) -> Callable[..., R]:
    """`function`, whose `vmap` is a loop on a CPU: for functions that call LAPACK.

        from arml.core.compilation import unbatched

        solve = unbatched(jnp.linalg.solve)
        weights = jax.vmap(solve)(jnp.ones((5, 1, 1)), jnp.ones((5, 1)))

    jaxlib shares a batch of matrices among its threads, and one of these threads waits for the
    others. If every thread waits in such calls, no thread is free, and the calls never end. For
    a single matrix no thread waits.

    It has derivatives of any order in reverse mode, each a loop again. In forward mode it has them
    on other devices than a CPU only. Arguments are arrays, or pytrees of arrays.
    """
    # Without the lambda, a default value that is not an array would become an argument.
    looped: Callable[..., R] = sequential_vmap(lambda *arguments: function(*arguments))

    # A loop has no linear form, so the gradient is also a function in a loop.
    def gradient(arguments: PyTree, cotangents: PyTree) -> PyTree:
        inexact, rest = eqx.partition(arguments, eqx.is_inexact_array)

        def outputs(inexact: PyTree) -> PyTree:
            return eqx.filter(function(*eqx.combine(inexact, rest)), eqx.is_inexact_array)

        return jax.vjp(outputs, inexact)[1](cotangents)[0]

    @jax.custom_vjp
    def differentiable(*arguments: PyTree) -> R:
        return looped(*arguments)

    def forward(*arguments: PyTree) -> tuple[R, PyTree]:
        return differentiable(*arguments), arguments

    def backward(arguments: PyTree, cotangents: PyTree) -> PyTree:
        return unbatched(gradient)(arguments, eqx.filter(cotangents, eqx.is_inexact_array))

    differentiable.defvjp(forward, backward)

    def call(*arguments: PyTree) -> R:
        if jax.default_backend() == "cpu":
            looped_result: R = differentiable(*arguments)
            return looped_result
        return function(*arguments)

    return call
