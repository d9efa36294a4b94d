"""Episodes of frozen features: any method on vectors that a fixed model made of pictures."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from arml.datasets.splits import read_split, split_classes, write_split
from arml.datasets.starter_features import starter_features
from arml.datasets.vectors import STARTER, load_features
from arml.results.files import read_json
from arml.tasks.options import (
    Progress,
    Splits,
    StarterOptions,
    absolute_path,
    stating,
)
from arml.tasks.shape import DataOptions, EpisodeOptions


@dataclass(frozen=True)
class VectorsOptions(EpisodeOptions, DataOptions):
    """Episodes of frozen features that `arml features` made of pictures."""

    needs: ClassVar[str] = "--data FEATURES..."

    data: tuple[str, ...] = ()
    """Folders that `arml features` made; or the word starter for those of the pictures in the
    package, by the model that ships (./starter for a folder of that name)."""
    split_seed: int = 0
    """Seeds the split of each family's classes, where none is published with them."""

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """Load the features and split their classes: as published, or as their pictures are.

        Test task number i is of the same pictures as that of a method on the pictures themselves.
        """
        self.check()
        places = [starter_features(progress) if d == STARTER else d for d in self.data]
        families, parts, maker, pictures = load_features(places)
        own = [family for family in families if family.name not in parts]
        known = bool(own) and split.exists()
        if known:
            parts |= read_split(split, own, seed=self.split_seed)
        else:
            for family in own:
                self.check_classes(family.name, len(family.classes))
                parts[family.name] = split_classes(family, seed=self.split_seed, least=self.ways)
        every = self.episodes(families, parts, size=maker["size"])
        if own and not known:
            write_split(split, own, seed=self.split_seed, least=self.ways)
        sources = {family.name: family.digest for family in families}
        stated = self._identity(sources, pictures or {}, split)
        return stating(self, every, stated, sources, maker, pictures)

    def _identity(self, sources: dict[str, str], pictures: dict[str, str], split: Path) -> str:
        if split.exists():
            return self.stated(sources, read_json(split))
        # Pictures whose split is published are the package's own: the same tasks as on pixels.
        own = StarterOptions(shots=self.shots, ways=self.ways, queries=self.queries)
        return own.stated(pictures)

    def absolute(self) -> "VectorsOptions":
        # The word for the package's own pictures is no path.
        return replace(self, data=tuple(d if d == STARTER else absolute_path(d) for d in self.data))

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid, before any data is read."""
        if not self.data:
            raise ValueError(
                "expected at least one folder of features, got none: make one with `arml features` "
                "and give --data FOLDER..."
            )
        super().check()
