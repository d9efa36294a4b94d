"""Features of the package's pictures by the package's model: made once, in the cache folder."""

import hashlib
import os
import tempfile
from pathlib import Path

from arml.datasets.extractor import DEFAULT, Extractor
from arml.datasets.folders import Progress, default_folder
from arml.datasets.vectors import INDEX, STARTER, Pictures, opened, write_features
from arml.results.files import RunError, checksum


def starter_features(progress: Progress | None = None) -> Path:
    """The folder of the features, `$ARML_CACHE/features/starter-KEY`; missing files are made.

    The key is a digest of the model and of the pictures, so another version has another folder.
    Several processes may call it at once.

    **Raises** `ValueError` in one line if features are missing and onnxruntime is not installed, or
    if the folder cannot be written.
    """
    with opened(STARTER) as families:
        folder = _place(families)
        lacking = [place for place in enumerate(families) if not _made(folder, place[1])]
        if not lacking:
            return folder
        extractor = Extractor(DEFAULT)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # First in another folder: another process may be making the same family.
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as making:
                for place, family in lacking:
                    new = Path(making) / family.name
                    shown = {} if progress is None else {"progress": progress}
                    write_features(extractor, family, new, place=place, **shown)
                    _move(new, folder / family.name)
        except (OSError, RunError) as error:
            raise ValueError(
                f"{folder}: expected a cache that can be written, got: {error}; free some space, "
                "or set ARML_CACHE to another folder"
            ) from error
    return folder


def starter_features_ready() -> bool:
    """Whether `starter_features` has nothing to make."""
    with opened(STARTER) as families:
        folder = _place(families)
        return all(_made(folder, family) for family in families)


def _place(families: list[Pictures]) -> Path:
    model = hashlib.sha256(DEFAULT.read_bytes()).hexdigest()
    key = checksum([model, *(family.digest for family in families)])
    return default_folder() / "features" / f"{STARTER}-{key[:16]}"


def _made(folder: Path, family: Pictures) -> bool:
    return (folder / family.name / INDEX).is_file()


def _move(new: Path, folder: Path) -> None:
    try:
        os.replace(new, folder)
    except OSError:
        # The folder exists. It is complete if another process was faster.
        if not (folder / INDEX).is_file():
            raise
