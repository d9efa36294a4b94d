"""The types of the JSON of a user's own tables, which msgspec checks when a file is read."""

from typing import TypedDict

from arml.results.forms import Text


class Parts(TypedDict):
    """The origins of each part."""

    train: list[Text]
    validation: list[Text]
    test: list[Text]


class OriginsSplit(TypedDict):
    """`split.json` of tables."""

    parts: Parts
