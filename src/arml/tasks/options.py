"""Task distributions as data: options that are in a configuration file, and that build tasks."""

import dataclasses
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from arml.core.episodes import TaskDistribution
from arml.core.registry import nearest
from arml.datasets.features import load_features
from arml.datasets.folders import ImageFamily, Progress, load_families
from arml.datasets.prepare import open_store, place
from arml.datasets.starter import STARTER_SIZE, load_starter
from arml.tasks.functions import PRIOR_HIGH, evaluate_family, functions_2d
from arml.tasks.images import device_room
from arml.tasks.splits import EpisodeOptions, Splits, divided, splits_of


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
        """All three parts are the same distribution, with different keys."""
        return splits_of(functions_2d(**dataclasses.asdict(self)))

    @property
    def span(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def reach(self) -> float:
        """Approximately the largest size of a target: the families are monotone in the size of
        their coefficients and inputs, except for waves, whose amplitude is smaller."""
        families, far = np.arange(len(PRIOR_HIGH)), max(abs(self.low), abs(self.high))
        surfaces = jax.vmap(lambda family, c: evaluate_family(family, c, jnp.full((1, 2), far)))
        return float(jnp.abs(surfaces(families, jnp.asarray(PRIOR_HIGH))).max()) + 5 * self.noise

    def check(self) -> None:
        functions_2d(**dataclasses.asdict(self))


@dataclass(frozen=True)
class DataOptions:
    """Tasks that are made of files. `data` is the first option."""

    data: tuple[str, ...] = ()

    def absolute(self) -> "DataOptions":
        """The same options with absolute paths: a run can then be used from any folder."""
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
        """The tasks of a store, whose classes are split already. Pictures that do not fit on the
        device are streamed."""
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
    """Image episodes from the pictures in the package: glyphs, icons and textures."""

    data: tuple[str, ...] = ()
    """Folders or zip files of your own pictures, one further family each."""
    art: bool = False
    """Add each family through the blur and the pencil filter: nine families instead of three."""

    @property
    def size(self) -> int:
        return STARTER_SIZE

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """The tasks of the published split. The user's pictures are split as in `FoldersOptions`;
        `split` has only their split."""
        self.check()
        families, published = load_starter(art=self.art)
        own: list[ImageFamily] = []
        if self.data:
            check = self.check_family
            own = load_families(self.data, size=STARTER_SIZE, check=check, progress=progress)
        # The user's family may have the name of one of the package.
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
        """Load the features and split their classes as those of their pictures: test task i has the
        same pictures as for a method on pictures."""
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
        if self.augment:
            raise ValueError("augment varies pictures, and these are features: leave --augment out")
        super().check()
