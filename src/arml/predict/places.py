"""Where learners and predictors may be written. It loads no JAX: commands check it first."""

from pathlib import Path

from arml.results.files import RunError, read_json

CONFIG = "config.json"
WHAT = "arml learner"
PHOTOGRAPHS = "arml predictor of photographs"


def check_free(folder: Path, *, predictor: bool) -> None:
    """Raise `RunError` unless a learner, or a predictor, can be written there: a new or empty
    folder, or one that holds another of its kind."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, and no new or empty folder: name another")
    if folder.is_dir() and any(folder.iterdir()):
        known = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
        photographs = known.get("what") == PHOTOGRAPHS
        known_kind = photographs or known.get("what") == WHAT
        if not known_kind or (photographs or known.get("task") is not None) != predictor:
            raise RunError(f"{folder} is not empty: name another folder")
