"""Where a run is made: the commit, the versions of packages, and the device."""

import platform
import re
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import jax

from arml.results.files import Json
from arml.results.machine import cores, malloc_settings


def provenance(devices: int = 1) -> Json:
    """Where a run is made: `commit`, the `versions` that a score may depend on, and the `device`:
    the accelerator, with their number if there are several, and the processor with its usable
    cores; and the settings of `malloc`."""
    packages = ("arml", "jax", "jaxlib", "equinox", "optax", "numpy")
    versions = {name: version(name) for name in packages}
    model = platform.processor() or platform.machine()
    with suppress(OSError):
        named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        model = named[1] if named else model
    device = f"{model}, {cores()} core{'s' if cores() != 1 else ''}"
    first = jax.devices()[0]
    if first.platform != "cpu":
        several = f"{devices} × " if devices > 1 else ""
        device = f"{several}{first.device_kind} ({device})"
    python = {"python": platform.python_version()}
    made = {"commit": commit(), "versions": python | versions, "device": device}
    return {**made, "malloc": malloc_settings()}


def commit() -> str | None:
    """The commit of the checkout that this package runs from, with -dirty if a file differs; None
    for an installed package."""
    package = Path(__file__).resolve().parents[1]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    with suppress(OSError):  # there may be no git
        # An environment inside another repository is not a checkout of ours.
        if Path(git("rev-parse", "--show-toplevel")).resolve() / "src" / "arml" == package:
            return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or None
    return None
