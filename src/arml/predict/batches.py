"""Many predictions: batches of pictures or rows, for Ray Data, Dask, Spark and the command line.

A picture that cannot be read gets an error in place of an answer. `predict_parts` divides a source
into parts, which the workers of a Ray cluster read, predict and write: memory does not grow with
the source, and a part that is there is not made again.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from arml.datasets.archives import Member
from arml.datasets.folders import is_picture
from arml.experiment.workers import cluster
from arml.predict.files import CONFIG, check_predictor
from arml.predict.loading import load_predictor
from arml.predict.pictures import PictureReader, content_of, sized
from arml.results.files import RunError, checksum, digest_of, extra

PICTURES = ("bytes", "image", "path", "file")
"""Columns of pictures; the first that is there is read: bytes, pixels, addresses, mappings."""
AT_ONCE, PART = 256, 1_000
"""Pictures or rows of a batch, and files of a part."""


class BatchPredictor:
    """Predicts batches: mappings of columns, or pandas' frames.

        ray.data.read_binary_files(places, include_paths=True).map_batches(
            BatchPredictor, fn_constructor_args=["my-predictor"], concurrency=2)

    A batch has a column of `PICTURES`, or the columns of the table that the predictor has learned.
    The answer has the batch's columns without bytes; `label`, `probability` and `novelty`, or
    `prediction`, `low` and `high`; and `error`, empty for a picture that could be read.

    **Arguments**

    - `predictor`: its folder, which a worker opens with its first batch.
    - `model`: the frozen network, if it is not that of the package.
    - `level`: the share of new numbers that lie from `low` to `high`.
    """

    def __init__(
        self, predictor: Path | str, model: Path | None = None, level: float = 0.9
    ) -> None:
        self.folder, self.model, self.level = Path(predictor).resolve(), model, level
        check_predictor(self.folder)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.folder, self.model, self.level)

    @cached_property
    def predictor(self) -> Any:
        """The predictor, with all of its models together."""
        found = load_predictor(self.folder, self.model)
        return found.using(found.models[-1])

    def __call__(self, batch: Any) -> Any:
        """The answers to a batch, of the same kind."""
        columns = {str(name): list(batch[name]) for name in batch}
        errors = np.full(len(next(iter(columns.values()))), "", object)
        if (reader := self.predictor.learner.pictures) is not None:
            cells = columns[next(name for name in (*PICTURES, *columns) if name in columns)]
            x = _pictures(cells, reader, errors)
        else:
            names = self.predictor.columns
            rows = np.column_stack([columns[name] for name in names]) if names else columns
            x = self.predictor.read(rows)
        answers = {name: np.asarray(batch[name]) for name in batch if name not in PICTURES[:2]}
        for name, values in self._answers(x).items():
            answers[name] = np.full(len(errors), *(("", object) if name == "label" else (np.nan,)))
            answers[name][errors == ""] = values
        answers["error"] = errors
        return answers if isinstance(batch, Mapping) else type(batch)(answers, index=batch.index)

    def _answers(self, x: Any) -> dict[str, Any]:
        """The columns of the answers to these inputs; to none if they are None."""
        predictor = self.predictor
        names = ("prediction", "low", "high"), ("label", "probability", "novelty")
        values: dict[str, Any] = dict.fromkeys(names[predictor.classes is not None], np.nan)
        if x is not None and predictor.classes is None:
            values["prediction"] = np.ravel(predictor.predict(x))
            if len(predictor.y) >= self.level / (1 - self.level) - 1e-9:
                values["low"], values["high"] = map(np.ravel, predictor.interval(x, self.level))
        elif x is not None:
            chances, novelty = predictor.predict_proba(x), predictor.novelty(x)
            values["label"] = [*map(str, predictor.classes[chances.argmax(axis=1)].tolist())]
            values["probability"] = chances.max(axis=1)
            values["novelty"] = np.nan if novelty is None else novelty
        return values


def _pictures(cells: list[Any], reader: PictureReader, errors: np.ndarray) -> Any:
    """The inputs of the pictures that can be read; the `errors` of the others are set."""
    found = []
    for i, cell in enumerate(cells):
        one = cell.get("bytes") or cell["path"] if isinstance(cell, Mapping) else cell
        try:
            one = Member(one, partial(content, one)) if isinstance(one, str) else one
            found.append(sized(*content_of(one, i), reader.size, reader.crop))
        except (ValueError, OSError) as error:
            errors[i] = " ".join(str(error).split())
    return reader.convert(np.stack(found)) if found else None


# --- the parts of a source, on a cluster


@lru_cache
def _files(root: str) -> Any:
    from pyarrow.fs import FileSystem

    return FileSystem.from_uri(root)[0]


def place_of(address: str) -> tuple[Any, str]:
    """The file system of an address (`s3://...`, `gs://...`, or a path), and the path in it."""
    kind, colon, path = address.rpartition("://")
    if not colon:
        return _files("/"), str(Path(address).absolute())
    return _files(f"{kind}://{path.partition('/')[0]}"), path


def content(address: str) -> bytes:
    """The bytes of a file. **Raises** `OSError`."""
    files, path = place_of(address)
    with files.open_input_stream(path) as stream:
        return bytes(stream.readall())


def parts_of(source: str) -> Iterator[dict[str, Any]]:
    """The parts of a source: a folder of pictures or of Parquet files, one Parquet file, or a text
    file with an address in each line."""
    from pyarrow.fs import FileSelector, FileType
    from pyarrow.parquet import ParquetFile

    files, path = place_of(source)
    found = [files.get_file_info(path)]
    if found[0].type == FileType.Directory:
        found = files.get_file_info(FileSelector(path, recursive=True))
    kind = "".join(source.rpartition("://")[:2])
    names = sorted(kind + one.path for one in found if one.type == FileType.File)
    pictures = [name for name in names if is_picture(name)]
    if names and source.endswith(".txt"):
        pictures = [line for line in content(source).decode().splitlines() if line.strip()]
    for name in (name for name in names if name.endswith(".parquet")):
        for group in range(ParquetFile(files.open_input_file(place_of(name)[1])).num_row_groups):
            yield {"table": name, "group": group}
    for i in range(0, len(pictures), PART):
        yield {"path": pictures[i : i + PART]}


class PartWriter:
    """A worker, with one core: reads a part, predicts it, and writes it as a Parquet file."""

    def __init__(self, predict: BatchPredictor, out: str) -> None:
        os.environ["NPROC"] = "1"
        self.predict, self.out = predict, out

    def __call__(self, row: dict[str, str]) -> dict[str, int]:
        """Carry out the part that a row describes in JSON; returns how many answers and errors."""
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile, ParquetWriter

        part, answers, errors = json.loads(row["part"]), 0, 0
        if "table" in part:
            files, path = place_of(part["table"])
            table = ParquetFile(files.open_input_file(path))
            batches = table.iter_batches(AT_ONCE, row_groups=[part["group"]])
        else:
            batches = pa.table(part).to_batches(AT_ONCE)

        files, path = place_of(f"{self.out}/{row['name']}")
        with files.open_output_stream(f"{path}.part") as stream, ExitStack() as opened:
            writer = None
            for batch in batches:
                found = self.predict(batch.to_pydict())
                made = pa.table({k: pa.array(v.tolist()) for k, v in found.items()})
                writer = writer or opened.enter_context(ParquetWriter(stream, made.schema))
                writer.write_table(made.cast(writer.schema))
                answers += made.num_rows
                errors += int(np.sum(found["error"] != ""))
        files.move(f"{path}.part", path)
        return {"answers": answers, "errors": errors}


def predict_parts(
    predict: BatchPredictor, source: str, out: str, *, on: str, watch: Callable[[int, int], None]
) -> dict[str, int]:
    """Predict a source on a Ray cluster, and write the answers as Parquet files in the folder
    `out`, which may be an address. The same call makes the parts that are not there.

    `on` is as in `arml.experiment.workers.cluster`; `watch` is called with the number of parts that
    are done, and of all.

    **Returns** the number of `answers` and of `errors` that it made.

    **Raises** `ValueError` in one line for a source or a cluster that is not there, and `RunError`
    if `out` holds the answers of another predictor or source.
    """
    extra("ray", "ray", "--on ray")
    from pyarrow.fs import FileSelector
    from ray.data import ActorPoolStrategy, DataContext, from_items

    parts, who = {}, digest_of(predict.folder / CONFIG)
    for i, part in enumerate(parts_of(source)):
        parts[f"part-{i:06}-{checksum([who, part])[:8]}.parquet"] = json.dumps(part)
    if not parts:
        raise ValueError(f"expected pictures or Parquet files at {source}, found none: check it")
    files, folder = place_of(out)
    files.create_dir(folder, recursive=True)
    made = {one.base_name for one in files.get_file_info(FileSelector(folder))}
    if other := [name for name in made if name not in parts and name.endswith(".parquet")]:
        raise RunError(f"{out} holds the answers of another predictor or source: {other[0]}")
    left = [{"name": name, "part": part} for name, part in parts.items() if name not in made]
    counts, done = {"answers": 0, "errors": 0}, len(parts) - len(left)
    watch(done, len(parts))
    if not left:
        return counts
    pool = ActorPoolStrategy(size=min(len(left), int(cluster(on).cluster_resources()["CPU"])))
    DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    rows = from_items(left, override_num_blocks=len(left)).map(
        PartWriter, fn_constructor_args=[predict, out], num_cpus=1, compute=pool
    )
    for row in rows.iter_rows():
        counts, done = {name: counts[name] + row[name] for name in counts}, done + 1
        watch(done, len(parts))
    return counts
