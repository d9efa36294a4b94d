"""Whether it matters what a task reads: the score of ARML with templates on conflicting families,
with each task's own reading, with the mean reading, and with the reading of one family for all;
beside a ProtoNet of the same families. Both are runs of `specialists.py`, at their newest
checkpoint.
"""

import argparse
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from arml.core.learner import Conditioned
from arml.experiment import Run
from arml.training.evaluate import evaluate
from common import machine, write


class Always(eqx.Module):
    """An encoder that gives every task the same code."""

    code: Array

    def __call__(self, support: Any) -> tuple[Array, float]:
        return self.code, 0.0


@eqx.filter_jit
def read(learner: Conditioned, tasks: Any, key: Array) -> tuple[Array, Array]:
    """A task's family and its reading."""
    task = tasks.sample(key)
    return task.family, learner.encode(learner.look(learner.net, task.support))[0]


def main() -> None:
    """Score the run of ARML and that of ProtoNet on the same validation tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arml", type=Path)
    parser.add_argument("protonet", type=Path)
    parser.add_argument("--tasks", type=int, default=120)
    given = parser.parse_args()
    before = machine()
    run, other = Run(given.arml), Run(given.protonet)
    learner, tasks = run.learner, run.splits.validation
    assert isinstance(learner, Conditioned)
    drawn = [read(learner, run.splits.train, jax.random.key(i)) for i in range(40)]
    family, codes = (np.stack(part) for part in zip(*drawn, strict=True))
    names = tasks.families
    means = [codes[family == i].mean(axis=0) for i in range(len(names))]
    instead = {"mean": np.mean(means, axis=0), **dict(zip(names, means, strict=True))}

    def scored(one: Any) -> Any:
        return evaluate(one, tasks, split="validation", n=given.tasks, chunk=1)

    own = scored(learner)
    values = {"own reading": own.values}
    for name, code in instead.items():
        fixed = eqx.tree_at(lambda m: m.encode, learner, Always(jnp.asarray(code)))
        values[f"reading of {name}"] = scored(fixed).values
    values["protonet"] = scored(other.learner).values
    rows: dict[str, Any] = {}
    for what, scores in values.items():
        rows[what] = {}
        for i, name in enumerate(names):
            mine = own.families == i
            lost = (own.values - scores)[mine]
            half = 1.96 * lost.std(ddof=1) / len(lost) ** 0.5
            rows[what][name] = {
                "accuracy": round(float(scores[mine].mean()), 4),
                "less than own": [round(float(lost.mean()), 4), round(float(half), 4)],
                "tasks": int(mine.sum()),
            }
        print(what, rows[what], flush=True)
    found = {
        "runs": [given.arml.name, given.protonet.name],
        "steps": [run.step, other.step],
        "of": [run.experiment.steps, other.experiment.steps],
        "readings": {n: np.round(m, 3).tolist() for n, m in zip(names, means, strict=True)},
        "scores": rows,
    }
    write("readings", found, before)


if __name__ == "__main__":
    main()
