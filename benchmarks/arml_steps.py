"""Our side: the library's own meta-step, tasks drawn on the device.

python arml_steps.py conv4 SIZE SHOTS
python arml_steps.py regression2d RECIPE STEPS_A_DISPATCH
python arml_steps.py folders RECIPE STEPS_A_DISPATCH
python arml_steps.py plain-multi RECIPE SHOTS CHUNK
"""

import sys
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from arml.algorithms.maml import MAMLOptions
from arml.core.episodes import Problem, TaskDistribution
from arml.core.learner import MetaLearner, parameters
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.nn.networks import Conv4Options
from arml.results.files import cores
from arml.tasks.functions import functions_2d
from arml.tasks.images import ImageEpisodes, Table
from arml.training.devices import everywhere, mesh_of, own_cores, sharing
from arml.training.fit import OuterOptions, make_interval, make_step, start
from common import serve


def noise_images(
    size: int, shots: int, *, ways: int = 5, classes: int = 10, images: int = 20
) -> ImageEpisodes:
    """`ways`-way tasks over random pixels: the time does not depend on what the images show."""
    problem = Problem("classification", (size, size, 3), ways, shots, 15, classes)
    shape = (classes * images, size, size, 3)
    return ImageEpisodes(
        families=("noise",),
        problem=problem,
        stated="",
        size=None,
        pixels=jax.random.randint(jax.random.key(0), shape, 0, 256).astype(jnp.uint8),
        table=Table(
            first=images * jnp.arange(classes),
            count=jnp.full(classes, images),
            first_class=jnp.zeros(1, jnp.int32),
            classes=jnp.full(1, classes),
        ),
    )


def ready(
    learner: MetaLearner,
    tasks: TaskDistribution,
    outer: OuterOptions,
    *,
    batch: int,
    dispatch: int,
    chunk: int | None = None,
) -> tuple[Callable[[int], None], float]:
    """`steps(n)` takes `n * dispatch` outer steps; and the seconds to the end of the first."""
    optimiser = outer.build(1_000_000)
    # As `arml train` does: long steps are shared by the cores.
    devices = 1 if dispatch > 1 else sharing(batch, chunk or batch, own_cores())
    mesh = mesh_of(devices)
    step = make_step(optimiser, batch=batch, chunk=chunk, mesh=mesh, key=jax.random.key(1))
    interval = make_interval(step, steps=dispatch, scan=dispatch > 1)
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

    return steps, first


Steps = tuple[Callable[[int], None], float, MetaLearner]


def conv4(size: int, shots: int) -> Steps:
    tasks = noise_images(size, shots)
    net_key, key = jax.random.split(jax.random.key(0))
    net = Conv4Options().build(tasks.problem, key=net_key)
    learner = MAMLOptions(inner_rate=0.01).build(net, tasks.problem, key=key)
    return *ready(learner, tasks, OuterOptions(), batch=4, dispatch=1, chunk=1), learner


def of_recipe(
    experiment: Experiment, tasks: TaskDistribution, dispatch: int, chunk: int = 0
) -> Steps:
    """`chunk` is that of the experiment if it is 0."""
    net_key, key = jax.random.split(jax.random.key(0))
    net = experiment.network.build(tasks.problem, key=net_key)
    learner = experiment.algorithm.build(net, tasks.problem, key=key)
    batch, chunk = experiment.batch, min(experiment.batch, chunk or experiment.chunk)
    steps = ready(learner, tasks, experiment.outer, batch=batch, dispatch=dispatch, chunk=chunk)
    return *steps, learner


def main() -> None:
    kind, *rest = sys.argv[1:]
    jax.config.update("jax_num_cpu_devices", cores())
    dispatch = 1
    if kind == "conv4":
        steps, first, learner = conv4(*map(int, rest))
    elif kind == "plain-multi":
        shots, chunk = int(rest[1]), int(rest[2])
        made = recipe(rest[0], shots=shots)
        steps, first, learner = of_recipe(made, noise_images(84, shots), 1, chunk)
    else:
        made, dispatch = recipe(rest[0]), int(rest[1])
        if kind == "folders":
            # A method that trains on more ways than it is tested on has its own.
            ways = made.tasks.train_ways or 5
            tasks: TaskDistribution = noise_images(28, 1, ways=ways, classes=2 * ways)
        else:
            tasks = functions_2d()
        steps, first, learner = of_recipe(made, tasks, dispatch)
    device = jax.local_devices()[0]
    facts = {"jax": jax.__version__, "device": device.device_kind}
    facts["parameters"] = parameters(learner)
    facts["device_peak_bytes"] = (device.memory_stats() or {}).get("peak_bytes_in_use")
    serve(steps, each=dispatch, compile_and_first_step_seconds=first, **facts)


if __name__ == "__main__":
    main()
