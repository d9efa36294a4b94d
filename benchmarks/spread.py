"""What of a support set tells conflicting families apart: the means of its classes, or the share of
each feature's variance that lies between classes. Clusters by k-means, without the families' names,
on the features of a network that was trained on both families."""

import argparse
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from arml.experiment.loaded import Run
from arml.nn.prototypes import Spread, class_means
from common import machine, write


def clusters(x: Float[np.ndarray, "n d"], count: int) -> Int[np.ndarray, " n"]:
    """The best of ten runs of k-means."""
    best = (np.inf, np.zeros(len(x), int))
    for seed in range(10):
        centres = x[np.random.default_rng(seed).choice(len(x), count, replace=False)]
        for _ in range(50):
            distances = np.sum((x[:, None] - centres) ** 2, axis=-1)
            nearest = distances.argmin(axis=1)
            centres = np.stack(
                [x[nearest == k].mean(axis=0) if k in nearest else x[k] for k in range(count)]
            )
        loss = float(distances.min(axis=1).sum())
        best = min(best, (loss, nearest), key=lambda pair: pair[0])
    return best[1]


def main() -> None:
    """Describe the training tasks of a run of ProtoNet, and cluster the descriptions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a run that benchmarks/fair.py made")
    parser.add_argument("--tasks", type=int, default=240)
    given = parser.parse_args()
    before = machine()
    trained = Run(given.run)
    tasks, body = trained.splits.train, trained.learner.body  # type: ignore[attr-defined]
    ways = tasks.problem.outputs

    @eqx.filter_jit
    def described(key: Array) -> tuple[Array, Array, Array]:
        task = tasks.sample(key)
        features = body(task.support.x)
        means, _ = class_means(features, task.support.y, ways)
        spread = Spread(ways)(features, features, task.support.y)[0]
        return task.family, means.mean(axis=0), spread

    drawn = [described(jax.random.key(i)) for i in range(given.tasks)]
    family, means, spread = (np.stack(part) for part in zip(*drawn, strict=True))
    count = len(tasks.families)
    tables = {}
    for name, x in (("class means", means), ("spread", spread)):
        found = clusters(x.astype(np.float64), count)
        tables[name] = {
            of: np.bincount(found[family == i], minlength=count).tolist()
            for i, of in enumerate(tasks.families)
        }
        print(name, tables[name])
    write("spread", {"run": given.run.name, "clusters": tables}, before)


if __name__ == "__main__":
    main()
