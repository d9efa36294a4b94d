"""Where images come from: the user's folders and zip files, and how their classes are split."""

from arml.tasks.sources.folders import ImageFamily, load_families
from arml.tasks.sources.splits import Split, check_split, read_split, split_classes, write_split

__all__ = [
    "ImageFamily",
    "Split",
    "check_split",
    "load_families",
    "read_split",
    "split_classes",
    "write_split",
]
