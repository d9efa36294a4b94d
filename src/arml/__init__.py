"""Few-shot learning on heterogeneous tasks: ARML and the methods it is compared with, in JAX."""

__version__ = "0.1.0"
