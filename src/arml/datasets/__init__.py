"""Where images come from: the user's folders and zip files, and how their classes are split."""

from arml.datasets.folders import ImageFamily, load_families
from arml.datasets.splits import Split, check_split, read_split, split_classes, write_split

__all__ = [
    "ImageFamily",
    "Split",
    "check_split",
    "load_families",
    "read_split",
    "split_classes",
    "write_split",
]
