"""Several seeds of a 2-D recipe: one program for all of them by `vmap`, against one program a seed,
as `arml train --seeds` runs them, each on a core of its own.

Both run in one process on one core, in turns, at the recipe's batch. The time is that of the
processor, which other work on the machine changes less. The file also has the compilation of each,
and the largest difference of a weight between a seed alone and the same seed among the others.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from arml.experiment.building import started
from arml.experiment.recipes import recipe
from arml.tasks.options import splits_of
from arml.training.options import training_key
from arml.training.step import make_interval, make_step
from common import arguments, machine, spread, write


def measure(name: str, seeds: int, steps: int, rounds: int) -> dict[str, Any]:
    """Processor seconds of one outer step of one seed, by both ways."""
    experiment = recipe(name)
    with TemporaryDirectory() as folder:
        tasks = splits_of(experiment.tasks.build(Path(folder) / "split.json")).train
    optimiser = experiment.outer.build(experiment.steps)

    def interval(data: PyTree, arrays: PyTree) -> PyTree:
        key = jax.random.wrap_key_data(data)
        step = make_step(optimiser, batch=experiment.batch, key=key)
        state = make_interval(step, steps=steps, scan=True)(tasks, eqx.combine(arrays, static))[0]
        return eqx.filter(state, eqx.is_array)

    state = started(experiment, tasks.problem)
    arrays, static = eqx.partition(state, eqx.is_array)
    data = jnp.stack([jax.random.key_data(training_key(seed)) for seed in range(seeds)])
    many = jax.tree.map(lambda a: jnp.stack([a] * seeds), arrays)
    alone, alone_compiled = compiled(interval, data[0], arrays)
    together, together_compiled = compiled(jax.vmap(interval), data, many)
    difference = max(
        float(np.max(np.abs(np.asarray(a) - np.asarray(b[0]))))
        for a, b in zip(
            jax.tree.leaves(alone(data[0], arrays)),
            jax.tree.leaves(together(data, many)),
            strict=True,
        )
    )
    turns = []
    for _ in range(rounds):
        one = taken(lambda: [alone(data[i], arrays) for i in range(seeds)])
        turns.append((one, taken(lambda: together(data, many))))
    each = steps * seeds
    return {
        "recipe": name,
        "seeds": seeds,
        "batch": experiment.batch,
        "steps_a_dispatch": steps,
        "alone_seconds": spread([one / each for one, _ in turns]),
        "together_seconds": spread([all_ / each for _, all_ in turns]),
        "together_times_as_fast": spread([one / all_ for one, all_ in turns]),
        "compile_seconds": {"alone": alone_compiled, "together": together_compiled},
        "largest_difference_after_a_dispatch": difference,
    }


def compiled(function: Callable[..., PyTree], *given: PyTree) -> tuple[Any, float]:
    """The compiled function, and the processor seconds that it took."""
    begun = time.process_time()
    return jax.jit(function).lower(*given).compile(), time.process_time() - begun


def taken(run: Callable[[], PyTree]) -> float:
    """Processor seconds."""
    begun = time.process_time()
    jax.block_until_ready(run())
    return time.process_time() - begun


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--recipes", nargs="+", default=["regression2d/maml"])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    before, rounds = machine(), 5 if options.quick else 15
    results = []
    for name in options.recipes:
        result = measure(name, options.seeds, 50, rounds)
        results.append(result)
        gain, lost = result["together_times_as_fast"], result["largest_difference_after_a_dispatch"]
        print(
            f"{name}: {options.seeds} seeds in one program {gain['median']:.2f} times as fast "
            f"({gain['min']:.2f} to {gain['max']:.2f}); largest difference {lost:.2g}",
            flush=True,
        )
        write("seeds", results, before, quick=options.quick)


if __name__ == "__main__":
    main()
