"""The archives that a data set is made from: the user's own, or a checked download."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from arml.datasets.catalogue import Archive, Origin
from arml.datasets.folders import Progress, default_folder
from arml.results.files import digest_of


class Obtained(NamedTuple):
    """The source that an origin is read from."""

    path: Path
    """A file or a folder."""
    md5: str | None
    """The published checksum, if it was compared with that of the file."""


BLOCK = 2**20
SECONDS = 60
"""How long a server may send nothing."""


def obtain(
    origin: Origin,
    given: Sequence[Path],
    *,
    alone: bool,
    unverified: bool = False,
    progress: Progress | None = None,
) -> list[Obtained]:
    """The files or folders that an origin is read from.

    **Arguments**

    - `given`: archives, or folders that hold archives or their unpacked contents.
    - `alone`: the given files are for this origin, whatever their names.
    - `unverified`: accept a user's archive whose checksum differs from the published one.

    **Raises** `ValueError` in one line for an archive that the user must fetch, a download that
    fails, and a wrong checksum.
    """
    found = {archive: _given(archive, given) for archive in origin.archives}
    pictures = [archive for archive in origin.archives if archive.md5 is not None]
    if not any(found[archive] for archive in pictures):
        others = _others(origin, given, alone)
        if others:
            lists = [archive for archive in origin.archives if archive.md5 is None]
            return [
                *(Obtained(p, _checked(pictures, p, unverified, progress)) for p in others),
                *(Obtained(found[a] or download(a, progress), None) for a in lists),
            ]
    obtained = []
    for archive in origin.archives:
        path = found[archive]
        if path is None:
            obtained.append(Obtained(download(archive, progress), archive.md5))
        else:
            obtained.append(Obtained(path, _checked([archive], path, unverified, progress)))
    return obtained


def check_given(origin: Origin, given: Sequence[Path], *, alone: bool) -> None:
    """Raise `ValueError` if an archive is missing that only the user can fetch; it says where."""
    if _others(origin, given, alone):
        return
    for archive in origin.archives:
        if archive.url is None and _given(archive, given) is None:
            raise _not_ours(archive)


def _not_ours(archive: Archive) -> ValueError:
    return ValueError(
        f"{archive.name} may not be passed on: {archive.get}, and give it with --from"
    )


def _given(archive: Archive, given: Sequence[Path]) -> Path | None:
    for path in given:
        inside = path / archive.name
        if path.is_file() and path.name == archive.name:
            return path
        if path.is_dir() and inside.is_file():
            return inside
    return None


UNPACKED = {
    "cub": ("CUB_200_2011", "bounding_boxes.txt"),
    "dtd": ("dtd", "images/banded"),
    "aircraft": ("fgvc-aircraft-2013b", "data/images_box.txt"),
    "fungi": ("fungi", "train.json"),
    "omniglot": ("omniglot", "images_background"),
}
"""The folder to which the archives of a layout unpack, and a path inside it."""


def _others(origin: Origin, given: Sequence[Path], alone: bool) -> list[Path]:
    """The given paths that are this origin's, though their names are not those of its archives."""
    if alone:
        return [path for path in given if path.suffix != ".csv"]
    top, marker = UNPACKED.get(origin.layout, ("", ""))
    places = [place for path in given if marker for place in (path, path / top)]
    return [place for place in places if (place / marker).exists()][:1]


def _checked(
    archives: Sequence[Archive], path: Path, unverified: bool, progress: Progress | None
) -> str | None:
    """The checksum of a file that is one of the published archives; None if there is no checksum
    to compare with.

    **Raises** `ValueError` for another file.
    """
    known = {archive.md5 for archive in archives} - {None}
    if unverified or not known or path.is_dir():
        return None
    archive, size = archives[0], path.stat().st_size

    def told(read: int) -> None:
        if progress is not None:
            progress(f"checking {path.name}", read, size)

    # Publishers state the MD5. It is no defence against an attacker.
    got = digest_of(path, algorithm="md5", told=told).hexdigest()
    if got in known:
        return got
    short = f" ({size} of {archive.size} bytes)" if size < archive.size else ""
    raise ValueError(
        f"{path}: expected {archive.name} as published, with MD5 {archive.md5}, got {got}{short}; "
        f"{archive.get}, or give --unverified to take this one as it is"
    )


def download(archive: Archive, progress: Progress | None = None) -> Path:
    """Download an archive to `$ARML_CACHE/downloads`, unless it is there already. The same call
    continues a download that was interrupted.

    **Raises** `ValueError` if the download is not permitted or fails, or the checksum is wrong.
    """
    if archive.url is None:
        raise _not_ours(archive)
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    folder = default_folder() / "downloads"
    known = f"md5:{archive.md5}" if archive.md5 else None
    try:
        path = pooch.retrieve(
            archive.url,
            known,
            fname=archive.name,
            path=folder,
            downloader=_resuming(folder / f"{archive.name}.part", archive, progress),
        )
    except requests.RequestException as error:
        raise ValueError(
            f"{archive.url}: expected to download {archive.name}, got: {_reason(error)}; the same "
            f"command goes on with it, or: {archive.get}, and give it with --from"
        ) from error
    except ValueError as error:
        if "hash" not in str(error):
            raise
        raise ValueError(
            f"{archive.url}: expected a file with MD5 {archive.md5}, got another, which was "
            f"removed; try again later, or {archive.get} elsewhere, and give it with --from"
        ) from error
    return Path(path)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__} {' '.join(str(error).split())[:120]}"


def _resuming(part: Path, archive: Archive, progress: Progress | None) -> Callable[..., None]:
    """A downloader for pooch that keeps the part of the file that has arrived."""

    def downloader(url: str, output: str | Path, _: object, check_only: bool = False) -> None:
        import requests

        done = part.stat().st_size if part.exists() else 0
        asked = {"Range": f"bytes={done}-"} if done else {}
        with requests.get(url, headers=asked, stream=True, timeout=SECONDS) as answer:
            if answer.status_code == requests.codes.requested_range_not_satisfiable:
                part.unlink()  # it is complete, or of another file
                return downloader(url, output, _)
            answer.raise_for_status()
            partial = answer.status_code == requests.codes.partial_content
            done = done if partial else 0
            total = done + int(answer.headers.get("Content-Length", 0))
            with part.open("ab" if partial else "wb") as file:
                for block in answer.iter_content(BLOCK):
                    file.write(block)
                    done += len(block)
                    if progress is not None:
                        progress(f"downloading {archive.name}", done, max(total, done))
            if done < total:
                raise requests.ConnectionError(f"{done} of {total} bytes")
            kind = answer.headers.get("Content-Type", "")
        if archive.md5 is None and kind.startswith("text/html"):
            part.unlink()
            raise requests.RequestException("a web page")
        os.replace(part, output)
        return None

    return downloader
