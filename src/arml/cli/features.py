"""`arml features`: pictures become the vectors of a frozen model, once."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import command, parse, say
from arml.cli.data import shown
from arml.cli.errors import UsageError
from arml.cli.stopping import INTERRUPTED


@dataclass(frozen=True)
class FeaturesOptions:
    """Turn pictures into the vectors of a frozen ONNX model; families that are there stay.

    Then `arml train --data DIR` and `arml train features/METHOD --data DIR` learn from the vectors.
    """

    sources: Positional[tuple[Path, ...]]
    """Folders or zips with one folder for each class; each is one family."""
    out: Path
    """Folder of the features."""
    model: Path | None = None
    """An ONNX model; the trunk of `photos` if not given."""
    size: int | None = None
    """Pixels on each side of the model's input; if not given, the model's size or 224."""
    mean: tuple[float, float, float] | None = None
    """Mean of each channel of pixels in [0, 1]; ImageNet's if not given."""
    std: tuple[float, float, float] | None = None
    """Deviation of each channel; ImageNet's if not given. 0.003922 leaves pixels in [0, 255]."""
    output: str | None = None
    """The model's output; its first if not given."""
    raw: bool = False
    """Keep the length of each vector; if not given, each is scaled to the root of its dimension."""
    saw: str | None = None
    """The training data of the model, for the record: a test on classes among them is not fair."""


def features_command(arguments: Sequence[str]) -> int:
    """Turn pictures into the vectors of a frozen ONNX model"""
    options = parse(FeaturesOptions, arguments, prog="arml features")
    if not options.sources:
        raise UsageError("expected one or more folders or zips of pictures, got none: name them")
    from arml.datasets.features import IMAGENET, PHOTOS, Extractor, write_features
    from arml.datasets.folders import family_name

    paths = [path.absolute() for path in options.sources]
    names = [family_name(path) for path in paths]
    if len(set(names)) < len(names):
        raise UsageError(f"expected families of different names, got {', '.join(names)}: rename")
    extractor = Extractor(
        options.model or PHOTOS,
        size=options.size,
        mean=options.mean or IMAGENET[0],
        std=options.std or IMAGENET[1],
        output=options.output,
        unit=not options.raw,
        saw=options.saw,
    )
    console = Console()
    about = extractor.about
    say(
        console,
        f"{about['model']}: pictures of {extractor.size} px to {extractor.dimension} numbers; the "
        f"model was trained on: {about['saw']}",
    )
    if about["saw"] == "unknown":
        say(
            console,
            "if that includes test classes, scores will be too high; --saw records what "
            "the model was trained on",
        )
    try:
        with shown() as progress:
            for place, (name, path) in enumerate(zip(names, paths, strict=True)):
                index, new = write_features(
                    extractor, path, options.out / name, place=place, progress=progress
                )
                said = f"{sum(index['counts']):,} pictures of {len(index['classes'])} classes"
                say(console, f"{name}: {said}{'' if new else ', done before'}")
    except KeyboardInterrupt:
        say(console, f"stopped; to continue: {command('features', *arguments)}")
        return INTERRUPTED
    say(console, f"next: arml train --data {shlex.quote(str(options.out))} --run DIR")
    return 0
