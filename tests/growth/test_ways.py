"""The benchmark of streams: what its ways train on, and its table."""

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from arml.nn.networks import MLPOptions
from arml.report.tables import markdown
from arml.results.files import read_json
from arml.tasks.options import FunctionsOptions

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GIVEN = argparse.Namespace(steps=10, replay=0.5, held=4, tested=4)


@pytest.fixture
def growing(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import growing

    return growing


def test_the_file_of_figures_makes_the_table(growing):
    table = markdown(growing.growing_table(read_json(BENCHMARKS / "results" / "growing.json")))
    assert "| as listed: growing | 0, 1, 2 | 0.238 (SD 0.008) |" in table


@pytest.mark.slow
def test_the_ways_differ_in_what_they_train_on(growing):
    made = growing.SETTINGS["functions"].experiment()
    algorithm = replace(made.algorithm, inner_steps=1)
    made = replace(made, algorithm=algorithm, network=MLPOptions(hidden=(8,)), batch=2)
    made = replace(made, tasks=FunctionsOptions(shots=4, queries=4))
    fine_tuning, replay = (
        growing.measured(made, 3, way, ("line", "ripple"), 0, GIVEN)
        for way in ("fine-tuning", "replay")
    )
    assert [r["replayed"] for r in fine_tuning] == [0, 0]
    assert [r["replayed"] for r in replay] == [0, 10]
    # The first stage is the same for both: there is nothing to replay.
    assert fine_tuning[0]["scores"] == replay[0]["scores"]
    assert fine_tuning[1]["scores"] != replay[1]["scores"]
