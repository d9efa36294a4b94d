"""Options that several kinds of tasks share: how many shots, ways and queries a task has."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arml.core.checks import at_least
from arml.core.episodes import TaskDistribution
from arml.datasets.folders import ImageFamily, Parts, TooFewError
from arml.datasets.splits import PARTS, Split, part_sizes
from arml.results.files import JsonView
from arml.tasks.images import Listed, listed
from arml.tasks.variety import with_variety

NOT_OF_TESTS = ("train_ways", "mixed_shots", "augment", "data", "split_seed")
"""Options that change no test task, or whose effect is in the digests of the data."""


@dataclass(frozen=True)
class EpisodeOptions:
    """The shape of a classification task."""

    shots: int = 1
    """Support examples of each class."""
    ways: int = 5
    """Classes of a task."""
    train_ways: int = 0
    """Classes of a training task, if it has more than a test task (ProtoNet); 0 for `ways`."""
    queries: int = 15
    """Query examples of each class."""
    mixed_shots: bool = False
    """Train on tasks of fewer shots too: each divisor of `shots`, in equal shares."""

    def ways_of(self, part: str) -> int:
        """Classes of a task of that part: `train`, `validation` or `test`."""
        return (part == "train" and self.train_ways) or self.ways

    def listed(self, families: Sequence[ImageFamily], parts: Split, part: str) -> Listed:
        """The images of one part of the families' classes."""
        return listed(
            families,
            parts,
            part=part,
            ways=self.ways_of(part),
            shots=self.shots,
            queries=self.queries,
        )

    def check_classes(self, family: str, classes: int, split: Parts | None = None) -> None:
        """Raise `ValueError` for a family with too few classes, before its images are decoded.
        `split` is the split of the classes, if its folders state it."""
        drawn = part_sizes(classes, least=self.ways)
        sizes = drawn if split is None else [len(split[part]) for part in PARTS]
        for part, size in zip(PARTS, sizes, strict=True):
            ways = self.ways_of(part)
            if size < ways:
                more = ways > self.ways
                raise TooFewError(
                    f"{family}: expected at least {ways} {part} classes for {ways}-way tasks, got "
                    f"{size} of its {classes}; lower {'train_ways' if more else 'the ways'}, or "
                    "add classes"
                )

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid, before any data is read."""
        at_least(self, ("ways",), 2)
        at_least(self, ("shots", "queries"), 1)
        if self.train_ways and self.train_ways < self.ways:
            raise ValueError(
                f"train_ways must be 0 or at least the {self.ways} ways, got {self.train_ways}: "
                "raise it"
            )
        if self.mixed_shots and self.shots < 2:
            raise ValueError(
                "mixed_shots needs at least 2 shots, of which training tasks may have fewer, got "
                f"{self.shots}: raise --shots"
            )

    def varied(self, train: TaskDistribution) -> TaskDistribution:
        """The training tasks, varied as these options say."""
        return with_variety(train, shots=self.mixed_shots)

    def stated(
        self, data: Mapping[str, str], parts: JsonView | None = None, **other: object
    ) -> str:
        """The identity of the test tasks: these options (`other` in place of some), the digests of
        the data, and the split of the classes if it is in a file.

        The options of training are not part of it, nor are the places of the data and the seed of
        the split, because the digests and the file state their effect. The order of the families
        is, because a task draws its family by number.
        """
        drawn = {"kind": type(self).__name__, **dataclasses.asdict(self), **other}
        kept = {k: v for k, v in drawn.items() if k not in NOT_OF_TESTS}
        return json.dumps([kept, list(data.items()), parts], sort_keys=True)


@dataclass(frozen=True)
class PictureOptions(EpisodeOptions):
    """The shape of a task of pictures."""

    augment: bool = False
    """Vary the pictures of training tasks: turn, mirror, invert and colour whole classes; turn,
    magnify, move and light each picture a little."""

    def varied(self, train: TaskDistribution) -> TaskDistribution:
        return with_variety(train, pictures=self.augment, shots=self.mixed_shots)


@dataclass(frozen=True)
class DataOptions:
    """Tasks that are made of files. `data` comes first among the options."""

    data: tuple[str, ...] = ()

    def absolute(self) -> "DataOptions":
        """The same options with absolute paths, so that a run can be used from any folder."""
        return dataclasses.replace(self, data=tuple(map(absolute_path, self.data)))


def absolute_path(path: str) -> str:
    """The absolute path of one that may begin with ~."""
    return os.path.abspath(os.path.expanduser(path))
