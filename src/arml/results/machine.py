"""The cores and the libraries of this machine, and the packages of extras."""

import contextlib
import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def cores() -> int:
    """How many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """One thread for the linear algebra of NumPy, SciPy and, on a CPU, of compiled programs.

    On matrices as small as ours several threads wait for each other most of the time. They wait
    busily, so that XLA's own threads lose their cores.
    """
    return _libraries().limit(limits=1)


@cache
def _libraries() -> "ThreadpoolController":
    # SciPy first, because its library has threads of its own; jaxlib calls it, too.
    import_module("scipy.linalg")
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def extra(package: str, name: str, purpose: str) -> Any:
    """Import a package of the extra `arml[NAME]`.

    **Raises** `ValueError` in one line if it is not installed.
    """
    try:
        return import_module(package)
    except ImportError:
        raise ValueError(
            f"expected the package {package} for {purpose}, found none: pip install 'arml[{name}]'"
        ) from None
