"""A run folder belongs to one experiment: the options and the data that it was made with."""

from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from arml.experiment.options import Experiment, absolute, essence, from_json, to_json
from arml.results.files import RunError, plain, read_metrics, truncate_metrics, write_json
from arml.results.folder import FORMAT, read_config
from arml.tasks.options import Splits
from arml.training import checkpoint
from arml.training.provenance import provenance

S = TypeVar("S")
OWN = ("checkpoints", "tensorboard", "explain", "growing")
"""The folders in a run folder. The last one holds the stages of a learner that grows."""


def differences(old: object, new: object, name: str = "") -> list[str]:
    """`name old -> new` for each value that differs between two nested dictionaries."""
    if isinstance(old, dict) and isinstance(new, dict):
        rows = []
        for key in sorted({*old, *new}):
            path = f"{name}.{key}" if name else key
            rows += differences(old.get(key), new.get(key), path)
        return rows
    return [] if old == new else [f"{name} {old!r} -> {new!r}"]


def check_place(folder: Path) -> None:
    """Raise `RunError` for a path that cannot be a run folder."""
    whole = folder.resolve() == Path(folder.resolve().anchor)
    # An empty name means the current folder.
    if whole or (folder == Path() and not (folder / "config.json").is_file()):
        raise RunError(
            f"expected a folder of the run's own, got {str(folder)!r}: name a new folder, as in "
            "--run runs/mine"
        )
    if folder.exists() and not folder.is_dir():
        raise RunError(f"expected a folder for the run, got the file {folder}: name another")
    if folder.is_dir() and not (folder / "config.json").exists():
        # Else checkpoints would lie among folders of pictures, as one more class.
        for path in sorted(folder.iterdir()):
            if path.is_dir() and path.name not in OWN:
                raise RunError(
                    f"expected a new folder for the run, got {folder}, which holds other folders, "
                    f"such as {path.name}: name another"
                )


def take_up(experiment: Experiment, folder: Path, like: S) -> tuple[int, S] | None:
    """The step and the state of the newest checkpoint that can be read; later metrics are removed.
    None if no checkpoint was ever saved in the folder.

    **Raises** `RunError` if the checkpoints are lost.
    """
    path = folder / "metrics.jsonl"
    found = checkpoint.restore_newest(folder / "checkpoints", like)
    if found is None:
        steps = [record["step"] for record in read_metrics(path)]
        # A process that was killed while it saved the first checkpoint leaves metrics up to there.
        first = -(-experiment.checkpoint_every // experiment.interval) * experiment.interval
        if max(steps, default=0) > first:
            raise RunError(
                f"{folder} holds the metrics of a run, but its checkpoints are gone: restore "
                "them, or delete the folder to start anew"
            )
    truncate_metrics(path, found[0] if found else 0)
    return found


def check_claim(experiment: Experiment, folder: Path) -> None:
    """Raise `RunError` for a folder that holds a run with other options, before data are read."""
    path = folder / "config.json"
    if not path.exists():
        if checkpoint.latest(folder / "checkpoints") is not None:
            raise RunError(
                f"{folder} has checkpoints, but no config.json that names their run: restore "
                "the file, or train in a new folder"
            )
        return
    # Compared as options and not as text: an option that this version added has its default.
    old = essence(from_json(read_config(folder).get("experiment"), str(path)))
    _refuse(folder, differences(plain(old), plain(essence(absolute(experiment)))))


def claim(experiment: Experiment, splits: Splits, folder: Path, *, devices: int = 1) -> None:
    """Write the experiment into the folder, or check that its data have not changed."""
    path = folder / "config.json"
    if path.exists():
        _refuse(folder, differences(read_config(folder).get("sources"), splits.sources, "data"))
        return
    config = {
        "format": FORMAT,
        "recipe": experiment.recipe,
        "experiment": to_json(experiment),
        "sources": splits.sources,
        # So that the learner can be used without the data.
        "problem": asdict(splits.train.problem),
        "families": splits.train.families,
        "inputs": splits.inputs,
        # For the reader of a result: a run can be resumed if these differ.
        "made": provenance(devices),
    }
    write_json(path, config)


def _refuse(folder: Path, rows: list[str]) -> None:
    if rows:
        # The recipe says most, and another algorithm differs in many options.
        rows = sorted(rows, key=lambda row: not row.startswith("recipe "))
        more = f"; and {len(rows) - 8} more" if len(rows) > 8 else ""
        raise RunError(
            f"{folder} holds another run: {'; '.join(rows[:8])}{more}. Give the options it was "
            "made with to resume it, or another folder to start anew"
        )
