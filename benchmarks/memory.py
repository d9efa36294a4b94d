"""Memory of one outer step of second-order MAML on images, with and without recomputed inner steps,
and by the number of tasks adapted to at once.

Each setting is a process of its own: what XLA plans for temporary arrays, the peak of the process
over a step, and the seconds of compilation and step. Conv-4, 32 filters, 5-way, 15 queries a class,
batch statistics.

python memory.py worker SIZE SHOTS BATCH INNER_STEPS CHUNK REMAT STEPS
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from common import arguments, machine, write


def worker(words: Sequence[str]) -> None:
    size, shots, batch, inner, chunk, remat, steps = map(int, words)
    import jax

    from arml.algorithms.maml import MAMLOptions
    from arml.core.compilation import LARGE, jit
    from arml.nn.networks import Conv4Options
    from arml.training.step import OuterOptions, make_step, start
    from arml_steps import noise_images

    tasks = noise_images(size, shots)
    key = jax.random.key(0)
    net = Conv4Options().build(tasks.problem, key=key)
    options = MAMLOptions(inner_rate=0.01, inner_steps=inner, remat=bool(remat))
    learner = options.build(net, tasks.problem, key=key)
    optimiser = OuterOptions().build(100)
    step = make_step(optimiser, batch=batch, chunk=chunk, key=key)
    state = start(learner, optimiser)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    compiled = jit(step, LARGE, donate="all-except-first").lower(tasks, state).compile()
    after = time.perf_counter()
    plan = compiled.compiled.memory_analysis()
    facts = {
        "planned_gib": plan.temp_size_in_bytes / 2**30,
        "before_gib": before / 2**20,
        "compile_seconds": after - begun,
    }
    if steps:
        begun = time.perf_counter()
        state, record = jax.block_until_ready(compiled(tasks, state))
        facts["step_seconds"] = time.perf_counter() - begun
        facts["loss"] = float(record.loss)
        facts["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(facts))


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2:])
        return
    parser = arguments(__doc__ or "")
    parser.add_argument("--size", type=int, default=84)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--inner", type=int, nargs="+", default=[5, 20], help="inner steps")
    parser.add_argument("--plan", action="store_true", help="compile, but take no step")
    options = parser.parse_args()
    before, results = machine(), []
    for inner in options.inner[:1] if options.quick else options.inner:
        for chunk, remat in ((1, 1), (1, 0), (options.batch, 0)):
            setting = {
                "size": options.size,
                "shots": options.shots,
                "batch": options.batch,
                "inner_steps": inner,
                "chunk": chunk,
                "remat": remat,
            }
            numbers = (*setting.values(), int(not options.plan))
            words = [sys.executable, str(Path(__file__)), "worker", *map(str, numbers)]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
            # A setting that the system ends for its memory is a result too.
            facts = json.loads(done.stdout) if done.returncode == 0 else None
            results.append({**setting, "status": done.returncode, "measured": facts})
            said = f"ended with status {done.returncode}"
            if facts:
                said = "  ".join(f"{name} {value:.2f}" for name, value in facts.items())
            print(f"{inner} inner steps, chunk {chunk}, remat {remat}: {said}", flush=True)
            # After each: a setting may take minutes.
            write("memory", results, before, quick=options.quick)


if __name__ == "__main__":
    main()
