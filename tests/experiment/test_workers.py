"""Jobs on this machine and on Ray: carried out, stopped and killed."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from arml.experiment.workers import Job, carry_out


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """The workers import this file."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(here)


@pytest.fixture(scope="module")
def ray():
    """A cluster on this machine."""
    ray = pytest.importorskip("ray")
    yield "ray"
    ray.shutdown()


def job(given: Job, stop) -> None:
    """The jobs of these tests. Each adds lines to a file of its own."""
    print("a library that prints")

    def tell(**facts):
        with Path(given["file"]).open("a") as file:
            print(json.dumps(facts), file=file)

    match given["do"]:
        case "echo":
            reserves = os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE")
            tell(cores=len(os.sched_getaffinity(0)), pid=os.getpid(), reserves=reserves)
        case "fail":
            raise ValueError("expected a\nnumber")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die once":
            again = Path(given["file"]).exists()
            tell(again=again)
            if not again:
                os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            tell(waits=True)
            while not stop():
                time.sleep(0.01)
            tell(saved=True)
        case _:
            raise KeyError(given["do"])


def done(folder: Path, jobs: list[str], *, workers: int = 1, **more):
    """What each job told, and the failures."""
    given = [{"do": one, "file": str(folder / f"{i}.txt")} for i, one in enumerate(jobs)]
    ended = dict(carry_out("test_workers:job", given, folder, workers=workers, **more))
    files = [Path(one["file"]) for one in given]
    lines = [file.read_text().splitlines() if file.exists() else [] for file in files]
    assert not [*folder.glob(".stop*")]
    return [[*map(json.loads, own)] for own in lines], {n: why for n, why in ended.items() if why}


def test_jobs_are_carried_out_and_one_that_fails_stops_no_other(tmp_path):
    found, failed = done(tmp_path, ["echo", "fail", "none", "die", "echo"])
    assert found[0][0]["cores"] == len(os.sched_getaffinity(0))
    assert os.getpid() != found[0][0]["pid"] != found[4][0]["pid"]
    log = tmp_path / "worker-0.log"
    assert failed == {
        1: "expected a number",
        2: "KeyError: 'none'",
        3: f"its process was killed; see {log}",
    }
    assert log.read_text().count("a library that prints") == 5


@pytest.mark.parametrize("on", [None, pytest.param("ray", marks=pytest.mark.slow)])
def test_all_workers_stop_and_save(on, tmp_path, request):
    if on:
        request.getfixturevalue("ray")
    both = [tmp_path / "0.txt", tmp_path / "1.txt"]
    stop = lambda: all(one.exists() for one in both)  # noqa: E731
    found, failed = done(tmp_path, ["wait"] * 3, workers=2, stop=stop, on=on)
    assert failed == {}
    assert found == [[{"waits": True}, {"saved": True}]] * 2 + [[]]


@pytest.mark.parametrize(("accelerators", "reserves"), [("0", "false"), ("0,1", None)])
def test_two_workers_share_cores_and_accelerators(accelerators, reserves, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", accelerators)
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    found, _ = done(tmp_path, ["echo"] * 2, workers=2)
    whole = len(os.sched_getaffinity(0))
    assert sum(one["cores"] for (one,) in found) == max(whole, 2)
    assert [one["reserves"] for (one,) in found] == [reserves] * 2


@pytest.mark.slow
def test_ray_carries_out_jobs_and_tries_one_again_whose_worker_was_killed(ray, tmp_path):
    found, failed = done(tmp_path, ["echo", "die once", "fail", "none"], workers=2, on=ray)
    assert found[0][0]["pid"] != os.getpid()
    assert found[1] == [{"again": False}, {"again": True}]
    assert failed == {2: "expected a number", 3: "KeyError: 'none'"}


def test_another_place_than_ray_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected ray or ray://HOST:PORT after --on, got 'dask'"):
        done(tmp_path, ["echo"], on="dask")
