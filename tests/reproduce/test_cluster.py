"""Units on a Ray cluster of this machine: the same as in worker processes."""

import sys

import pytest

from arml.cli import main
from arml.reproduce import cluster
from arml.reproduce.crew import carry_out_all
from arml.reproduce.plan import is_done, units
from arml.reproduce.scales import SCALES
from arml.reproduce.tables import table


def test_ray_that_is_not_installed_is_named(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["reproduce", "--scale", "smoke", "--on", "ray", "--out", str(tmp_path)]) == 2
    assert "install 'arml[ray]'" in capsys.readouterr().err


@pytest.mark.slow
# Ray leaves files and sockets open, and says so when it ends.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_units_are_stopped_and_go_on_as_actors(tmp_path) -> None:
    ray = pytest.importorskip("ray")
    # An actor has no import hook and no promotion of ours, as a worker process has none.
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        hire = cluster.hire()
        assert cluster.places() == 1
        good = units([table("regression2d", SCALES["smoke"])])[0]
        bad = {**good, "folder": "runs/bad/seed-0", "experiment": {"algorithm": "none"}}
        stopped = []

        def watch(progress) -> None:
            stopped.extend(at for at in progress.running.values() if at["phase"] == "training")

        def all_of(stop):
            return carry_out_all(
                [bad, good], tmp_path, workers=1, watch=watch, stop=stop, hire=hire
            )

        first = all_of(lambda: bool(stopped))
        assert first.running == {}
        second = all_of(lambda: False)
        assert list(second.failed) == ["runs/bad/seed-0"]
        assert "expected algorithm to be one of" in second.failed["runs/bad/seed-0"]
        assert second.done == [good["folder"]]
        assert is_done(good, tmp_path)
    finally:
        ray.shutdown()
