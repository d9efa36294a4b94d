"""Timing two programs against each other: each in its own process, alternately, on one machine.

Each side is a worker process that warms up, prints one line of facts, and then, for each number n
on its standard input, makes n calls and prints the seconds that an outer step took. A worker that
waits blocks, and uses no processor.
"""

import argparse
import ast
import hashlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import arml
from arml.results.files import write_text
from arml.results.machine import cores

HERE = Path(__file__).parent
PACKAGE = Path(arml.__file__).parent
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
CLOCK = os.environ.get("BENCHMARK_CLOCK", "wall")
"""How workers tell the time: on a busy machine by the processor, with one thread each."""


def serve(
    calls: Callable[[int], None],
    *,
    each: int = 1,
    warm: int = 2,
    clock: Callable[[], float] = CLOCKS[CLOCK],
    **facts: object,
) -> None:
    """The worker's side: `calls(n)` makes `n` calls of `each` outer steps, and returns when they
    are done; the first `warm` calls are not timed; `clock` tells the seconds."""
    calls(warm)
    first = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    calls(1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    facts |= {"faults_a_call": used.ru_minflt - first, "peak_megabytes": used.ru_maxrss / 1024}
    print(json.dumps({"outer_steps_a_call": each, **facts}))
    sys.stdout.flush()
    for line in sys.stdin:
        n = int(line)
        begun = clock()
        calls(n)
        print((clock() - begun) / (n * each), flush=True)


class Worker:
    """A worker process: `python script arguments...`, with variables of the environment."""

    def __init__(self, script: str, *arguments: object, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script), *map(str, arguments)],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts = json.loads(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with status {self.process.wait()}; see above")
        return line

    def seconds(self, calls: int) -> float:
        """Seconds an outer step, over `calls` calls."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def contest(
    ours: Worker, opponents: Sequence[Worker], *, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """`rounds` turns of each, about `seconds` a turn; one turn of ours a round serves all.

    Every round times all sides within seconds of each other, so that a drift of the machine falls
    out of the ratio, which is the median over the rounds.
    """
    workers = (ours, *opponents)
    calls = [w.seconds(1) * w.facts["outer_steps_a_call"] for w in workers]
    sizes = [max(1, round(seconds / call)) for call in calls]
    turns = [[w.seconds(n) for w, n in zip(workers, sizes, strict=True)] for _ in range(rounds)]
    return [
        {
            "ours_seconds": spread([turn[0] for turn in turns]),
            "theirs_seconds": spread([turn[i] for turn in turns]),
            "times_as_fast": spread([turn[i] / turn[0] for turn in turns]),
            "calls_a_turn": [sizes[0], sizes[i]],
            "ours": ours.facts,
            "theirs": theirs.facts,
        }
        for i, theirs in enumerate(opponents, 1)
    ]


def spread(values: Sequence[float]) -> dict[str, float]:
    """The median with the extremes."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "n": len(values),
    }


def machine() -> dict[str, Any]:
    """The machine, its load and the versions of packages."""
    packages = ("arml", "jax", "jaxlib", "equinox", "optax", "numpy")
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = models[0] if models else model
    return {
        "processor": model,
        "cores": cores(),
        "load_before": os.getloadavg()[0],
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def write(
    name: str,
    results: object,
    before: dict[str, object],
    *,
    quick: bool | None = None,
    sources: Sequence[str] = (".",),
) -> None:
    """Write `results/NAME.json`, and say so; `quick` tells how it was run. `sources` are the files
    and folders of the package that the figures depend on; all if none is named."""
    from arml.training.provenance import commit  # here, because start-up times the import of JAX

    now = datetime.now(UTC).isoformat(timespec="seconds")
    value = {"benchmark": name, "when": now, "machine": before, "commit": commit()}
    value |= {} if CLOCK == "wall" else {"clock": CLOCK}
    value |= {"sources": {source: digest(PACKAGE / source) for source in sources}}
    value |= {"results": results}
    value |= {} if quick is None else {"quick": quick}
    path = HERE / "results" / f"{name}.json"
    write_text(path, json.dumps(value, indent=2) + "\n")
    print(f"wrote {path.relative_to(HERE.parent)}", file=sys.stderr)


def digest(place: Path) -> str:
    """Of the code of a file or of all files in a folder, without comments, docstrings and layout;
    empty if there is no such place."""
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place] * place.is_file()
    found = []
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                node.body = [line for line in body if not is_text(line)]
        found.append(f"{file.relative_to(PACKAGE)} {ast.dump(tree)}")
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:12] if found else ""


def is_text(line: ast.stmt) -> bool:
    """Whether a statement is a docstring."""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def is_older(value: dict[str, Any]) -> bool:
    """Whether a file of figures is of an earlier release of the package, and the code that its
    figures depend on has changed since."""
    if value["machine"]["versions"]["arml"] == arml.__version__:
        return False
    sources = value.get("sources")
    return not sources or any(digest(PACKAGE / name) != had for name, had in sources.items())


def arguments(about: str) -> argparse.ArgumentParser:
    """The option that benchmarks of speed have."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    return parser


def replace_block(text: str, block: str, markers: tuple[str, str]) -> str:
    """`text` with the part between the two markers, which are there once, replaced by `block`."""
    first, last = markers
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end or first in rest or last in after:
        raise ValueError(f"expected one {first} and, after it, one {last}; add them to the file")
    return f"{before}{first}\n\n{block}\n\n{last}{after}"
