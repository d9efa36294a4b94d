"""Accuracy after so many minutes of `arml train --data`, start, race and compilation included,
against easyfsl's ProtoNet in PyTorch given the same minutes (`torch_protonet.py`).

Both have Conv-4 with 32 filters at 32 px and 5-way 5-shot tasks of 15 queries, and are scored on
200 tasks of the same validation classes and of the same test classes; a race sees the validation
classes, nobody sees the test classes. Each seed divides the classes anew. Ours chooses method and
steps by itself. `results/time_to_accuracy.json` keeps each training as soon as it is made; the same
command makes what is missing (remove the trainings of `ours` from the file to measure a new
version), and several may run side by side, each pinned to cores of its own. `--page` redraws the
table of a page.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
from filelock import FileLock
from scipy.stats import ttest_rel

from arml.experiment.loaded import Run
from arml.report.table import Cell, Column, Line, Table, markdown
from arml.report.tables import replace_block
from arml.results.files import write_text
from arml.results.machine import cores as own_cores
from arml.training.evaluate import evaluate
from common import HERE, machine, write

RESULTS = HERE / "results" / "time_to_accuracy.json"
TASKS = 200
PARTS = ("validation", "test")
OPPONENTS = {"easyfsl": "easyfsl", "squared": "with squared distances"}
"""What stands beside `ours` in the file: the opponent, and trainings of ours by an earlier version,
whose ProtoNet had squared distances in place of those with a pooled covariance."""
UNSEEN = "all, not developed on"
DEVELOPED = {(pictures, seed) for pictures in ("cards", "icons") for seed in ("0", "1", "2")}
"""The pictures and seeds whose validation classes decided what the trainings of ours do."""


def ours(data: Path, minutes: float, seed: int, folder: Path) -> dict[str, Any]:
    """What a user types, and what it comes to."""
    rmtree(folder, ignore_errors=True)
    words = ["train", "--data", str(data), "--minutes", f"{minutes:g}", "--run", str(folder)]
    words += ["--seed", str(seed), "--split-seed", str(seed)]
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
    scores = {
        part: evaluate(run.learner, run.splits, TASKS, split=part, chunk=1, progress=False).values
        for part in PARTS
    }
    return {
        **{part: round(float(np.mean(scores[part])), 4) for part in PARTS},
        "method": run.experiment.recipe,
        "steps": run.step,
        "seconds": round(seconds, 1),
    }


def theirs(data: Path, minutes: float, seed: int, folder: Path, python: str) -> dict[str, Any]:
    """The opponent, on the classes of our run's split."""
    (split,) = json.loads((folder / "split.json").read_text())["families"].values()
    with tempfile.TemporaryDirectory() as place:
        with zipfile.ZipFile(data) as archive:
            archive.extractall(place)
        by_name = {path.name: str(path) for path in Path(place).rglob("*") if path.is_dir()}
        for part in ("train", *PARTS):
            specs = {
                "class_names": split[part],
                "class_roots": [by_name[name] for name in split[part]],
            }
            (Path(place) / f"{part}.json").write_text(json.dumps(specs))
        script = str(HERE / "torch_protonet.py")
        command = [python, script, place, f"{minutes:g}", str(seed)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def table(found: dict[str, Any], opponent: str) -> Table:
    """Each mark: the means over the seeds, and the differences to the opponent with their 95%
    intervals over them, on test and on validation classes. Then the same over the pairs of all
    pictures, and over those that had no part in the choices."""
    columns = (
        "pictures",
        "pairs",
        "`arml train --data`",
        "took",
        OPPONENTS[opponent],
        "took",
        "difference",
        "on validation classes",
    )
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, seeds in found.items():
        pictures, mark = name.split(", ", 1)
        for seed, pair in seeds.items():
            if {"ours", opponent} <= pair.keys():
                unseen = [UNSEEN] if (pictures, seed) not in DEVELOPED else []
                for group in (pictures, "all", *unseen):
                    groups.setdefault(f"{group}, {mark}", []).append(pair)
    lines = []
    for name, pairs in sorted(groups.items(), key=lambda one: natural(one[0])):
        sides = [[pair[side] for pair in pairs] for side in ("ours", opponent)]
        ours_, theirs_ = (
            [
                f"{statistics.mean(one['test'] for one in made):.1%}",
                f"{statistics.mean(one['seconds'] for one in made):.0f} s",
            ]
            for made in sides
        )
        gaps = [
            gap(*([one[part] for one in made] for made in sides)) for part in ("test", PARTS[0])
        ]
        cells = [str(len(pairs)), *ours_, *theirs_, *gaps]
        lines.append(Line(name, tuple(map(Cell, cells))))
    return Table("", tuple(map(Column, columns)), tuple(lines))


def natural(name: str) -> tuple[float, bool, str, str]:
    """By the minutes, then by the pictures, all of them last, then by the cores."""
    pictures, minutes, cores = name.rsplit(", ", 2)
    return float(minutes.split()[0]), pictures.startswith("all"), pictures, cores


def gap(a: list[float], b: list[float]) -> str:
    """The mean difference in points with its 95% interval over the pairs, by Student's t."""
    mean = statistics.mean(a) - statistics.mean(b)
    if len(a) < 3:
        return f"{100 * mean:+.1f}"
    tested = ttest_rel(a, b)
    half = tested.confidence_interval().high - mean
    return f"{100 * mean:+.1f} ± {100 * half:.1f}, p = {tested.pvalue:.2g}"


def results() -> dict[str, Any]:
    """The pairs that the file holds: by mark, then by seed."""
    return json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}


def main() -> None:
    """Make what is missing, one training after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", type=Path, help="zips with one folder for each class")
    parser.add_argument("--minutes", nargs="+", type=float, default=[1, 3, 10])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--torch-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--runs", type=Path, default=Path("runs/time-to-accuracy"))
    parser.add_argument("--page", type=Path, help="redraw the table of docs/results.md and end")
    given = parser.parse_args()
    if given.page:
        text = given.page.read_text(encoding="utf-8")
        for opponent in OPPONENTS:
            name = f"time-to-accuracy:{opponent}"
            markers = (f"<!-- {name}:begin -->", f"<!-- {name}:end -->")
            text = replace_block(text, markdown(table(results(), opponent)), markers)
        write_text(given.page, text)
        return
    before, cores = machine(), own_cores()
    given.runs.mkdir(parents=True, exist_ok=True)
    for data, minutes, seed in (
        (d, m, s) for d in given.data for m in given.minutes for s in given.seeds
    ):
        name = f"{data.stem}, {minutes:g} min, {cores} {'core' if cores == 1 else 'cores'}"
        folder = given.runs / f"{data.stem}-{minutes:g}-{seed}-{cores}"
        sides = {
            "ours": partial(ours, data, minutes, seed, folder),
            "easyfsl": partial(theirs, data, minutes, seed, folder, given.torch_python),
        }
        for side, made in sides.items():
            if side in results().get(name, {}).get(str(seed), {}):
                continue
            row = made()
            print(name, seed, side, row, flush=True)
            with FileLock(given.runs / "results.lock"):
                done = results()
                done.setdefault(name, {}).setdefault(str(seed), {})[side] = row
                write("time_to_accuracy", done, before)


if __name__ == "__main__":
    main()
