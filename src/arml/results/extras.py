"""Packages that only an extra of this package installs."""

from importlib import import_module
from typing import Any


def extra(package: str, name: str, purpose: str) -> Any:
    """Import a package of the extra `arml[NAME]`.

    **Raises** `ValueError` in one line if it is not installed.
    """
    try:
        return import_module(package)
    except ImportError:
        raise ValueError(
            f"expected the package {package} for {purpose}, found none: pip install 'arml[{name}]'"
        ) from None
