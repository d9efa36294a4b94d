"""The convolutions of Conv-4's inner blocks alone, on one core: 3 x 3, 32 to 32 channels, forward,
and the kernel's gradient as it is and as one product over all positions, beside a large matrix
product and a kernel written by hand in C++ (`convolution.cc`, where g++ and AVX-512 are).

Times are of the processor, in turns, which other work on the machine changes less.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from arml.core.compilation import LARGE, jit
from arml.nn import convolution
from common import HERE, arguments, machine, spread, write

SIZES = ((80, 28), (80, 14), (80, 7), (20, 42))
"""Images of a task, and their side."""
CHANNELS = 32


def compiled(function: Callable[..., Array], *given: Array) -> Callable[[], float]:
    """Its processor seconds, compiled and called once before."""
    program = jit(function, LARGE)
    jax.block_until_ready(program(*given))

    def seconds() -> float:
        begun = time.process_time()
        jax.block_until_ready(program(*given))
        return time.process_time() - begun

    return seconds


def gradient(positions: int) -> Callable[[Array, Array], Array]:
    """The kernel's gradient by products over so many positions."""

    def found(x: Array, g: Array) -> Array:
        usual, convolution.POSITIONS = convolution.POSITIONS, positions
        try:
            return convolution._correlate((3, 3), x, g)
        finally:
            convolution.POSITIONS = usual

    return found


def by_hand(program: Path) -> None:
    """Compile `convolution.cc`."""
    command = ["g++", "-O3", "-march=native", "-std=c++17", HERE / "convolution.cc", "-o", program]
    subprocess.run(command, check=True)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    before, rounds = machine(), 9 if options.quick else 25
    square = jnp.ones((2048, 2048))
    large = compiled(jnp.matmul, square, square)
    results: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        program = Path(folder) / "convolution" if shutil.which("g++") else None
        if program:
            by_hand(program)
        for n, side in SIZES:
            x = jax.random.normal(jax.random.key(0), (n, side, side, CHANNELS))
            kernel = jax.random.normal(jax.random.key(1), (3, 3, CHANNELS, CHANNELS))
            ways = {
                "forward": compiled(convolution.convolve, x, kernel),
                "kernel_gradient": compiled(gradient(convolution.POSITIONS), x, x),
                "in_one_product": compiled(gradient(10**9), x, x),
            }
            turns = [{name: run() for name, run in ways.items()} for _ in range(rounds)]
            taken = {name: spread([turn[name] for turn in turns]) for name in ways}
            row: dict[str, Any] = {"images": n, "side": side, "seconds": taken}
            row["gflop"] = 2 * x.size * 9 * CHANNELS / 1e9
            row["large_product_gflops"] = spread([2 * 2048**3 / large() / 1e9 for _ in range(3)])
            if program:
                command = [program, str(n), str(side)]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                forward, backward = map(float, said.split())
                row["by_hand_seconds"] = {"forward": forward, "kernel_gradient": backward}
            results.append(row)
            speeds = {name: row["gflop"] / found["median"] for name, found in taken.items()}
            print(n, side, {name: f"{speed:.0f} GFLOP/s" for name, speed in speeds.items()})
    write("convolutions", results, before, quick=options.quick)


if __name__ == "__main__":
    main()
