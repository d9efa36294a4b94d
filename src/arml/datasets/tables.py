"""A user's own tables for training: CSV files, split by origin into parts, as arrays of one size.

The last column of a file is its target. Files in one sub-folder have the same origin; every other
file is an origin of its own. Files with the same cells are one table, whatever their names.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from arml.datasets.columns import WIDTHS, missing, number, reader
from arml.datasets.forms import OriginsSplit
from arml.datasets.own import read_cells
from arml.datasets.splits import PARTS, drawn, part_sizes
from arml.results.files import RunError
from arml.results.schema import read_stated, write_stated

ROWS = 1_000
"""The most rows of a table that are kept; they are chosen at random."""


class TableSet(eqx.Module):
    """Tables of one part, filled up to one size."""

    x: Float[Array, "tables rows columns 3"]
    y: Float[Array, "tables rows"]
    """Classes as numbers from 0, or targets in standard deviations of their table."""
    rows: Bool[Array, "tables rows"]
    """Which rows exist."""
    classes: int = eqx.field(static=True)
    """The largest number of classes of a table."""


class One(NamedTuple):
    """One table."""

    name: str
    origin: str
    digest: str
    x: np.ndarray
    y: np.ndarray


class Part(NamedTuple):
    """The tables of a part."""

    values: TableSet
    names: tuple[str, ...]
    digests: tuple[str, ...]


@dataclass(frozen=True)
class Loaded:
    """Tables and their split."""

    tables: tuple[One, ...]
    parts: dict[str, list[str]]
    """The origins of each part."""
    columns: int

    @property
    def sources(self) -> dict[str, str]:
        """The digest of each table."""
        return {table.name: table.digest for table in self.tables}

    def part(self, name: str) -> Part:
        """The tables of `train`, `validation` or `test`."""
        chosen = [table for table in self.tables if table.origin in self.parts[name]]
        rows = max(len(table.y) for table in chosen)
        x = np.zeros((len(chosen), rows, self.columns, 3), np.float32)
        y, there = np.zeros((len(chosen), rows), np.float32), np.zeros((len(chosen), rows), bool)
        for i, table in enumerate(chosen):
            n, width = table.x.shape[:2]
            x[i, :n, :width], y[i, :n], there[i, :n] = table.x, table.y, True
        classes = max(int(y.max()) + 1, 2)
        values = TableSet(jnp.asarray(x), jnp.asarray(y), jnp.asarray(there), classes)
        return Part(values, tuple(t.name for t in chosen), tuple(t.digest for t in chosen))


def load_tables(
    data: Sequence[str], split: Path, *, predict: str, columns: int, seed: int = 0
) -> Loaded:
    """The tables of CSV files and of folders of such files. The file `split` is read, or written if
    there is none.

    **Raises** `ValueError` in one line for a file that is not such a table, and for fewer than
    three origins; `RunError` for a split of other tables.
    """
    tables: dict[str, One] = {}
    for source in map(Path, data):
        files = sorted(source.rglob("*.csv")) if source.is_dir() else [source]
        for file in files:
            inside = source.is_dir() and file.parent != source
            name = str(file.relative_to(source)) if source.is_dir() else file.name
            one = _read(file, name, file.parent.name if inside else file.stem, predict, columns)
            tables.setdefault(one.digest, one)
    found = tuple(tables.values())
    origins = sorted({table.origin for table in found})
    if len(origins) < 3:
        raise ValueError(
            f"expected CSV files of 3 or more origins for training, validation and test, got "
            f"{len(origins)} in {', '.join(data)}: add files"
        )
    if split.exists():
        content = read_stated(split, OriginsSplit, "restore it, or train in a new folder")
        if sorted(o for part in PARTS for o in content["parts"][part]) != origins:
            raise RunError(f"{split}: expected the split of these tables: train in a new folder")
        return Loaded(found, content["parts"], columns)
    order = drawn(origins, seed)
    _, held, test = part_sizes(len(order))
    parts = {"test": order[:test], "validation": order[test : test + held]}
    parts["train"] = order[test + held :]
    write_stated(split, {"parts": parts})
    return Loaded(found, parts, columns)


def _read(file: Path, name: str, origin: str, predict: str, columns: int) -> One:
    table, _ = read_cells(file)
    target = [*table][-1]
    kept = [i for i, cell in enumerate(table[target]) if not missing(cell)]
    if len(kept) > ROWS:
        kept = sorted(np.random.default_rng(0).choice(kept, ROWS, replace=False).tolist())
    cells = {c: [v[i] for i in kept] for c, v in table.items() if c != target}
    labels = [table[target][i] for i in kept]
    y: np.ndarray
    if predict == "numbers":
        numbers = [number(label) for label in labels]
        if None in numbers:
            raise ValueError(f"{file}: expected numbers in its last column {target!r}, got texts")
        y = np.asarray(numbers, np.float64)
        y = (y - y.mean()) / (y.std() + 1e-12)
    else:
        y = np.unique(labels, return_inverse=True)[1]
    digest = hashlib.sha256(json.dumps(sorted(zip(*cells.values(), labels, strict=True))).encode())
    x = reader(cells, y, where=str(file))(cells, str(file))
    full = x[:, np.any(x[..., 1] > 0, axis=0)][:, : min(columns, WIDTHS[-1])]
    return One(name, origin, digest.hexdigest(), full, y)
