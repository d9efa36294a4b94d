"""Few-shot learning on heterogeneous tasks: ARML and the methods it is compared with, in JAX."""

import lazy_loader

__version__ = "0.1.0"

# Lazily, so that `import arml` does not load JAX.
__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [*_names, "__version__"]
