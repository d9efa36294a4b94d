"""Our side: the library's own meta-step, tasks drawn on the device.

python arml_steps.py conv4 SIZE SHOTS
python arml_steps.py regression2d RECIPE STEPS_A_DISPATCH
python arml_steps.py folders RECIPE STEPS_A_DISPATCH
python arml_steps.py plain-multi RECIPE SHOTS CHUNK
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp

import arml
from arml.algorithms.maml import MAMLOptions
from arml.core.episodes import Problem, TaskDistribution
from arml.core.learner import MetaLearner, parameters
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.nn.networks import Conv4Options
from arml.results.machine import cores
from arml.tasks.functions import functions_2d
from arml.tasks.images import ClassTable, ImageEpisodes
from arml.training.devices import everywhere, mesh_of, own_cores, share, sharing
from arml.training.fit import OuterOptions, compiled, make_step, start
from common import serve


def noise_images(
    size: int, shots: int, *, ways: int = 5, classes: int = 10, images: int = 20
) -> ImageEpisodes:
    """`ways`-way tasks over random pixels: the time does not depend on what the images show."""
    problem = Problem(
        "classification", (size, size, 3), ways, shots, 15, classes, inputs="pictures"
    )
    shape = (classes * images, size, size, 3)
    return ImageEpisodes(
        families=("noise",),
        problem=problem,
        stated="",
        size=None,
        pixels=jax.random.randint(jax.random.key(0), shape, 0, 256).astype(jnp.uint8),
        table=ClassTable(
            first=images * jnp.arange(classes),
            count=jnp.full(classes, images),
            first_class=jnp.zeros(1, jnp.int32),
            classes=jnp.full(1, classes),
        ),
    )


def ready(
    made: Experiment, tasks: TaskDistribution, dispatch: int
) -> tuple[Callable[[int], None], float, MetaLearner]:
    """`steps(n)`, which takes `n * dispatch` outer steps; the seconds to the end of the first
    dispatch; and the learner before training."""
    learner = arml.build(made, tasks.problem, seed=0)
    optimiser, batch = made.outer.build(1_000_000), made.batch
    # As `arml train` does: long steps are shared by the cores.
    mesh = mesh_of(1 if dispatch > 1 else sharing(batch, made.chunk, own_cores()))
    chunk = min(made.chunk, share(mesh, batch))
    step = make_step(optimiser, batch=batch, chunk=chunk, mesh=mesh, key=jax.random.key(1))
    interval = compiled(step, dispatch if dispatch > 1 else None)
    state, tasks = everywhere(mesh, (start(learner, optimiser), tasks))
    begun = time.perf_counter()
    state, _ = jax.block_until_ready(interval(tasks, state))
    first = time.perf_counter() - begun

    def steps(n: int) -> None:
        nonlocal state
        for _ in range(n):
            state, record = interval(tasks, state)
        jax.block_until_ready(eqx.filter(state, eqx.is_array))
        assert bool(jnp.all(record.finite)), "the loss is no longer finite: the time means nothing"

    return steps, first, learner


def problem(kind: str, *words: str) -> tuple[Experiment, TaskDistribution, int]:
    """The experiment, its tasks, and the outer steps of one call."""
    if kind == "conv4":
        size, shots = map(int, words)
        known = {"algorithm": MAMLOptions(inner_rate=0.01), "network": Conv4Options()}
        made = replace(recipe("plain-multi/maml"), **known, outer=OuterOptions(), batch=4, chunk=1)
        return made, noise_images(size, shots), 1
    if kind == "plain-multi":
        shots, chunk = map(int, words[1:])
        return replace(recipe(words[0], shots=shots), chunk=chunk), noise_images(84, shots), 1
    made = recipe(words[0])
    if kind == "folders":
        # A method that trains on more ways than it is tested on has its own.
        ways = made.tasks.train_ways or 5
        return made, noise_images(28, 1, ways=ways, classes=2 * ways), int(words[1])
    return made, functions_2d(), int(words[1])


def main() -> None:
    jax.config.update("jax_num_cpu_devices", cores())
    made, tasks, dispatch = problem(*sys.argv[1:])
    steps, first, learner = ready(made, tasks, dispatch)
    device = jax.local_devices()[0]
    facts = {"jax": jax.__version__, "device": device.device_kind}
    facts["parameters"] = parameters(learner)
    facts["device_peak_bytes"] = (device.memory_stats() or {}).get("peak_bytes_in_use")
    serve(steps, each=dispatch, compile_and_first_step_seconds=first, **facts)


if __name__ == "__main__":
    main()
