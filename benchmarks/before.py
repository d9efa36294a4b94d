"""One outer step as it is now against what it was at an earlier commit, each side with its own
sources and in its own process, in turns: `python before.py COMMIT [--cases NAME...]`.

And commands that people wait for, from the start of the process to its end: `arml adapt` and
`predict` of a few pictures, `evaluate` and `export` of a run on pictures that is made first, and
`train` for few steps. Cases that are not run keep what is in the file.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import HERE, Worker, arguments, calls_for, machine, spread, write
from newcomer import draw

CASES: dict[str, tuple[object, ...]] = {
    "MAML, 2-D": ("regression2d", "regression2d/maml", 50),
    "ARML, 2-D": ("regression2d", "regression2d/arml", 50),
    "MAML, 28 px, 1-shot": ("conv4", 28, 1),
    "MAML, 28 px, 5-shot": ("conv4", 28, 5),
    "ARML, 28 px, 1-shot": ("folders", "folders/arml", 1),
    "ProtoNet, 28 px, 1-shot": ("folders", "folders/protonet", 1),
    "MAML, 84 px, 1-shot": ("conv4", 84, 1),
    "MAML, 84 px, 5-shot": ("conv4", 84, 5),
}
TASKS, TRAINED = 1000, 20
ADAPT = "adapt starter --support own --query more"
WAITS: dict[str, tuple[str | None, str]] = {
    f"evaluation of {TASKS:,} tasks, 32 px": (
        "starter/maml",
        f"evaluate RUN --tasks {TASKS} --out result.json",
    ),
    "arml evaluate, ProtoNet, 300 tasks": (
        "starter/protonet",
        "evaluate RUN --tasks 300 --out result.json",
    ),
    "arml export, ProtoNet": ("starter/protonet", "export RUN --out learner"),
    "arml export, ARML": ("starter/arml", "export RUN --out learner"),
    "arml train, 2-D, 100 steps": (
        None,
        "train regression2d/maml --run NEW --steps 100 --validate-every 100 --validation-tasks 4",
    ),
    "arml train, 32 px, 1 step": (
        None,
        "train starter/maml --run NEW --steps 1 --interval 1 --validate-every 1"
        " --validation-tasks 1",
    ),
    "arml train, Mahalanobis distances, 60 steps": (
        None,
        "train starter/protonet --metric mahalanobis --shots 5 --run NEW --steps 60"
        " --validate-every 60 --validation-tasks 40",
    ),
    "arml adapt starter, no check": (None, f"{ADAPT} --no-trust"),
    "arml adapt starter, with its check": (None, ADAPT),
    "arml predict": (None, "predict KEPT more"),
}
"""Commands that people wait for, and the recipe of the run that they are of, if any."""


def git(*words: object) -> str:
    command = ["git", "-C", str(HERE), *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def environment(tree: Path, **more: str) -> dict[str, str]:
    """That in which Python finds the sources of `tree`."""
    return {**os.environ, "PYTHONPATH": str(tree / "src"), **more}


def waited(name: str, trees: list[Path], scratch: Path, rounds: int) -> dict[str, Any]:
    """Seconds of a command with the sources of each tree, and those of a processor, which other
    work on the machine changes less; programs are compiled before."""
    sides = [environment(tree, ARML_CACHE=str(scratch / tree.name)) for tree in trees]
    run, kept = scratch / "run", scratch / "kept"

    def arml(env: dict[str, str], *words: object) -> tuple[float, float]:
        begun, spent = time.perf_counter(), processor_seconds()
        command = [sys.executable, "-m", "arml", *map(str, words)]
        subprocess.run(command, env=env, cwd=scratch, check=True, capture_output=True)
        return time.perf_counter() - begun, processor_seconds() - spent

    recipe, command = WAITS[name]
    # By the older sources, for the newer can read them.
    if recipe is not None:
        few = ("--steps", TRAINED, "--validate-every", TRAINED, "--validation-tasks", 4)
        arml(sides[1], "train", recipe, "--run", run, *few)
    elif "NEW" not in command:
        draw(scratch)
        given = ("--support", "own", "--save", kept, "--no-trust")
        arml(sides[1], "adapt", "starter", *given)
    places = {"RUN": run, "KEPT": kept, "NEW": scratch / "new"}
    words = [places.get(word, word) for word in command.split()]

    def turn() -> list[tuple[float, float]]:
        taken = []
        for env in sides:
            shutil.rmtree(places["NEW"], ignore_errors=True)
            taken.append(arml(env, *words))
        return taken

    turn()
    turns = [turn() for _ in range(rounds)]
    return {
        "ours_seconds": spread([now[0] for now, _ in turns]),
        "theirs_seconds": spread([then[0] for _, then in turns]),
        "times_as_fast": spread([then[0] / now[0] for now, then in turns]),
        "ours_processor_seconds": spread([now[1] for now, _ in turns]),
        "theirs_processor_seconds": spread([then[1] for _, then in turns]),
    }


def steps(sides: list[Worker], rounds: int, seconds: float) -> dict[str, Any]:
    """A duel of outer steps, with the seconds of a processor besides."""
    sizes = [calls_for(side, seconds) for side in sides]
    turns = []
    for _ in range(rounds):
        turn = []
        for side, n in zip(sides, sizes, strict=True):
            begun, each = spent(side.process.pid), n * side.facts["outer_steps_a_call"]
            turn.append((side.seconds(n), (spent(side.process.pid) - begun) / each))
        turns.append(turn)
    return {
        "ours_seconds": spread([now[0] for now, _ in turns]),
        "theirs_seconds": spread([then[0] for _, then in turns]),
        "times_as_fast": spread([then[0] / now[0] for now, then in turns]),
        "ours_processor_seconds": spread([now[1] for now, _ in turns]),
        "theirs_processor_seconds": spread([then[1] for _, then in turns]),
        "calls_a_turn": sizes,
        "ours": sides[0].facts,
        "theirs": sides[1].facts,
    }


def spent(process: int) -> float:
    """Processor seconds of a process that runs, on Linux."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """Of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def kept(names: list[str], commit: str) -> list[dict[str, Any]]:
    """What the file has of the other cases, and of these against other commits."""
    path = HERE / "results" / "before.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else []
    known = [r for r in results if r["case"] in {*CASES, *WAITS}]
    return [r for r in known if r["case"] not in names or r["before"] != commit]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("commit", help="the earlier one")
    parser.add_argument("--cases", nargs="+", choices=[*CASES, *WAITS], help="these only")
    options = parser.parse_args()
    names = options.cases or [*CASES, *WAITS]
    commits = {"now": git("rev-parse", "--short", "HEAD")}
    commits["before"] = git("rev-parse", "--short", options.commit)
    before, results = machine(), kept(names, commits["before"])
    rounds, seconds = (3, 1.0) if options.quick else (7, 3.0)
    with TemporaryDirectory() as folder:
        now, then = HERE.parent, Path(folder) / "before"
        git("worktree", "add", "--detach", then, options.commit)
        try:
            for name in names:
                if name in WAITS:
                    with TemporaryDirectory() as scratch:
                        result = waited(name, [now, then], Path(scratch), 2 if options.quick else 5)
                else:
                    sides = [
                        Worker(
                            sys.executable,
                            str(tree / "benchmarks" / "arml_steps.py"),
                            *CASES[name],
                            env=environment(tree),
                        )
                        for tree in (now, then)
                    ]
                    result = steps(sides, rounds, seconds)
                    for side in sides:
                        side.close()
                results.append({"case": name, **commits, **result})
                a, b, r = (result[k] for k in ("ours_seconds", "theirs_seconds", "times_as_fast"))
                print(
                    f"{name}: {a['median']:.4f} s, {commits['before']} {b['median']:.4f} s, "
                    f"{r['median']:.2f} times as fast ({r['min']:.2f} to {r['max']:.2f})",
                    flush=True,
                )
                write("before", results, before, quick=options.quick)
        finally:
            git("worktree", "remove", "--force", then)


if __name__ == "__main__":
    main()
