"""Tables, figures and the page that show runs. Nothing here needs JAX.

In a notebook: `learning_curves`, `knowledge_graph` and `predictions` return Matplotlib figures, and
`report_of` the report.
"""

from importlib import import_module

__all__ = ["knowledge_graph", "learning_curves", "predictions", "report_of"]


def __getattr__(name: str) -> object:
    # Lazily: drawing loads Matplotlib, and most importers of this room do not draw.
    if name not in __all__:
        raise AttributeError(f"module 'arml.report' has no attribute {name!r}")
    return getattr(import_module("arml.report.notebook"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
