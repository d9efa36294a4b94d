"""Read archives once, and write the arrays of a store."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from arml.datasets.archives import open_members
from arml.datasets.decode import decode
from arml.datasets.filters import FILTERS, Filter
from arml.datasets.folders import Progress
from arml.datasets.forms import Journal, Record
from arml.datasets.layouts.reading import Box, Classes
from arml.datasets.store import Array
from arml.results.files import Json, RunError, checksum, write_json
from arml.results.machine import cores
from arml.results.schema import read_noted

CHUNK = 256
"""The most pictures that are decoded at once."""
CHUNK_BYTES = 2**26
"""The most bytes of their files, except for the last file."""
JOURNAL_EVERY = 8
"""Chunks between two entries of the journal."""


@dataclass(frozen=True)
class Wanted:
    """The place of one picture in a store."""

    array: str
    at: int
    box: Box | None


@dataclass(frozen=True)
class Job:
    """The families that are made in one pass over their archives."""

    name: str
    paths: list[Path]
    families: dict[str, dict[str, Classes]]
    about: dict[str, Json]
    """The index's entry for each family."""
    filters: tuple[str, ...] = ()

    def wanted(self) -> dict[tuple[int, str], Wanted]:
        """The place of each picture, by its source and member."""
        found: dict[tuple[int, str], Wanted] = {}
        for family, parts in self.families.items():
            for part, classes in parts.items():
                every = chain.from_iterable(classes.values())
                for at, picture in enumerate(every):
                    found[picture.source, picture.member] = Wanted(
                        f"{family}.{part}", at, picture.box
                    )
        return found

    def arrays(self) -> dict[str, int]:
        """The number of pictures of each array, including those of filtered families."""
        return {
            f"{shown(family, through)}.{part}": sum(map(len, classes.values()))
            for through in ("", *self.filters)
            for family, parts in self.families.items()
            for part, classes in parts.items()
        }


def shown(family: str, through: str) -> str:
    """The name of a family seen through a filter; an empty text is no filter."""
    return f"{family}-{through}" if through else family


def plan_of(job: Job, size: int) -> str:
    """A digest of everything on which the written files depend."""
    states = [(str(p.absolute()), p.stat().st_size, p.stat().st_mtime_ns) for p in job.paths]
    splits = {family: about["split"] for family, about in job.about.items()}
    return checksum([states, job.arrays(), splits, list(job.filters), size, CHUNK])


def finished(record: Path, plan: str) -> Json | None:
    """The entries of the arrays of a finished job; None if it is not finished."""
    found = read_noted(record, Record, plan=plan)
    if found is None:
        return None
    entries: Json = found["entries"]
    there = all((record.parent / entry["file"]).is_file() for entry in entries.values())
    return entries if there else None


def make(folder: Path, job: Job, size: int, plan: str, progress: Progress | None) -> Json:
    """Decode the pictures of a job into its arrays; returns the arrays' entries."""
    journal = folder / f"{job.name}.journal.json"
    names = job.arrays()
    noted = read_noted(journal, Journal, plan=plan)
    done = _kept(folder, names, noted["done"] if noted else 0)
    filters = {through: FILTERS[through] for through in job.filters}
    arrays: dict[str, Array] = {}
    try:
        for name, number in names.items():
            arrays[name] = Array(folder, name, (number, size, size, 3))
        for written in _write(job, size, arrays, filters, done, progress):
            for array in arrays.values():
                array.flush()
            write_json(journal, {"plan": plan, "done": written})
        return {name: array.finish() for name, array in arrays.items()}
    except OSError as error:
        raise ValueError(
            f"{folder}: expected to write the data set, got: {error.strerror or error}; free some "
            "space, and the same command goes on"
        ) from error
    except RunError:
        raise  # the journal cannot be written: the error says so
    except ValueError:
        # The source is invalid: remove everything that was made from it.
        for array in arrays.values():
            array.discard()
        journal.unlink(missing_ok=True)
        raise
    finally:
        for array in arrays.values():
            array.close()


def _kept(folder: Path, names: Iterable[str], done: int) -> int:
    """How many of the `done` pictures can be kept: none if one of their arrays is not there."""
    for name in names:
        final, partial = folder / f"{name}.npy", folder / f"{name}.npy.part"
        # The last run may have stopped after it renamed some of the arrays.
        if done and final.exists():
            os.replace(final, partial)
        done = done if partial.exists() else 0
    if not done:
        for name in names:
            for suffix in ("npy", "npy.part"):
                (folder / f"{name}.{suffix}").unlink(missing_ok=True)
    return done


def _write(
    job: Job,
    size: int,
    arrays: Mapping[str, Array],
    filters: Mapping[str, Filter],
    done: int,
    progress: Progress | None,
) -> Iterator[int]:
    """Write the pictures after the first `done`; from time to time, yield how many are written."""
    wanted = job.wanted()
    total = len(wanted)
    for chunk, (places, pictures) in enumerate(_decoded(job, wanted, size, done), 1):
        for place, picture in zip(places, pictures, strict=True):
            arrays[place.array].put(place.at, picture)
        for through, function in filters.items():
            for place, picture in zip(places, function(pictures), strict=True):
                family, _, part = place.array.rpartition(".")
                arrays[f"{shown(family, through)}.{part}"].put(place.at, picture)
        done += len(places)
        if progress is not None:
            progress(job.name, done, total)
        if chunk % JOURNAL_EVERY == 0:
            yield done
    if done != total:
        raise ValueError(
            f"{job.paths[0]}: expected {total} pictures, got {done}: it changed while it was read; "
            "run the same command again"
        )


def _decoded(
    job: Job, wanted: Mapping[tuple[int, str], Wanted], size: int, skip: int
) -> Iterator[tuple[list[Wanted], np.ndarray]]:
    """The pictures after the first `skip`, a chunk at a time, in the order of the sources.

    While one chunk is decoded, the next is read, so memory holds two.
    """
    with ThreadPoolExecutor(cores()) as pool:
        waiting: deque[tuple[list[Wanted], list[Future[np.ndarray]]]] = deque()
        for some in _batched(_members(job, wanted, skip)):
            futures = [
                pool.submit(decode, data, size=size, where=where, box=place.box)
                for place, data, where in some
            ]
            waiting.append(([place for place, _, _ in some], futures))
            if len(waiting) > 1:
                yield _gathered(*waiting.popleft())
        while waiting:
            yield _gathered(*waiting.popleft())


Member = tuple[Wanted, bytes, str]
"""A wanted picture: its place, the bytes of its file, and a name for messages."""


def _batched(members: Iterable[Member]) -> Iterator[list[Member]]:
    """Batches of at most `CHUNK` files; the file that reaches `CHUNK_BYTES` ends its batch."""
    some: list[Member] = []
    room = CHUNK_BYTES
    for member in members:
        some.append(member)
        room -= len(member[1])
        if len(some) == CHUNK or room <= 0:
            yield some
            some, room = [], CHUNK_BYTES
    if some:
        yield some


def _gathered(
    places: list[Wanted], futures: Sequence[Future[np.ndarray]]
) -> tuple[list[Wanted], np.ndarray]:
    return places, np.stack([future.result() for future in futures])


def _members(job: Job, wanted: Mapping[tuple[int, str], Wanted], skip: int) -> Iterator[Member]:
    """Each wanted picture after the first `skip`."""
    for source, path in enumerate(job.paths):
        left = sum(1 for at, _ in wanted if at == source)
        folders = {Path(member).parent for at, member in wanted if at == source}
        tops = {str(top) for folder in folders for top in (folder, *folder.parents)}
        with open_members(path, enter=partial(_within, tops)) as members:
            for member in members if left else ():
                place = wanted.get((source, member.name))
                if place is None:
                    continue
                left -= 1
                if skip:
                    skip -= 1
                else:
                    yield place, member.read(), f"{path}: {member.name}"
                if not left:
                    break


def _within(tops: set[str], name: str) -> bool:
    """Whether the tar of that name holds wanted pictures."""
    return name[:-4] in tops
