"""Few-shot learning on heterogeneous tasks: ARML and the methods it is compared with, in JAX."""

import warnings
from importlib import import_module

import lazy_loader

__version__ = "0.1.0"
MOVED_NAMES = {
    "Linear": "arml.nn",
    "linear": "arml.nn",
    "check": "arml.predict.contract",
    "loss_of": "arml.core.losses",
    "unbatched": "arml.core.compilation",
}
"""The modules of names that were in `arml` before; the next release removes them here."""

# Lazily, so that `import arml` does not load JAX.
_attached, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [*_names, "__version__"]


def __getattr__(name: str) -> object:
    if name not in MOVED_NAMES:
        return _attached(name)
    new = f"{MOVED_NAMES[name]}.{name}"
    warnings.warn(f"arml.{name} will be removed: use {new}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(MOVED_NAMES[name]), name)
