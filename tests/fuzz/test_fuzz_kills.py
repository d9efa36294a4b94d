"""A training that is killed at random moments, again and again, ends as one that nothing disturbed:
the same metrics, weights and optimiser state, bit for bit."""

import multiprocessing
import os
import sys
import time

import jax
import numpy as np
import pytest

from arml.experiment.contract import same
from arml.experiment.running import Run

# The package is imported once; each process is then a copy of that one.
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["arml.cli.train"])
STEPS, KILLS = 60, 10
OPTIONS = (
    f"train regression2d/maml --steps {STEPS} --interval 1 --checkpoint-every 2 "
    "--validate-every 10 --validation-tasks 5 --batch 2 --hidden 4 --inner-steps 1 --chunk 5"
).split()


def train(folder):
    with open(folder.with_suffix(".txt"), "w") as said:
        sys.stderr = sys.stdout = said
        from arml.cli import main

        status = main([*OPTIONS, "--run", str(folder)])
    os._exit(status)


def started(folder):
    process = FORK.Process(target=train, args=(folder,))
    process.start()
    return process


def ends(folder):
    """What a finished run holds: its metrics, and the state in its last checkpoint."""
    run = Run(folder)
    assert run.step == STEPS
    with jax.numpy_dtype_promotion("standard"):
        return (folder / "metrics.jsonl").read_bytes(), run.state


def reached(folder):
    """The size of the metrics: it changes when a process has done a step."""
    path = folder / "metrics.jsonl"
    return path.stat().st_mtime_ns if path.exists() else 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The ends of a training that nothing disturbs, and the seconds that its steps take."""
    folder = tmp_path_factory.mktemp("kills") / "whole"
    whole = started(folder)
    while not reached(folder) and whole.is_alive():
        time.sleep(0.005)
    begun = time.monotonic()
    whole.join()
    assert whole.exitcode == 0, folder.with_suffix(".txt").read_text()
    return *ends(folder), time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_run_that_is_killed_at_random_moments_ends_as_one_that_is_not(
    tmp_path, record_property, undisturbed, seed
):
    metrics, state, span = undisturbed
    rng, kills, runs = np.random.default_rng(seed), 0, 0
    while kills < KILLS:
        folder, ended = tmp_path / f"run-{runs}", False
        while not ended:
            process, before, early = started(folder), reached(folder), rng.random() < 0.2
            # One in five anywhere, also while it compiles; the others while it trains and saves.
            while not early and reached(folder) == before and process.is_alive():
                time.sleep(0.002)
            process.join(rng.uniform(0, span / 2) if kills < KILLS else None)
            ended = not process.is_alive()
            process.kill()
            process.join()
            kills += not ended
        assert process.exitcode == 0, folder.with_suffix(".txt").read_text()
        same_metrics, same_state = ends(folder)
        assert same_metrics == metrics
        same(same_state, state)
        runs += 1
    record_property("counts", f"{kills} kills at random moments, {runs} identical ends")
