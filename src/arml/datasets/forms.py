"""The types of the JSON of prepared data, which msgspec checks when a file is read."""

from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, TypedDict

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
    """How many pictures of an unfinished job are done."""

    plan: str
    done: Count


class Maker(TypedDict):
    """The model that made features, and its options: `Extractor.about`."""

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
    """`part.json`: how many unfinished vectors are on the disk."""

    key: Digest
    rows: Count
    sha256: Digest


class Parts(TypedDict):
    """The classes, or the origins, of each part."""

    train: list[Text]
    validation: list[Text]
    test: list[Text]


class OriginsSplit(TypedDict):
    """`split.json` of tables."""

    parts: Parts


class ClassesSplit(TypedDict):
    """`split.json` of pictures or features: the classes of each part of each family."""

    families: dict[Text, dict[Text, list[Text]]]
    seed: int


class StarterFamily(TypedDict):
    """One family of the starter set."""

    file: FileName
    sha256: Digest
    each: Annotated[int, Meta(ge=1, le=10_000)]
    samples: dict[Text, list[Text]]
    split: Parts


class StarterIndex(TypedDict):
    """`index.json` of the starter set."""

    format: int
    families: dict[Text, StarterFamily]


@dataclass(frozen=True)
class Rule:
    """Take the classes that have enough pictures, in order of sha256('<seed>/<class>')."""

    images: Annotated[int, Meta(ge=1, le=2**31)]
    """Pictures that a class must have."""
    exactly: bool
    """Whether a class must have exactly so many."""
    sizes: tuple[Count, Count, Count]
    """Classes of train, validation and test."""


class PublishedSplit(TypedDict):
    """The split of a published data set, without its checksum."""

    origin: Text
    method: Text
    seed: NotRequired[Count]
    unit: NotRequired[Literal["class", "alphabet"]]
    parts: NotRequired[Parts | None]
    rule: NotRequired[Rule | None]
    keep: NotRequired[Annotated[int, Meta(ge=1, le=2**31)] | None]


class Picture(TypedDict):
    """A picture of COCO annotations."""

    id: int
    file_name: Text


class Category(TypedDict):
    """A category of COCO annotations."""

    id: int
    name: Text


class Annotation(TypedDict):
    """The category of a picture."""

    image_id: int
    category_id: int


class Coco(TypedDict):
    """COCO annotations."""

    images: list[Picture]
    categories: list[Category]
    annotations: list[Annotation]
