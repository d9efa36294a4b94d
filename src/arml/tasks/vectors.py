"""Episodes of frozen features: any method on vectors that a fixed model made of pictures."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from arml.datasets.folders import Progress
from arml.datasets.starter_features import starter_features
from arml.datasets.vectors import STARTER, load_features
from arml.tasks.options import Splits, StarterOptions, divided
from arml.tasks.shape import DataOptions, EpisodeOptions, absolute_path


@dataclass(frozen=True)
class VectorsOptions(EpisodeOptions, DataOptions):
    """Episodes of frozen features that `arml features` made of pictures."""

    needs: ClassVar[str] = "--data FEATURES..."

    data: tuple[str, ...] = ()
    """Folders that `arml features` made; or the word starter for features of the pictures in the
    package by the package's model (./starter for a folder of that name)."""
    split_seed: int = 0
    """Seeds the split of each family's classes, if no split is published with them."""

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """Load the features and split their classes: as published, or as the classes of their
        pictures are split.

        Test task number i has the same pictures as for a method on the pictures themselves.
        """
        self.check()
        places = [starter_features(progress) if d == STARTER else d for d in self.data]
        families, parts, maker, pictures = load_features(places)
        for family in families:
            if family.name not in parts and not split.exists():
                self.check_classes(family.name, len(family.classes))
        # Pictures whose split is published are the package's own: the same tasks as on pixels.
        pixels = StarterOptions(shots=self.shots, ways=self.ways, queries=self.queries)
        splits = divided(
            self,
            families,
            split,
            seed=self.split_seed,
            published=parts,
            stated=pixels.stated(pictures),
            size=maker["size"],
        )
        return splits._replace(inputs=maker, pictures=pictures)

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
