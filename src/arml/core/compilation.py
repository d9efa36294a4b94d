"""What XLA is told where its defaults cost more than they give, by what a program is for; and what
it is spared.

On a CPU most of the wait before the first step is compilation. The settings change rounding at
most. On other devices XLA's defaults stand.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
from jax.custom_batching import sequential_vmap

F = TypeVar("F", bound=Callable[..., Any])

ONCE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""For a program that runs once, such as the drawing of initial weights: compile it quickly."""
LARGE = {"xla_cpu_use_fusion_emitters": False}
"""For one whose time goes into convolutions, or that runs for seconds at most: these emitters take
most of the compilation, and speed up long loops over small arrays only."""


def jit(function: F, settings: dict[str, Any], *, donate: str = "none") -> F:
    """`eqx.filter_jit` with those of `settings` that this XLA knows; `donate` as there."""
    compiled: Any = eqx.filter_jit
    return cast(F, compiled(function, donate=donate, compiler_options=known(settings)))


def known(settings: dict[str, Any]) -> dict[str, Any]:
    """Those of `settings` that this XLA knows; on another device than a CPU none."""
    if jax.default_backend() != "cpu":
        return {}
    return {name: value for name, value in settings.items() if _known(name, value)}


@cache
def _known(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except Exception:  # XLA's settings come and go, and it raises of several kinds
        return False
    return True


def short(function: F) -> F:
    """`eqx.filter_jit` for a function that is called for seconds at most: quickly compiled."""
    # When first called, as the device is not to be touched before.
    compiled = cache(lambda: jit(function, LARGE))
    return cast(F, lambda *arguments: compiled()(*arguments))


def vmap(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.vmap(function)`; of a single element, `function` itself, which is traced and compiled
    sooner."""

    def mapped(*arguments: Any) -> Any:
        if len(jax.tree.leaves(arguments)[0]) > 1:
            return jax.vmap(function)(*arguments)
        result = function(*jax.tree.map(lambda a: a[0], arguments))
        return jax.tree.map(lambda a: a[None], result)

    return mapped


def unbatched(function: F) -> F:
    """`function`, whose `vmap` is a loop on a CPU: for what calls LAPACK.

    jaxlib shares a batch of matrices among threads, and waits for them in one of the same threads:
    as many such calls at once as there are threads never end. For a single matrix it does not wait.
    """
    # Defaults that are no arrays would become arguments.
    looped = sequential_vmap(lambda *arguments: function(*arguments))

    def call(*arguments: Any) -> Any:
        return (looped if jax.default_backend() == "cpu" else function)(*arguments)

    return cast(F, call)
