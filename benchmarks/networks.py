"""Residual networks and bfloat16: seconds an outer step, and the most memory of the process.

    python benchmarks/networks.py            # each row in a process; networks.json, again
    python benchmarks/networks.py --rows resnet12-84

ProtoNet has one task a step, 5-way 1-shot with 15 queries: 80 pictures. MAML has four tasks of
28 px and five inner steps. The time is the median of `--steps` steps after a first one.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import optax

import arml
from arml.results.files import read_json, write_json
from arml.training.fit import compiled, make_step, start
from common import HERE, machine

FILE = HERE / "results" / "networks.json"
ROWS: dict[str, tuple[str, str, int, int, str]] = {
    "conv4-84": ("protonet", "conv4", 84, 1, "float32"),
    "resnet12-84": ("protonet", "resnet12", 84, 1, "float32"),
    "wrn28-10-32": ("protonet", "wrn28-10", 32, 1, "float32"),
    "maml-28": ("maml", "conv4", 28, 4, "float32"),
    "maml-28-bfloat16": ("maml", "conv4", 28, 4, "bfloat16"),
    "resnet12-84-bfloat16": ("protonet", "resnet12", 84, 1, "bfloat16"),
}
"""Method, network, pixels a side, tasks a step, precision."""


class Noise(arml.TaskDistribution):
    """Pictures of noise: the time of a step does not depend on what they show."""

    size: int
    families = ("noise",)
    problem = property(
        lambda self: arml.Problem(
            "classification", (self.size, self.size, 3), 5, 1, queries=15, inputs="pictures"
        )
    )

    def sample(self, key):
        shape = (self.size, self.size, 3)
        keys = jax.random.split(key)
        y = jnp.arange(5)
        support = arml.Examples(jax.random.normal(keys[0], (5, *shape)), y)
        query = arml.Examples(jax.random.normal(keys[1], (75, *shape)), jnp.tile(y, 15))
        return arml.Task(support, query, jnp.array(0))


def measured(name: str, steps: int) -> dict[str, Any]:
    """The record of one row."""
    method, network, size, batch, precision = ROWS[name]
    tasks = Noise(size)
    learner = arml.build(method, tasks, network=network)
    optimiser = optax.adam(1e-3)
    step = make_step(optimiser, batch=batch, chunk=1, precision=precision, key=jax.random.key(0))
    interval, state = compiled(step), start(learner, optimiser)
    times = []
    for _ in range(steps + 1):
        since = time.perf_counter()
        state, record = interval(tasks, state)
        jax.block_until_ready(record)
        times.append(time.perf_counter() - since)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": median(times[1:]), "first": times[0], "memory_gib": round(memory, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--one", choices=ROWS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one, given.steps)))
        return
    for name in given.rows:
        command = [sys.executable, __file__, "--one", name, "--steps", str(given.steps)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        rows = read_json(FILE)["rows"] if FILE.exists() else {}
        about = dict(
            zip(("method", "network", "size", "tasks", "precision"), ROWS[name], strict=True)
        )
        rows[name] = about | found | {"machine": machine()}
        write_json(FILE, {"rows": rows})
        print(name, found, flush=True)


if __name__ == "__main__":
    main()
