"""Episodes of frozen features: any method on vectors that a fixed model made of pictures."""

from dataclasses import dataclass
from pathlib import Path

from arml.core.episodes import TaskDistribution
from arml.datasets.splits import read_split, split_classes, write_split
from arml.datasets.starter_features import starter_features
from arml.datasets.vectors import STARTER, load_features
from arml.tasks.images import image_episodes
from arml.tasks.options import Progress, Splits, check_classes, check_episodes, ways_of


@dataclass(frozen=True)
class VectorsOptions:
    """Episodes of frozen features that `arml features` made of pictures."""

    data: tuple[str, ...] = ()
    """Folders that `arml features` made; or the word starter for those of the pictures in the
    package, by the model that ships (./starter for a folder of that name)."""
    shots: int = 1
    """Support examples a class."""
    ways: int = 5
    """Classes of a task."""
    train_ways: int = 0
    """Classes of a training task, where it has more (ProtoNet); 0 for as many as ways."""
    queries: int = 15
    """Query examples a class."""
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
                check_classes(self, family.name, len(family.classes))
                parts[family.name] = split_classes(family, seed=self.split_seed, least=self.ways)

        def episodes(part: str) -> TaskDistribution:
            return image_episodes(
                families,
                parts,
                part=part,
                ways=ways_of(self, part),
                shots=self.shots,
                queries=self.queries,
            )

        train, validation, test = (episodes(part) for part in ("train", "validation", "test"))
        if own and not known:
            write_split(split, own, seed=self.split_seed, least=self.ways)
        sources = {family.name: family.digest for family in families}
        return Splits(train, validation, test, sources, maker, pictures)

    def check(self) -> None:
        """Refuse options that mean nothing, before any data is read."""
        if not self.data:
            raise ValueError(
                "expected at least one folder of features, got none: make one with `arml features` "
                "and give --data FOLDER..."
            )
        check_episodes(self)
