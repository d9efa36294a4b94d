"""JSON from elsewhere is checked against the types of our data before it is used.

msgspec reads the annotations of dataclasses and typed dictionaries; `Annotated[int, Meta(ge=1)]`
bounds a value. A dataclass' own `check` checks the rest.
"""

import dataclasses
import functools
import re
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, TypeVar

import msgspec

from arml.results.files import Json, JsonView, RunError, checksum, read_json

Made = TypeVar("Made")


def read_as(kind: type[Made] | GenericAlias, value: object, where: str, advice: str) -> Made:
    """Convert a JSON value to the type `kind`, which may be any type that msgspec knows.

    **Raises** `RunError` in one line that begins with `where` and ends with `advice`.
    """
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        raise RunError(f"{where}: {_said(error)}; {advice}") from None


def read_stated(
    path: Path, kind: Any, advice: str, *, version: int | None = None, name: str = "sha256"
) -> Json:
    """The content of a JSON file of the type `kind` that states its own checksum, without it.

    **Raises** `RunError`, which ends with `advice`, if the file is absent, was altered, or has
    another `format` than this `version`.
    """
    try:
        content = read_json(path)
    except RunError as error:
        raise RunError(f"{error}; {advice}") from error
    stated = content.pop(name, None)
    if version is not None and content.get("format") != version:
        raise RunError(
            f"{path}: expected format {version}, got {content.get('format')!r}: use the version of "
            f"arml that wrote it, or {advice}"
        )
    if stated != checksum(content):
        raise RunError(
            f"{path}: it was altered or cut short (its SHA-256 is not that of its content): "
            f"{advice}"
        )
    read_as(kind, content, str(path), advice)
    return content


def read_checked(path: Path, kind: Any, advice: str) -> Json:
    """The content of a JSON file of the type `kind`. **Raises** `RunError`, which ends with
    `advice` if the file is of another type."""
    content = read_json(path)
    read_as(kind, content, str(path), advice)
    return content


def read_options(kind: type[Made], value: JsonView, where: str, advice: str) -> Made:
    """Make a dataclass of options from a JSON object, which has some of its fields and no others.

    **Raises** `RunError` as `read_as`.
    """
    like: Any = kind
    given = read_as(_struct(like), dict(value), where, advice)
    found = {name: getattr(given, name) for name in value}
    return kind(**found)


@functools.cache
def _struct(kind: Any) -> type[msgspec.Struct]:
    """A msgspec type with the fields of a dataclass; it refuses other fields."""
    fields: list[tuple[str, object] | tuple[str, object, None]] = []
    for field in dataclasses.fields(kind):
        # Values that are objects already, such as the parts of an experiment, are not checked.
        made = isinstance(field.type, type) and field.type not in (int, float, str, bool)
        own = Any if made else field.type
        needed = field.default is field.default_factory is dataclasses.MISSING
        fields.append((field.name, own) if needed else (field.name, own, None))
    return msgspec.defstruct(kind.__name__, fields, forbid_unknown_fields=True, kw_only=True)


_WORDS: dict[str, str] = {}
"""The names of patterns in messages."""


def matching(pattern: str, words: str, longest: int = 1000) -> msgspec.Meta:
    """A bound on text, and its name in messages: `Annotated[str, matching("^a+$", "letters")]`."""
    _WORDS[repr(pattern)] = words
    return msgspec.Meta(pattern=pattern, max_length=longest)


Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1.001)]
"""From 0 to 1, with a tolerance for rounding."""
Text = Annotated[str, msgspec.Meta(max_length=10_000)]
Digest = Annotated[str, matching("^[0-9a-f]{64}$", "a SHA-256")]
FileName = Annotated[str, matching(r"^[^/\\\x00]+$", "the name of a file", 255)]


def _said(error: BaseException) -> str:
    """msgspec's message in our words; it says ``Expected `int`, got `str` - at `$.hidden[0]` ``."""
    text = str(error).replace("`", "")
    found = re.fullmatch(r"(.*?)(?: - at \$\.?(.*))?", text, re.DOTALL)
    assert found is not None
    what, place = found.groups()
    for pattern, words in _WORDS.items():
        what = what.replace(f"str matching regex {pattern}", words)
    what = what.replace("Object contains unknown field", "unknown field").replace(
        "Object missing", "expected the"
    )
    what = what[:1].lower() + what[1:]
    return f"{place}: {what}" if place else what
