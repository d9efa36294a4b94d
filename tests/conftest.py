"""Every test runs with the package's shapes and types checked, and with strict promotion."""

import os

# Before JAX starts, and for the processes that tests start: nearly all of their time goes into the
# compiler, and XLA's fusion emitters for the CPU take three times as long to compile as what they
# replace.
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"
    # Four devices, of which all but the tests of several use the first.
    " --xla_force_host_platform_device_count=4"
)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

import jax
import pytest
from jaxtyping import install_import_hook

# Before any import of the package: the annotations are documentation outside the tests, and
# assertions inside them.
install_import_hook("arml", "beartype.beartype")

# A failed check of the contract says what it compared.
pytest.register_assert_rewrite("contract", "contract_suite")

# A silent int32 -> float32, or a float64 that spreads, is a bug. (Ranks may differ: a dense layer
# adds its bias to a whole set of examples.)
jax.config.update("jax_numpy_dtype_promotion", "strict")
