"""Worker processes: jobs in, messages out, stopped, killed, and replaced."""

import os
import signal
import time
from pathlib import Path

import pytest

from arml.experiment.workers import Message, carry_out, processes, shares


@pytest.fixture(autouse=True)
def _found(monkeypatch):
    """The workers import this file."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))


def job(given: Message, send, stop) -> Message:
    """The jobs of these tests, carried out by worker processes."""
    print("a library that prints")  # must not come between the messages
    match given["do"]:
        case "echo":
            send({"cores": len(os.sched_getaffinity(0))})
            return {"end": "done", "pid": os.getpid()}
        case "fail":
            raise ValueError("expected a\nnumber")
        case "die":
            path = Path(given["file"])
            path.write_text(path.read_text() + "x")
            os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            send({"waits": True})
            while not stop():
                time.sleep(0.01)
            return {"end": "stopped"}
    raise KeyError(given["do"])


def done(tmp_path: Path, jobs: list[Message], *, workers: int = 1, **more) -> list:
    """Each job's messages."""
    found: dict[int, list[Message]] = {i: [] for i in range(len(jobs))}

    def heard(index: int, given: Message, message: Message) -> bool:
        assert 0 <= index < workers
        found[given["number"]].append(message)
        return "waits" in message and given.get("stopped", False)

    numbered = [{**one, "number": i} for i, one in enumerate(jobs)]
    hire = processes("test_workers:job", tmp_path, workers)
    carry_out(numbered, hire, workers=workers, heard=heard, **more)
    return list(found.values())


def test_jobs_are_carried_out_and_one_that_fails_stops_no_other(tmp_path):
    echo, again, failed, odd = done(
        tmp_path, [{"do": "echo"}, {"do": "echo"}, {"do": "fail"}, {"do": "none"}]
    )
    assert echo[0]["cores"] == len(os.sched_getaffinity(0))
    assert echo[1]["pid"] == again[1]["pid"] != os.getpid()  # one process for all of them
    assert failed == [{"end": "failed", "error": "expected a number"}]
    assert odd == [{"end": "failed", "error": "unexpected KeyError: 'none'"}]
    assert "a library that prints" in (tmp_path / "worker-0.log").read_text()
    first, second = done(tmp_path, [{"do": "echo"}, {"do": "echo"}], lasting=0.0)
    assert first[1]["pid"] != second[1]["pid"]


def test_a_job_whose_process_dies_is_tried_twice_and_the_next_gets_a_new_one(tmp_path):
    (tmp_path / "x").touch()
    died, echo = done(tmp_path, [{"do": "die", "file": str(tmp_path / "x")}, {"do": "echo"}])
    assert [message["end"] for message in died] == ["failed"]
    assert "its process ended with status -9; see " in died[0]["error"]
    assert (tmp_path / "x").read_text() == "xx"
    assert echo[1]["end"] == "done"


def test_one_job_or_all_are_stopped_and_the_stopped_are_saved(tmp_path):
    waits = {"do": "wait"}
    began: list[int] = []
    behind, *others = done(
        tmp_path,
        [{**waits, "stopped": True}, waits, waits, waits],
        workers=2,
        begun=lambda index, given: began.append(given["number"]),
        stop=lambda: 2 in began,
    )
    assert behind[-1] == {"end": "stopped"}
    assert began == [0, 1, 2]
    assert [messages[-1:] for messages in others] == [[{"end": "stopped"}]] * 2 + [[]]


def test_cores_are_shared_out():
    for workers in (1, 2, 3):
        given = shares(workers)
        assert len(given) == workers
        assert all(cores == "" or cores.replace(",", "").isdigit() for cores in given)
