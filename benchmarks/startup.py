"""What a user waits for before the first step: `import arml`, `arml --help`, and the compilation
of one outer step."""

import subprocess
import sys
import time

from common import Worker, arguments, machine, spread, write

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import arml": ["-c", "import arml"],
    "import arml.recipes": ["-c", "import arml.recipes"],
    "import jax": ["-c", "import jax"],
    "arml --help": ["-m", "arml", "--help"],
}
STEPS: dict[str, tuple[object, ...]] = {
    "regression2d/maml": ("regression2d", "regression2d/maml", 50),
    "regression2d/arml": ("regression2d", "regression2d/arml", 50),
    "conv4 28 px 1-shot": ("conv4", 28, 1),
    "conv4 84 px 1-shot": ("conv4", 84, 1),
}


def seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return time.perf_counter() - begun


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    before = machine()
    rounds = 3 if options.quick else 9
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    commands = {name: spread(values) for name, values in taken.items()}
    compiled = {}
    for name, worker_arguments in STEPS.items():
        times = []
        for _ in range(1 if options.quick else 3):
            worker = Worker(sys.executable, "arml_steps.py", *worker_arguments)
            times.append(float(worker.facts["compile_and_first_step_seconds"]))
            worker.close()
        compiled[name] = spread(times)
    for name, value in {**commands, **compiled}.items():
        print(f"{name}: {value['median']:.2f} s ({value['min']:.2f} to {value['max']:.2f})")
    write("startup", {"seconds": commands, "compile_and_first_step_seconds": compiled}, before)


if __name__ == "__main__":
    main()
