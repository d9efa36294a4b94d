"""Where a run or a score was made: the commit, the versions and the device."""

import platform
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from arml.results.files import Json
from arml.results.machine import cores


def provenance(devices: int = 1) -> Json:
    """`commit`, `versions` and `device`, as plain data. Several devices have their number in front;
    on a CPU that is the number of processes, because `device` counts the cores itself."""
    import jax

    count = jax.process_count() if jax.default_backend() == "cpu" else devices
    several = f"{count} × " if count > 1 else ""
    return {"commit": commit(), "versions": versions(), "device": several + device()}


def versions() -> dict[str, str]:
    """The versions that a score may depend on."""
    packages = ("jax", "jaxlib", "equinox", "optax", "numpy")
    own = {"arml": version("arml"), "python": platform.python_version()}
    return own | {name: version(name) for name in packages}


def device() -> str:
    """The accelerator, if any, and the processor with its usable cores."""
    import jax

    first = jax.devices()[0]
    return host() if first.platform == "cpu" else f"{first.device_kind} ({host()})"


def host() -> str:
    """The processor with its usable cores."""
    here = cores()
    return f"{_processor()}, {here} core{'s' if here != 1 else ''}"


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the checkout that this package runs from, with -dirty if its code differs;
    None for an installed package."""
    package = Path(__file__).resolve().parents[1]

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", "-C", str(package), *arguments], capture_output=True, text=True, check=False
        )

    try:
        top = git("rev-parse", "--show-toplevel")
        # An environment inside somebody's repository is not a checkout of ours.
        if top.returncode or Path(top.stdout.strip()).resolve() / "src" / "arml" != package:
            return None
        head = git("rev-parse", "HEAD")
        if head.returncode:
            return None
        changed = git("diff", "--quiet", "HEAD", "--", ".").returncode
    except OSError:
        return None
    return head.stdout.strip() + ("-dirty" if changed else "")
