"""The cores, the memory and the libraries of this machine, and the packages of extras."""

import contextlib
import os
import sys
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


MALLOC_SETTINGS = {
    "hugetlb": 1,  # in large pages, where the system offers them
    "mmap_max": 0,  # large blocks are also parts of the heap,
    "arena_max": 1,  # of which there is one,
    "trim_threshold": 2**31,  # and free memory beyond 2 GiB is returned
}
"""Settings of glibc's `malloc` under which memory is used again."""
_TUNABLES_VARIABLE, _SWITCH_VARIABLE = "GLIBC_TUNABLES", "ARML_MALLOC"


def malloc_settings() -> list[str]:
    """The settings of `malloc` that this process started with."""
    return [one for one in _tunables() if one.startswith("glibc.malloc.")]


def use_memory_again() -> None:
    """Start this program again in the same process with `MALLOC_SETTINGS`, which are read only
    when a program starts. Without them a step on pictures spends up to a fifth of its time on new
    pages of memory. Nothing happens with another C library, inside another program, or if the user
    has set `malloc` or `$ARML_MALLOC`."""
    script, words = vars(sys.modules["__main__"]).get("__file__"), sys.argv[1:]
    own = script and sys.orig_argv[len(sys.orig_argv) - len(words) :] == words
    if _SWITCH_VARIABLE in os.environ or malloc_settings() or not own or not _is_glibc():
        return
    tunables = [
        *_tunables(),
        *(f"glibc.malloc.{name}={value}" for name, value in MALLOC_SETTINGS.items()),
    ]
    # The switch is also set: a privileged Python loses the tunables, and would restart for ever.
    environment = {**os.environ, _TUNABLES_VARIABLE: ":".join(tunables), _SWITCH_VARIABLE: "1"}
    with contextlib.suppress(OSError):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _tunables() -> list[str]:
    return [one for one in os.environ.get(_TUNABLES_VARIABLE, "").split(":") if one]


def _is_glibc() -> bool:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    return False


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """One thread for the linear algebra of NumPy, SciPy and, on a CPU, of compiled programs. On
    matrices as small as ours several threads wait for each other most of the time. They wait
    busily, so that XLA's own threads lose their cores."""
    return _libraries().limit(limits=1)


@cache
def _libraries() -> "ThreadpoolController":
    # SciPy first, because its library has its own threads, and jaxlib also calls it.
    import_module("scipy.linalg")
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def extra(package: str, name: str, purpose: str) -> Any:
    """Import a package of the extra `arml[NAME]`. **Raises** `ValueError` in one line if it is not
    installed."""
    try:
        return import_module(package)
    except ImportError:
        raise ValueError(
            f"expected the package {package} for {purpose}, found none: pip install 'arml[{name}]'"
        ) from None
