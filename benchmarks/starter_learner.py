"""The learner that ships, and others beside it, on the same test tasks of the starter pictures, by
shots."""

import argparse
import json
from pathlib import Path

import arml
from arml.predict.predictor import inductive
from arml.tasks.options import StarterOptions
from arml.training.evaluate import evaluate
from common import HERE, machine, write

RESULTS = HERE / "results" / "starter_learner.json"


def main() -> None:
    """Score each learner at each number of shots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learners", nargs="+", default=["now=starter"], metavar="NAME=LEARNER")
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 3, 5, 10])
    parser.add_argument("--split", choices=["validation", "test"], default="test")
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    before = machine()
    done = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    learners = {}
    for word in given.learners:
        name, _, place = word.partition("=")
        learners[name] = inductive(arml.load(place).portable.learner)
    for shots in given.shots:
        tasks = StarterOptions(shots=shots, queries=10).build(Path("none"))
        for name, learner in learners.items():
            key = f"{name}, {shots}-shot, {given.split}"
            if key in done:
                continue
            score = evaluate(
                learner, tasks, given.tasks, split=given.split, chunk=1, progress=False
            ).score
            done[key] = {**score, "tasks": given.tasks}
            print(key, score, flush=True)
            if not given.no_write:
                write("starter_learner", done, before)


if __name__ == "__main__":
    main()
