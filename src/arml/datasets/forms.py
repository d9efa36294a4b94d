"""The forms of the JSON of prepared data, as msgspec verifies them when a file is read."""

from typing import Annotated, TypedDict

from msgspec import Meta

from arml.results.forms import Count, Digest, FileName, Text


class Made(TypedDict):
    """An array of a store that is finished."""

    file: FileName
    bytes: Count
    sha256: Digest
    sample: Digest


class Entry(Made):
    """One array in the index of a store."""

    classes: list[Text]
    counts: list[Count]


class About(TypedDict):
    """One family of a store."""

    parts: dict[Text, Entry]


class StoreIndex(TypedDict):
    """`index.json`."""

    size: Annotated[int, Meta(ge=1, le=4096)]
    families: dict[Text, About]


class Record(TypedDict):
    """The record of a finished job."""

    plan: str
    entries: dict[str, Made]


class Journal(TypedDict):
    """How far an unfinished job is."""

    plan: str
    done: Count


class Maker(TypedDict):
    """The model that made features, and how: `Extractor.about`."""

    model: Text
    sha256: Digest
    size: Annotated[int, Meta(ge=1, le=4096)]
    mean: tuple[float, float, float] | None
    std: tuple[float, float, float] | None
    output: Text
    unit: bool
    dimension: Annotated[int, Meta(ge=1, le=2**20)]
    saw: Text


class FeaturesIndex(TypedDict):
    """`features.json`."""

    family: Text
    place: Count
    classes: list[Text]
    counts: list[Count]
    source: Text
    split: dict[Text, list[Text]] | None
    extractor: Maker
    key: Digest
    vectors: Digest


class Note(TypedDict):
    """`part.json`: how much of unfinished vectors is on the disk."""

    key: Digest
    rows: Count
    sha256: Digest
