"""The tasks of the three splits, and the shape of classification tasks over pictures."""

import dataclasses
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from msgspec import Meta

from arml.core.checks import MAX_COUNT, Options, Size
from arml.core.episodes import TaskDistribution, Tasks
from arml.core.own_tasks import as_tasks, own_of
from arml.datasets.arrays import class_name, family_of
from arml.datasets.folders import (
    SPLIT_PARTS,
    ImageFamily,
    Parts,
    Progress,
    TooFewError,
    family_name,
)
from arml.datasets.splits import check_split, cut, part_sizes, read_split, write_split
from arml.results.files import Json, JsonView, checksum, read_json
from arml.tasks.images import MIRROR_LOSS, Augmented, MixedShots, image_episodes, mirror_loss


class Splits(NamedTuple):
    """The tasks of the three splits, and the identity of their data.

        splits = arml.Splits(tasks, tasks, test=Sines(highest=4.0))
        x, y = jax.random.normal(jax.random.key(0), (90, 8)), jnp.arange(90) // 6
        splits = arml.Splits.of_classes((x, y), ways=3, shots=1, queries=5)

    `arml.fit`, `arml.evaluate` and `arml.build` take them instead of tasks: a training gets
    the first two parts, and a score the last one.
    """

    train: TaskDistribution
    validation: TaskDistribution
    test: TaskDistribution
    sources: Mapping[str, str] = MappingProxyType({})
    """The digest of each source of data; empty if no data are read."""
    inputs: Json | None = None
    """The frozen model that made the inputs from pictures, if there is one."""

    @property
    def shared(self) -> bool:
        """Whether test tasks are drawn from the training distribution: then their classes are those
        of the training, if there is a list of classes."""
        return own_of(self.test) is own_of(self.train)

    @classmethod
    def of_classes(
        cls,
        data: Any,
        *,
        ways: int = 5,
        shots: int = 1,
        queries: int = 15,
        size: int | None = None,
        seed: int = 0,
        parts: Mapping[str, Sequence[object]] | None = None,
    ) -> "Splits":
        """Classification tasks of your own classes, which are split into 64% for training, 16% for
        validation and 20% for test, but at least `ways` in each.

            splits = arml.Splits.of_classes(torchvision.datasets.CIFAR100("data"), shots=5)
            splits = arml.Splits.of_classes({"birds": "birds/", "cars": "cars.zip"}, size=84)

        **Arguments**

        - `data`: a pair `(x, y)` of arrays, where `x` are vectors `[n, features]`, or pictures `[n,
          h, w]` or `[n, h, w, 1 or 3]` of 8 bits or floats, and `y` are labels `[n]`; the path of a
          folder or zip with a folder of pictures for each class; or a data set whose items are
          pairs of an input and a label (`arml.datasets.arrays`). Or several of these by the name of
          their family.
        - `ways`, `shots`, `queries`: classes of a task, support and query examples of each.
        - `size`: pictures become `size x size` pixels; needed for folders.
        - `seed`: seeds the split; it does not depend on the order of the classes.
        - `parts`: the labels in `train`, `validation` and `test`, if they are split already.

        **Raises** `ValueError` in one line for data with too few classes or examples.
        """
        name = family_name(Path(data)) if isinstance(data, str | Path) else "own"
        several = data if isinstance(data, Mapping) else {name: data}
        families = [family_of(name, one, size=size) for name, one in several.items()]
        if len({family.images.shape[1:] for family in families}) != 1:
            got = [f"{family.name} with {family.images.shape[1:]}" for family in families]
            raise ValueError(
                "expected one family or more with inputs of one shape, got "
                f"{', '.join(got) or 'none'}: give size=84 for pictures"
            )
        if parts is not None:
            split = {
                part: [class_name(label, part) for label in labels]
                for part, labels in parts.items()
            }
            families = [
                replace(f, split=split, digest=checksum([f.digest, split])) for f in families
            ]
        options = EpisodeOptions(shots, ways, queries=queries)
        options.check()
        with tempfile.TemporaryDirectory() as folder:
            return divided(options, families, Path(folder) / "split.json", seed=seed)


@runtime_checkable
class TasksOptions(Protocol):
    """The options of one kind of tasks: a frozen dataclass with these two methods. It may also have
    `absolute()`, the same options with absolute paths; `needs`, the options that a command line
    must have; and `span` and `reach`, the range of inputs and the largest size of a target."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def check(self) -> None:
        """Raise `ValueError` in one line if an option is invalid."""

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """The tasks. The file `split` has the classes for training, validation and test; it is
        written if it does not exist."""
        ...


TasksLike = Tasks | Splits | TasksOptions
"""Everything that training and scoring accept as tasks."""


def splits_of(tasks: TasksLike) -> Splits:
    """Task distributions of the three parts, from `Splits`, from the options of a recipe's tasks,
    or from one distribution, which is used for all three with different keys. **Raises**
    `ValueError` in one line for another object."""
    if isinstance(tasks, Splits):
        train, validation, test = map(as_tasks, tasks[:3])
        return tasks._replace(train=train, validation=validation, test=test)
    if isinstance(tasks, TasksOptions):
        with tempfile.TemporaryDirectory() as folder:
            return splits_of(tasks.build(Path(folder) / "split.json"))
    one = as_tasks(tasks)
    return Splits(one, one, one, {})


NOT_OF_TESTS = ("train_ways", "mixed_shots", "augment", "data", "split_seed", "only")
"""Options that do not change test tasks, or whose effect is in the digests of the data."""


@dataclass(frozen=True)
class EpisodeOptions(Options):
    """The shape of a classification task."""

    shots: Size = 1
    """Support examples of each class."""
    ways: Annotated[int, Meta(ge=2, le=MAX_COUNT)] = 5
    """Classes of a task."""
    train_ways: int = 0
    """Classes of a training task, which may be more than `ways` (ProtoNet); 0 for `ways`."""
    queries: Size = 15
    """Query examples of each class."""
    mixed_shots: bool = False
    """Also train on tasks of fewer shots: each divisor of `shots`, in equal shares."""
    augment: bool = False
    """Train on pictures that are shifted at random, and mirrored and changed in light and colour
    where a mirror keeps the classes."""

    def ways_of(self, part: str) -> int:
        return (part == "train" and self.train_ways) or self.ways

    def episodes(self, families: Sequence[ImageFamily], part: str, **how: Any) -> TaskDistribution:
        """The tasks over one part of the families' classes; see `image_episodes`. **Raises**
        `TooFewError` for too few classes or images."""
        for family in families:
            assert family.split is not None
            self._check_part(family.name, part, family.sizes, family.split[part])
        shape: Json = {"ways": self.ways_of(part), "shots": self.shots, "queries": self.queries}
        tasks: TaskDistribution = image_episodes(families, part, **shape, **how)
        if part != "train":
            return tasks
        return self.varied(
            tasks, lambda: [mirror_loss(f, (f.split or {})[part]) < MIRROR_LOSS for f in families]
        )

    def varied(
        self, train: TaskDistribution, mirrored: Callable[[], Sequence[bool]]
    ) -> TaskDistribution:
        """Training tasks, with `augment` of pictures varied at random, and with `mixed_shots` also
        of fewer shots; `mirrored` is true for each family whose classes a mirror keeps."""
        if self.augment:
            if not train.problem.spatial:
                raise ValueError(
                    f"augment varies pictures, and an input of these tasks has the shape "
                    f"{train.problem.features}: leave --augment out"
                )
            train = Augmented(train.families, train.problem, train, jnp.asarray(mirrored()))
        return MixedShots(train.families, train.problem, train) if self.mixed_shots else train

    def check_family(
        self, family: str, counts: Mapping[str, int], split: Parts | None = None
    ) -> None:
        """Raise `TooFewError` for a family with too few classes, or too few images of a class.
        `counts` are the images of each class. Without a `split` the sizes of its parts count."""
        split = split or cut([*counts], part_sizes(len(counts), least=self.ways))
        for part in SPLIT_PARTS:
            self._check_part(family, part, counts, split[part])

    def _check_part(
        self, family: str, part: str, counts: Mapping[str, int], classes: Sequence[str]
    ) -> None:
        ways, each = self.ways_of(part), self.shots + self.queries
        if len(classes) < ways:
            more = ways > self.ways
            raise TooFewError(
                f"{family}: expected at least {ways} {part} classes for {ways}-way tasks, got "
                f"{len(classes)} of its {len(counts)}; lower {'train_ways' if more else 'the ways'}"
                ", or add classes"
            )
        for name in classes:
            if counts[name] < each:
                raise TooFewError(
                    f"{family}: expected at least {each} examples of each class ({self.shots} "
                    f"shots and {self.queries} queries), got {counts[name]} in {name!r}; lower the "
                    "shots or queries, or add examples"
                )

    def check(self) -> None:
        super().check()
        if self.train_ways and self.train_ways < self.ways:
            raise ValueError(
                f"train_ways must be 0 or at least the {self.ways} ways, got {self.train_ways}"
            )
        if self.mixed_shots and self.shots < 2:
            raise ValueError(
                "mixed_shots needs at least 2 shots, of which training tasks may have fewer, got "
                f"{self.shots}: raise --shots"
            )

    def stated(self, data: Mapping[str, str], parts: JsonView | None = None) -> str:
        """The identity of the test tasks: these options, the digests of the data in the order of
        the families (a task draws its family by index), and the split of the classes if it is in a
        file. Options of training, paths of the data and the seed of the split are not part of it.
        """
        drawn = {"kind": type(self).__name__, **dataclasses.asdict(self)}
        kept = {k: v for k, v in drawn.items() if k not in NOT_OF_TESTS}
        return json.dumps([kept, list(data.items()), parts], sort_keys=True)


def divided(
    options: EpisodeOptions,
    families: Sequence[ImageFamily],
    file: Path,
    *,
    seed: int = 0,
    size: int | None = None,
) -> Splits:
    """The tasks of families, some of which have a published or stated split. The split of the
    others is read from `file`. If it does not exist, their classes are split, and it is written.
    `size` is that of `ImageEpisodes`."""
    own = [family for family in families if family.split is None]
    if own and not file.exists():
        for family in families:  # invalid options must not leave a split for the next run
            options.check_family(family.name, family.sizes, family.split)
        write_split(file, own, seed=seed, least=options.ways)
    drawn = read_split(file, seed=seed) if own else {}
    families = [replace(f, split=drawn.get(f.name)) if f in own else f for f in families]
    check_split(families)
    sources = {family.name: family.digest for family in families}
    stated = options.stated(sources, read_json(file) if own else None)
    train, validation, test = (
        options.episodes(families, part, stated=stated, size=size) for part in SPLIT_PARTS
    )
    return Splits(train, validation, test, sources)
