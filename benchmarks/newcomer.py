"""A newcomer's stopwatch: from the first command to a file that predicts without JAX.

Each step is a process of its own, as somebody types it. `seconds` are by the clock, `cpu` is what
the processor worked: on a busy machine the first is much longer. Results go to
`results/newcomer.json`. `--install` also installs into a fresh environment, `--steps` trains a
learner of one's own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2

from arml.datasets.starter import load_starter
from arml.training.provenance import provenance

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "newcomer.json"
LOOP = """
import json, sys, time, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
picture = numpy.zeros((1, 32, 32, 3), numpy.uint8)
seconds = []
for _ in range(200):
    begun = time.perf_counter()
    session.run(None, {"pictures": picture})
    seconds.append(time.perf_counter() - begun)
print(json.dumps(float(numpy.median(seconds))))
"""


def draw(folder: Path) -> None:
    """Three classes of icons, five pictures each to learn from, and five more to predict."""
    families, split = load_starter()
    icons = next(family for family in families if family.name == "icons")
    for name in split["icons"]["test"][:3]:
        first = icons.first[icons.classes.index(name)]
        for i in range(10):
            path = folder / ("own" if i < 5 else "more") / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), icons.images[first + i])


def timed(name: str, *command: str, cwd: Path) -> dict[str, object]:
    """Run a command; what it took, and its last line."""
    before, begun = os.times(), time.perf_counter()
    environment = {**os.environ, "ARML_CACHE": str(cwd / "cache")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    seconds, after = time.perf_counter() - begun, os.times()
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    row = {"step": name, "seconds": round(seconds, 1), "cpu": round(cpu, 1)}
    print(row, flush=True)
    return {**row, "said": done.stdout.strip().rpartition("\n")[2]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    arml = [sys.executable, "-m", "arml"]
    adapt = [*arml, "adapt", "starter", "--support", "own", "--query", "more"]
    with tempfile.TemporaryDirectory() as place:
        here, rows = Path(place), []
        draw(here)
        if options.install:
            rows.append(timed("make an environment", sys.executable, "-m", "venv", "v", cwd=here))
            rows.append(timed("install", "v/bin/pip", "install", "-q", str(ROOT), cwd=here))
        rows.append(timed("first answer", *adapt, "--no-trust", cwd=here))
        rows.append(timed("the same again", *adapt, "--no-trust", "--save", "kept", cwd=here))
        rows.append(timed("with the check by leave-one-out, first", *adapt, cwd=here))
        rows.append(timed("the same again", *adapt, cwd=here))
        rows.append(timed("predict with what was kept", *arml, "predict", "kept", "more", cwd=here))
        export = [*arml, "export", "kept", "--onnx", "file.onnx"]
        rows.append(timed("export as ONNX", *export, cwd=here))
        loop = timed(
            "200 pictures with onnxruntime", sys.executable, "-c", LOOP, "file.onnx", cwd=here
        )
        rows.append({**loop, "each_ms": round(1000 * json.loads(str(loop["said"])), 2)})
        if options.steps:
            train = [*arml, "train", "--data", "starter", "--steps", str(options.steps)]
            rows.append(timed(f"{options.steps} steps of training", *train, "--run", "r", cwd=here))
    for row in rows:
        row.pop("said")
    content = {"rows": rows, "load": os.getloadavg()[0], **provenance()}
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
