"""`arml data`: the benchmarks' data sets, prepared once and checked."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from arml.cli.console import parse, print_json, say
from arml.cli.errors import named
from arml.results.files import Json


def data_command(arguments: Sequence[str]) -> int:
    """List, prepare or verify the benchmarks' data sets"""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(_help(), end="")
        return 0
    return named("action", name, ACTIONS)(rest)


def _help() -> str:
    rows = "".join(f"  {name:11}{action.__doc__}\n" for name, action in ACTIONS.items())
    return (
        "usage: arml data ACTION [OPTIONS]\n\nThe benchmarks' data sets, prepared once and "
        f"checked.\n\nactions:\n{rows}\n`arml data ACTION --help` lists an action's options.\n"
    )


@dataclass(frozen=True)
class ListOptions:
    """List the data sets: size, licence, and whether each is prepared here."""

    json: bool = False
    """Print JSON."""


def list_action(arguments: Sequence[str]) -> int:
    """List the data sets: size, licence, and whether each is prepared here"""
    options = parse(ListOptions, arguments, prog="arml data list")
    found = entries()
    if options.json:
        print_json(found)
        return 0
    console = Console()
    table = Table(box=None)
    table.add_column("data set", no_wrap=True, style="cyan")
    table.add_column("what")
    for heading in ("size", "here"):
        table.add_column(heading, no_wrap=True, justify="right")
    for heading in ("archives", "for"):
        table.add_column(heading)
    for entry in found:
        table.add_row(
            Text(entry["name"]),
            Text(entry["about"]),
            f"{entry['bytes'] / 1e9:.2f} GB",
            Text(entry["here"], style="green" if entry["here"] == "yes" else ""),
            "fetched" if entry["downloaded"] else "your own",
            Text(", ".join(entry["terms"])),
        )
    console.print(table)
    say(console, "to prepare one: arml data prepare NAME [--from ARCHIVE_OR_FOLDER...]")
    return 0


def entries() -> list[Json]:
    """Each data set of the catalogue, and whether it is prepared here."""
    from arml.datasets.prepare import INDEX, place
    from arml.datasets.published import CATALOGUE

    found = []
    for name, data in CATALOGUE.items():
        folder = place(name)
        here = (folder / INDEX).exists()
        archives = [archive for family in data.families for archive in family.archives]
        found.append(
            {
                "name": name,
                "about": f"{data.about}.",
                "here": "yes" if here else "no",
                "folder": folder,
                "size": data.size,
                "pictures": data.pictures,
                "bytes": data.pictures * data.size**2 * 3,
                "downloaded": all(archive.url for archive in archives),
                "terms": list(dict.fromkeys(family.terms for family in data.families)),
                "licences": [family.licence for family in data.families],
                "homepages": [family.homepage for family in data.families],
                "citations": [family.citation for family in data.families],
                "get": [archive.instructions for archive in archives],
            }
        )
    return found


@dataclass(frozen=True)
class PrepareOptions:
    """Make a data set from its publisher's archives; downloads are kept.

    Archives that may be redistributed are downloaded, and their checksums compared. For the others,
    and without a network, give your own copy of the published archives.
    """

    name: Positional[str]
    """Data set; `arml data list` names them."""
    source: Annotated[tuple[Path, ...], arg(name="from")] = ()
    """Archives, or folders that hold archives or their unpacked contents."""
    out: Path | None = None
    """Folder of the data set; $ARML_CACHE/data/NAME if not given."""
    size: int | None = None
    """Pixels a side; the data set's own if not given."""
    split: Path | None = None
    """A split file to use in place of the published one, or a folder of such files."""
    unverified: bool = False
    """Accept archives whose checksum is not the published one."""


def prepare_action(arguments: Sequence[str]) -> int:
    """Make a data set from the archives of its publisher"""
    options = parse(PrepareOptions, arguments, prog="arml data prepare")
    from arml.datasets.prepare import open_store, prepare

    console = Console()
    with shown() as progress:
        folder = prepare(
            options.name,
            options.source,
            folder=options.out,
            size=options.size,
            split=options.split,
            unverified=options.unverified,
            progress=progress,
        )
    store = open_store(folder)
    for family, part, entry in store.entries():
        classes, pictures = len(entry["classes"]), sum(entry["counts"])
        say(console, f"{family}, {part}: {classes:,} classes, {pictures:,} pictures")
    for about in {entry["origin"]: entry for entry in store.index["families"].values()}.values():
        say(console, f"cite: {about['citation']}. Licence: {about['licence']}")
    say(console, f"written to {folder} ({store.bytes / 2**30:.2f} GiB)")
    return 0


@dataclass(frozen=True)
class VerifyOptions:
    """Compare every byte of a prepared data set with its checksum."""

    name: Positional[str]
    """Data set, or folder of one."""


def verify_action(arguments: Sequence[str]) -> int:
    """Compare every byte of a prepared data set with its checksum"""
    options = parse(VerifyOptions, arguments, prog="arml data verify")
    from arml.datasets.prepare import open_store, place, verify

    store = open_store(place(options.name))
    with shown() as progress:
        verify(store, progress)
    say(Console(), f"{store.folder}: {store.bytes / 2**30:.2f} GiB agree with their checksums")
    return 0


ACTIONS: dict[str, Callable[[Sequence[str]], int]] = {
    "list": list_action,
    "prepare": prepare_action,
    "verify": verify_action,
}


@contextlib.contextmanager
def shown() -> Iterator[Callable[[str, int, int], None]]:
    """A function that shows the progress of a named piece of work; on a terminal only."""
    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("starting", total=None)
    with bar:
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total or None
        )
