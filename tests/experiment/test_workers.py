"""Jobs on this machine and on Ray: jobs in, messages out, stopped and killed."""

import os
import signal
import time
from pathlib import Path

import pytest

from arml.experiment.workers import Message, carry_out


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """The workers import this file."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(here)


def job(given: Message, send, stop) -> None:
    """The jobs of these tests, carried out by worker processes."""
    print("a library that prints")  # must not come between the messages
    match given["do"]:
        case "echo":
            send({"cores": len(os.sched_getaffinity(0)), "pid": os.getpid()})
        case "fail":
            raise ValueError("expected a\nnumber")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die once":
            tried = Path(given["folder"]) / "tried"
            send({"tries": tried.exists()})
            if not tried.exists():
                tried.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            send({"waits": True})
            while not stop():
                time.sleep(0.01)
            send({"saved": True})
        case _:
            raise KeyError(given["do"])


def done(tmp_path: Path, jobs: list[str], *, workers: int = 1, **more):
    """Each job's messages, and the failures."""
    found: list[list[Message]] = [[] for _ in jobs]

    def received(number: int, message: Message) -> None:
        found[number].append(message)

    given = [{"do": one, "folder": str(tmp_path)} for one in jobs]
    failed = carry_out(
        "test_workers:job", given, tmp_path, workers=workers, received=received, **more
    )
    return found, failed


def test_jobs_are_carried_out_and_one_that_fails_stops_no_other(tmp_path):
    found, failed = done(tmp_path, ["echo", "fail", "none", "die", "echo"])
    assert found[0][0]["cores"] == len(os.sched_getaffinity(0))
    assert os.getpid() != found[0][0]["pid"] != found[4][0]["pid"]
    assert found[1:4] == [[], [], []]
    log = tmp_path / "worker-0.log"
    assert failed == {
        1: "expected a number",
        2: "KeyError: 'none'",
        3: f"its process ended with status -9; see {log}",
    }
    assert log.read_text().count("a library that prints") == 5


def test_all_workers_stop_and_save(tmp_path):
    found, failed = done(
        tmp_path,
        ["wait"] * 3,
        workers=2,
        stop=lambda: all((tmp_path / f"worker-{i}.log").exists() for i in (0, 1)),
    )
    assert failed == {}
    assert found == [[{"waits": True}, {"saved": True}]] * 2 + [[]]


def test_two_workers_share_the_cores(tmp_path):
    found, _ = done(tmp_path, ["echo"] * 2, workers=2)
    whole = len(os.sched_getaffinity(0))
    assert sum(one["cores"] for (one,) in found) == max(whole, 2)


@pytest.fixture(scope="module")
def ray():
    """A cluster of two workers, on this machine."""
    ray = pytest.importorskip("ray")
    yield "ray"
    ray.shutdown()


def test_ray_carries_out_jobs_and_tries_one_again_whose_worker_was_killed(ray, tmp_path):
    found, failed = done(tmp_path, ["echo", "die once", "fail", "none"], workers=2, on=ray)
    assert found[0][0]["pid"] != os.getpid()
    assert found[1] == [{"tries": False}, {"tries": True}]
    assert failed == {2: "expected a number", 3: "KeyError: 'none'"}


@pytest.mark.slow
def test_jobs_on_ray_stop_and_save(ray, tmp_path):
    waits = []

    def received(number, message):
        waits.extend([number] if "waits" in message else [])

    jobs = [{"do": "wait"}] * 3
    more = {"workers": 2, "received": received, "stop": lambda: len(waits) == 2, "on": ray}
    assert carry_out("test_workers:job", jobs, tmp_path, **more) == {}
    assert sorted(waits) == [0, 1]


def test_another_place_than_ray_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected ray or ray://HOST:PORT after --on, got 'dask'"):
        done(tmp_path, ["echo"], on="dask")
