"""The tables of README.md, drawn from the files under `results/` and never typed.

`python benchmarks/table.py` prints the table of ratios and redraws all of them; `--check` only says
whether they are up to date.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from arml.report.tables import replace_block
from arml.results.files import RunError, write_text
from cells import caption, digits, duration, ratio, rows, timed, title
from common import HERE, OPPONENTS

README = HERE / "README.md"


def of_regression(results: list[dict[str, Any]]) -> list[list[str]]:
    """One outer step of 2-D regression; ARML's against MAML's."""
    body = []
    for result in results:
        ours, theirs = (duration(result[k]["median"]) for k in ("ours_seconds", "theirs_seconds"))
        name, times = result["pair"][1], ratio(result["times_as_fast"])
        if name.startswith("regression2d/"):
            body.append([f"{title(name)}, 2-D regression", theirs, "MAML's step", ours])
            body[-1].append(f"{times} times its time")
        else:
            known = OPPONENTS.get(name, name)
            body.append(["MAML, 2-D regression", ours, known, theirs, f"{times} times as fast"])
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


def ratios(regression: dict[str, Any], images: dict[str, Any]) -> str:
    """The table of ratios against named opponents."""
    body = of_regression(regression["results"]) + of_images(images["results"])
    head = ["one outer step", "ours", "opponent", "its time", "ratio (extremes)"]
    made = "\n".join(
        f"{what}: {caption(value)}  "
        for what, value in (("2-D regression", regression), ("Images", images))
    )
    return f"{rows(head, body)}\n\n{made.rstrip()}"


def methods(value: dict[str, Any]) -> str:
    """One outer step of every method against MAML's."""
    body = [
        [
            f"`{r['pair'][1]}`",
            duration(r["theirs_seconds"]["median"]),
            ratio(r["times_as_fast"]),
            f"{r['theirs']['parameters']:,}",
        ]
        for r in value["results"]
    ]
    head = ["recipe", "an outer step", "times MAML's (extremes)", "meta-parameters"]
    return f"{rows(head, body)}\n\n{caption(value)}"


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
                *(duration(of_it[p]["median"]) if of_it else "" for p in ("imports", "XLA")),
            ]
        )
    head = ["start", "time (extremes)", "of it imports", "of it XLA"]
    return f"{rows(head, body)}\n\n{caption(value)}"


def sampling(value: dict[str, Any]) -> str:
    """Episodes a second."""
    found = value["results"]["episodes_a_second"]
    one = found["files, one process"]["median"]
    body = [
        [name, digits(spread["median"]), digits(spread["median"] / one)]
        for name, spread in found.items()
    ]
    ways, shots, queries, side = value["results"]["episode"]
    what = f"{ways}-way {shots}-shot episodes of {side} px, {queries} queries"
    images = value["results"]["preparation"]["images"]
    head = [f"{what}; {images:,} images", "a second", "times the loader in one process"]
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


def roofline(value: dict[str, Any]) -> str:
    """Where the time goes."""
    limits = value["results"]["limits"]
    body = [
        [
            f"{title(r['recipe'])}, {r['tasks']}",
            r["path"],
            digits(r["gflop"]),
            digits(r["xla_gflop"]),
            digits(r["megabytes"]),
            digits(r["xla_megabytes"]),
            f"{r['operations']:,.0f}",
            duration(r["seconds"]["median"]),
            duration(r["limit_seconds"][r["limit"]]),
            r["limit"],
            digits(r["times_the_limit"]),
        ]
        for r in value["results"]["paths"]
    ]
    head = ["learner, tasks", "path", "GFLOP", "XLA's", "MB", "XLA's", "operations"]
    head += ["time", "least time", "by", "ratio"]
    said = (
        f"The machine's limits: a matrix product {digits(limits['flops'] / 1e9)} GFLOP/s, a copy "
        f"{digits(limits['bytes'] / 1e9)} GB/s, {digits(limits['cache'] / 1e9)} GB/s in the "
        f"cache, an empty dispatch {duration(limits['dispatch'])}, "
        f"an operation in a loop {duration(limits['operation'])}."
    )
    return f"{rows(head, body, 2)}\n\n{said} {caption(value)}"


def before(value: dict[str, Any]) -> str:
    """The same now and at an earlier commit."""
    body = [
        [
            r["case"],
            *(_waited(r, side) for side in ("ours", "theirs")),
            f"{r['now']}, {r['before']}",
            f"{ratio(r['times_as_fast'])} times as fast",
        ]
        for r in value["results"]
    ]
    head = ["one outer step, or the named command", "now (of a processor)", "before", "commits"]
    head += ["ratio (extremes)"]
    return f"{rows(head, body)}\n\n{caption(value)}"


def _waited(result: dict[str, Any], side: str) -> str:
    """Seconds, and those of a processor where they were counted."""
    spent = result.get(f"{side}_processor_seconds")
    shown = duration(result[f"{side}_seconds"]["median"])
    return f"{shown} ({duration(spent['median'])})" if spent else shown


def choices(value: dict[str, Any]) -> str:
    """What each choice is worth."""
    body = [
        [
            r["done"],
            r["otherwise"],
            "MAML, 28 px" if r["case"][0] == "conv4" else f"{title(r['case'][1])}, 2-D",
            duration(r["ours_seconds"]["median"]),
            ratio(r["times_as_fast"]),
            *(duration(r[side]["compile_and_first_step_seconds"]) for side in ("ours", "theirs")),
        ]
        for r in value["results"]
    ]
    head = ["choice", "alternative", "step of", "an outer step", "times as fast (extremes)"]
    head += ["first dispatch", "the alternative's"]
    return f"{rows(head, body, 3)}\n\n{caption(value)}"


def devices(value: dict[str, Any]) -> str:
    """Tasks a second in two processes against one."""
    body = [
        [
            f"{title(r['recipe'])}, {'2-D' if r['recipe'].startswith('regression2d') else '28 px'}",
            str(r["batch"]),
            digits(r["tasks_a_second_of_one"]["median"]),
            ratio(r["times_as_many"]),
            ratio(r["times_as_many_free"]),
            f"{r['bytes_a_step'] / 1e3:,.0f} kB",
            duration(r["seconds_a_message"]),
            duration(r["seconds_a_message_free"]),
        ]
        for r in value["results"]
    ]
    head = ["learner", "tasks a step", "tasks a second of one process on one core"]
    head += ["times as many in two, a core each", "in two on both cores", "message"]
    head += ["it takes", "on both cores"]
    return f"{rows(head, body)}\n\n{caption(value)}"


def divergence(value: dict[str, Any]) -> str:
    """How many trainings of each recipe kept a finite loss."""
    body = []
    for name in dict.fromkeys(row["recipe"] for row in value["results"]):
        found = [row for row in value["results"] if row["recipe"] == name]
        bad = [row for row in found if row["first_bad_step"] is not None]
        ends = ", ".join(
            f"seed {row['seed']} at step {row['first_bad_step']}"
            + (f" ({row['family']})" if row["family"] else "")
            for row in bad
        )
        steps = min(row["steps"] for row in found)
        body.append([f"`{name}`", str(len(found)), f"{steps:,}", str(len(bad)), ends])
    head = ["recipe", "seeds", "steps", "diverged", "first step that is not finite"]
    return f"{rows(head, body)}\n\n{caption(value)}"


BLOCKS: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
    "ratios": (("regression2d", "conv4"), ratios),
    "before": (("before",), before),
    "choices": (("choices",), choices),
    "methods": (("methods",), methods),
    "start": (("startup",), starting),
    "devices": (("devices",), devices),
    "sampling": (("sampling-quick",), sampling),
    "predictions": (("predict",), predictions),
    "roofline": (("roofline",), roofline),
    "divergence": (("divergence",), divergence),
}
"""Each block of the README, the results that it is of, and how they are drawn."""


def block(name: str) -> str:
    """One of them."""
    files, draw = BLOCKS[name]
    folder = HERE.parent / "results" if name == "divergence" else HERE / "results"
    paths = [folder / f"{file}.json" for file in files]
    if not all(path.exists() for path in paths):
        return f"*Not measured yet: {', '.join(f'`{file}.py`' for file in files)}.*"
    return draw(*(json.loads(path.read_text(encoding="utf-8")) for path in paths))


def main() -> int:
    old = new = README.read_text(encoding="utf-8")
    try:
        for name in BLOCKS:
            new = replace_block(
                new, block(name), (f"<!-- {name}:begin -->", f"<!-- {name}:end -->")
            )
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if "--check" in sys.argv[1:]:
        if new != old:
            print("benchmarks/README.md is stale: run python benchmarks/table.py", file=sys.stderr)
        return int(new != old)
    if new != old:
        write_text(README, new)
    print(block("ratios"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
