"""What a user waits for: `import arml`, `arml --help`, and a run from the start of its process to
the end of its first steps, with nothing compiled before (cold) and with what the program kept of an
earlier run (warm).

`python startup.py first-step RECIPE` is such a run, as `arml train` makes it: it says when its
first steps are done, how many seconds its imports took and what XLA took, and goes on until it is
killed.
"""

import gc
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from tempfile import TemporaryDirectory

from common import CLOCK, CLOCKS, HERE, arguments, machine, spread, write

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import arml": ["-c", "import arml"],
    "import arml.experiment.recipes": ["-c", "import arml.experiment.recipes"],
    "import jax": ["-c", "import jax"],
    "arml --help": ["-m", "arml", "--help"],
}
RECIPES = ("regression2d/maml", "regression2d/arml", "starter/maml", "starter/arml")


def now() -> float:
    """Seconds on the clock, or of the processor by the processes that have ended."""
    if CLOCK == "wall":
        return time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(command: list[str]) -> float:
    begun = now()
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return now() - begun


def first_step(recipe: str, cache: str) -> dict[str, float]:
    """Seconds from the start of the process to the end of its first dispatch, and what of them were
    imports and XLA."""
    begun = now()
    process = subprocess.Popen(
        [sys.executable, str(HERE / "startup.py"), "first-step", recipe],
        env={**os.environ, "ARML_CACHE": cache},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    taken = now() - begun
    process.kill()
    process.wait()
    taken = taken if CLOCK == "wall" else now() - begun
    if not said:
        raise RuntimeError(f"{recipe} took no step; see above")
    return {"all": taken, **json.loads(said)}


def run_until_killed(name: str) -> None:
    """The run itself."""
    begun = CLOCKS[CLOCK]()
    gc.set_threshold(50_000, 20, 100)  # as `arml` does
    from arml.cli import cores_as_devices, keep_compiled

    keep_compiled()
    cores_as_devices()
    import jax

    from arml.experiment.recipes import recipe
    from arml.experiment.running import run
    from arml.training.devices import own_cores, sharing

    taken = {"imports": CLOCKS[CLOCK]() - begun, "XLA": 0.0}

    def heard(event: str, seconds: float, **facts: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            taken["XLA"] += seconds

    jax.monitoring.register_event_duration_secs_listener(heard)
    experiment, devices = recipe(name), 1
    if not experiment.scan:  # one dispatch is one step
        experiment = replace(experiment, interval=1)
        devices = sharing(experiment.batch, experiment.chunk, own_cores())

    def watch(step: int, record: object) -> None:
        if step:
            print(json.dumps(taken), flush=True)
            if CLOCK != "wall":  # what follows would count
                os._exit(0)

    with TemporaryDirectory() as folder:
        run(experiment, folder, watch=watch, devices=devices)


def main() -> None:
    if sys.argv[1:2] == ["first-step"]:
        run_until_killed(sys.argv[2])
        return
    options = arguments(__doc__ or "").parse_args()
    before = machine()
    rounds = 3 if options.quick else 9
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    starts: dict[str, list[dict[str, float]]] = {}
    for recipe in RECIPES:
        cold, warm = starts[f"{recipe}, cold"], starts[f"{recipe}, warm"] = [], []
        for _ in range(1 if options.quick else 3):
            with TemporaryDirectory() as cache:
                cold.append(first_step(recipe, cache))
                warm.extend(first_step(recipe, cache) for _ in range(2))
    known = ("imports", "XLA") if CLOCK == "wall" else ("imports",)  # JAX states XLA's wall time
    parts = {
        name: {part: spread([start[part] for start in found]) for part in known}
        for name, found in starts.items()
    }
    taken |= {name: [start["all"] for start in found] for name, found in starts.items()}
    results = {name: spread(values) for name, values in taken.items()}
    for name, value in results.items():
        print(f"{name}: {value['median']:.2f} s ({value['min']:.2f} to {value['max']:.2f})")
    write("startup", {"seconds": results, "parts": parts}, before, quick=options.quick)


if __name__ == "__main__":
    main()
