"""A run as `arml train` makes it, up to its first steps: `python first_step.py RECIPE` says so when
they are done, and goes on until it is killed."""

import sys
from dataclasses import replace
from tempfile import TemporaryDirectory

from arml.cli.environment import cores_as_devices, keep_compiled


def main() -> None:
    keep_compiled()
    cores_as_devices()
    from arml.devices import own_cores, sharing
    from arml.experiment import run
    from arml.recipes import recipe

    experiment, devices = recipe(sys.argv[1]), 1
    if not experiment.scan:  # one dispatch is one step
        experiment = replace(experiment, interval=1)
        devices = sharing(experiment.batch, experiment.chunk, own_cores())

    def watch(step: int, record: object) -> None:
        if step:
            print(step, flush=True)

    with TemporaryDirectory() as folder:
        run(experiment, folder, watch=watch, devices=devices)


if __name__ == "__main__":
    main()
