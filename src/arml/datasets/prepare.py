"""From a publisher's archives to a store, in one pass over each archive.

Errors are raised before the first picture is written, where that is possible. An interrupted call
continues where it stopped: the pictures of an archive come in a fixed order, and a journal says how
many of them are on the disk.
"""

import importlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from arml.datasets import fetch
from arml.datasets.catalogue import ORIGINS, PLAIN, DataSet, lookup
from arml.datasets.folders import SIZES, Progress
from arml.datasets.layouts import authors
from arml.datasets.layouts.reading import Classes
from arml.datasets.making import Job, finished, make, plan_of, shown
from arml.datasets.published import published, select
from arml.datasets.splits import PARTS
from arml.datasets.store import INDEX, open_store, place, write_index
from arml.results.files import Json, JsonView, write_json
from arml.results.lock import alone


def prepare(
    name: str,
    given: Sequence[Path] = (),
    *,
    folder: Path | None = None,
    size: int | None = None,
    split: Path | None = None,
    unverified: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Make the store of a data set, unless it is there already; returns its folder.

    **Arguments**

    - `given`: the user's own archives or folders; others are downloaded if that is permitted.
    - `folder`: of the store; `$ARML_CACHE/data/<name>` if None.
    - `size`: pixels a side; the data set's own if None.
    - `split`: a file to use in place of the published split, or a folder with a file for each
      origin.
    - `unverified`: take archives whose checksum is not the published one.

    **Raises** `ValueError` in one line. No file stays if an archive is refused; after a full disk
    the same call continues.
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
            raise ValueError(
                f"{path}: expected an archive or a folder, found nothing; check the path"
            )
    own = split and {one: published(one, split).sha256 for one in data.families.values()}
    asked = {"name": name, "size": size, "split": own}
    if (folder / INDEX).exists():
        _check_same(folder, asked)
        return folder
    jobs = _jobs(name, data, given, split, unverified, progress)
    _check_space(folder, jobs, size)
    with alone(folder):
        made = _carry_out(folder, jobs, size, progress)
        order = ("", *data.filters)
        index = sorted(made.items(), key=lambda item: order.index(item[1]["filter"] or ""))
        made_by = {"opencv": cv2.__version__, "numpy": np.__version__}
        write_index(folder, {**asked, "families": dict(index), "made": made_by})
        for job in jobs:
            _record(folder, job).unlink(missing_ok=True)
    return folder


def _check_same(folder: Path, asked: JsonView) -> None:
    there = open_store(folder).index
    for key, value in asked.items():
        if there.get(key) != value:
            raise ValueError(
                f"{folder} holds a data set with the {key} {there.get(key)!r}, not {value!r}; "
                "remove it, or name another folder"
            )


def _jobs(
    name: str,
    data: DataSet,
    given: Sequence[Path],
    split: Path | None,
    unverified: bool,
    progress: Progress | None,
) -> list[Job]:
    """The work to do, as far as it is known without decoding."""
    through = ("", *data.filters)
    every = [shown(family, one) for one in through for family in data.families]
    if len(given) == 1 and (chosen := authors.read(given[0], name, every)) is not None:
        source = {"archive": given[0].name, "md5": None}
        about = {
            family: {
                **_credits(PLAIN[family.partition("-")[0]]),
                "source": [source],
                "split": {"method": authors.METHOD},
                "filter": family.partition("-")[2] or None,
            }
            for family in every
        }
        return [Job("authors", [given[0]], chosen, about)]
    jobs = []
    for origin in data.families.values():
        # Before any download.
        fetch.check_given(ORIGINS[origin], given, alone=len(data.families) == 1)
    for family, origin in data.families.items():
        known = ORIGINS[origin]
        obtained = fetch.obtain(
            known,
            given,
            alone=len(data.families) == 1,
            unverified=unverified,
            progress=progress,
        )
        if progress is not None:
            progress(f"listing {family}", 0, 0)
        rules = published(origin, split)
        layout = importlib.import_module(f"arml.datasets.layouts.{known.layout}")
        paths = [path for path, _ in obtained]
        classes: Classes = layout.read(paths, rules.wanted())
        sources = [{"archive": path.name, "md5": md5} for path, md5 in obtained]
        pictures = [path for path in paths if path.suffix != ".csv"]
        about = {
            shown(family, one): {
                **_credits(origin),
                "source": sources,
                "split": {"method": rules.method, "sha256": rules.sha256},
                "filter": one or None,
            }
            for one in through
        }
        chosen_parts = select(rules, classes, pictures[0])
        jobs.append(Job(family, pictures, {family: chosen_parts}, about, data.filters))
    return jobs


def _credits(origin: str) -> dict[str, str]:
    known = ORIGINS[origin]
    return {"origin": origin, "licence": known.licence, "citation": known.citation}


def _check_space(folder: Path, jobs: Sequence[Job], size: int) -> None:
    needed = sum(sum(job.arrays().values()) for job in jobs) * size * size * 3
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    # Blocks, not sizes: unfinished files have holes.
    kept = 512 * sum(getattr(path.stat(), "st_blocks", 0) for path in folder.glob("*.npy*"))
    free = shutil.disk_usage(there).free
    if needed - kept > free:
        raise ValueError(
            f"{there}: expected {(needed - kept) / 2**30:.1f} GiB of free space, got "
            f"{free / 2**30:.1f}; free some, or name another folder with --out"
        )


def _record(folder: Path, job: Job) -> Path:
    return folder / f"{job.name}.done.json"


def _carry_out(folder: Path, jobs: Sequence[Job], size: int, progress: Progress | None) -> Json:
    """Make every family's arrays; returns their entries of the index."""
    index: Json = {}
    for job in jobs:
        plan = plan_of(job, size)
        entries = finished(_record(folder, job), plan)
        if entries is None:
            entries = make(folder, job, size, plan, progress)
            write_json(_record(folder, job), {"plan": plan, "entries": entries})
            (folder / f"{job.name}.journal.json").unlink(missing_ok=True)
        for family, about in job.about.items():
            plain = family if family in job.families else family.partition("-")[0]
            parts = {
                part: {
                    **entries[f"{family}.{part}"],
                    "classes": list(classes),
                    "counts": [len(pictures) for pictures in classes.values()],
                }
                for part, classes in job.families[plain].items()
            }
            index[family] = {**about, "parts": {part: parts[part] for part in PARTS}}
    return index
