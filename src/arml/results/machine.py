"""The cores, the memory and the libraries of this machine, and the packages of extras."""

import contextlib
import os
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def cores() -> int:
    """How many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_TUNABLES, _LARGE, _SWITCH = "GLIBC_TUNABLES", "glibc.malloc.hugetlb", "ARML_LARGE_PAGES"


def large_pages() -> bool:
    """Whether this process gets memory in large pages: because of the system, or by glibc's
    `malloc`, if the system gives them to programs that ask."""
    given = _pages()
    return given == "always" or (given == "madvise" and f"{_LARGE}=1" in _tunables())


def ask_for_large_pages() -> None:
    """Start this program again in the same process, with a `malloc` that asks for large pages.

    A step on pictures asks the system for hundreds of megabytes and gives them back. In pages of
    4 kB that costs up to a fifth of a step. `malloc` reads the setting only when a program starts.
    Nothing happens where the user has a setting of `malloc` or `$ARML_LARGE_PAGES`, where the
    system gives no large pages to programs that ask, or in somebody else's program.
    """
    script = vars(sys.modules["__main__"]).get("__file__")
    words = sys.argv[1:]
    own = script and sys.orig_argv[len(sys.orig_argv) - len(words) :] == words
    if _SWITCH in os.environ or not own or _pages() != "madvise":
        return
    if any(one.startswith("glibc.malloc.") for one in _tunables()) or not _glibc():
        return
    tunables = ":".join([*_tunables(), f"{_LARGE}=1"])
    # The switch is set, too: a privileged Python drops the tunables, and would start for ever.
    environment = {**os.environ, _TUNABLES: tunables, _SWITCH: "1"}
    with contextlib.suppress(OSError):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _pages() -> str:
    """When Linux gives large pages: `always`, `madvise` or `never`; empty for another system."""
    with contextlib.suppress(OSError):
        return _PAGES.read_text().partition("[")[2].partition("]")[0]
    return ""


def _tunables() -> list[str]:
    return [one for one in os.environ.get(_TUNABLES, "").split(":") if one]


def _glibc() -> bool:
    """Whether the C library is glibc; those before 2.35 ignore the setting."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    return False


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
