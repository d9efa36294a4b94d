"""The learner that ships, trained on five classes a task, on tasks of more classes; beside it
groups of five-way tasks, and nearest class means of its body's features and of pixels.

Classes are those of the starter set's validation part, all families together, so that nothing is
decided on test classes. Results go to `results/more_classes.json`.
"""

import argparse
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import arml
from arml.core.episodes import Examples
from arml.datasets.starter import load_starter
from arml.predict.classes import grouped_function
from arml.predict.inference import by_chunks
from arml.predict.inputs import floats
from arml.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "more_classes.json"
QUERIES = 4


def classes() -> list[np.ndarray]:
    """The pictures of each validation class."""
    families, split = load_starter()
    found = []
    for family in families:
        for name in sorted(split[family.name]["validation"]):
            i = family.classes.index(name)
            found.append(family.images[family.first[i] : family.first[i] + family.counts[i]])
    return found


def accuracies(
    few: arml.FewShotLearner,
    known: list[np.ndarray],
    ways: int,
    shots: int,
    rng: np.random.Generator,
) -> dict[str, float]:
    """The accuracy of each route on one task."""
    drawn = [rng.permutation(known[k]) for k in rng.choice(len(known), ways, replace=False)]
    x = np.concatenate([some[:shots] for some in drawn])
    query = np.concatenate([some[shots : shots + QUERIES] for some in drawn])
    y, wanted = np.repeat(np.arange(ways), shots), np.repeat(np.arange(ways), QUERIES)
    learner, problem = few.portable.learner, few.problem
    support = Examples(jnp.asarray(floats(x)), jnp.asarray(y, jnp.int32))
    function = grouped_function(learner, support, problem, ways)
    body = learner.embedding()(support.x)

    def nearest(x: np.ndarray, query: np.ndarray) -> np.ndarray:
        means = np.stack([x[y == k].mean(axis=0) for k in range(ways)])
        return np.square(query[:, None] - means).sum(axis=-1).argmin(axis=1)

    flat = floats(x).reshape(len(x), -1), floats(query).reshape(len(query), -1)
    answers = {
        "learner": few.adapt(x, y).predict(query),
        "groups": by_chunks(function, query, ways).argmax(axis=1),
        "body": nearest(np.asarray(body(support.x)), np.asarray(body(jnp.asarray(floats(query))))),
        "pixels": nearest(*flat),
    }
    return {name: float(np.mean(answer == wanted)) for name, answer in answers.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=10)
    tasks = parser.parse_args().tasks
    few, known, rng, rows = arml.load("starter"), classes(), np.random.default_rng(0), []
    for ways, shots in ((10, 1), (10, 3), (30, 3), (60, 3)):
        scores = [accuracies(few, known, ways, shots, rng) for _ in range(tasks)]
        means = {name: float(np.mean([score[name] for score in scores])) for name in scores[0]}
        rows.append({"ways": ways, "shots": shots, "tasks": tasks, "accuracy": means})
        print(rows[-1], flush=True)
    RESULTS.write_text(json.dumps({"rows": rows, **provenance()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
