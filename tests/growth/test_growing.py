"""Propose, train, accept, guard, prune."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import arml
from arml.algorithms.arml_extensions import without_vertex
from arml.growth import growing as module
from arml.growth.growing import (
    BOUND,
    Growth,
    StreamOptions,
    band,
    excludes_zero,
    grown,
    log_losses,
    signatures,
)
from arml.growth.replay import kept
from arml.growth.vertices import own_vertices
from arml.nn.networks import MLPOptions
from arml.results.scores import paired
from arml.tasks.functions import functions_2d
from arml.tasks.mixture import mixture

TASKS = functions_2d(shots=6, queries=6)
STREAM = mixture(TASKS)
LINE, RIPPLE = {"line": 1.0}, {"ripple": 1.0}
OPTIONS = StreamOptions(held=40)
STAGE = arml.Experiment("stage", steps=80, batch=8, outer=arml.OuterOptions(outer_rate=0.01))


def learner(vertices=1):
    made = arml.recipe("regression2d/arml-layers").algorithm
    small = replace(made, gate="weights", hidden=(8,), width=4, vertices=vertices, inner_steps=2)
    return arml.build(small, TASKS, network=MLPOptions(hidden=(16,), init="he"))


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def decisions(growth, stage):
    return [r["decision"] for r in growth.records if r["stage"] == stage]


@pytest.fixture(scope="module", autouse=True)
def _a_longer_trial():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TRIAL", 0.5)
        yield


@pytest.fixture(scope="module")
def memory():
    return kept(STREAM, 20, key=jax.random.key(0))


@pytest.fixture(scope="module")
def stages(memory):
    """Lines, then ripples, which are as new as can be, then lines again."""
    found = [Growth(learner())]
    for stage in (LINE, RIPPLE, LINE):
        found.append(grown(found[-1], STREAM, STREAM, stage, OPTIONS, STAGE, memory=memory))
    return found


@pytest.mark.slow
def test_a_vertex_is_born_where_a_family_is_new_and_none_where_it_is_not(stages):
    _, lines, ripples, again = stages
    assert decisions(lines, 0) == ["trained"]  # nothing was known before
    assert decisions(ripples, 1) == ["propose", "accept", "keep stage", "trained"]
    assert own_vertices(ripples.learner) == 2
    assert "keep" in decisions(again, 2)
    assert own_vertices(again.learner) == 2
    assert again.known == ("line", "ripple")
    ripple, line = (
        signatures(ripples.learner, STREAM.only(name), "validation", 40)[1][1]
        for name in ("ripple", "line")
    )
    assert ripple > 0.5 > line


@pytest.mark.slow
def test_nothing_is_forgotten_beyond_the_bound(stages):
    """On tasks that decided nothing."""
    _, lines, ripples, _ = stages
    before, after = (
        log_losses(growth.learner, STREAM.only("line"), "test", 40) for growth in (lines, ripples)
    )
    assert np.mean(after - before) < BOUND
    fresh = [log_losses(g.learner, STREAM.only("ripple"), "test", 40) for g in (lines, ripples)]
    assert np.mean(fresh[1] - fresh[0]) < -0.1


@pytest.mark.slow
def test_a_new_vertex_leaves_everything_else_as_it_was(stages):
    same(without_vertex(stages[2].learner, 1), stages[1].learner)


@pytest.mark.slow
def test_the_tasks_of_the_loser_are_counted_and_the_rival_replays(stages):
    last = next(r for r in stages[2].records if r["stage"] == 1 and r["decision"] == "trained")
    trial = STAGE.steps // 2
    assert last["tasks"] == (STAGE.steps + trial) * STAGE.batch
    assert last["replayed"] == trial * STAGE.batch / 2


@pytest.mark.slow
def test_a_stage_is_undone_if_a_known_family_loses_or_nothing_is_paired(
    stages, memory, monkeypatch
):
    for name, verdict in (("within", False), ("excludes_zero", False)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *_, verdict=verdict: verdict)
            short = replace(STAGE, steps=10)
            after = grown(stages[1], STREAM, STREAM, RIPPLE, OPTIONS, short, memory=memory)
        assert after.learner is stages[1].learner
        assert "undo stage" in decisions(after, 1)


def test_the_interval_of_a_median_by_hand():
    # Ranks 101 / 2 -+ 0.98 sqrt(101) = 40.65 and 60.35.
    assert band(np.arange(101.0)) == (40.0, 50.0, 61.0)


def test_a_gain_counts_if_its_interval_excludes_zero():
    before = np.array([1.0, 1.2, 0.9, 1.1])
    assert excludes_zero(paired(before, before - 0.5))
    assert not excludes_zero(paired(before, before[::-1]))
    assert not excludes_zero(paired(before, np.array([np.inf, 0.0, 0.0, 0.0])))
