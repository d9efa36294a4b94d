"""Where the time goes: what each hot path needs, what it takes, and what the machine could do.

For each path: operations and bytes counted from shapes (`counts.py`), beside XLA's own count of the
compiled program; its time, compiled alone and mapped over the tasks as the step has it; and the
least time that this machine's limits allow. They are measured in the same process: a matrix product
(GFLOP/s), the copy of a large array (GB/s), an empty dispatch, and one small operation of XLA in a
loop. Tiny networks are held up by the last: a program of N operations takes at least N times that.
"""

import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from arml.core.compilation import LARGE, known
from arml.experiment.recipes import recipe
from arml.tasks.functions import functions_2d
from arml_steps import noise_images
from common import arguments, machine, spread, write
from hot_paths import Path, paths

DISPATCH = 50
"""Outer steps of 2-D regression in one dispatch, as in training."""
RECIPES = ("arml-official", "arml-paper", "arml", "maml")
IMAGES = ("maml", "arml", "protonet")


class Limits(NamedTuple):
    """Of this machine, with as many cores as there are."""

    flops: float
    """A second, of a float32 matrix product of side 2048."""
    bytes: float
    """A second, read and written, where 1 is added to 256 MB in place."""
    cache: float
    """The same over 1 MB, for paths that move less than `CACHED` bytes in all."""
    dispatch: float
    """Seconds of a compiled call that adds one number."""
    operation: float
    """Seconds of one small operation in a compiled loop."""


CACHED = 64e6
FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"),
}


def operations(hlo: str) -> int:
    """How many operations a compiled program carries out: a fusion is one, those of a loop count as
    often as it turns."""
    bodies: dict[str, list[str]] = {}
    entry = name = ""
    for line in hlo.splitlines():
        head = re.match(r"(ENTRY )?%?([\w.-]+) .*\{$", line)
        if head:
            name = head[2]
            bodies[name] = []
            entry = name if head[1] else entry
        elif name:
            bodies[name].append(line)

    def count(name: str) -> int:
        total = 0
        for line in bodies.get(name, ()):
            found = re.search(r" = .*?\s([a-z][a-z0-9-]*)\(", line)
            kind = found[1] if found else "tuple"
            inside = re.search(r"(?:body|to_apply)=%?([\w.-]+)", line)
            if kind == "while" and inside:
                turns = re.search(r'known_trip_count":\{"n":"(\d+)', line)
                total += int(turns[1] if turns else 1) * count(inside[1])
            elif kind == "call" and inside:
                total += max(1, count(inside[1]))
            else:
                total += kind not in FREE
        return total

    return count(entry)


def compiled(function: Callable[..., Any], given: tuple[Any, ...], settings: dict) -> Any:
    """The program for these arguments, and the arrays to call it with. What is no array is part of
    the program."""
    arrays, static = eqx.partition(given, eqx.is_array)

    def plain(*arrays: Any) -> Any:
        return eqx.filter(function(*eqx.combine(arrays, static)), eqx.is_array)

    return jax.jit(plain, compiler_options=known(settings)).lower(*arrays).compile(), arrays


def seconds(call: Callable[[], Any], *, rounds: int, least: float) -> list[float]:
    """Of one call, in rounds of at least `least` seconds."""
    jax.block_until_ready(call())
    begun = time.perf_counter()
    jax.block_until_ready(call())
    calls = max(1, round(least / (time.perf_counter() - begun)))
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        result = None
        for _ in range(calls):
            result = call()
        jax.block_until_ready(result)
        taken.append((time.perf_counter() - begun) / calls)
    return taken


def limits(clock: Callable[..., list[float]]) -> Limits:
    """Measure them."""

    def median(function: Callable[..., Any], *given: Any) -> tuple[float, Any]:
        program, arrays = compiled(function, given, {})
        return statistics.median(clock(lambda: program(*arrays))), program

    side, small, large = 2048, jnp.zeros(2**18), jnp.zeros(2**26)
    square = jnp.ones((side, side))
    # Large enough for XLA not to melt the loop into one function.
    tiny, turns = jnp.full((20, 20), 0.1), 2000

    def loop(x: jax.Array) -> jax.Array:
        # A product and a tanh, neither of which can be fused with the other.
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ x), None), x, length=turns)[0]

    def speed(x: jax.Array, times: int) -> float:
        # Several times over, as a result in new memory waits for the system's pages.
        def add(x: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, times, lambda _, x: x + 1, x)

        return 2 * times * x.nbytes / median(add, x)[0]

    looped, program = median(loop, tiny)
    return Limits(
        flops=2 * side**3 / median(jnp.matmul, square, square)[0],
        bytes=speed(large, 8),
        cache=speed(small, 1000),
        dispatch=median(lambda x: x + 1, jnp.zeros(()))[0],
        operation=looped / operations(program.as_text()),
    )


def measure(path: Path, limit: Limits, settings: dict, clock: Any) -> dict[str, Any]:
    """Time a path, and hold it against the limits."""
    program, arrays = compiled(path.function, path.arguments, settings)
    arrays = list(arrays)

    def call() -> Any:
        result = program(*arrays)
        if path.carries:
            arrays[-1] = result[0]
        return result

    taken = [t / path.each for t in clock(call)]
    needs, number = path.needs, operations(program.as_text()) / path.each
    least = {
        "arithmetic": needs.flops / limit.flops,
        "memory": needs.bytes / (limit.cache if needs.bytes < CACHED else limit.bytes),
        "operations": number * limit.operation + limit.dispatch / path.each,
    }
    binding = max(least, key=lambda name: least[name])
    analysis = program.cost_analysis() or {}
    analysis = analysis[0] if isinstance(analysis, list) else analysis
    # What a loop does, XLA counts once: of many outer steps one.
    xla = {name: analysis.get(name, 0.0) for name in ("flops", "bytes accessed")}
    return {
        "path": path.name,
        "gflop": needs.flops / 1e9,
        "megabytes": needs.bytes / 1e6,
        "xla_gflop": xla["flops"] / 1e9,
        "xla_megabytes": xla["bytes accessed"] / 1e6,
        "operations": number,
        "seconds": spread(taken),
        "limit_seconds": least,
        "limit": binding,
        "times_the_limit": statistics.median(taken) / least[binding],
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--regression", nargs="*", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--images", nargs="*", choices=IMAGES, default=list(IMAGES))
    parser.add_argument("--sizes", type=int, nargs="+", default=[28, 84], help="pixels")
    options = parser.parse_args()
    before = machine()
    clock = partial(seconds, rounds=3, least=0.05 if options.quick else 0.3)
    limit = limits(clock)
    print({name: f"{value:.3g}" for name, value in limit._asdict().items()}, flush=True)
    subjects: list[tuple[str, str, Any, int]] = [
        (f"regression2d/{name}", "2-D", functions_2d(), DISPATCH) for name in options.regression
    ]
    subjects += [
        (f"folders/{name}", f"{side} px", noise_images(side, 1), 1)
        for side in options.sizes
        for name in options.images
    ]
    results: list[dict[str, Any]] = []
    for name, what, tasks, dispatch in subjects:
        experiment = recipe(name)
        keys = jax.random.split(jax.random.key(0))
        net = experiment.network.build(tasks.problem, key=keys[0])
        learner = experiment.algorithm.build(net, tasks.problem, key=keys[1])
        for path in paths(learner, tasks, experiment, dispatch=dispatch):
            found = measure(path, limit, LARGE if dispatch == 1 else {}, clock)
            results.append({"recipe": name, "tasks": what, **found})
            print(
                f"{name} {what}, {path.name}: {found['gflop']:.3g} GFLOP, "
                f"{found['megabytes']:.3g} MB, {1e3 * found['seconds']['median']:.3g} ms, "
                f"{found['times_the_limit']:.1f} times the limit, {found['limit']}",
                flush=True,
            )
        # After each: a learner may take minutes.
        value = {"limits": limit._asdict(), "paths": results}
        write("roofline", value, before, quick=options.quick)


if __name__ == "__main__":
    main()
