"""Every test runs with the package's shapes and types checked, and with strict promotion."""

import gc
import os
import sys
from pathlib import Path

import programs

# Before JAX starts, and for the processes that tests start: nearly all of their time goes into the
# compiler, and XLA's fusion emitters for the CPU take three times as long to compile as what they
# replace. To compile the parts of a program side by side costs a tenth more, where all cores are
# busy already.
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1"
    # Four devices, of which all but the tests of several use the first.
    " --xla_force_host_platform_device_count=4"
)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# Compiled programs are kept for the next run on this kind of processor.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(programs.folder()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.02")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

import jax
import pytest
from jaxtyping import install_import_hook

# Before any import of the package: the annotations are documentation outside the tests, and
# assertions inside them.
install_import_hook("arml", "beartype.beartype")

# A failed test of the contract says what it compared.
pytest.register_assert_rewrite("contract_suite")

# A silent int32 -> float32, or a float64 that spreads, is a bug. (Ranks may differ: a dense layer
# adds its bias to a whole set of examples.)
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Tracing makes many objects, and few of them are garbage: to look less often saves 4% of the time.
gc.set_threshold(50_000, 20, 100)

# Linux lets a process have 65,530 memory maps. Each compiled program takes several, for as long as
# JAX keeps the program. At the limit XLA's compiler ends the process by a segmentation fault.
MAPS = 36_000


@pytest.fixture(scope="module", autouse=True)
def _few_memory_maps():
    """A file of tests that ends with many memory maps gives back the compiled programs."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="module")
def float64():
    """Numbers of 64 bits, for comparisons with another route."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def optax_promotes():
    """Optax's bias correction adds a float to an integer count."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def command(capsys):
    """Carries out a command line; returns its output, and its messages on one line."""
    from arml.cli import main

    def call(*words: object, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        status = main(" ".join(map(str, words)).split())
        said, errors = capsys.readouterr()
        assert status == code, errors
        return said, " ".join(errors.split())

    return call


def pytest_terminal_summary(terminalreporter):
    """Print what tests counted: pytest shows the output of failed tests only."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == "counts":
                terminalreporter.write_line(str(value))


@pytest.fixture
def alone(monkeypatch):
    """The plug-ins that a test loads, and what they register, end with it. The value forgets them
    at once, as in a process that has not loaded them."""
    from arml.core.inputs import INPUTS
    from arml.experiment.options import CALLBACKS, REGISTRIES
    from arml.plugins import loading as plugins

    def forget() -> None:
        monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "")
        CALLBACKS.clear()
        for registry in (*REGISTRIES.values(), INPUTS):
            for name in [name for name, entry in registry.items() if entry.source is not None]:
                del registry.others[name]
        for path in plugins._loaded:
            sys.modules.pop(Path(path).stem, None)
        plugins._loaded.clear()

    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "")
    yield forget
    forget()
