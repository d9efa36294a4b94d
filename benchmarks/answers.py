"""The first answer: processor seconds of whole commands, from the start of the process to its end.

A table of 45 rows and 4 columns is learned with nothing compiled before (first call) and with what
that call kept (second call); 25 photographs are learned, and 25 others are predicted; `arml list`
and `arml --help`. The photographs are of noise, 400 x 300 pixels.

`--before FOLDER` names the sources of another version (`src` of a checkout), with which each
command takes turns.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import arml
from common import arguments, machine, spread, write

OURS = Path(arml.__file__).parents[1]


def prepare(folder: Path) -> dict[str, list[str]]:
    """Write the inputs; returns the commands."""
    from PIL import Image

    rng = np.random.default_rng(0)
    names = ["a", "b", "c"]
    rows = [
        [*np.round(rng.normal(i % 3, 1, 3), 2), rng.choice(["x", "y"]), names[i % 3]]
        for i in range(50)
    ]
    for name, some, width in (("few", rows[:45], 5), ("new", rows[45:], 4)):
        lines = [("p", "q", "r", "s", "kind"), *some]
        text = "\n".join(",".join(map(str, line[:width])) for line in lines)
        (folder / f"{name}.csv").write_text(text + "\n", encoding="utf-8")
    for i in range(50):
        place = folder / ("photographs" if i < 25 else "queries") / (f"{i % 5}" if i < 25 else "")
        place.mkdir(parents=True, exist_ok=True)
        small = rng.integers(0, 256, (15, 20, 3), np.uint8)
        Image.fromarray(small).resize((400, 300)).save(place / f"{i}.jpg")
    table = ["adapt", "tables", "--support", "few.csv", "--query", "new.csv", "--target", "kind"]
    pictures = ["adapt", "--support", "photographs", "--query", "queries"]
    return {
        "arml adapt tables, first call": table,
        "arml adapt tables, second call": table,
        "arml adapt of 25 photographs and 25 queries": pictures,
        "arml list, first call": ["list"],
        "arml list, second call": ["list"],
        "arml --help": ["--help"],
    }


def seconds(sources: Path, folder: Path, cache: str, words: list[str]) -> float:
    """User and system time of one command."""

    def used() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    begun = used()
    environment = {**os.environ, "PYTHONPATH": str(sources), "ARML_CACHE": cache}
    command = [sys.executable, "-m", "arml", *words]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return used() - begun


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--before", type=Path, help="the sources of another version")
    options = parser.parse_args()
    before, rounds = machine(), 1 if options.quick else 5
    sides = {"ours": OURS} | ({"before": options.before.resolve()} if options.before else {})
    with TemporaryDirectory() as place:
        folder = Path(place)
        commands = prepare(folder)
        taken = {name: {side: [] for side in sides} for name in commands}
        for side in sides.values():  # Python compiles its modules
            seconds(side, folder, str(folder / "cache"), ["list"])
        for _ in range(rounds):
            with TemporaryDirectory() as one, TemporaryDirectory() as other:
                for name, words in commands.items():
                    for (side, sources), cache in zip(sides.items(), (one, other), strict=False):
                        taken[name][side].append(seconds(sources, folder, cache, words))
    results = {
        name: {side: spread(values) for side, values in found.items()}
        for name, found in taken.items()
    }
    for name, found in results.items():
        print(name, {side: round(value["median"], 2) for side, value in found.items()})
    write("answers", results, before, quick=options.quick)


if __name__ == "__main__":
    if os.environ.get("BENCHMARK_CLOCK") != "processor":  # `common` reads it when it is imported
        os.environ["BENCHMARK_CLOCK"] = "processor"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main()
