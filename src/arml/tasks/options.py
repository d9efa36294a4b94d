"""Task distributions as data: options that a configuration file holds, and that build tasks."""

import contextlib
import dataclasses
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from msgspec import Meta

from arml.core.checks import MOST, Options, Size
from arml.core.episodes import Problem, TaskDistribution, Tasks
from arml.core.own_tasks import as_tasks, own_of
from arml.core.registry import nearest
from arml.datasets.arrays import family_of
from arml.datasets.features import load_features
from arml.datasets.folders import (
    PARTS,
    ImageFamily,
    Parts,
    Progress,
    TooFewError,
    family_name,
    load_families,
)
from arml.datasets.prepare import open_store, place
from arml.datasets.splits import check_split, cut, part_sizes, read_split, write_split
from arml.datasets.starter import SIZE, load_starter
from arml.plugins.identity import module_name
from arml.plugins.loading import load_plugins
from arml.plugins.sources import Source, source_of, warn_of_change
from arml.results.files import Json, JsonView, RunError, checksum, read_json
from arml.tasks.functions import PRIOR_HIGH, evaluate_family, functions_2d
from arml.tasks.images import (
    Augmented,
    MixedShots,
    device_room,
    image_episodes,
    mirror_keeps_classes,
)


class Splits(NamedTuple):
    """The tasks of the three splits, and the identity of their data.

        splits = arml.Splits(tasks, tasks, test=Sines(highest=4.0))
        x, y = jax.random.normal(jax.random.key(0), (90, 8)), jnp.arange(90) // 6
        splits = arml.Splits.of_classes((x, y), ways=3, shots=1, queries=5)

    `arml.fit`, `arml.evaluate` and `arml.build` take them in the place of tasks: a training gets
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
        """Classification tasks of one's own classes, which are split into 64% for training, 16% for
        validation and 20% for test, but at least `ways` in each.

            splits = arml.Splits.of_classes(torchvision.datasets.CIFAR100("data"), shots=5)
            splits = arml.Splits.of_classes({"birds": "birds/", "cars": "cars.zip"}, size=84)

        **Arguments**

        - `data`: a pair `(x, y)` of arrays `[n, *features]` and `[n]`, the path of a folder or zip
          with a folder of pictures for each class, or a data set whose items are pairs of an input
          and a label (`arml.datasets.arrays`); or several of these by the name of their family.
        - `ways`, `shots`, `queries`: classes of a task, support and query examples of each.
        - `size`: pictures become `size x size` pixels; needed for folders.
        - `seed`: seeds the split; it does not depend on the order of the classes.
        - `parts`: the labels in `train`, `validation` and `test`, if they are split already.

        **Raises** `ValueError` in one line for data with too few classes or examples.
        """
        name = family_name(Path(data)) if isinstance(data, str | Path) else "own"
        several = data if isinstance(data, Mapping) else {name: data}
        families = [family_of(name, one, size=size) for name, one in several.items()]
        if parts is not None:
            split = {part: [*map(str, labels)] for part, labels in parts.items()}
            families = [
                replace(f, split=split, digest=checksum([f.digest, split])) for f in families
            ]
        options = EpisodeOptions(shots, ways, queries=queries)
        options.check()
        with tempfile.TemporaryDirectory() as folder:
            return divided(options, families, Path(folder) / "split.json", seed=seed)


@runtime_checkable
class TasksOptions(Protocol):
    """The options of one kind of tasks: a frozen dataclass with these two methods.

    It may also have `absolute()`, the same options with absolute paths; `needs`, the options that a
    command line must have besides the name of a recipe; and `span` and `reach`, the range of the
    inputs and the largest size of a target, outside of which a learner knows nothing.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def check(self) -> None:
        """Raise `ValueError` in one line if an option is invalid."""

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """The tasks. The file `split` states which classes are for training, validation and test;
        it is written if there is none."""
        ...


TasksLike = Tasks | Splits | TasksOptions
"""Everything that training and scoring accept as tasks."""


def splits_of(tasks: TasksLike) -> Splits:
    """Task distributions of the three splits, from `Splits`, from the options of a recipe's tasks,
    or from one distribution, which serves all three splits with different keys.

    **Raises** `ValueError` in one line for another object.
    """
    if isinstance(tasks, Splits):
        train, validation, test = map(as_tasks, tasks[:3])
        return tasks._replace(train=train, validation=validation, test=test)
    if isinstance(tasks, TasksOptions):
        with tempfile.TemporaryDirectory() as folder:
            return splits_of(tasks.build(Path(folder) / "split.json"))
    one = as_tasks(tasks)
    return Splits(one, one, one, {})


@dataclass(frozen=True)
class FunctionsOptions:
    """The six families of 2-D functions."""

    shots: int = 10
    """Support points of a task."""
    queries: int = 10
    """Query points of a task."""
    low: float = 0.0
    """Inputs are drawn from U[low, high]; the authors' code has -5."""
    high: float = 5.0
    """The largest input."""
    noise: float = 0.3
    """Standard deviation of the noise on every target."""
    flat: bool = True
    """Put the points of families 1 to 4 in the plane y = 1."""

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """All splits are the same distribution, with different keys."""
        return splits_of(functions_2d(**dataclasses.asdict(self)))

    @property
    def span(self) -> tuple[float, float]:
        """The range of both inputs."""
        return self.low, self.high

    @property
    def reach(self) -> float:
        """About the largest size of a target: the families are monotone in the size of their
        coefficients and inputs, except for waves, whose amplitude is smaller."""
        families, far = np.arange(len(PRIOR_HIGH)), max(abs(self.low), abs(self.high))
        surfaces = jax.vmap(lambda family, c: evaluate_family(family, c, jnp.full((1, 2), far)))
        return float(jnp.abs(surfaces(families, jnp.asarray(PRIOR_HIGH))).max()) + 5 * self.noise

    def check(self) -> None:
        functions_2d(**dataclasses.asdict(self))


NOT_OF_TESTS = ("train_ways", "mixed_shots", "augment", "data", "split_seed", "only")
"""Options that change no test task, or whose effect is in the digests of the data."""


@dataclass(frozen=True)
class EpisodeOptions(Options):
    """The shape of a classification task."""

    shots: Size = 1
    """Support examples of each class."""
    ways: Annotated[int, Meta(ge=2, le=MOST)] = 5
    """Classes of a task."""
    train_ways: int = 0
    """Classes of a training task, if it has more than a test task (ProtoNet); 0 for `ways`."""
    queries: Size = 15
    """Query examples of each class."""
    mixed_shots: bool = False
    """Train on tasks of fewer shots too: each divisor of `shots`, in equal shares."""
    augment: bool = False
    """Train on pictures that are shifted at random, and mirrored and relit where a mirror does not
    change the classes."""

    def ways_of(self, part: str) -> int:
        """Classes of a task of that part: `train`, `validation` or `test`."""
        return (part == "train" and self.train_ways) or self.ways

    def episodes(self, families: Sequence[ImageFamily], part: str, **how: Any) -> TaskDistribution:
        """The tasks over one part of the families' classes; see `image_episodes`.

        **Raises** `TooFewError` for too few classes or images.
        """
        for family in families:
            assert family.split is not None
            self._check_part(family.name, part, family.sizes, family.split[part])
        shape: Json = {"ways": self.ways_of(part), "shots": self.shots, "queries": self.queries}
        tasks: TaskDistribution = image_episodes(families, part, **shape, **how)
        if part != "train":
            return tasks
        if self.augment:
            mirrored = [mirror_keeps_classes(f, (f.split or {})[part]) for f in families]
            tasks = Augmented(tasks.families, tasks.problem, tasks, jnp.asarray(mirrored))
        return self.with_fewer_shots(tasks)

    def with_fewer_shots(self, train: TaskDistribution) -> TaskDistribution:
        """Training tasks, of fewer shots too with `mixed_shots`."""
        return MixedShots(train.families, train.problem, train) if self.mixed_shots else train

    def check_family(
        self, family: str, counts: Mapping[str, int], split: Parts | None = None
    ) -> None:
        """Raise `TooFewError` for a family with too few classes, or too few images of a class.
        `counts` are the images of each class. If there is no `split`, it will be drawn."""
        split = split or cut([*counts], part_sizes(len(counts), least=self.ways))
        for part in PARTS:
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
                    f"{family}: expected at least {each} images of each class ({self.shots} shots "
                    f"and {self.queries} queries), got {counts[name]} in {name!r}; lower the shots "
                    "or queries, or add images"
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
        """The identity of the test tasks: these options, the digests of the data, and the split of
        the classes if it is in a file.

        The options of training are not part of it, nor are the places of the data and the seed of
        the split, because the digests and the file state their effect. The order of the families
        is, because a task draws its family by number.
        """
        drawn = {"kind": type(self).__name__, **dataclasses.asdict(self)}
        kept = {k: v for k, v in drawn.items() if k not in NOT_OF_TESTS}
        return json.dumps([kept, list(data.items()), parts], sort_keys=True)


@dataclass(frozen=True)
class DataOptions:
    """Tasks that are made of files. `data` comes first among the options."""

    data: tuple[str, ...] = ()

    def absolute(self) -> "DataOptions":
        """The same options with absolute paths, so that a run can be used from any folder."""
        return replace(self, data=tuple(os.path.abspath(os.path.expanduser(d)) for d in self.data))


@dataclass(frozen=True)
class FoldersOptions(EpisodeOptions, DataOptions):
    """Image episodes from folders or zips with a folder for each class; each source is a family."""

    needs: ClassVar[str] = "--data FOLDER_OR_ZIP..."

    data: tuple[str, ...] = ()
    """Folders or zip files, one family each."""
    size: int = 28
    """Images become size x size pixels."""
    split_seed: int = 0
    """Seeds the split of each family's classes into 64% train, 16% validation and 20% test, but at
    least as many in each as a task has."""

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """Load the data and split its classes as the file `split` says; it is written if there is
        none."""
        self.check()
        check = self.check_family
        families = load_families(self.data, size=self.size, check=check, progress=progress)
        return divided(self, families, split, seed=self.split_seed)

    def check(self) -> None:
        if not self.data:
            raise ValueError(
                "expected a folder or zip of images with one folder for each class, got none: "
                "give --data FOLDER_OR_ZIP..."
            )
        if not 16 <= self.size <= 1024:
            raise ValueError(f"size must be from 16 to 1024 px, got {self.size}: change --size")
        super().check()


@dataclass(frozen=True)
class StoreOptions(EpisodeOptions):
    """Image episodes from a data set that `arml data prepare` made."""

    store: str = ""
    """Name of the data set, or folder of its store."""
    size: int = 84
    """Pixels a side that the store must have."""
    only: tuple[str, ...] = ()
    """Families of the training and validation tasks; all if not given. Test tasks have all."""

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """The tasks of a store, whose classes are split already. The pictures are put on the device
        if they fit there; otherwise they are streamed."""
        self.check()
        store = open_store(place(self.store))
        size, families = store.index["size"], store.index["families"]
        if size != self.size:
            raise ValueError(
                f"{store.folder}: expected pictures of {self.size} px, got {size}; give "
                f"--size {size}, or prepare the data set again"
            )
        digests, disk = store.digests(), store.bytes > device_room()

        if unknown := [name for name in self.only if name not in families]:
            raise ValueError(f"unknown family {unknown[0]!r}{nearest(unknown[0], families)}")

        def tasks(part: str) -> TaskDistribution:
            only = (part != "test" and self.only) or families
            some = [family for family in store.part(part) if family.name in only]
            stated = self.stated({name: digests[name] for name in digests if name in only})
            how = {"stated": stated, "disk": disk, "copies": store.copies}
            return self.episodes(some, part, **how)

        return Splits(tasks("train"), tasks("validation"), tasks("test"), digests)

    def check(self) -> None:
        if not self.store:
            raise ValueError(
                "expected a prepared data set, got none: give --store NAME, see `arml data list`"
            )
        super().check()


@dataclass(frozen=True)
class StarterOptions(EpisodeOptions, DataOptions):
    """Image episodes from the pictures that the package carries: glyphs, icons and textures."""

    data: tuple[str, ...] = ()
    """Folders or zip files of your own pictures, one further family each."""
    art: bool = False
    """Add each family through the blur and the pencil filter: nine families, not three."""

    @property
    def size(self) -> int:
        """Pixels a side of an image."""
        return SIZE

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """The tasks of the published split. A user's own pictures are split as in `FoldersOptions`,
        and `split` is written for them only."""
        self.check()
        families, published = load_starter(art=self.art)
        own: list[ImageFamily] = []
        if self.data:
            check = self.check_family
            own = load_families(self.data, size=SIZE, check=check, progress=progress)
        # A user's own family of the name glyphs is not the package's.
        own = [replace(f, name=f"{f.name} (own)") if f.name in published else f for f in own]
        return divided(self, [*families, *own], split)


@dataclass(frozen=True)
class VectorsOptions(EpisodeOptions, DataOptions):
    """Episodes of frozen features that `arml features` made of pictures."""

    needs: ClassVar[str] = "--data FEATURES..."

    data: tuple[str, ...] = ()
    """Folders that `arml features` made."""
    split_seed: int = 0
    """Seeds the split of each family's classes, if no split is published with them."""

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """Load the features and split their classes as those of their pictures are split: test task
        number i has the same pictures as for a method on the pictures themselves."""
        self.check()
        families, maker = load_features(self.data)
        splits = divided(self, families, split, seed=self.split_seed, size=maker["size"])
        return splits._replace(inputs=maker)

    def check(self) -> None:
        if not self.data:
            raise ValueError(
                "expected at least one folder of features, got none: make one with `arml features` "
                "and give --data FOLDER..."
            )
        super().check()


def divided(
    options: EpisodeOptions,
    families: Sequence[ImageFamily],
    file: Path,
    *,
    seed: int = 0,
    size: int | None = None,
) -> Splits:
    """The tasks of families, some of which have a published or stated split. The split of the
    others is read from `file`; if there is no such file, their classes are split and the file is
    written.

    `size` is that of `ImageEpisodes`.
    """
    own = [family for family in families if family.split is None]
    if own and not file.exists():
        for family in families:  # so that invalid options leave no split behind for the next run
            options.check_family(family.name, family.sizes, family.split)
        write_split(file, own, seed=seed, least=options.ways)
    drawn = read_split(file, seed=seed) if own else {}
    families = [replace(f, split=drawn.get(f.name)) if f in own else f for f in families]
    check_split(families)
    sources = {family.name: family.digest for family in families}
    stated = options.stated(sources, read_json(file) if own else None)
    train, validation, test = (
        options.episodes(families, part, stated=stated, size=size) for part in PARTS
    )
    return Splits(train, validation, test, sources)


# --- tasks of a class that a user defined in a script

_MOST = 10_000
"""The most numbers of an array in a run's configuration."""


@dataclass(frozen=True)
class OwnOptions:
    """Tasks of a user's own class: the place of its definition, and its attributes."""

    module: str = ""
    """The module; for a script, the name of its file."""
    name: str = ""
    """The class."""
    state: str = "{}"
    """The attributes, as JSON."""
    file: str = ""
    """The name of the file that defines the class, or of its installed package."""
    version: str = ""
    """A digest of that file, or the version of the package."""

    needs: ClassVar[str] = "--plugin FILE"

    @classmethod
    def of(cls, tasks: Tasks) -> "OwnOptions":
        """The options of a task distribution, or of any object that draws tasks.

        **Raises** `ValueError` in one line for a class that is defined inside a function, and for
        attributes that cannot be written as JSON.
        """
        as_tasks(tasks)
        kind = type(tasks)
        if "<locals>" in kind.__qualname__:
            raise ValueError(
                f"expected tasks of a class at the top of a file, got {kind.__qualname__}: move "
                "it there, so that the run folder can be opened later"
            )
        fields = getattr(kind, "__dataclass_fields__", None)
        names = getattr(tasks, "__dict__", {}) if fields is None else fields
        state = {n: _encoded(getattr(tasks, n), f"{kind.__name__}.{n}") for n in names}
        source = source_of(kind)
        # A notebook has neither file nor version.
        held_by = source if source is not None and source.version else ("", "")
        return cls(module_name(kind.__module__), kind.__qualname__, json.dumps(state), *held_by)

    def check(self) -> None:
        """Raise `ValueError` if there is no class."""
        if not self.name:
            raise ValueError("expected tasks, got none: give arml.run(..., tasks=DISTRIBUTION)")
        try:
            _attributes(self.state)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise ValueError(
                f"expected the attributes of tasks as JSON, got others ({error}): restore the file"
            ) from error

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """All splits are the same distribution, with different keys.

        **Raises** `RunError` if the class is not known here.
        """
        kind = self._class()
        warn_of_change(source_of(kind), self.version, f"the tasks {self.name}")
        tasks = object.__new__(kind)
        for name, value in _attributes(self.state).items():
            object.__setattr__(tasks, name, value)
        whole = as_tasks(tasks)
        return Splits(whole, whole, whole, {})

    def _class(self) -> Any:
        load_plugins()
        # The first one: a script that is run has the same name as when it is imported.
        named = (m for name, m in list(sys.modules.items()) if module_name(name) == self.module)
        found: Any = next(named, None)
        # No other module is imported: the configuration may be a stranger's.
        if found is None and self.module.startswith("arml."):
            with contextlib.suppress(ImportError):
                found = importlib.import_module(self.module)
        for part in self.name.split("."):
            found = getattr(found, part, None)
        if not (isinstance(found, type) and callable(getattr(found, "sample", None))):
            file = self.file or self.module
            remedy = Source(self.file or "FILE.py", self.version).remedy
            if "." in self.module:
                remedy = f"import {self.module} first, or give --plugin FILE of a file that does"
            raise RunError(
                f"the tasks of this run are of the class {self.name} of {file}, which is not known "
                f"here: {remedy}"
            )
        return found


def _encoded(value: object, name: str) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Problem():
            return {"problem": dataclasses.asdict(value)}
        case tuple():
            return {"tuple": [_encoded(item, name) for item in value]}
        case list():
            return [_encoded(item, name) for item in value]
        case Mapping() if all(isinstance(key, str) for key in value):
            return {"mapping": {key: _encoded(item, name) for key, item in value.items()}}
        case np.ndarray() | jax.Array() if value.size <= _MOST and value.dtype.kind in "biuf":
            kind = "jax" if isinstance(value, jax.Array) else "numpy"
            return {kind: np.asarray(value).tolist(), "dtype": str(value.dtype)}
    raise ValueError(
        f"{name}: expected a value that a run's configuration can hold (numbers, texts, lists, "
        f"arrays of at most {_MOST:,} numbers), got {type(value).__name__}: make it from such "
        "values, or register options with arml.register"
    )


def _attributes(state: str) -> dict[str, Any]:
    held = json.loads(state)
    if not isinstance(held, dict):
        raise ValueError(f"expected an object, got {type(held).__name__}")
    return {name: _decoded(value) for name, value in held.items()}


def _decoded(value: object) -> Any:
    match value:
        case {"problem": dict(held)}:
            return Problem(**{**held, "features": tuple(held["features"])})
        case {"tuple": list(items)}:
            return tuple(map(_decoded, items))
        case {"mapping": dict(items)}:
            return {key: _decoded(item) for key, item in items.items()}
        case {"jax": items, "dtype": dtype}:
            return jnp.asarray(items, dtype)
        case {"numpy": items, "dtype": dtype}:
            return np.asarray(items, dtype)
        case list():
            return [_decoded(item) for item in value]
    return value
