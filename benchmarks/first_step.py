"""A run as `arml train` makes it, up to its first steps: `python first_step.py RECIPE` says, when
they are done, how many seconds its imports took, and what XLA took to compile the programs or to
read them; and goes on until it is killed."""

import gc
import json
import sys
import time
from dataclasses import replace
from tempfile import TemporaryDirectory


def main() -> None:
    begun = time.perf_counter()
    gc.set_threshold(50_000, 20, 100)  # as `arml` does
    from arml.cli.environment import cores_as_devices, keep_compiled

    keep_compiled()
    cores_as_devices()
    import jax

    from arml.experiment.recipes import recipe
    from arml.experiment.running import run
    from arml.training.devices import own_cores, sharing

    taken = {"imports": time.perf_counter() - begun, "XLA": 0.0}

    def heard(event: str, seconds: float, **facts: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            taken["XLA"] += seconds

    jax.monitoring.register_event_duration_secs_listener(heard)
    experiment, devices = recipe(sys.argv[1]), 1
    if not experiment.scan:  # one dispatch is one step
        experiment = replace(experiment, interval=1)
        devices = sharing(experiment.batch, experiment.chunk, own_cores())

    def watch(step: int, record: object) -> None:
        if step:
            print(json.dumps(taken), flush=True)

    with TemporaryDirectory() as folder:
        run(experiment, folder, watch=watch, devices=devices)


if __name__ == "__main__":
    main()
