"""Many predictions: batches of pictures or rows, for Ray Data, Dask, Spark and the command line.

`predict_parts` divides a source into parts, which the workers of a Ray cluster read, predict and
write: memory does not grow with the source, and a part that is there is not made again.
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
"""Columns of the contents of files, which the answers do not repeat."""
ANSWER_COLUMNS = ("prediction", "low", "high"), ("label", "probability", "novelty")
"""Columns of the answers: numbers, and classes."""
_AT_ONCE, PART, TABLE = 256, 1_000, ".parquet"
"""Pictures or rows of a batch, and pictures of a part."""


class BatchPredictor:
    """Predicts batches: mappings of columns, or pandas' frames.

        pool = ray.data.ActorPoolStrategy(min_size=1, max_size=8)
        photos = ray.data.read_binary_files("photos/", include_paths=True)
        photos.map_batches(BatchPredictor, fn_constructor_args=["my-predictor"], compute=pool)

    A batch has a column of files (`bytes`, `image`, `path` or `file`: contents, pixels, addresses,
    mappings), or the columns of the table that the predictor has learned. The answer has the
    batch's columns without bytes; `label`, `probability` and `novelty`, or `prediction`, `low` and
    `high`; and last `error`, empty for an input that could be read. A name that the batch has, too,
    gets the prefix `arml_`.

    `predictor` is its folder, `model` the frozen network if it is not that of the package, and
    `level` the share of new numbers that lie from `low` to `high`.
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
        """The predictor, as it was saved."""
        return load_predictor(self.folder, self.model)

    @property
    def kind(self) -> Inputs:
        """How its inputs are read."""
        return inputs_of(self.predictor.learner)

    def __call__(self, batch: Any) -> Any:
        """The answers to a batch, of the same kind."""
        columns = {str(name): list(batch[name]) for name in batch}
        errors = np.full(len(next(iter(columns.values()))), "", object)
        known = self.kind.cells
        if known:
            cells = columns[next(name for name in (*known, *columns) if name in columns)]
            x = self._read(cells, errors)
        else:
            names = self.predictor.columns
            rows = np.column_stack([columns[name] for name in names]) if names else columns
            x = self.predictor.read(rows)
        kept = {name: np.asarray(batch[name]) for name in batch if name not in CONTENT_COLUMNS}
        answers = dict(kept)
        for name, values in self._answers(x).items():
            own = np.full(len(errors), *(("", object) if name == "label" else (np.nan,)))
            own[errors == ""] = values
            answers[free_name(name, kept)] = own
        answers[free_name("error", kept)] = errors
        return answers if isinstance(batch, Mapping) else type(batch)(answers, index=batch.index)

    def _read(self, cells: list[Any], errors: np.ndarray) -> np.ndarray | None:
        """The inputs that can be read, None if none can; the `errors` of the others are set."""
        bad: Bad = {}
        each = [c.get("bytes") or c["path"] if isinstance(c, Mapping) else c for c in cells]
        found: np.ndarray = self.predictor.learner.read(each, bad=bad)
        for place, problem in bad.items():
            item = each[place]
            named = getattr(item, "where", item if isinstance(item, str) else "")
            said = problem if named in problem else f"{named}: {problem}"
            errors[place] = " ".join(said.split())
        return found[errors == ""] if len(bad) < len(cells) else None

    def _answers(self, x: object) -> dict[str, Any]:
        """The columns of the answers to these inputs; to none if they are None."""
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
    """The file system of a source, and the files of each part: some with these suffixes, or one
    Parquet file.

    **Raises** `ValueError` if nothing is there.
    """
    import pyarrow as pa
    from pyarrow.dataset import dataset
    from pyarrow.fs import FileSystem

    try:
        found = dataset(source, pa.schema([]), "parquet")
        names = sorted(found.files)
    except OSError as error:
        raise ValueError(f"no source at {source} ({error}): check it") from error
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
        LOG.warning("left out %d of %d files (no %s): %s", len(others), len(names), kind, some)
    parts = [[name] for name in tables]
    parts = parts or [pictures[i : i + PART] for i in range(0, len(pictures), PART)]
    if not parts:
        raise ValueError(f"expected {many} or Parquet files at {source}, found none: check it")
    return files, parts


class PartWriter:
    """A worker, with one core: reads a part, predicts it, and writes it as a Parquet file."""

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
        """Carry out the part of a row; returns how many answers there are, and errors of them."""
        import pyarrow as pa
        from pyarrow.dataset import dataset
        from pyarrow.parquet import ParquetWriter

        counts, place = np.zeros(2, int), self.out / row["name"]
        names, kinds = json.loads(row["files"]), dict[str, Any]()
        if names[0].endswith(TABLE):  # the cells of a batch may be empty, and show no type
            kinds = {one.name: one.type for one in dataset(names, filesystem=self.files).schema}
        with ExitStack() as opened, open(f"{place}.part", "wb") as file:
            writer = None
            for batch in self._batches(names):
                found = self.predict(batch)
                table = pa.table({k: pa.array(v.tolist(), kinds.get(k)) for k, v in found.items()})
                writer = writer or opened.enter_context(ParquetWriter(file, table.schema))
                writer.write_table(table.cast(writer.schema))
                counts += table.num_rows, np.sum([*found.values()][-1] != "")
            opened.close()
        os.replace(f"{place}.part", place)
        return {"answers": int(counts[0]), "errors": int(counts[1])}


def predict_parts(
    predict: BatchPredictor, source: str, out: Path, *, on: str, watch: Callable[[int, int], None]
) -> dict[str, int]:
    """Predict a source, which may be an address that pyarrow reads, on a Ray cluster, and write the
    answers as Parquet files in `out`. The same call makes the parts that are not there.

    `on` is as in `arml.experiment.workers.cluster`; `watch` is called with the number of parts that
    are done, and of all.

    **Returns** the number of `answers` and of `errors` that it made.

    **Raises** `ValueError` in one line for a source or a cluster that is not there, and `RunError`
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
            f"{out} holds the answers of another predictor, level or source: name another"
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
