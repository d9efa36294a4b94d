"""The tables of README.md and docs/scaling.md, drawn from the files under `results/`, never typed.

`python benchmarks/table.py` redraws them; `--check` only says whether they are up to date.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from arml.results.files import write_text
from common import HERE, replace_block

README = HERE / "README.md"
METHODS = {
    "regression2d/arml-film": "ARML, FiLM",
    "regression2d/arml-official": "ARML `official`",
    "regression2d/arml-paper": "ARML `paper`",
}
OPPONENTS = {
    "loop": "eager PyTorch loop",
    "func": "`torch.func`",
}
"""Of an outer step of MAML."""
Spread = dict[str, float]


def digits(value: float) -> str:
    """A number as text, with three significant digits."""
    places = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{places}f}" if value >= 0.1 or not value else f"{value:.2g}"


def duration(seconds: float) -> str:
    """Seconds as text, in s, ms, µs or ns."""
    size, unit = next(
        (k, u) for k, u in ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")) if seconds >= k
    )
    return f"{digits(seconds / size)} {unit}"


def ratio(value: Spread) -> str:
    """The median with its extremes."""
    return f"{digits(value['median'])} ({digits(value['min'])} to {digits(value['max'])})"


def timed(value: Spread) -> str:
    """The same in seconds."""
    return f"{duration(value['median'])} ({duration(value['min'])} to {duration(value['max'])})"


def rows(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table whose columns but the first are numbers."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))


def caption(value: dict[str, Any]) -> str:
    """The date, machine and versions of a measurement."""
    machine = value["machine"]
    versions = {"Python": machine["python"], **machine["versions"]}
    for result in value["results"] if isinstance(value["results"], list) else ():
        for side in ("ours", "theirs"):
            if "torch" in result.get(side, {}):
                versions["torch"] = result[side]["torch"]
    quick = " By a quick run." if value.get("quick") else ""
    quick += " Seconds of the processor, one thread each." if "clock" in value else ""
    cores = "1 core" if machine["cores"] == 1 else f"{machine['cores']} cores"
    return (
        f"Measured {value['when'][:10]} on {machine['processor']}, {cores}, with "
        f"a load of {machine['load_before']:.1f} before it.{quick} "
        f"{', '.join(f'{name} {number}' for name, number in versions.items())}."
        + (f" {value['note'][0].upper()}{value['note'][1:]}." if "note" in value else "")
    )


def of_regression(results: list[dict[str, Any]]) -> list[list[str]]:
    """One outer step of 2-D regression; ARML's against MAML's."""
    body = []
    for result in results:
        ours, theirs = (duration(result[k]["median"]) for k in ("ours_seconds", "theirs_seconds"))
        name, times = result["pair"][1], ratio(result["times_as_fast"])
        if name.startswith("regression2d/"):
            row = [METHODS[name], theirs, "MAML's step", ours, f"{times} times its time"]
        else:
            row = ["MAML", ours, OPPONENTS[name], theirs, f"{times} times as fast"]
        body.append([f"{row[0]}, 2-D regression", *row[1:]])
    return body


def of_images(results: list[dict[str, Any]]) -> list[list[str]]:
    """One outer step of MAML on images."""
    return [
        [
            f"MAML, Conv-4, {r['pixels']} px, {r['shots']}-shot",
            duration(r["ours_seconds"]["median"]),
            OPPONENTS[r.get("opponent", "loop")],
            duration(r["theirs_seconds"]["median"]),
            f"{ratio(r['times_as_fast'])} times as fast",
        ]
        for r in results
    ]


def ratios(draw: Callable[[Any], list[list[str]]]) -> Callable[[dict[str, Any]], str]:
    """Draws the table of ratios against named opponents."""
    head = ["one outer step", "ours", "opponent", "its time", "ratio (extremes)"]
    return lambda value: f"{rows(head, draw(value['results']))}\n\n{caption(value)}"


def starting(value: dict[str, Any]) -> str:
    """What a user waits for at the start."""
    parts = value["results"]["parts"]
    body = []
    for name, spread in value["results"]["seconds"].items():
        command, _, state = name.partition(", ")
        of_it = parts.get(name, {})
        body.append(
            [
                f"`{command}`" + (state and f", {state}"),
                timed(spread),
                *(duration(of_it[p]["median"]) if p in of_it else "" for p in ("imports", "XLA")),
            ]
        )
    head = ["start", "time (extremes)", "of it imports", "of it XLA"]
    return f"{rows(head, body)}\n\n{caption(value)}"


PREDICTIONS = {
    "new process to the first prediction": "new process: load, adapt, compile, predict one input",
    "one input": "warm: one input",
    "1000 inputs": "warm: a thousand inputs",
    "first prediction of another task of the same size": "warm: another task of the same size",
}


def predictions(value: dict[str, Any]) -> str:
    """What a prediction costs."""
    found = value["results"]

    def cell(seconds: Any) -> str:
        return duration(seconds["median"] if isinstance(seconds, dict) else seconds)

    body = [
        [said, *(cell(result["seconds"][name]) for result in found.values())]
        for name, said in PREDICTIONS.items()
    ]
    sizes = [sum(result["bytes"]["learner"].values()) / 1e6 for result in found.values()]
    body.append(["learner on disk", *(f"{digits(size)} MB" for size in sizes)])
    return f"{rows(['prediction', *(f'`{name}`' for name in found)], body)}\n\n{caption(value)}"


PAPER_STEPS = {1: 50_000, 5: 40_000}
"""Outer steps of Plain-Multi, by shots."""


def on_gpu(value: dict[str, Any]) -> str:
    """Memory and time of Plain-Multi, learned one task at a time and four at once."""
    found, body = value["results"], []
    for recipe, chunk in dict.fromkeys((row["recipe"], row["chunk"]) for row in found):
        line = [f"`{recipe.partition('/')[2]}`", str(chunk)]
        for shots, steps in PAPER_STEPS.items():
            (row,) = (
                r for r in found if (r["recipe"], r["chunk"], r["shots"]) == (recipe, chunk, shots)
            )
            line += [f"{duration(row['seconds']['median'])} ({duration(row['seconds']['min'])})"]
            line += [f"{row['device_peak_bytes'] / 2**30:.1f} GiB"]
            line += [f"{steps * row['seconds']['median'] / 3600:.1f} h"]
        body.append(line)
    head = [f"{s}-shot: {what}" for s in (1, 5) for what in ("a step (fastest)", "memory", "run")]
    return f"{rows(['method', 'chunk', *head], body)}\n\n{found[0]['device']}. {caption(value)}"


def on_several(value: dict[str, Any]) -> str:
    """Steps of several processes, and pictures that are predicted on Ray."""
    steps, pictures = value["results"]["steps"], value["results"]["pictures"]
    alone = (timed(steps[0][f"alone_{name}"]) for name in ("seconds", "processor_seconds"))
    body = [["1", "1", *alone, ""]]
    for row in steps:
        times = timed(row["seconds"]), timed(row["processor_seconds"]), ratio(row["times_as_fast"])
        body.append([str(row["processes"]), str(row["devices"]), *times])
    head = ["processes", "devices in all", "a step", "its processor time", "times as fast as one"]
    clocks = ("pictures_a_second", "processor_seconds_a_picture")
    rates, spent = (pictures[clock] for clock in clocks)
    predicted = [[name, ratio(rates[name]), timed(spent[name])] for name in rates]
    more = ["pictures", "pictures a second", "processor time of one"]
    parts = pictures["processor_seconds_of_ray_by_those_of_one_process"]
    said = f"Ray takes {ratio(parts)} times the processor time of one process for a picture."
    return f"{rows(head, body)}\n\n{rows(more, predicted)}\n\n{said} {caption(value)}"


def answers(value: dict[str, Any]) -> str:
    """Whole commands, beside those of another version."""
    found = value["results"]
    sides = list(dict.fromkeys(side for row in found.values() for side in row))
    body = [
        [f"`{name}`", *(duration(row[s]["median"]) for s in sides)] for name, row in found.items()
    ]
    return f"{rows(['command', *sides], body)}\n\n{caption(value)}"


OPERATIONS = ("products", "patches", "normalisation", "pooling", "copies", "other")


def operations(value: dict[str, Any]) -> str:
    """Where a step's time goes, and MAML beside PyTorch."""
    body = []
    for row in value["results"]["steps"]:
        shares = (f"{row['shares'].get(kind, 0):.0%}" for kind in OPERATIONS)
        body.append(
            [
                f"`{row['method']}`, {row['pixels']} px",
                digits(row["gflop"]),
                duration(row["seconds"]["median"]),
                f"{row['share_of_peak']:.0%}",
                *shares,
                f"{row['products_share_of_peak']:.0%}",
            ]
        )
    head = ["a step", "GFLOP", "time", "of the peak", *OPERATIONS, "products alone, of the peak"]
    found = [rows(head, body)]
    if against := value["results"]["against"]:
        names = ["one outer step", "ours", "opponent", "its time", "ratio (extremes)"]
        found.append(rows(names, of_images([{"shots": 1, **one} for one in against])))
    return "\n\n".join([*found, caption(value)])


SCALING = HERE.parent / "docs" / "scaling.md"
BLOCKS: dict[str, Callable[[dict[str, Any]], str]] = {
    "regression2d": ratios(of_regression),
    "conv4": ratios(of_images),
    "operations": operations,
    "startup": starting,
    "answers": answers,
    "predict": predictions,
    "gpu": on_gpu,
    "scaling": on_several,
}
"""How the figures of each file are drawn, between its markers; the last two in docs/scaling.md."""
MISSING = "Not measured with this code; the first lines of this page tell how."


def block(name: str) -> str:
    """The table of one file, or a line that says that there is none."""
    path = HERE / "results" / f"{name}.json"
    if not path.is_file():
        return MISSING
    return BLOCKS[name](json.loads(path.read_text(encoding="utf-8")))


def main() -> int:
    stale = 0
    for page in (README, SCALING):
        old = new = page.read_text(encoding="utf-8")
        for name in [n for n in BLOCKS if (n in ("gpu", "scaling")) == (page == SCALING)]:
            markers = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
            new = replace_block(new, block(name), markers)
        if "--check" in sys.argv[1:] and new != old:
            print(f"{page.name} is stale: run python benchmarks/table.py", file=sys.stderr)
            stale = 1
        elif new != old:
            write_text(page, new)
    return stale


if __name__ == "__main__":
    sys.exit(main())
