"""From a publisher's archives to a store, in one pass over each archive.

An archive is the user's own, or a download whose checksum is compared. Errors are raised before the
first picture is decoded, where that is possible. An interrupted call leaves the downloads, and no
store: the next call decodes anew.
"""

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from arml.datasets.archives import open_members
from arml.datasets.catalogue import ORIGINS, PLAIN, Archive, DataSet, Origin, lookup
from arml.datasets.decode import Encoded, decoded
from arml.datasets.filters import FILTERS
from arml.datasets.folders import SIZES, Progress, default_folder, npy_header
from arml.datasets.layouts import LAYOUTS, Box, Classes, authors
from arml.datasets.splits import PARTS, Published, published, select
from arml.datasets.store import FORMAT, INDEX, described, open_store, place
from arml.results.files import Json, RunError, alone, digest_of, write_json

SECONDS = 60
"""How long a server may send nothing."""


def prepare(
    name: str,
    given: Sequence[Path] = (),
    *,
    folder: Path | None = None,
    size: int | None = None,
    split: Path | None = None,
    unverified: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> Path:
    """Make the store of a data set, unless it is there already; returns its folder.

    **Arguments**

    - `given`: the user's own archives or folders; others are downloaded if that is permitted.
    - `folder`: of the store; `$ARML_CACHE/data/<name>` if None.
    - `size`: pixels a side; the data set's own if None.
    - `split`: a file to use in place of the published split, or a folder with a file for each
      origin.
    - `unverified`: take archives whose checksum is not the published one.

    **Raises** `ValueError` in one line. No file stays if an archive is refused.
    """
    data = lookup(name)
    size = size or data.size
    folder = folder or place(name)
    if size not in SIZES:
        raise ValueError(
            f"size must be from {SIZES[0]} to {SIZES[-1]} pixels, got {size}: change it"
        )
    for path in given:
        if not path.exists():
            raise ValueError(f"{path}: expected an archive or a folder, found nothing; check it")
    own = None if split is None else str(split.absolute())
    asked: Json = {"format": FORMAT, "name": name, "size": size, "split": own}
    if (folder / INDEX).exists():
        there = open_store(folder).index
        for key, value in asked.items():
            if there.get(key) != value:
                raise ValueError(
                    f"{folder} holds a data set with the {key} {there.get(key)!r}, not {value!r}; "
                    "remove it, or name another folder"
                )
        return folder
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder}: expected a new or empty folder, got another: name one")
    jobs = _jobs(name, data, given, split, unverified, progress)
    _check_space(folder, jobs, size)
    making = folder.with_name(f".{folder.name}.part")
    try:
        with alone(making):
            for left in making.glob("*.npy"):  # of a process that was killed
                left.unlink()
            entries = {name: e for job in jobs for name, e in _made(making, job, size, progress)}
            # Filtered families come after all plain ones.
            families = {family: entries[family] for family in _names(data)}
            made_by = {"opencv": cv2.__version__, "numpy": np.__version__}
            write_json(making / INDEX, {**asked, "families": families, "made": made_by})
            if folder.exists():
                folder.rmdir()
            os.replace(making, folder)
    except RunError:
        raise
    except OSError as error:
        raise ValueError(
            f"{folder}: expected to write the data set, got: {error.strerror or error}; free some "
            "space, and run the same command again"
        ) from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


# --- the archives


class Obtained(NamedTuple):
    """The source that an origin is read from."""

    path: Path
    """A file or a folder."""
    md5: str | None
    """The published checksum, if it was compared with that of the file."""


def obtain(
    origin: Origin, given: Sequence[Path], *, alone: bool, unverified: bool, progress: Progress
) -> list[Obtained]:
    """The files or folders that an origin is read from: given ones, or downloads.

    `alone` says that the given files are for this origin, whatever their names.

    **Raises** `ValueError` in one line for a download that fails, and a wrong checksum.
    """
    found = {archive: _given(archive, given) for archive in origin.archives}
    pictures = [archive for archive in origin.archives if not archive.is_list]
    others = _others(origin, given, alone)
    if others and not any(found[archive] for archive in pictures):
        lists = [archive for archive in origin.archives if archive.is_list]
        return [
            *(Obtained(path, _checked(pictures, path, unverified, progress)) for path in others),
            *(Obtained(found[a] or download(a, progress), None) for a in lists),
        ]
    return [
        Obtained(download(archive, progress), archive.md5)
        if path is None
        else Obtained(path, _checked([archive], path, unverified, progress))
        for archive, path in found.items()
    ]


def check_given(origin: Origin, given: Sequence[Path], *, alone: bool) -> None:
    """Raise `ValueError` if an archive is missing that only the user can fetch; it says where."""
    for archive in () if _others(origin, given, alone) else origin.archives:
        if archive.url is None and _given(archive, given) is None:
            raise ValueError(
                f"{archive.name} is not fetched by this program: {archive.get}, and give it with "
                "--from"
            )


def _given(archive: Archive, given: Sequence[Path]) -> Path | None:
    for path in given:
        for file in (path, path / archive.name):
            if file.name == archive.name and file.is_file():
                return file
    return None


def _others(origin: Origin, given: Sequence[Path], alone: bool) -> list[Path]:
    """The given paths that are this origin's, though their names are not those of its archives."""
    if alone:
        return [path for path in given if path.suffix != ".csv"]
    layout = LAYOUTS[origin.layout]
    places = [place for path in given for place in (path, path / layout.top)]
    return [p for p in places if layout.marker and (p / layout.marker).exists()][:1]


def _checked(
    archives: Sequence[Archive], path: Path, unverified: bool, progress: Progress
) -> str | None:
    """The checksum of a file that is one of the published archives; None if there is no checksum
    to compare with. **Raises** `ValueError` for another file."""
    known = {archive.md5 for archive in archives} - {None}
    if unverified or not known or path.is_dir():
        return None
    archive, size = archives[0], path.stat().st_size
    # Publishers state the MD5. It is no defence against an attacker.
    got = digest_of(
        path, algorithm="md5", told=lambda read: progress(f"checking {path.name}", read, size)
    ).hexdigest()
    if got in known:
        return got
    short = f" ({size} of {archive.size} bytes)" if size < archive.size else ""
    raise ValueError(
        f"{path}: expected {archive.name} as published, with MD5 {archive.md5}, got {got}{short}; "
        f"{archive.get}, or give --unverified to take this one as it is"
    )


class _Bar:
    """What pooch expects of a progress bar."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.name, self.progress, self.total, self.done = name, progress, 0, 0

    def update(self, read: int) -> None:
        self.done += read
        self.progress(self.name, self.done, max(self.total, self.done))

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def download(archive: Archive, progress: Progress = lambda what, done, total: None) -> Path:
    """Download an archive to `$ARML_CACHE/downloads`, unless it is there already.

    **Raises** `ValueError` if the download fails, or the checksum is wrong.
    """
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    bar: Any = _Bar(f"downloading {archive.name}", progress)
    try:
        path = Path(
            pooch.retrieve(
                archive.url,
                archive.md5 and f"md5:{archive.md5}",
                fname=archive.name,
                path=default_folder() / "downloads",
                downloader=pooch.HTTPDownloader(progressbar=bar, timeout=SECONDS),
            )
        )
    except (requests.RequestException, OSError) as error:
        said = f"{type(error).__name__} {' '.join(str(error).split())[:120]}"
        raise ValueError(
            f"{archive.url}: expected to download {archive.name}, got: {said}; try again, or: "
            f"{archive.get}, and give it with --from"
        ) from error
    except ValueError as error:
        if "hash" not in str(error):
            raise
        raise ValueError(
            f"{archive.url}: expected a file with MD5 {archive.md5}, got another, which was "
            f"removed; try again later, or {archive.get} elsewhere, and give it with --from"
        ) from error
    with path.open("rb") as file:
        page = archive.md5 is None and file.read(99).lstrip().lower().startswith((b"<!", b"<html"))
    if page:
        path.unlink()
        raise ValueError(f"{archive.url}: expected {archive.name}, got a web page; {archive.get}")
    return path


# --- the pictures


@dataclass(frozen=True)
class Job:
    """The families that are made in one pass over their archives."""

    name: str
    paths: list[Path]
    families: dict[str, dict[str, Classes]]
    """The classes of each part of each family."""
    about: dict[str, Json]
    """The index's entry of each family, filtered ones included."""
    filters: tuple[str, ...] = ()

    def arrays(self) -> dict[str, Classes]:
        """The classes of each array, filtered ones included."""
        return {
            f"{_through(family, through)}.{part}": classes
            for through in ("", *self.filters)
            for family, parts in self.families.items()
            for part, classes in parts.items()
        }


def _through(family: str, through: str) -> str:
    """The name of a family seen through a filter; an empty text is no filter."""
    return f"{family}-{through}" if through else family


def _names(data: DataSet) -> list[str]:
    return [_through(family, one) for one in ("", *data.filters) for family in data.families]


def _jobs(
    name: str,
    data: DataSet,
    given: Sequence[Path],
    split: Path | None,
    unverified: bool,
    progress: Progress,
) -> list[Job]:
    """The work to do, as far as it is known without decoding."""
    every = _names(data)
    if len(given) == 1 and (chosen := authors(given[0], name, every)) is not None:
        rules = Published(name, "the folders of the authors' archive")
        source = [Obtained(given[0], None)]
        about = {
            family: _about(PLAIN[plain], source, rules, through)
            for family in every
            for plain, _, through in [family.partition("-")]
        }
        return [Job("authors", [given[0]], chosen, about)]
    single = len(data.families) == 1
    for origin in data.families.values():  # before any download
        check_given(ORIGINS[origin], given, alone=single)
    jobs = []
    for family, origin in data.families.items():
        known = ORIGINS[origin]
        obtained = obtain(known, given, alone=single, unverified=unverified, progress=progress)
        progress(f"listing {family}", 0, 0)
        paths = [path for path, _ in obtained]
        pictures = [path for path in paths if path.suffix != ".csv"]
        layout = LAYOUTS[known.layout]
        if layout.split is not None and split is None:
            rules = Published(origin, "as the archive states it", parts=layout.split(pictures[0]))
        else:
            rules = published(origin, split)
        parts = select(rules, layout.read(paths, rules.wanted()), pictures[0])
        about = {
            _through(family, one): _about(origin, obtained, rules, one)
            for one in ("", *data.filters)
        }
        jobs.append(Job(family, pictures, {family: parts}, about, data.filters))
    return jobs


def _about(origin: str, obtained: Sequence[Obtained], rules: Published, through: str) -> Json:
    known = ORIGINS[origin]
    return {
        "origin": origin,
        "licence": known.licence,
        "citation": known.citation,
        "source": [{"archive": path.name, "md5": md5} for path, md5 in obtained],
        "split": {"method": rules.method, "sha256": rules.sha256},
        "filter": through or None,
    }


def _check_space(folder: Path, jobs: Sequence[Job], size: int) -> None:
    arrays = [classes for job in jobs for classes in job.arrays().values()]
    pictures = sum(len(some) for classes in arrays for some in classes.values())
    there = next(path for path in folder.absolute().parents if path.exists())
    needed, free = pictures * size * size * 3, shutil.disk_usage(there).free
    if needed > free:
        raise ValueError(
            f"{there}: expected {needed / 2**30:.1f} GiB of free space, got {free / 2**30:.1f}; "
            "free some, or name another folder with --out"
        )


class _Place(NamedTuple):
    """The place of one picture in a store."""

    array: str
    at: int
    box: Box | None


def _made(folder: Path, job: Job, size: int, progress: Progress) -> Iterator[tuple[str, Json]]:
    """Make a job's arrays; the index's entry of each family."""
    wanted: dict[tuple[int, str], _Place] = {}
    for family, parts in job.families.items():
        for part, classes in parts.items():
            every = (picture for pictures in classes.values() for picture in pictures)
            for at, (source, member, box) in enumerate(every):
                wanted[source, member] = _Place(f"{family}.{part}", at, box)
    counts = {
        array: {name: len(pictures) for name, pictures in classes.items()}
        for array, classes in job.arrays().items()
    }
    coming: deque[_Place] = deque()
    with ExitStack() as stack:
        files, starts, done = {}, {}, 0
        for array, number in counts.items():
            # Plain writes, not a memory map: on a full disk a map kills the process.
            files[array] = stack.enter_context((folder / f"{array}.npy").open("wb"))
            header = npy_header("|u1", (sum(number.values()), size, size, 3))
            starts[array] = files[array].write(header)

        def put(array: str, at: int, picture: np.ndarray) -> None:
            files[array].seek(starts[array] + at * picture.nbytes)
            files[array].write(picture.tobytes())

        for done, picture in enumerate(decoded(_encoded(job, wanted, coming), size=size), 1):
            place = coming.popleft()
            put(place.array, place.at, picture)
            family, _, part = place.array.rpartition(".")
            for through in job.filters:
                filtered = FILTERS[through](picture[None])[0]
                put(f"{_through(family, through)}.{part}", place.at, filtered)
            progress(job.name, done, len(wanted))
        if done != len(wanted):
            raise ValueError(
                f"{job.paths[0]}: expected {len(wanted)} pictures, got {done}: it changed while it "
                "was read; run the same command again"
            )
    for family, about in job.about.items():
        parts = {
            part: described(folder / f"{family}.{part}.npy", counts[f"{family}.{part}"])
            for part in PARTS
        }
        yield family, {**about, "parts": parts}


def _encoded(
    job: Job, wanted: dict[tuple[int, str], _Place], coming: deque[_Place]
) -> Iterator[Encoded]:
    """Each wanted picture in the order of the archives; its place is added to `coming`."""
    for source, path in enumerate(job.paths):
        names = {member for at, member in wanted if at == source}
        with open_members(path, enter=_holds(names)) as members:
            for member in members:
                if member.name in names:
                    place = wanted[source, member.name]
                    coming.append(place)
                    yield Encoded(f"{path}: {member.name}", member.read, place.box)


def _holds(names: set[str]) -> Callable[[str], bool]:
    """Whether the tar of that name, which is within another, holds one of these pictures."""
    tops = {str(parent) for name in names for parent in Path(name).parents}
    return lambda name: name.removesuffix(".tar") in tops
