"""Few-shot learning on heterogeneous tasks: ARML and the methods it is compared with, in JAX."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOME = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", _STUB, re.M)}

__all__ = sorted({*_HOME, "__version__"})


def __getattr__(name: str) -> Any:
    # Lazily, so that `import arml` does not load JAX.
    if name not in _HOME:
        raise AttributeError(f"module 'arml' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
