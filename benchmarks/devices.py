"""Tasks a second of one run in one process on one core and in two processes on two.

Two processes are tried twice: each bound to a core of its own, and both free on the two, so that
the thread which sends and receives can run beside the one that waits for it. All sides stay alive
and take turns. Where others use the cores, the wall clock says nothing; `--clock processor` then
counts the seconds that each process had a processor for, the slower one's for the two: what is left
out is the time that one waits for the other.

python devices.py worker RECIPE BATCH STEPS_A_DISPATCH CLOCK CORES PORT PROCESSES PROCESS
"""

import os
import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from common import Worker, arguments, machine, serve, spread, write

CASES = (
    ("regression2d/maml", 24, 50),
    ("regression2d/maml", 400, 10),
    ("regression2d/arml", 24, 50),
    ("folders/maml", 4, 1),
)
"""Recipe, tasks of an outer step, outer steps a dispatch."""
MESSAGES = 100
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


def worker(words: Sequence[str]) -> None:
    recipe, batch, dispatch, clock, cores, port, processes, process = words
    if hasattr(os, "sched_setaffinity"):
        # Before JAX starts its threads.
        os.sched_setaffinity(0, {*map(int, cores.split(","))})
    import equinox as eqx
    import jax

    from arml.experiment.recipes import recipe as named
    from arml.tasks.functions import functions_2d
    from arml.training.devices import everywhere, mesh_of
    from arml.training.processes import join
    from arml.training.step import make_interval, make_step, start
    from arml_steps import noise_images

    # Gloo says on the standard output that it is connected; ours is for the figures alone.
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if int(processes) > 1:
        join(f"127.0.0.1:{port}", int(processes), int(process))
    mesh, experiment = mesh_of(1), named(recipe)
    tasks: Any = functions_2d() if recipe.startswith("regression2d") else noise_images(28, 1)
    net_key, key = jax.random.split(jax.random.key(0))
    net = experiment.network.build(tasks.problem, key=net_key)
    learner = experiment.algorithm.build(net, tasks.problem, key=key)
    optimiser = experiment.outer.build(1_000_000)
    chunk = min(experiment.chunk, int(batch) // int(processes))
    step = make_step(optimiser, batch=int(batch), chunk=chunk, mesh=mesh, key=jax.random.key(1))
    interval = make_interval(step, steps=int(dispatch), scan=int(dispatch) > 1)
    state, tasks = everywhere(mesh, (start(learner, optimiser), tasks))

    def steps(n: int) -> None:
        nonlocal state
        for _ in range(n):
            state, _record = interval(tasks, state)
        jax.block_until_ready(eqx.filter(state, eqx.is_array))

    numbers = jax.tree.leaves(eqx.filter(learner, eqx.is_inexact_array))
    # The gradient, and of each task its loss and its family.
    size = sum(leaf.size for leaf in numbers) + 2 * int(batch)
    facts = {"bytes_a_step": 4 * size, "seconds_a_message": seconds_a_message(mesh, size)}
    serve(steps, each=int(dispatch), clock=CLOCKS[clock], **facts)


def seconds_a_message(mesh: Any, size: int) -> float | None:
    """Of adding up `size` numbers over the processes, as a step does; None for a single process."""
    import jax
    import jax.numpy as jnp

    from arml.training.devices import everywhere, over_tasks

    if mesh is None:
        return None

    def sums(x: Any) -> Any:
        add = over_tasks(mesh, lambda given, _: (given / 2, None))
        return jax.lax.scan(lambda x, _: (add(x, jnp.zeros(2))[0], None), x, length=MESSAGES)[0]

    run, x = jax.jit(sums), everywhere(mesh, jnp.ones(size))
    times = []
    for _ in range(4):
        begun = time.perf_counter()
        jax.block_until_ready(run(x))
        times.append((time.perf_counter() - begun) / MESSAGES)
    return min(times[1:])


class Group:
    """The processes of one run."""

    def __init__(self, case: tuple[str, int, int], clock: str, cores: Sequence[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]

        def member(i: int) -> Worker:
            rest = (*case, clock, cores[i], port, len(cores), i)
            return Worker(sys.executable, "devices.py", "worker", *rest)

        # All at once, for each waits for the others.
        self.pool = ThreadPoolExecutor(len(cores))
        self.workers = list(self.pool.map(member, range(len(cores))))
        self.facts, self.batch = self.workers[0].facts, case[1]

    def tasks_a_second(self, calls: int) -> float:
        """Over `calls` dispatches."""
        return self.batch / max(self.pool.map(lambda w: w.seconds(calls), self.workers))

    def close(self) -> None:
        # All at once, for none ends before the others do.
        list(self.pool.map(Worker.close, self.workers))
        self.pool.shutdown()


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2:])
        return
    parser = arguments(__doc__ or "")
    parser.add_argument("--recipes", nargs="+", choices=[case[0] for case in CASES])
    parser.add_argument("--cores", nargs=2, type=int, default=[0, 1], help="one a process")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    before, results = machine(), []
    rounds, seconds = (3, 1.0) if options.quick else (9, 4.0)
    for case in CASES:
        if options.recipes and case[0] not in options.recipes:
            continue
        first, second = map(str, options.cores)
        sides = {"one": [first], "two": [first, second], "two_free": [f"{first},{second}"] * 2}
        groups = [Group(case, options.clock, cores) for cores in sides.values()]
        calls = [
            max(1, round(seconds * group.tasks_a_second(1) / (case[1] * case[2])))
            for group in groups
        ]
        turns = [
            [group.tasks_a_second(n) for group, n in zip(groups, calls, strict=True)]
            for _ in range(rounds)
        ]
        bound, free = groups[1].facts, groups[2].facts
        for group in groups:
            group.close()
        result = {
            "recipe": case[0],
            "batch": case[1],
            "tasks_a_second_of_one": spread([one for one, _, _ in turns]),
            "tasks_a_second_of_two": spread([two for _, two, _ in turns]),
            "times_as_many": spread([two / one for one, two, _ in turns]),
            "tasks_a_second_of_two_free": spread([two for _, _, two in turns]),
            "times_as_many_free": spread([two / one for one, _, two in turns]),
            "bytes_a_step": bound["bytes_a_step"],
            "seconds_a_message": bound["seconds_a_message"],
            "seconds_a_message_free": free["seconds_a_message"],
            "cores": options.cores,
            "clock": options.clock,
        }
        results.append(result)
        print(
            f"{case[0]}, {case[1]} tasks a step: {result['tasks_a_second_of_one']['median']:,.0f} "
            f"a second in one process, {result['times_as_many']['median']:.2f} times as many in "
            f"two with a core each, {result['times_as_many_free']['median']:.2f} in two on both; a "
            f"message of {bound['bytes_a_step']:,} bytes a step takes "
            f"{1e3 * bound['seconds_a_message']:.2f} and {1e3 * free['seconds_a_message']:.2f} ms",
            flush=True,
        )
    write("devices", results, before, quick=options.quick)


if __name__ == "__main__":
    main()
