"""Environment variables that JAX reads when it is imported: compiled programs are cached, so that
only the first run waits for them, and each CPU core is a device."""

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path

from arml.datasets.folders import default_folder
from arml.results.files import cores

LARGEST = 2**30
"""Bytes of the cache, at most."""
SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""By default JAX caches nothing that compiles in less than a second."""


def keep_compiled() -> None:
    """Let JAX cache its programs in `$ARML_CACHE/programs`, unless JAX's own variables are set.

    An entry that was truncated or altered is compiled again, with a warning.
    """
    folder = default_folder() / "programs"
    _prune(folder)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / _processor()))
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def cores_as_devices() -> None:
    """Let JAX use each core of this process as a device, unless its variables are set; see
    `devices.own_cores`."""
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(cores()))


def _prune(folder: Path) -> None:
    """Delete the oldest programs beyond `LARGEST`. JAX's own bound reads the times of all programs
    whenever it keeps another."""
    with suppress(OSError):
        files = [(path.stat(), path) for path in folder.glob("*/*")]
        excess = sum(stat.st_size for stat, _ in files) - LARGEST
        for stat, path in sorted(files, key=lambda pair: pair[0].st_mtime):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= stat.st_size


def _processor() -> str:
    """A name for this kind of processor, as machines may share a home directory."""
    features = platform.machine() + platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        features += "".join({line for line in lines if line.startswith(("flags", "Features"))})
    return hashlib.sha256(features.encode()).hexdigest()[:12]
