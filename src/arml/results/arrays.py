"""Named arrays in a file (safetensors), with a checksum that is kept elsewhere."""

import hashlib
import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from arml.results.files import RunError, read_bytes, write_bytes

AGAIN = "get the learner again"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write arrays as safetensors, atomically; returns the file's SHA-256."""
    from safetensors.numpy import save

    # Not `ascontiguousarray`, which gives a scalar an axis.
    data = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def read_arrays(path: Path, sha256: str) -> dict[str, np.ndarray]:
    """Arrays that `write_arrays` wrote.

    **Raises** `RunError` if the file is missing, damaged, or has another checksum.
    """
    from safetensors.numpy import load

    data = read_bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RunError(f"{path} was altered or cut short: {AGAIN}")
    try:
        return dict(load(data))
    except Exception as error:  # safetensors' own type, and NumPy's
        raise RunError(f"{path}: expected safetensors, got: {error}; {AGAIN}") from error


MOST = 2**28
"""Bytes of one array in a NumPy archive, at most."""


def check_sizes(content: io.BytesIO) -> None:
    """Raise `ValueError` if an array of a NumPy archive claims to be larger than its bytes: NumPy
    would allocate the memory that it claims."""
    with zipfile.ZipFile(content) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                if version != (1, 0):
                    raise ValueError(f"{member.filename} is of another format")
                shape, _, kind = np.lib.format.read_array_header_1_0(file)
            if kind.itemsize * math.prod(shape) > min(member.file_size, MOST):
                raise ValueError(f"{member.filename} claims the shape {shape}")
    content.seek(0)
