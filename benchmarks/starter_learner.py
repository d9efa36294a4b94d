"""The learner that ships on test tasks of the starter pictures, by shots and by ways, beside the
nearest class mean of the frozen features that ship. All are scored on the same tasks."""

import argparse
import json
from pathlib import Path
from typing import Any

import arml
from arml.experiment.recipes import build, recipe
from arml.predict.predictor import inductive
from arml.tasks.options import StarterOptions, VectorsOptions
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
        shape: dict[str, int] = {"shots": shots, "queries": 10}
        pictures = StarterOptions(**shape).build(Path("none"))
        vectors = VectorsOptions(data=("starter",), **shape).build(Path("none"))
        frozen = build(recipe("features/frozen-protonet"), vectors.test.problem)
        rows: list[tuple[str, Any, Any]] = [("frozen nearest mean", frozen, vectors)]
        rows += [(name, learner, pictures) for name, learner in learners.items()]
        for name, learner, tasks in rows:
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
