"""Predictions of batches of pictures or rows, for Ray Data, Dask, Spark and the command line.

`predict_parts` divides a source into parts, which the workers of a Ray cluster read, predict and
write. Memory does not grow with the source, and finished parts are not computed again.
"""

import json
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from arml.datasets.archives import Member
from arml.datasets.decode import LOG
from arml.datasets.folders import has_suffix
from arml.experiment.workers import cluster
from arml.predict.answers import free_name
from arml.predict.base import Predictor
from arml.predict.files import check_predictor
from arml.predict.inputs import Bad
from arml.predict.kinds import Inputs, inputs_of
from arml.predict.loading import load_predictor
from arml.results.files import RunError, checksum, digest_of
from arml.results.folder import CONFIG_FILE
from arml.results.machine import extra

CONTENT_COLUMNS = ("bytes", "image")
"""Columns that hold the contents of files. The answers do not repeat them."""
ANSWER_COLUMNS = ("prediction", "low", "high"), ("label", "probability", "novelty")
"""The columns of answers, for a regression and for a classification."""
_AT_ONCE, PART, TABLE = 256, 1_000, ".parquet"
"""The pictures or rows of a batch, the pictures of a part, and the ending of a table's name."""


def _column(cells: Any) -> np.ndarray:
    """A column as an array. Lists and bytes stay as they are: NumPy would make rows of lists, and
    drop zeros at the end of bytes."""
    if hasattr(cells, "dtype") or all(isinstance(cell, str | int | float) for cell in cells):
        return np.asarray(cells)
    column = np.empty(len(cells), object)
    for i, cell in enumerate(cells):
        column[i] = cell
    return column


class BatchPredictor:
    """Predicts batches: mappings of columns, or pandas data frames.

        pool = ray.data.ActorPoolStrategy(min_size=1, max_size=8)
        photos = ray.data.read_binary_files("photos/", include_paths=True)
        photos.map_batches(BatchPredictor, fn_constructor_args=["my-predictor"], compute=pool)

    A batch has a column of files (`bytes`, `image`, `path` or `file`: contents, pixels, addresses,
    mappings), or the columns of the table that the predictor has learned. The answer repeats the
    columns of the batch, except for contents of files. It adds `label`, `probability` and
    `novelty`, or `prediction`, `low` and `high`. The last column, `error`, is empty if the input
    could be read. If the batch already has a column of that name, the new name is prefixed with
    `arml_`. `predictor` is the folder of a predictor, `model` is its frozen network if the package
    lacks it, and `level` is the share of new numbers between `low` and `high`.
    """

    def __init__(
        self, predictor: Path | str, model: Path | None = None, level: float = 0.9
    ) -> None:
        self.folder, self.model, self.level = Path(predictor).resolve(), model, level
        check_predictor(self.folder)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.folder, self.model, self.level)

    @cached_property
    def predictor(self) -> Predictor:
        """The saved predictor."""
        return load_predictor(self.folder, self.model)

    @property
    def kind(self) -> Inputs:
        """The kind of its inputs."""
        return inputs_of(self.predictor.learner)

    def __call__(self, batch: Any) -> Any:
        """The answers to a batch, as a mapping or a data frame like the batch."""
        columns = {str(name): list(batch[name]) for name in batch}
        errors = np.full(len(next(iter(columns.values()))), "", object)
        known, named = self.kind.cells, self.predictor.columns or ()
        if known:
            # Without a table's column, the first one that may hold inputs.
            wanted = (*named, *known, *(() if named else columns))
            column = next((name for name in wanted if name in columns), None)
            if column is None:
                raise ValueError(
                    f"expected a column {named[0]!r}, from which the predictor learned, got "
                    f"{', '.join(columns)}: rename the column"
                )
            x = self._read(columns[column], errors)
        else:
            names = self.predictor.columns
            rows = np.column_stack([columns[name] for name in names]) if names else columns
            x = self.predictor.read(rows)
        kept = {name: _column(batch[name]) for name in batch if name not in CONTENT_COLUMNS}
        answers = dict(kept)
        for name, values in self._answers(x).items():
            blank, kind = ("", object) if name == "label" else (np.nan, float)
            own = np.full(len(errors), blank, kind)
            own[errors == ""] = values
            answers[free_name(name, kept)] = own
        answers[free_name("error", kept)] = errors
        return answers if isinstance(batch, Mapping) else type(batch)(answers, index=batch.index)

    def _read(self, cells: list[Any], errors: np.ndarray) -> np.ndarray | None:
        """The inputs that can be read, or None without such inputs. Sets the other `errors`."""
        bad: Bad = {}
        each = [c.get("bytes") or c["path"] if isinstance(c, Mapping) else c for c in cells]
        found: np.ndarray = self.predictor.learner.read(each, bad=bad)
        for i, problem in bad.items():
            item = each[i]
            named = getattr(item, "where", item if isinstance(item, str) else "")
            said = problem if named in problem else f"{named}: {problem}"
            errors[i] = " ".join(said.split())
        return found[errors == ""] if len(bad) < len(cells) else None

    def _answers(self, x: object) -> dict[str, Any]:
        """The columns of the answers to these inputs; all values are NaN if `x` is None."""
        predictor = self.predictor
        values: dict[str, Any] = dict.fromkeys(
            ANSWER_COLUMNS[predictor.classes is not None], np.nan
        )
        if x is not None and predictor.classes is None:
            values["prediction"] = np.ravel(predictor.predict(x))
            if predictor.is_enough(self.level):
                values["low"], values["high"] = map(np.ravel, predictor.interval(x, self.level))
        elif x is not None:
            chances = predictor.predict_proba(x)
            values["label"] = [*map(str, predictor.labels[chances.argmax(axis=1)].tolist())]
            values["probability"] = chances.max(axis=1)
            values["novelty"] = predictor.novelty(x) if predictor.can("novelty") else np.nan
        return values


# --- the parts of a source, on a cluster


def parts_of(source: str, suffixes: Collection[str], many: str) -> tuple[Any, list[list[str]]]:
    """The file system of a source, and the files of each part: several files with these suffixes,
    or one Parquet file.

    **Raises** `ValueError` if the source has no such files.
    """
    import pyarrow as pa
    from pyarrow.dataset import dataset
    from pyarrow.fs import FileSystem

    try:
        found = dataset(source, pa.schema([]), "parquet")
        names = sorted(found.files)
    except OSError as error:
        raise ValueError(f"no source at {source} ({error}): check the path") from error
    files, tables = found.filesystem, [name for name in names if name.endswith(TABLE)]
    pictures = [] if tables else [name for name in names if has_suffix(name, suffixes)]
    if source.endswith(".txt"):
        with files.open_input_stream(names[0]) as file:
            lines = list(filter(None, file.readall().decode().splitlines()))
        pictures = [line.rpartition("://")[2] for line in lines]
        files = FileSystem.from_uri(lines[0])[0] if lines and "://" in lines[0] else files
    elif others := sorted({*names} - {*tables, *pictures}):
        kind = "Parquet files" if tables else many
        some = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        LOG.warning("left out %d of %d files (not %s): %s", len(others), len(names), kind, some)
    parts = [[name] for name in tables]
    parts = parts or [pictures[i : i + PART] for i in range(0, len(pictures), PART)]
    if not parts:
        raise ValueError(f"expected {many} or Parquet files at {source}, found none: check it")
    return files, parts


class PartWriter:
    """A worker with one core. It reads a part, predicts it, and writes the answers in Parquet."""

    def __init__(self, predict: BatchPredictor, files: Any, out: Path) -> None:
        os.environ["NPROC"] = "1"
        self.predict, self.files, self.out = predict, files, out

    def _batches(self, names: list[str]) -> Iterator[dict[str, Any]]:
        from pyarrow.dataset import dataset

        if names[0].endswith(TABLE):
            for rows in dataset(names, filesystem=self.files).to_batches(batch_size=_AT_ONCE):
                yield rows.to_pydict()
            return

        def read(name: str) -> bytes:
            with self.files.open_input_stream(name) as file:
                return bytes(file.readall())

        for i in range(0, len(names), _AT_ONCE):
            some = names[i : i + _AT_ONCE]
            yield {"path": some, "bytes": [Member(name, partial(read, name)) for name in some]}

    def __call__(self, row: dict[str, str]) -> dict[str, int]:
        """Predict the part in this row. Returns the number of answers, and of errors among them."""
        import pyarrow as pa
        from pyarrow.dataset import dataset
        from pyarrow.parquet import ParquetWriter

        counts, path = np.zeros(2, int), self.out / row["name"]
        names, kinds = json.loads(row["files"]), dict[str, Any]()
        if names[0].endswith(TABLE):  # a batch of empty cells does not show their types
            kinds = {one.name: one.type for one in dataset(names, filesystem=self.files).schema}
        with ExitStack() as opened, open(f"{path}.part", "wb") as file:
            writer = None
            for batch in self._batches(names):
                found = self.predict(batch)
                table = pa.table({k: pa.array(v.tolist(), kinds.get(k)) for k, v in found.items()})
                writer = writer or opened.enter_context(ParquetWriter(file, table.schema))
                writer.write_table(table.cast(writer.schema))
                counts += table.num_rows, np.sum([*found.values()][-1] != "")
            opened.close()
        os.replace(f"{path}.part", path)
        return {"answers": int(counts[0]), "errors": int(counts[1])}


def predict_parts(
    predict: BatchPredictor, source: str, out: Path, *, on: str, watch: Callable[[int, int], None]
) -> dict[str, int]:
    """Predict a source, a path or an address that pyarrow reads, on a Ray cluster, and write the
    answers as Parquet files in `out`. A later call computes only the missing parts.

    `on` is as in `arml.experiment.workers.cluster`. `watch` is called with the number of finished
    parts and of all parts.

    **Returns** the number of `answers` and of `errors` that this call made.

    **Raises** `ValueError` in one line if the source or the cluster is not found, and `RunError`
    if `out` holds the answers of another predictor, level or source.
    """
    data = extra("ray.data", "ray", "--on ray")
    files, parts = parts_of(source, predict.kind.suffixes, predict.kind.many)
    zipped = predict.folder.is_file()
    who = [digest_of(predict.folder if zipped else predict.folder / CONFIG_FILE), predict.level]
    named = {f"part-{i:06}-{checksum([*who, one])[:8]}{TABLE}": one for i, one in enumerate(parts)}
    out.mkdir(parents=True, exist_ok=True)
    made = {path.name for path in out.glob(f"*{TABLE}")}
    if made - named.keys():
        raise RunError(
            f"{out} holds the answers of another predictor, level or source: name another folder"
        )
    rows = [{"name": k, "files": json.dumps(one)} for k, one in named.items() if k not in made]
    counts, done = {"answers": 0, "errors": 0}, len(made)
    watch(done, len(parts))
    if not rows:
        return counts
    workers = min(len(rows), int(cluster(on).cluster_resources()["CPU"]))
    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ended = data.from_items(rows, override_num_blocks=len(rows)).map(
        PartWriter,
        fn_constructor_args=[predict, files, out.resolve()],
        num_cpus=1,
        compute=data.ActorPoolStrategy(size=workers),
    )
    for row in ended.iter_rows():
        counts, done = {name: counts[name] + row[name] for name in counts}, done + 1
        watch(done, len(parts))
    return counts
