"""One outer step as it is now against what it was at an earlier commit, each side with its own
sources and in its own process, in turns: `python before.py COMMIT [--cases NAME...]`.

And the scoring of 1,000 test tasks by `arml evaluate`, from the start of its process to its end, of
one run on pictures that is made first. Cases that are not run keep what is in the file.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import HERE, Worker, arguments, duel, machine, spread, write

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
EVALUATION = f"evaluation of {TASKS:,} tasks, 32 px"


def git(*words: object) -> str:
    command = ["git", "-C", str(HERE), *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def environment(tree: Path, **more: str) -> dict[str, str]:
    """That in which Python finds the sources of `tree`."""
    return {**os.environ, "PYTHONPATH": str(tree / "src"), **more}


def evaluations(trees: list[Path], scratch: Path, rounds: int) -> dict[str, Any]:
    """Seconds of `arml evaluate` with the sources of each tree; programs are compiled before."""
    run, sides = scratch / "run", [environment(t, ARML_CACHE=str(scratch / t.name)) for t in trees]

    def arml(env: dict[str, str], *words: object) -> float:
        begun = time.perf_counter()
        command = [sys.executable, "-m", "arml", *map(str, words)]
        subprocess.run(command, env=env, check=True, capture_output=True)
        return time.perf_counter() - begun

    few = ("--steps", TRAINED, "--validate-every", TRAINED, "--validation-tasks", 4)
    # By the older sources, for the newer can read them.
    arml(sides[1], "train", "starter/maml", "--run", run, *few)
    score = ("evaluate", run, "--tasks", TASKS, "--out", scratch / "result.json")
    for env in sides:
        arml(env, *score)
    turns = [[arml(env, *score) for env in sides] for _ in range(rounds)]
    return {
        "ours_seconds": spread([now for now, _ in turns]),
        "theirs_seconds": spread([then for _, then in turns]),
        "times_as_fast": spread([then / now for now, then in turns]),
    }


def kept(names: list[str]) -> list[dict[str, Any]]:
    """What the file has of the other cases."""
    path = HERE / "results" / "before.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else []
    return [r for r in results if r["case"] in {*CASES, EVALUATION} - {*names}]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("commit", help="the earlier one")
    parser.add_argument("--cases", nargs="+", choices=[*CASES, EVALUATION], help="these only")
    options = parser.parse_args()
    names = options.cases or [*CASES, EVALUATION]
    before, results = machine(), kept(names)
    rounds, seconds = (3, 1.0) if options.quick else (7, 3.0)
    commits = {"now": git("rev-parse", "--short", "HEAD")}
    commits["before"] = git("rev-parse", "--short", options.commit)
    with TemporaryDirectory() as folder:
        now, then = HERE.parent, Path(folder) / "before"
        git("worktree", "add", "--detach", then, options.commit)
        try:
            for name in names:
                if name == EVALUATION:
                    result = evaluations([now, then], Path(folder), 2 if options.quick else 5)
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
                    result = duel(*sides, rounds=rounds, seconds=seconds)
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
