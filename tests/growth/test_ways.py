"""The other ways to meet a stream, in the benchmark: what they train on."""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arml.nn.networks import MLPOptions
from arml.report.tables import markdown
from arml.results.files import read_json
from arml.tasks.options import FunctionsOptions

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GIVEN = argparse.Namespace(steps=10, replay=0.5, held=4, tested=4, verbose=False)


@pytest.fixture
def growing(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import growing

    return growing


def test_the_file_of_figures_makes_the_table(growing):
    table = markdown(growing.growing_table(read_json(BENCHMARKS / "results" / "growing.json")))
    assert "| as listed: growing | 0, 1, 2 | 0.238 (SD 0.008) |" in table


def tiny(made):
    return replace(
        made,
        algorithm=replace(made.algorithm, inner_steps=1),
        network=MLPOptions(hidden=(8,)),
        batch=2,
    )


@pytest.mark.slow
def test_the_ways_differ_in_what_they_train_on(growing):
    setting = growing.SETTINGS["functions"]
    tasks = FunctionsOptions(shots=4, queries=4)
    setting = replace(setting, tasks=tasks, change=tiny, keep=3)
    order = ("line", "ripple")
    names = ("fine-tuning", "replay", "joint", "own")
    found = {name: growing.measured(setting, growing.WAYS[name], order, 0, GIVEN) for name in names}
    assert [r["replayed"] for r in found["fine-tuning"]] == [0, 0]
    assert [r["replayed"] for r in found["replay"]] == [0, 10]
    assert [r["tasks"] for r in found["joint"]] == [20, 40]  # from scratch, with all steps so far
    assert found["joint"][-1]["vertices"] == 2
    # The first stage is the same for both: there is nothing to replay.
    assert found["fine-tuning"][0]["scores"] == found["replay"][0]["scores"]
    assert found["fine-tuning"][1]["scores"] != found["replay"][1]["scores"]
    # The model of the first family is not trained again.
    assert found["own"][0]["scores"]["line"] == found["own"][1]["scores"]["line"]


@pytest.mark.slow
def test_hsml_dynamic_adds_leaves_between_stages(growing, monkeypatch):
    monkeypatch.setattr(growing, "RISE", 0.0)  # each window counts as a rise
    setting = replace(growing.SETTINGS["functions"], change=tiny, keep=3)
    way, order = growing.WAYS["hsml-dynamic"], ("line", "ripple", "line")
    found = growing.measured(setting, way, order, 0, GIVEN)
    # It has two leaves at first, and waits a stage between two leaves.
    assert [record["vertices"] for record in found] == [2, 3, 3]
    assert np.isfinite([*found[-1]["scores"].values()]).all()


def test_hsml_dynamic_adds_a_leaf_where_the_loss_rises(growing):
    falling = [2.0, 2.0, 1.5, 1.5]
    assert not growing.rose(falling, 4)
    assert growing.rose([*falling, 1.9, 1.9], 2)
    assert not growing.rose([*falling, 1.8, 1.8], 2)  # 1.2 times
