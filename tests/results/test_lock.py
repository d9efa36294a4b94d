"""One owner of a folder, whoever else comes at the same moment and however the owner ends."""

import multiprocessing
import os
import signal
import threading

import pytest

from arml.results.files import LOCK_ENDING, RunError, locked

PROCESSES = 5
# A process of its own that shares nothing but the folder, and starts in milliseconds.
SPAWN = multiprocessing.get_context("spawn")


def contend(folder, rounds, barrier, told):
    """In each round enter at the same moment as the others, and stay until all have tried."""
    for number in range(rounds):
        barrier.wait(60)
        try:
            with locked(folder / str(number)):
                told.put((number, os.getpid()))
                barrier.wait(60)
        except RunError:
            barrier.wait(60)


def owners(folder, rounds):
    """How many of five processes held the folder of each round."""
    barrier, told = SPAWN.Barrier(PROCESSES), SPAWN.Queue()
    several = [
        SPAWN.Process(target=contend, args=(folder, rounds, barrier, told))
        for _ in range(PROCESSES)
    ]
    for process in several:
        process.start()
    held = [told.get(timeout=60)[0] for _ in range(rounds)]
    for process in several:
        process.join(60)
    assert [process.exitcode for process in several] == [0] * PROCESSES
    assert told.empty()
    return [held.count(number) for number in range(rounds)]


def test_one_of_five_processes_holds_a_folder(tmp_path):
    assert owners(tmp_path, 100) == [1] * 100


def hold(folder, told):
    with locked(folder):
        told.put("held")
        signal.pause()


def test_the_lock_of_a_killed_process_dies_with_it(tmp_path):
    told = SPAWN.Queue()
    process = SPAWN.Process(target=hold, args=(tmp_path, told))
    process.start()
    assert told.get(timeout=60) == "held"
    with pytest.raises(RunError, match="another process"), locked(tmp_path):
        pass
    process.kill()
    process.join()
    with locked(tmp_path):
        assert (tmp_path / LOCK_ENDING).exists()


def test_a_thread_that_holds_it_may_hold_it_again_and_another_may_not(tmp_path):
    refused = []

    def other():
        try:
            with locked(tmp_path):
                pass
        except RunError as error:
            refused.append(error)

    with locked(tmp_path), locked(tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(refused) == 1
    other()
    assert len(refused) == 1
