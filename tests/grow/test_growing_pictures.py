"""The benchmark's stream of pictures, small."""

import argparse
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from arml.nn.networks import Conv4Options
from arml.tasks.options import StarterOptions

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True, scope="module")
def _optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def growing(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import growing

    return growing


def test_the_filtered_versions_come_after_the_pictures(growing):
    pictures = growing.SETTINGS["pictures"]
    assert pictures.orders["as listed"][:4] == ("glyphs", "icons", "textures", "glyphs-blur")
    assert {*growing.ART} == {*pictures.tasks.build(Path("unused")).train.families}


@pytest.mark.slow
def test_pictures_are_a_stream_too(growing):
    pictures = growing.SETTINGS["pictures"]
    tiny = replace(
        pictures,
        tasks=StarterOptions(ways=2, shots=2, queries=2),
        change=lambda made: replace(
            made, batch=1, network=Conv4Options(filters=2, normalisation="support")
        ),
        keep=2,
    )
    given = argparse.Namespace(steps=2, replay=0.5, held=4, tested=4, runs=None, verbose=False)
    order = ("glyphs", "textures")
    found = growing.measured(tiny, growing.WAYS["growing"], order, 0, given)
    assert [record["replayed"] for record in found] == [0, 1]
    assert all(0 <= score <= 1 for record in found for score in record["scores"].values())
    decisions = [record["decision"] for record in found[1]["decisions"]]
    assert ("keep stage" in decisions) != ("undo stage" in decisions)
