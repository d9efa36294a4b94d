"""Other ways to meet a stream, in the harness of the growing learner."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import arml
from arml.algorithms.arml_presets import with_layers
from arml.grow import comparisons
from arml.grow.comparisons import WAYS, met
from arml.grow.growth import GrowthOptions, begun
from arml.grow.keeping import Place, keep, taken_up
from arml.grow.streams import in_stages, kept, mixture
from arml.grow.vertices import handicapped, with_vertex
from arml.nn.networks import MLPOptions
from arml.results.files import RunError
from arml.tasks.functions import functions_2d

TASKS = functions_2d(shots=4, queries=4)
STREAM = mixture(TASKS)
NETWORK = MLPOptions(hidden=(8,), init="he")
OPTIONS = GrowthOptions(steps=10, tasks=10, batch=2, grow=True)
STAGES = in_stages(["line", "ripple"])


@pytest.fixture(autouse=True, scope="module")
def _optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def build(count):
    options = replace(with_layers(TASKS.problem), hidden=(4,), width=4, inner_steps=1)
    return arml.build(replace(options, vertices=count), TASKS, network=NETWORK)


def meet(name, folder=None):
    memory = kept(STREAM, 3, key=jax.random.key(0))
    return met(
        WAYS[name],
        build,
        STAGES,
        STREAM,
        STREAM,
        STREAM,
        OPTIONS,
        memory=memory,
        tested=10,
        folder=folder,
    )


@pytest.mark.slow
def test_a_stream_that_was_stopped_goes_on_as_if_it_had_not(tmp_path, monkeypatch):
    whole, keep = meet("own"), comparisons.keep

    def stopped(folder, place):
        keep(folder, place)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(comparisons, "keep", stopped)
        with pytest.raises(KeyboardInterrupt):
            meet("own", folder=tmp_path)
    assert meet("own", folder=tmp_path) == whole
    # The model of the first family is not trained again.
    assert whole[0]["scores"]["line"] == whole[1]["scores"]["line"]
    file = next(tmp_path.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(RunError, match="altered or cut short"):
        meet("own", folder=tmp_path)


@pytest.mark.slow
def test_the_ways_differ_in_what_they_train_on():
    found = {name: meet(name) for name in ("fine-tuning", "replay", "joint")}
    assert [r["replayed"] for r in found["fine-tuning"]] == [0, 0]
    assert [r["replayed"] for r in found["replay"]] == [0, 10]
    assert [r["tasks"] for r in found["joint"]] == [20, 40]  # from scratch, with all steps so far
    assert found["joint"][-1]["vertices"] == 2
    # The first stage is the same for both: there is nothing to replay.
    assert found["fine-tuning"][0]["scores"] == found["replay"][0]["scores"]
    assert found["fine-tuning"][1]["scores"] != found["replay"][1]["scores"]


@pytest.mark.slow
def test_hsml_dynamic_adds_leaves_between_stages(monkeypatch):
    monkeypatch.setattr(comparisons, "RISE", 0.0)  # each window counts as a rise
    made = arml.recipe("regression2d/hsml").algorithm

    def hsml(count):
        options = replace(made, clusters=(count, 2), width=4, inner_steps=1)
        return arml.build(options, TASKS, network=NETWORK)

    options = replace(OPTIONS, steps=4, tasks=4)
    stages = in_stages(["line", "ripple", "line"])
    found = met(WAYS["hsml-dynamic"], hsml, stages, STREAM, STREAM, STREAM, options, tested=4)
    # It has two leaves at first, and waits a stage between two leaves.
    assert [record["vertices"] for record in found] == [2, 3, 3]


def test_a_grown_vertex_is_kept(tmp_path):
    start = Place(begun(build(1)), 1)
    more = with_vertex(start.growth.learner, np.zeros(4), np.ones(1))
    growth = replace(start.growth, learner=handicapped(more, 0.5), names=("V0", "V1"), stages=1)
    keep(tmp_path, replace(start, growth=growth))
    back = taken_up(tmp_path, start, build).growth
    assert back.names == ("V0", "V1")
    assert float(back.learner.choose.handicaps[0]) == 0.5
    assert len(back.learner.encode.graph.vertices) == 2
