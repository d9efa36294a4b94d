"""Every test runs with the package's shapes and types checked, and with strict promotion."""

import os
from collections.abc import Iterator

# Before JAX starts: tests spend their time in the compiler, and XLA's fusion emitters for the CPU
# take three times as long to compile as what they replace.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import jax
import pytest
from jaxtyping import install_import_hook

# Before any import of the package: the annotations are documentation outside the tests, and
# assertions inside them.
install_import_hook("arml", "beartype.beartype")

# A silent int32 -> float32, or a float64 that spreads, is a bug. (Ranks may differ: a dense layer
# adds its bias to a whole set of examples.)
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="module")
def compile_quickly() -> Iterator[None]:
    """For tests of small networks, which spend their time in the compiler."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
