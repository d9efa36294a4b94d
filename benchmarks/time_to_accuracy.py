"""Validation accuracy after so many minutes of `arml train --data`, start, race and compilation
included, against easyfsl's ProtoNet in PyTorch given the same minutes (`torch_protonet.py`).

Both have Conv-4 with 32 filters at 32 px and 5-way 5-shot tasks of 15 queries, and are scored on
200 tasks of the same validation classes. Ours chooses method and steps by itself. What is done
stands in `results/time_to_accuracy.json` after each training; the same command makes what is
missing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from arml.experiment.loaded import Run
from arml.training.evaluate import evaluate
from common import HERE, machine, write

RESULTS = HERE / "results" / "time_to_accuracy.json"
TASKS = 200


def interval(scores: Any) -> dict[str, Any]:
    """The mean with its 95% interval over tasks."""
    values = np.asarray(scores)
    half = 1.96 * values.std(ddof=1) / len(values) ** 0.5
    return {"accuracy": round(float(values.mean()), 4), "ci95": round(float(half), 4)}


def ours(data: Path, minutes: float, folder: Path) -> dict[str, Any]:
    """What a user types, and what it comes to."""
    shutil.rmtree(folder, ignore_errors=True)
    words = ["train", "--data", str(data), "--minutes", f"{minutes:g}", "--run", str(folder)]
    begun = time.monotonic()
    # A cache of compiled programs of its own: a newcomer has none.
    with tempfile.TemporaryDirectory() as cache:
        subprocess.run(
            [sys.executable, "-m", "arml", *words],
            check=True,
            env={**os.environ, "ARML_CACHE": cache, "JAX_COMPILATION_CACHE_DIR": f"{cache}/jax"},
            stdout=subprocess.DEVNULL,
        )
    seconds = time.monotonic() - begun
    run = Run(folder)
    found = evaluate(run.learner, run.splits, TASKS, split="validation", chunk=1, progress=False)
    return {
        **interval(found.values),
        "method": run.experiment.recipe,
        "steps": run.step,
        "seconds": round(seconds, 1),
    }


def theirs(data: Path, minutes: float, folder: Path, python: str) -> dict[str, Any]:
    """The opponent, on the classes of our run's split."""
    (split,) = json.loads((folder / "split.json").read_text())["families"].values()
    with tempfile.TemporaryDirectory() as place:
        with zipfile.ZipFile(data) as archive:
            archive.extractall(place)
        by_name = {path.name: str(path) for path in Path(place).rglob("*") if path.is_dir()}
        for part in ("train", "validation"):
            specs = {
                "class_names": split[part],
                "class_roots": [by_name[name] for name in split[part]],
            }
            (Path(place) / f"{part}.json").write_text(json.dumps(specs))
        script = str(HERE / "torch_protonet.py")
        done = subprocess.run(
            [python, script, place, f"{minutes:g}"], check=True, capture_output=True, text=True
        )
    found = json.loads(done.stdout.splitlines()[-1])
    scores = found.pop("scores")
    return {**interval(scores), **found, "seconds": round(found["seconds"], 1)}


def main() -> None:
    """Make what is missing, one training after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", type=Path, help="zips with one folder for each class")
    parser.add_argument("--minutes", nargs="+", type=float, default=[1, 3, 10])
    parser.add_argument("--torch-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--runs", type=Path, default=Path("runs/time-to-accuracy"))
    given = parser.parse_args()
    before = machine()
    done = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    for data in given.data:
        for minutes in given.minutes:
            name = f"{data.stem}, {minutes:g} min"
            if name in done:
                continue
            folder = given.runs / f"{data.stem}-{minutes:g}"
            row = {"ours": ours(data, minutes, folder)}
            row["easyfsl"] = theirs(data, minutes, folder, given.torch_python)
            done[name] = row
            print(name, row, flush=True)
            write("time_to_accuracy", done, before)


if __name__ == "__main__":
    main()
