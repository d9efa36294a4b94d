"""The gain of a second process: one outer step of MAML on Conv-4 at 84 px, and pictures a second.

Steps: pictures of noise, 5-way 1-shot, 4 tasks, 5 inner steps of second order, batch statistics.
One process with one core, one process with two cores as two devices, and two processes with one
core each, joined over loopback; they take turns.

Pictures: JPEG files of 640 x 480 pixels and the learner `photos`. One process with one core, and
Ray with two workers of one core each, alternately. The first two parts of each are not timed.

Processor seconds say more than the clock if others use the machine: those of Ray are of all of its
processes.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from common import HERE, Worker, arguments, contest, machine, spread, write

TEAMS = ((1, 2), (2, 1))
"""Processes, and devices of each, that are compared with one process with one device."""
INVERSE = (("median", "median"), ("min", "max"), ("max", "min"))
SOURCES = ("core", "nn", "algorithms", "training", "predict", "experiment/workers.py")


class Member(Worker):
    """A process of a team; Gloo prints lines of its own."""

    def _answer(self) -> str:
        while (line := super()._answer()).startswith("[Gloo]"):
            pass
        return line


class Team(Worker):
    """Several processes that take the same steps."""

    def __init__(self, processes: int, devices: int) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        self.members = []
        for process in range(processes):
            member = Member.__new__(Member)
            words = ["--member", *map(str, (processes, devices, port, process))]
            member.process = subprocess.Popen(
                [sys.executable, str(HERE / "scaling.py"), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
            )
            self.members.append(member)
        self.facts = {"outer_steps_a_call": 1}
        self.processor: list[float] = []
        for member in self.members:
            member._answer()

    def seconds(self, calls: int) -> float:
        for member in self.members:
            assert member.process.stdin is not None
            member.process.stdin.write(f"{calls}\n")
            member.process.stdin.flush()
        clocks = [json.loads(member._answer()) for member in self.members]
        self.processor.append(sum(own for _, own in clocks))
        return max(wall for wall, _ in clocks)

    def close(self) -> None:
        for member in self.members:
            assert member.process.stdin is not None
            member.process.stdin.close()
        for member in self.members:
            member.process.wait()


def member(processes: int, devices: int, port: int, process: int) -> None:
    """The life of a process of a team."""
    own = sorted(os.sched_getaffinity(0))
    own = own[process::processes] if processes > 1 else own[:devices]
    os.sched_setaffinity(0, own)
    import jax

    import arml
    from arml.training.devices import everywhere, mesh_of
    from arml.training.distributed import Processes, of_all
    from arml.training.fit import compiled, make_step, start
    from arml_steps import noise_images

    if processes > 1:
        Processes(True, f"127.0.0.1:{port}", processes, process).join()
    mesh, optimiser = mesh_of(devices, processes=processes > 1), arml.OuterOptions().build(1_000)
    of_all(mesh, 0)  # compiling may take one of them longer than Gloo waits
    tasks = noise_images(84, 1)
    tasks, state = everywhere(mesh, (tasks, start(arml.build("maml", tasks), optimiser)))
    step = make_step(optimiser, batch=4, chunk=1, mesh=mesh, key=jax.random.key(0))
    interval = compiled(step)

    def calls(n: int) -> None:
        nonlocal state
        for _ in range(n):
            state, records = interval(tasks, state)
        jax.block_until_ready(records)

    calls(2)
    print("{}", flush=True)
    for line in sys.stdin:
        begun = time.perf_counter(), time.process_time()
        calls(n := int(line))
        spent = (time.perf_counter() - begun[0]) / n, (time.process_time() - begun[1]) / n
        print(json.dumps(spent), flush=True)


def steps(options: Namespace) -> list[dict[str, Any]]:
    """One outer step, against that of one process with one core."""
    rounds, seconds = (3, 2.0) if options.quick else (5, 4.0)
    alone, teams = Team(1, 1), [Team(*team) for team in TEAMS]
    found = contest(alone, teams, rounds=rounds, seconds=seconds)
    for team in (alone, *teams):
        team.close()
    return [
        {
            "processes": processes,
            "devices": processes * devices,
            "seconds": result["theirs_seconds"],
            "alone_seconds": result["ours_seconds"],
            "processor_seconds": spread(team.processor),
            "alone_processor_seconds": spread(alone.processor),
            "times_as_fast": {name: 1 / result["times_as_fast"][of] for name, of in INVERSE},
        }
        for (processes, devices), team, result in zip(TEAMS, teams, found, strict=True)
    ]


def pictures(options: Namespace, folder: Path) -> dict[str, Any]:
    """Pictures a second of one process and of Ray's workers."""
    import cv2
    import numpy as np

    import arml
    from arml.predict import batches

    rounds, parts = (2, 8) if options.quick else (3, 12)
    batches.PART = 50 if options.quick else 100
    rng = np.random.default_rng(0)
    (folder / "many").mkdir()
    coarse = rng.integers(0, 256, (parts * batches.PART, 12, 16, 3), np.uint8)
    for i, one in enumerate(coarse):
        photo = cv2.resize(one, (640, 480), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / "many" / f"{i:05}.jpg"), photo)
    few = [cv2.resize(one, (640, 480)) for one in coarse[:10]]
    arml.load("photos").adapt(few, ["a", "b"] * 5).save(folder / "predictor")
    predict = batches.BatchPredictor(folder / "predictor")

    def paced(times: list[tuple[float, float]]) -> tuple[float, float]:
        wall, processor = (last - first for first, last in zip(times[2], times[-1], strict=True))
        done = batches.PART * (len(times) - 3)
        return done / wall, processor / done

    def on_ray(out: Path) -> list[tuple[float, float]]:
        times: list[tuple[float, float]] = []
        known: dict[int, int] = {}
        watch = lambda done, total: times.append((time.perf_counter(), spent(known)))  # noqa: E731
        batches.predict_parts(predict, str(folder / "many"), out, on="ray", watch=watch)
        return times

    found: dict[str, list[tuple[float, float]]] = {"one process": [], "Ray, two workers": []}
    own = os.sched_getaffinity(0)
    for number in range(rounds):
        alone = folder / f"alone-{number}"
        alone.mkdir()
        os.sched_setaffinity(0, sorted(own)[:1])
        files, every = batches.parts_of(str(folder / "many"))
        writer = batches.PartWriter(predict, files, alone)
        times = [(time.perf_counter(), time.process_time())]
        for i, part in enumerate(every):
            writer({"name": f"{i}.parquet", "files": json.dumps(part)})
            times.append((time.perf_counter(), time.process_time()))
        os.sched_setaffinity(0, own)
        del os.environ["NPROC"]
        found["one process"].append(paced(times))
        found["Ray, two workers"].append(paced(on_ray(folder / f"ray-{number}")))
    ratios = [b[1] / a[1] for a, b in zip(*found.values(), strict=True)]
    clocks = ("pictures_a_second", "processor_seconds_a_picture")
    return {
        **{
            clock: {name: spread([one[i] for one in values]) for name, values in found.items()}
            for i, clock in enumerate(clocks)
        },
        "processor_seconds_of_ray_by_those_of_one_process": spread(ratios),
    }


def spent(known: dict[int, int]) -> float:
    """The processor seconds of this process and of all that it has started; `known` has those of
    earlier calls, because some have ended."""
    ticks, parents = dict[int, int](), dict[int, int]()
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = place.read_text().rpartition(")")[2].split()
            process = int(place.parent.name)
            parents[process], ticks[process] = int(fields[1]), int(fields[11]) + int(fields[12])
    own = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in own} - own:
        own |= more
    known.update({one: ticks[one] for one in own if one in ticks})
    return sum(known.values()) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--member", nargs=4, type=int)
    options = parser.parse_args()
    if options.member:
        member(*options.member)
        return
    before = machine()
    with tempfile.TemporaryDirectory() as place:
        found = {"steps": steps(options), "pictures": pictures(options, Path(place))}
    write("scaling", found, before, quick=options.quick, sources=SOURCES)


if __name__ == "__main__":
    main()
