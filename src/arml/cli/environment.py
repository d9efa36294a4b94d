"""What JAX reads from the environment when it is imported: compiled programs are kept, so that only
the first run waits for them, and each core is a device."""

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path

from arml.datasets.cache import default_folder
from arml.results.machine import cores

LARGEST = 2**30
"""Bytes that are kept."""
SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""JAX's own would keep nothing that compiled in less than a second."""


def keep_compiled() -> None:
    """Have JAX, once it is imported, keep its programs in `$ARML_CACHE/compiled`; where JAX's own
    variables say otherwise, they are followed.

    A truncated or altered entry is compiled anew, with a warning: entries carry a checksum.
    """
    folder = default_folder() / "compiled"
    _prune(folder)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / _processor()))
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def cores_as_devices() -> None:
    """Have JAX, once it is imported, see each core that this process may use as a device, unless it
    is told otherwise; see `devices.own_cores`."""
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(cores()))


def _prune(folder: Path) -> None:
    """Delete the oldest programs beyond `LARGEST`."""
    with suppress(OSError):
        files = [(path.stat(), path) for path in folder.glob("*/*")]
        excess = sum(stat.st_size for stat, _ in files) - LARGEST
        for stat, path in sorted(files, key=lambda pair: pair[0].st_mtime):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= stat.st_size


def _processor() -> str:
    """Names what machine code may be shared: a home directory can be on machines of many kinds."""
    features = platform.machine() + platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        features += "".join({line for line in lines if line.startswith(("flags", "Features"))})
    return hashlib.sha256(features.encode()).hexdigest()[:12]
