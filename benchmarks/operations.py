"""Where the time of one outer step on pictures goes, by kind of operation, and its share of the
machine's peak: MAML, ProtoNet and `arml` with Conv-4 at 32 and 84 px, one shot, 4 tasks.

One thread, pictures of noise. XLA's own trace names the time of each operation of the compiled
program, whose text tells what it is and how many floating-point operations its products have. The
peak is that of a matrix product in the same process, before and after the steps. Seconds are those
of the processor, which the trace divides. At each size MAML also stands against PyTorch, if it is
installed.

`python operations.py METHOD SIZE` measures one row.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import Worker, arguments, contest, machine, spread, write

METHODS, SIZES, STEPS = ("protonet", "maml", "arml"), (32, 84), 3
KINDS = {
    "patches": ("patches", "_columns", "_pad", "_correlate", "_by_patches"),
    "pooling": ("max_pool",),
    "normalisation": ("moments", "_moments_jvp", "batch_norm"),
}
"""The functions that an operation comes from, for what is no product."""
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_NUM_CPU_DEVICES": "1",
    "OMP_NUM_THREADS": "1",
}
_LINE = re.compile(r"\s*(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)")


class Program:
    """The operations of a compiled program, from its text."""

    def __init__(self, text: str) -> None:
        functions = dict(re.findall(r'^(\d+) "([^"]*)"$', _part(text, "FunctionNames"), re.M))
        places = dict(
            re.findall(r"^(\d+) {.*function_name_id=(\d+)", _part(text, "FileLocations"), re.M)
        )
        frames = dict(
            re.findall(r"^(\d+) {file_location_id=(\d+)", _part(text, "StackFrames"), re.M)
        )
        self.lines: dict[str, dict[str, tuple[str, str, str]]] = {}
        own: dict[str, tuple[str, str, str]] = {}
        for line in text.splitlines():
            if line.endswith("{") and " -> " in line:
                words = line.split()
                name = words[words[0] == "ENTRY"].lstrip("%")
                own = self.lines[name] = {}
                self.entry = name if words[0] == "ENTRY" else getattr(self, "entry", "")
            elif found := _LINE.match(line):
                own[found[1]] = found[2], found[3], found[4]
        self.home = {name: part for part, own in self.lines.items() for name in own}
        self.function_of = lambda frame: functions.get(places.get(frames.get(frame, ""), ""), "")

    def kind(self, name: str) -> str:
        """The kind of an operation by its name in a trace."""
        name = name if name in self.home else name.split(".clone")[0]
        if name not in self.home:
            return "other"
        _, code, rest = self.lines[self.home[name]][name]
        if self.flops(name):
            return "products"
        if code in ("copy", "transpose", "bitcast-convert") or name.startswith("wrapped_copy"):
            return "copies"
        (frame,) = re.findall(r"stack_frame_id=(\d+)", rest)[:1] or [""]
        function = self.function_of(frame).rpartition(".")[2]
        found = [kind for kind, names in KINDS.items() if function in names]
        primitive = re.findall(r'op_name="[^"]*?([\w-]+)"', rest)
        if not found and primitive[:1] in (["concatenate"], ["pad"]):
            return "patches"
        return found[0] if found else "other"

    def flops(self, name: str) -> int:
        """Floating-point operations of the products in one operation."""
        own = self.lines[self.home[name]]
        shape, code, rest = own[name]
        if code in ("dot", "convolution"):
            arguments = [own[word][0] for word in re.findall(r"%([\w.-]+)", rest.split(")")[0])]
            if code == "dot":
                sides = _sides(arguments[0])
                axes = re.findall(r"lhs_contracting_dims={([\d,]*)}", rest)[0]
                inner = prod(sides[int(axis)] for axis in axes.split(",") if axis)
            else:
                labels = re.findall(r"dim_labels=\w+_(\w+)->", rest)[0]
                kernel = _sides(arguments[1])
                inner = prod(kernel) // kernel[labels.index("o")]
            return 2 * prod(_sides(shape)) * inner
        if code in ("fusion", "call"):
            return sum(
                map(self.flops, self.lines[re.findall(r"(?:calls|to_apply)=%([\w.-]+)", rest)[0]])
            )
        return 0

    def total(self) -> int:
        """Those of the whole program."""

        @cache
        def within(part: str) -> int:
            found = 0
            for name, (_, code, rest) in self.lines[part].items():
                if code == "while":
                    times = int(re.findall(r'known_trip_count":{"n":"(\d+)"', rest)[0])
                    found += times * within(re.findall(r"body=%([\w.-]+)", rest)[0])
                elif code == "call":
                    found += within(re.findall(r"to_apply=%([\w.-]+)", rest)[0])
                else:
                    found += self.flops(name)
            return found

        return within(self.entry)


def _part(text: str, title: str) -> str:
    return (re.findall(rf"^{title}\n(.*?)\n\n", text, re.M | re.S) or [""])[0]


def _sides(shape: str) -> list[int]:
    return [int(side) for side in re.findall(r"\[([\d,]*)\]", shape)[0].split(",") if side]


def peak() -> float:
    """Floating-point operations a second of the processor in a large product: the best of five
    turns. A turn takes a third of a second, because the system counts processor time in ticks."""
    import jax
    import jax.numpy as jnp

    n, best = 2048, 0.0
    multiply, a = jax.jit(jnp.dot), jnp.ones((n, n), jnp.float32)
    jax.block_until_ready(multiply(a, a))
    for _ in range(5):
        begun, taken, times = time.process_time(), 0.0, 0
        while taken < 0.3:
            jax.block_until_ready(multiply(a, a))
            times, taken = times + 1, time.process_time() - begun
        best = max(best, times * 2 * n**3 / taken)
    return best


def measured(method: str, size: int) -> dict[str, Any]:
    """One row."""
    import equinox as eqx
    import jax

    import arml
    from arml.experiment.recipes import recipe
    from arml.training.fit import compiled, make_step, start
    from arml_steps import noise_images

    made = replace(recipe(f"plain-multi/{method}", shots=1), chunk=1, batch=4)
    tasks = noise_images(size, 1)
    learner, optimiser = arml.build(made, tasks.problem, seed=0), made.outer.build(1_000_000)
    step = make_step(optimiser, batch=4, chunk=1, mesh=None, key=jax.random.key(1))
    state = start(learner, optimiser)
    begun, processor = time.perf_counter(), time.process_time()
    program = compiled(step).lower(tasks, state).compile()
    facts = {"compiled_seconds": time.perf_counter() - begun}
    facts["compiled_processor_seconds"] = time.process_time() - processor
    text = Program(program.compiled.as_text())

    def run() -> float:
        nonlocal state
        begun = time.process_time()
        state, _ = program(tasks, state)
        jax.block_until_ready(eqx.filter(state, eqx.is_array))
        return time.process_time() - begun

    run()
    peaks = [peak()]
    seconds = [run() for _ in range(STEPS)]
    peaks.append(peak())
    with TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        (trace,) = Path(folder).rglob("*.xplane.pb")
        spent = traced(jax.profiler.ProfileData.from_file(str(trace)), text)
    whole, median = sum(spent.values()), sorted(seconds)[STEPS // 2]
    gflop = text.total() / 1e9
    return {
        "method": method,
        "pixels": size,
        **facts,
        "gflop": gflop,
        "seconds": spread(seconds),
        "peak_gflop_a_second": [one / 1e9 for one in peaks],
        "share_of_peak": gflop / median / (max(peaks) / 1e9),
        "shares": {kind: time / whole for kind, time in spent.most_common()},
        "products_share_of_peak": gflop / (median * spent["products"] / whole) / (max(peaks) / 1e9),
    }


def traced(data: Any, text: Program) -> Counter[str]:
    """The time of each kind of operation, without that of operations inside it."""
    spent: Counter[str] = Counter()
    for plane in data.planes:
        for line in plane.lines:
            events = sorted(
                (event.start_ns, -event.duration_ns, event.name)
                for event in line.events
                if event.duration_ns and (event.name in text.home)
            )
            open_ends: list[tuple[float, str]] = []
            for begun, negative, name in events:
                while open_ends and open_ends[-1][0] <= begun:
                    open_ends.pop()
                if open_ends:
                    spent[text.kind(open_ends[-1][1])] += negative
                spent[text.kind(name)] -= negative
                open_ends.append((begun - negative, name))
    return Counter({kind: max(time, 0) for kind, time in spent.items()})


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in METHODS:
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
        return
    parser = arguments(__doc__ or "")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    options = parser.parse_args()
    os.environ |= ONE_THREAD
    before, rows, torch = machine(), [], []
    with_torch = find_spec("torch") is not None
    if with_torch:
        before["versions"]["torch"] = version("torch")
    for size in options.sizes:
        for method in options.methods:
            command = [sys.executable, __file__, method, str(size)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(json.loads(done.stdout))
            print(json.dumps(rows[-1], indent=1), flush=True)
            found = {"steps": rows, "against": torch}
            write("operations", found, before, quick=options.quick, sources=("core", "nn"))
        if with_torch:
            torch.extend(against(size, 2 if options.quick else 5))
            write("operations", found, before, quick=options.quick, sources=("core", "nn"))


def against(size: int, rounds: int) -> list[dict[str, Any]]:
    """MAML's step against PyTorch's."""
    what = ("conv4", size, 1)
    ours = Worker("arml_steps.py", *what)
    theirs = [Worker("torch_maml.py", name, *what) for name in ("loop", "func")]
    found = contest(ours, theirs, rounds=rounds, seconds=1.0)
    for worker in (ours, *theirs):
        worker.close()
    return [
        {"pixels": size, "opponent": name, **result}
        for name, result in zip(("loop", "func"), found, strict=True)
    ]


if __name__ == "__main__":
    if os.environ.get("BENCHMARK_CLOCK") != "processor":  # `common` reads it when it is imported
        os.environ["BENCHMARK_CLOCK"] = "processor"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main()
