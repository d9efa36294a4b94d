"""A newcomer's stopwatch: from the first command to a file that predicts without JAX.

Each step is a process of its own, as somebody types it. `seconds` are by the clock, `cpu` is what
the processor worked: on a busy machine the first is much longer. Results go to
`results/newcomer.json`, and the table to `docs/practitioner.md`. `--install` also installs into a
fresh environment, `--minutes` trains a learner of one's own; without them the rows that were
measured before stay, with their commit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import cv2

from arml.datasets.starter import load_starter
from arml.report.tables import replace_block
from arml.training.provenance import provenance

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "newcomer.json"
PAGE = ROOT / "docs" / "practitioner.md"
MARKERS = ("<!-- stopwatch:begin -->", "<!-- stopwatch:end -->")
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
    """Three classes of icons, five pictures each to learn from, and five more to predict; and the
    icons to train on, as one's own pictures."""
    families, split = load_starter()
    icons = next(family for family in families if family.name == "icons")
    for name in split["icons"]["train"]:
        first = icons.first[icons.classes.index(name)]
        folder.joinpath("pictures", name).mkdir(parents=True)
        for i in range(10):
            cv2.imwrite(str(folder / "pictures" / name / f"{i}.png"), icons.images[first + i])
    for name in split["icons"]["test"][:3]:
        first = icons.first[icons.classes.index(name)]
        for i in range(10):
            path = folder / ("own" if i < 5 else "more") / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), icons.images[first + i])


def spent() -> float:
    """Processor seconds of the processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def timed(name: str, *command: str, cwd: Path) -> dict[str, object]:
    """Run a command; what it took, and its last line."""
    before, begun = spent(), time.perf_counter()
    environment = {**os.environ, "ARML_CACHE": str(cwd / "cache")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    seconds, cpu = time.perf_counter() - begun, spent() - before
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    row = {"step": name, "seconds": round(seconds, 1), "cpu": round(cpu, 1)}
    print(row, flush=True)
    return {**row, "said": done.stdout.strip().rpartition("\n")[2]}


def first_answer(cwd: Path) -> dict[str, object]:
    """From the start of `arml app` to its answer to the page's example, as the page asks for it."""
    before, begun = spent(), time.perf_counter()
    command = [sys.executable, "-m", "arml", "app"]
    environment = {**os.environ, "ARML_CACHE": str(cwd / "cache")}
    page = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert page.stderr is not None
        address = page.stderr.readline().split()[3]
        for part in ("", "about"):
            urlopen(address + part).read()
        example = (
            urlopen(address + "example-pictures").read().replace(b"data:image/png;base64,", b"")
        )
        asked = {key: json.loads(example)[key] for key in ("classes", "queries")}
        answer = urlopen(Request(address + "classify", json.dumps(asked).encode())).read()
        seconds = time.perf_counter() - begun
    finally:
        page.terminate()
        page.wait()
    cpu = spent() - before
    row = {"step": "`arml app`: from its start to the first answer"}
    return {**row, "seconds": round(seconds, 1), "cpu": round(cpu, 1), "said": len(answer)}


def megabytes(folder: Path) -> int:
    """What a folder takes on disk."""
    return round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6)


def write_table(content: dict[str, Any]) -> None:
    """The rows as a table in the page for practitioners."""
    lines = ["| step | seconds | processor seconds |", "|---|---:|---:|"]
    for row in content["rows"]:
        more = f", {row['megabytes']} MB" if "megabytes" in row else ""
        more += f", {row['each_ms']} ms each" if "each_ms" in row else ""
        lines.append(f"| {row['step']}{more} | {row['seconds']} | {row['cpu']} |")
    lines.append("")
    lines.append(
        f"{content['device']}, load {content['load']:.1f}. "
        "`benchmarks/results/newcomer.json` has the commit at which each row was measured."
    )
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replace_block(page, "\n".join(lines), MARKERS), encoding="utf-8")


def merged(rows: list[Any]) -> list[Any]:
    """The rows, with those of the last time that were not measured now."""
    known = json.loads(RESULTS.read_text())
    before = [{"commit": known["commit"], **row} for row in known["rows"]]
    install = [row for row in before if row["step"].startswith(("make an env", "`pip"))]
    train = [row for row in before if row["step"].startswith("`arml train")]
    steps = {row["step"] for row in rows}
    first = [row for row in install if row["step"] not in steps]
    last = [row for row in train if not any(step.startswith("`arml train") for step in steps)]
    return [*first, *rows, *last]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--minutes", type=float, default=0)
    options = parser.parse_args()
    arml = [sys.executable, "-m", "arml"]
    with tempfile.TemporaryDirectory() as place:
        here, rows = Path(place), []
        draw(here)
        if options.install:
            rows.append(timed("make an environment", sys.executable, "-m", "venv", "v", cwd=here))
            rows.append(timed("`pip install .`", "v/bin/pip", "install", "-q", str(ROOT), cwd=here))
            rows[-1]["megabytes"] = megabytes(here / "v")
        adapt = [*arml, "adapt", "starter", "--support", "own", "--query", "more"]
        rows.append(timed("`arml adapt`: the first answer", *adapt, "--no-trust", cwd=here))
        rows.append(timed("the same again", *adapt, "--no-trust", cwd=here))
        rows.append(timed("with the leave-one-out check, first", *adapt, cwd=here))
        kept = [*adapt, "--save", "kept"]
        rows.append(timed("with the check again, and the predictor saved", *kept, cwd=here))
        predict = [*arml, "predict", "kept", "more"]
        timed("(warm up)", *predict, cwd=here)
        rows.append(timed("`arml predict`, with what was saved", *predict, cwd=here))
        marks = [*arml, "evaluate", "kept", "--query", "more"]
        rows.append(timed("`arml evaluate`, with labelled pictures", *marks, cwd=here))
        export = [*arml, "export", "kept", "--onnx", "file.onnx"]
        rows.append(timed("`arml export --onnx`", *export, cwd=here))
        rows.append(first_answer(here))
        run = [sys.executable, "-c", LOOP, "file.onnx"]
        loop = timed("200 pictures with onnxruntime, one by one", *run, cwd=here)
        rows.append({**loop, "each_ms": round(1000 * json.loads(str(loop["said"])), 2)})
        if options.minutes:
            own = [*arml, "train", "--data", "pictures", "--minutes", str(options.minutes)]
            name = f"`arml train --data` with `--minutes {options.minutes:g}`"
            rows.append(timed(name, *own, "--run", "r", cwd=here))
    for row in rows:
        row.pop("said")
    content = {"rows": merged(rows), "load": os.getloadavg()[0], **provenance()}
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")
    write_table(content)


if __name__ == "__main__":
    main()
