"""`arml data` prepares the benchmarks' data sets; `arml features` computes vectors of pictures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from arml.cli.console import (
    EXIT_INTERRUPTED,
    Display,
    ModelOptions,
    command,
    doubts,
    listed,
    parse,
    say,
)
from arml.core.registry import known

DATA_HELP = """usage: arml data ACTION [OPTIONS]

The benchmarks' data sets, prepared once.

actions:
  list     List the data sets: size, archives, and whether each is prepared here
  prepare  Make a data set from the archives of its publisher

`arml data ACTION --help` lists an action's options."""


def data_command(arguments: Sequence[str]) -> int:
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(DATA_HELP)
        return 0
    actions: dict[str, Callable[[Sequence[str]], int]] = {"list": _list, "prepare": _prepare}
    return known("action", name, actions, 1)(rest)


@dataclass(frozen=True)
class ListOptions:
    """List the data sets: size, source of the archives, and whether each is prepared here."""


def _list(arguments: Sequence[str]) -> int:
    parse(ListOptions, arguments, prog="arml data list")
    from arml.datasets.prepare import prepared_here
    from arml.datasets.published import DATA_SETS

    rows, here = [], prepared_here()
    for name, data in DATA_SETS.items():
        fetched = all(archive.url for family in data.families for archive in family.archives)
        size = f"{data.pictures * data.size**2 * 3 / 1e9:.2f} GB"
        source = "fetched" if fetched else "your own"
        rows.append((name, size, "yes" if name in here else "no", source, f"{data.about}."))
    Console().print(listed(("data set", "size", "here", "archives", "what"), rows))
    say(Console(), "to prepare one: arml data prepare NAME [--from ARCHIVE_OR_FOLDER...]")
    return 0


@dataclass(frozen=True)
class PrepareOptions:
    """Make a data set from its publisher's archives; downloads are kept.

    Archives that may be redistributed are downloaded, and their checksums compared. For the others,
    and without a network, give your own copy of the published archives.
    """

    name: Positional[str]
    """Data set; `arml data list` names them."""
    source: Annotated[tuple[Path, ...], arg(name="from")] = ()
    """Archives, or folders that contain archives or their unpacked files."""
    out: Path | None = None
    """Folder of the data set; $ARML_CACHE/data/NAME if not given."""
    size: int | None = None
    """Pixels a side; the data set's own if not given."""
    unverified: bool = False
    """Accept archives whose checksum is not the published one."""


def _prepare(arguments: Sequence[str]) -> int:
    options = parse(PrepareOptions, arguments, prog="arml data prepare")
    from arml.datasets.prepare import open_store, prepare

    console = Console()
    with Display(Console(stderr=True), "starting") as display:
        folder = prepare(
            options.name,
            options.source,
            folder=options.out,
            size=options.size,
            unverified=options.unverified,
            progress=display.show,
        )
    store = open_store(folder)
    for family, part, entry, _ in store.entries():
        classes, pictures = len(entry["classes"]), sum(entry["counts"])
        say(console, f"{family}, {part}: {classes:,} classes, {pictures:,} pictures")
    for about in {entry["origin"]: entry for entry in store.index["families"].values()}.values():
        say(console, f"cite: {about['citation']}. Licence: {about['licence']}")
    say(console, f"written to {folder} ({store.bytes / 2**30:.2f} GiB)")
    return 0


@dataclass(frozen=True, kw_only=True)
class FeaturesOptions(ModelOptions):
    """Turn pictures into the vectors of a frozen ONNX model; finished families are kept.

    Then `arml train --data DIR` and `arml train features/METHOD --data DIR` learn from the vectors.
    A source is a folder or zip with one folder for each class, and becomes one family.
    """

    sources: Positional[tuple[Path, ...]]
    """Folders or zips of pictures."""
    out: Path
    """Folder of the features."""
    model: Path | None = None
    """An ONNX model; the trunk of `photos` if not given."""
    raw: bool = False
    """Do not scale each vector to the root of its dimension."""
    saw: str | None = None
    """The training data of the model: scores on their classes would be too high."""


def features_command(arguments: Sequence[str]) -> int:
    options = parse(FeaturesOptions, arguments, prog="arml features")
    if not options.sources:
        raise ValueError("no pictures were given: name one or more folders or zips")
    from arml.datasets.features import PHOTOS_MODEL, extractor_of, write_features
    from arml.datasets.folders import named_sources

    paths = named_sources(options.sources)
    given = {**options.given(), "saw": options.saw}
    extractor = extractor_of(options.model or PHOTOS_MODEL, given, unit=not options.raw)
    console, about = Console(), extractor.about
    saw = f"{extractor.dimension} numbers; the model was trained on: {about['saw']}"
    say(console, f"{extractor.summary}; {saw}", *filter(None, [extractor.doubt]))
    if about["saw"] == "unknown":
        say(
            console, "if these data include test classes, scores will be too high; --saw names them"
        )
    try:
        with doubts(), Display(Console(stderr=True), "starting") as display:
            for place, (name, path) in enumerate(paths.items()):
                index, new = write_features(
                    extractor, path, options.out / name, place=place, progress=display.show
                )
                counts = f"{sum(index['counts']):,} pictures of {len(index['classes'])} classes"
                say(console, f"{name}: {counts}{'' if new else ', done before'}")
    except KeyboardInterrupt:
        say(console, f"stopped; to continue: {command('features', *arguments)}")
        return EXIT_INTERRUPTED
    say(console, f"next: {command('train', '--data', str(options.out))} --run DIR")
    return 0
