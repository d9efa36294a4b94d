"""Several processes that are started at once on one run folder: one trains, the others are told."""

import multiprocessing
import os
import sys

import pytest

from arml.experiment.running import Run
from arml.results.files import read_metrics
from arml.results.folder import read_config

# The package is imported once; each process is then a copy of that one.
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["arml.cli.train"])
STEPS = 20
OPTIONS = (
    f"train regression2d/maml --steps {STEPS} --interval 5 --checkpoint-every 5 "
    "--validate-every 10 --validation-tasks 5 --batch 4 --hidden 8 --inner-steps 1 --chunk 5"
).split()


def train(folder, seed, barrier):
    with open(folder.with_name(f"{folder.name}-{os.getpid()}.txt"), "w") as said:
        sys.stderr = sys.stdout = said
        from arml.cli import main

        barrier.wait(120)
        status = main([*OPTIONS, "--run", str(folder), "--seed", str(seed)])
    os._exit(status)


def at_once(folder, seeds):
    """The exit statuses of trainings with these seeds, and what they said, in the same order."""
    barrier = FORK.Barrier(len(seeds))
    several = [FORK.Process(target=train, args=(folder, seed, barrier)) for seed in seeds]
    for process in several:
        process.start()
    for process in several:
        process.join(300)
    said = [folder.with_name(f"{folder.name}-{p.pid}.txt").read_text() for p in several]
    return [process.exitcode for process in several], said


def check_one_trained(folder, seeds):
    statuses, said = at_once(folder, seeds)
    assert 0 in statuses, said
    trained = [text for text in said if "next: arml evaluate" in text and "already" not in text]
    assert len(trained) == 1, said
    for status, text in zip(statuses, said, strict=True):
        assert status in (0, 2), said
        if status:
            assert text.startswith("arml: error: "), said
            assert text.count("\n") == 1, said
    steps = [record["step"] for record in read_metrics(folder / "metrics.jsonl")]
    assert steps == sorted(steps)
    assert steps[-1] == STEPS
    # The seed that the folder states is the seed that was trained.
    own = seeds[said.index(trained[0])]
    assert read_config(folder)["experiment"]["seed"] == own
    assert Run(folder).step == STEPS


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(0, 0, 0, 0, 0), (0, 1, 2, 3, 4)])
def test_one_of_five_processes_trains(tmp_path, seeds):
    check_one_trained(tmp_path / "run", seeds)
