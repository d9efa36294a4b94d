"""FGVCx-Fungi 2018: `images/<folder>/<image>.JPG`, and `train.json` and `val.json` as in COCO."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from arml.datasets.forms import Category, Coco
from arml.datasets.layouts import reading
from arml.results.schema import read_as

TABLES = ("train.json", "val.json")


def read(paths: Sequence[Path], wanted: Sequence[str]) -> reading.Classes:
    """The pictures by species (`Abortiporus biennis`), of training and validation together."""
    found = [reading.survey(path, annotations=TABLES) for path in paths]
    # In archives the file names begin with images/; in a folder there may be a path before it.
    pictures = {
        name[name.find("images/") :]: (source, name)
        for source, one in enumerate(found)
        for name in one.names
        if "images/" in name
    }
    classes: reading.Classes = defaultdict(list)
    tables = [(one, name) for one in found for name in sorted(one.texts)]
    if not tables or not pictures:
        raise reading.not_the_layout(paths[0], "FGVCx-Fungi", "images/, train.json, val.json")
    for one, name in tables:
        files, species = _annotated(one, name)
        reading.missing(one, set(files) - set(pictures))
        for file, which in zip(files, species, strict=True):
            source, member = pictures[file]
            classes[which].append(reading.Picture(source, member))
    return reading.ordered(classes)


def _names(categories: list[Category]) -> dict[int, str]:
    """The name of each category. If two have the same name, the number of the second is added, so
    that all 1,394 names differ."""
    names: dict[int, str] = {}
    for entry in sorted(categories, key=lambda entry: entry["id"]):
        name = entry["name"].strip()
        names[entry["id"]] = f"{name} ({entry['id']})" if name in names.values() else name
    return names


def _annotated(one: reading.Survey, name: str) -> tuple[list[str], list[str]]:
    """The file and the species of each annotation."""
    try:
        content = read_as(Coco, json.loads(one.text(name)), name, "fetch the archive again")
        files = {image["id"]: image["file_name"] for image in content["images"]}
        names = _names(content["categories"])
        pairs = [(a["image_id"], a["category_id"]) for a in content["annotations"]]
        return [files[i] for i, _ in pairs], [names[c] for _, c in pairs]
    except (ValueError, KeyError, RecursionError) as error:
        raise ValueError(
            f"{one.path}: expected {name} as COCO annotations (images, categories, annotations), "
            f"got: {type(error).__name__} {error}; fetch the archive again"
        ) from error
