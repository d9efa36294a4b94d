"""A prepared data set on disk (a store): an index, and one array of pictures for each family and
part (`bird.train.npy`, uint8 `[n, size, size, 3]`), which are memory-mapped.

A store is made from a publisher's archives, in one pass over each, in another folder that is then
renamed. An interrupted call leaves the downloads, and no store.
"""

import hashlib
import http.client
import os
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TypedDict

import numpy as np

from arml.core.registry import known
from arml.datasets.archives import Member, open_members
from arml.datasets.decode import FILTERS, decoded, size_of
from arml.datasets.folders import ImageFamily, Progress, default_folder, npy_header, quiet
from arml.datasets.published import (
    DATA_SETS,
    PUBLISHED_FAMILIES,
    Archive,
    Classes,
    Family,
    Picture,
    classes_of,
    published,
    select,
    split_of_archive,
    survey,
)
from arml.results.files import (
    Count,
    Json,
    JsonView,
    Text,
    atomically,
    brief,
    checksum,
    digest_of,
    locked,
    read_as,
    read_json,
    write_json,
)

INDEX_FILE = "index.json"


# --- a store


class Arrays(TypedDict):
    bytes: Count
    sha256: Text
    classes: list[Text]
    counts: list[Count]


class About(TypedDict):
    parts: dict[Literal["train", "validation", "test"], Arrays]


class Index(TypedDict):
    """`index.json`; `prepare` adds the sources of the pictures."""

    size: Count
    families: dict[Text, About]


@dataclass(frozen=True)
class Store:
    """A store that has passed the quick checks of `open_store`."""

    folder: Path
    index: JsonView

    @property
    def copies(self) -> tuple[str, ...]:
        """The families whose pictures were resized before, in words."""
        said = ((f, about.get("copy")) for f, about in self.index["families"].items())
        return tuple(f"{copy} of {family}" for family, copy in said if copy)

    @property
    def bytes(self) -> int:
        return sum(entry["bytes"] for _, _, entry, _ in self.entries())

    def entries(self) -> Iterator[tuple[str, str, JsonView, Path]]:
        """Family, part, index entry and file of each array."""
        for family, about in self.index["families"].items():
            for part, entry in about["parts"].items():
                yield family, part, entry, self.folder / f"{family}.{part}.npy"

    def part(self, part: str) -> list[ImageFamily]:
        """The families of one part; their pixels are memory-mapped."""
        found = []
        for family, at, entry, file in self.entries():
            if at == part:
                images = np.load(file, mmap_mode="r", allow_pickle=False)
                classes, counts = entry["classes"], np.asarray(entry["counts"])
                about = entry["sha256"], {part: classes}
                found.append(ImageFamily(family, tuple(classes), images, counts, *about))
        return found

    def digests(self) -> dict[str, str]:
        """A SHA-256 of each family's pictures, classes and split."""
        keys = ("sha256", "classes", "counts")
        return {
            family: checksum(
                [[part, *map(entry.get, keys)] for part, entry in about["parts"].items()]
            )
            for family, about in self.index["families"].items()
        }


def place(store: str) -> Path:
    """The folder of a store: a path, or the name of a data set in `$ARML_CACHE/data`."""
    path = Path(store).expanduser()
    return path if len(path.parts) > 1 or path.is_dir() else default_folder() / "data" / store


def prepared_here() -> list[str]:
    return [name for name in DATA_SETS if (place(name) / INDEX_FILE).exists()]


def open_store(folder: Path) -> Store:
    """Open a store; check its index, and the sizes and shapes of its files. **Raises** `ValueError`
    in one line for a store that is absent or damaged."""
    path = folder / INDEX_FILE
    if not path.exists():
        raise ValueError(
            f"{folder}: expected a prepared data set, found nothing; run `arml data prepare`, see "
            "`arml data list`"
        )
    index = read_json(path)
    read_as(Index, index, str(path), f"remove the folder {folder.name}, and prepare it again")
    store = Store(folder, index)
    for _, _, entry, file in store.entries():
        shape = (sum(entry["counts"]), index["size"], index["size"], 3)
        try:
            images = np.load(file, mmap_mode="r", allow_pickle=False)
        except Exception:  # NumPy parses the header, which may be anything
            images = np.zeros(0)
        if images.shape != shape or len(entry["classes"]) != len(entry["counts"]):
            raise _altered(file, "expected an array of the shape in the index, got another or none")
    return store


def _altered(path: Path, problem: str) -> ValueError:
    return ValueError(
        f"{path}: {problem}; remove the folder {path.parent.name}, and prepare the data set again"
    )


def verify(store: Store, progress: Progress = quiet) -> None:
    """Read all arrays and compare their checksums. **Raises** `ValueError` in one line that names
    the first array that has changed."""
    done = 0
    for _, _, entry, file in store.entries():
        progress("checking", done, store.bytes)
        got = digest_of(file)
        if got != entry["sha256"]:
            raise _altered(file, f"expected SHA-256 {entry['sha256'][:12]}..., got {got[:12]}...")
        done += entry["bytes"]


# --- making a store


class _Job(NamedTuple):
    """The work on one family: its sources, the classes of each part, and its entry in the index
    without the arrays."""

    family: str
    sources: list[Path]
    parts: dict[str, Classes]
    about: Json


def prepare(
    name: str,
    given: Sequence[Path] = (),
    *,
    folder: Path | None = None,
    size: int | None = None,
    unverified: bool = False,
    progress: Progress = quiet,
) -> Path:
    """Make the store of a data set, or check every byte of it if it exists; returns its folder.

    **Arguments**

    - `given`: the user's own archives or folders; others are downloaded if that is permitted.
    - `folder`: of the store; `$ARML_CACHE/data/<name>` if None.
    - `size`: pixels a side; the data set's own if None.
    - `unverified`: accept archives whose checksum is not the published one.

    **Raises** `ValueError` in one line. If an archive is refused, no file stays.
    """
    data = known("data set", name, DATA_SETS)
    size, folder = size or data.size, folder or place(name)
    if not 4 <= size <= 1024:
        raise ValueError(f"size must be from 4 to 1024 pixels, got {size}: change it")
    wanted: Json = {"name": name, "size": size}
    if (folder / INDEX_FILE).exists():
        store = open_store(folder)
        for key, value in wanted.items():
            if store.index.get(key) != value:
                raise ValueError(
                    f"{folder} holds a data set with the {key} {store.index.get(key)!r}, not "
                    f"{value!r}; remove it, or name another folder"
                )
        verify(store, progress)
        return folder
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder}: expected a new or empty folder, got another: name one")
    single = len(data.names) == 1
    sources = {one: sources_of(one, given, single) for one in data.names}
    jobs = [_job(one, some, unverified, progress) for one, some in sources.items()]
    making = folder.with_name(f".{folder.name}.part")
    with locked(making):
        try:
            for job in jobs:
                _write(making, job, size, progress)
            # Filtered families come after all plain ones.
            families = {
                f"{job.family}-{through}" if through else job.family: _entry(making, job, through)
                for through in ("", *data.filters)
                for job in jobs
            }
            write_json(making / INDEX_FILE, {**wanted, "families": families})
            if folder.exists():
                folder.rmdir()
            os.replace(making, folder)
        except OSError as error:
            raise ValueError(
                f"{folder}: expected to write the data set, got: {error.strerror or error}; free "
                "some space, and run the same command again"
            ) from error
        finally:
            for left in making.glob("*.npy"):
                left.unlink()
    return folder


def sources_of(name: str, given: Sequence[Path], single: bool) -> list[Path | Archive]:
    """The user's own archives or folders of a family, and the archives to download. With `single`
    the given paths are for this family, whatever their names. **Raises** `ValueError` for an
    archive that only the user can fetch."""
    for path in given:
        if not path.exists():
            raise ValueError(f"{path}: expected an archive or a folder, found nothing; check it")
    family = PUBLISHED_FAMILIES[name]
    found: list[Path | Archive] = []
    for archive in family.archives:
        own = (p for path in given for p in (path, path / archive.name) if p.name == archive.name)
        found.append(next((path for path in own if path.is_file()), archive))
    if not any(isinstance(one, Path) and one.suffix != ".csv" for one in found):
        unpacked = [path for path in given if path.suffix != ".csv"]
        if not single:
            names = {name, family.folder} - {""}
            tops = dict.fromkeys(p for path in given for p in (path, *map(path.joinpath, names)))
            unpacked = [path for path in tops if path.is_dir() and path.name in names]
        lists = [one for one, a in zip(found, family.archives, strict=True) if a.list]
        found = [*unpacked, *lists] if unpacked else found
    for one in found:
        if isinstance(one, Archive) and one.url is None:
            # If there are several families, the name of its folder identifies each.
            where = "" if single else f", in a folder {family.folder or name}"
            raise ValueError(
                f"arml cannot fetch {one.name}: {one.instructions}, and give it with --from{where}"
            )
    return found


def _job(
    name: str, sources: Sequence[Path | Archive], unverified: bool, progress: Progress
) -> _Job:
    """The work to do, from the names and the annotations of the files."""
    family = PUBLISHED_FAMILIES[name]
    paths, records = [], []

    def take(source: Path | Archive) -> Path:
        if isinstance(source, Archive):
            path, md5 = download(source, progress), source.md5
        else:
            path, md5 = source, None if unverified else _checked(family, source, progress)
        records.append({"archive": path.name, "md5": md5})
        return path

    # A copy with only the listed pictures needs no list.
    lists = [source for source in sources if isinstance(source, Archive) and source.list]
    paths = [take(source) for source in sources if source not in lists]
    progress(f"listing {name}", 0, 0)
    split = published(family.split) if family.split else None
    names = split.wanted() if split is not None else set()
    files = survey(paths, enter=lambda tar: not names or Path(tar).stem in names)
    split = split or split_of_archive(files)
    classes = classes_of(family.layout, files)
    if lists and split.keep and max(len(classes.get(one, ())) for one in names) > split.keep:
        files.annotations.update(survey([take(source) for source in lists]).annotations)
        classes = classes_of(family.layout, files)
    parts = select(split, classes, paths[0])
    about = {
        "origin": family.split or name,
        "licence": family.licence,
        "citation": family.citation,
        "source": records,
        "copy": _copied(family, parts),
        "split": {"method": split.method, "sha256": split.sha256},
    }
    return _Job(name, paths, parts, about)


def _copied(family: Family, parts: Mapping[str, Classes]) -> str:
    """`84 px copy` if all pictures were resized to squares of this size before; else empty."""
    some = [pictures[0] for classes in parts.values() for pictures in classes.values()][:20]
    files = [picture.source / picture.name for picture in some]
    sizes = {size_of(file.read_bytes(), where=str(file)) for file in files if file.is_file()}
    width, height = sizes.pop() if len(sizes) == 1 else (0, 1)
    return f"{width} px copy" if width == height != family.square else ""


def _checked(family: Family, path: Path, progress: Progress) -> str | None:
    """The checksum of a published archive; None if no checksum is published. **Raises**
    `ValueError` for another file."""
    known = [archive for archive in family.archives if archive.md5]
    if not known or path.is_dir() or path.suffix == ".csv":
        return None
    progress(f"checking {path.name}", 0, 0)
    got = digest_of(path, "md5")
    archive = next((one for one in known if one.name == path.name), known[0])
    if got not in (one.md5 for one in known):
        raise ValueError(
            f"{path}: expected {archive.name} as published, with MD5 {archive.md5}, got {got}; "
            f"{archive.instructions}, or give --unverified to accept this one"
        )
    return got


def download(archive: Archive, progress: Progress = quiet) -> Path:
    """Download an archive to `$ARML_CACHE/downloads`, unless it is there already. **Raises**
    `ValueError` if the download fails, or the checksum is wrong."""
    path = default_folder() / "downloads" / archive.name
    if path.exists():
        return path

    def write(file: BinaryIO) -> None:
        digest, done = hashlib.md5(usedforsecurity=False), 0
        with urllib.request.urlopen(str(archive.url), timeout=60) as answer:
            total = int(answer.headers.get("Content-Length") or 0)
            while block := answer.read(2**20):
                if not done and block.lstrip().startswith(b"<"):
                    raise OSError("got a web page")
                file.write(block)
                digest.update(block)
                done += len(block)
                progress(f"downloading {archive.name}", done, max(total, done))
        if done < total:
            raise OSError(f"the connection broke off after {done} of {total} bytes")
        if archive.md5 not in (None, digest.hexdigest()):
            raise OSError(f"expected MD5 {archive.md5}, got {digest.hexdigest()}")

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomically(path, write)
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(
            f"{archive.url}: expected to download {archive.name}, got: "
            f"{brief(error, 120)}; try again, or: {archive.instructions}, and "
            "give it with --from"
        ) from error
    return path


def _write(folder: Path, job: _Job, size: int, progress: Progress) -> None:
    places: dict[str, tuple[str, int, Picture]] = {}
    for part, classes in job.parts.items():
        pictures = [picture for some in classes.values() for picture in some]
        places |= {picture.name: (part, at, picture) for at, picture in enumerate(pictures)}
    with ExitStack() as stack:
        files, starts = {}, {}
        for part, classes in job.parts.items():
            # Plain writes, not a memory map: on a full disk a map kills the process.
            files[part] = stack.enter_context((folder / f"{job.family}.{part}.npy").open("wb"))
            shape = (sum(map(len, classes.values())), size, size, 3)
            starts[part] = files[part].write(npy_header("|u1", shape))
        done = 0
        members, ahead = tee(_members(job, places))
        for member, pixels in zip(members, decoded(ahead, size=size), strict=True):
            part, at, _ = places[member.name]
            files[part].seek(starts[part] + at * pixels.nbytes)
            files[part].write(pixels.tobytes())
            done += 1
            progress(job.family, done, len(places))
    if done != len(places):
        raise ValueError(
            f"{job.sources[0]}: expected {len(places)} pictures, got {done}: it changed while it "
            "was read; run the same command again"
        )


def _members(job: _Job, places: Mapping[str, tuple[str, int, Picture]]) -> Iterator[Member]:
    """The pictures of a family in the order of its archives."""
    folders = {parent for name in places for parent in Path(name).parents}
    for path in job.sources:
        if path.suffix == ".csv":
            continue
        with open_members(path, enter=lambda tar: Path(tar).with_suffix("") in folders) as found:
            for member in found:
                if member.name in places and places[member.name][2].source == path:
                    yield member._replace(box=places[member.name][2].box)


def _entry(folder: Path, job: _Job, through: str) -> Json:
    """The index entry of a family, or of the family through a filter, whose pictures it makes."""
    parts: Json = {}
    for part, classes in job.parts.items():
        path = folder / f"{job.family}.{part}.npy"
        if through:
            images = np.load(path, mmap_mode="r", allow_pickle=False)
            path = folder / f"{job.family}-{through}.{part}.npy"
            np.save(path, np.stack([FILTERS[through](np.array(image)) for image in images]))
        parts[part] = {
            "bytes": path.stat().st_size,
            "sha256": digest_of(path),
            "classes": list(classes),
            "counts": [len(some) for some in classes.values()],
        }
    return {**job.about, "filter": through or None, "parts": parts}
