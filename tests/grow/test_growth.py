"""Propose, train, accept, prune."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

import arml
from arml.algorithms.arml_presets import with_layers
from arml.grow import resuming
from arml.grow import stage as module
from arml.grow.accepting import between, refusals
from arml.grow.comparisons import rose
from arml.grow.growth import GrowthOptions, begun, grown
from arml.grow.judging import band, excludes_zero, gained, unneeded
from arml.grow.streams import mixture
from arml.grow.vertices import own_vertices, without_vertex
from arml.nn.networks import MLPOptions
from arml.results.intervals import Score
from arml.tasks.functions import functions_2d

TASKS = functions_2d(shots=4, queries=4)
STREAM = mixture(TASKS)
OPTIONS = GrowthOptions(steps=10, tasks=20, batch=4, prune=False, curve=False, grow=True)


@pytest.fixture(autouse=True, scope="module")
def _optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def learner(vertices=1, seed=0):
    options = with_layers(TASKS.problem)
    options = replace(options, hidden=(8,), width=4, vertices=vertices, inner_steps=1)
    return arml.build(options, TASKS, seed=seed, network=MLPOptions(hidden=(8,), init="he"))


@pytest.fixture(scope="module")
def stages():
    """Lines, then ripples, which are as new as can be."""
    first = grown(begun(learner()), STREAM, STREAM, {"line": 1.0}, OPTIONS)
    return first, grown(first, STREAM, STREAM, {"ripple": 1.0}, OPTIONS)


def test_the_interval_of_a_median_by_hand():
    found = band(np.arange(101.0))
    # Ranks 101 / 2 -+ 0.98 sqrt(101) = 40.65 and 60.35.
    assert found == (40.0, 50.0, 61.0)


def test_a_gain_counts_if_its_interval_excludes_zero():
    before = np.array([1.0, 1.2, 0.9, 1.1])
    assert excludes_zero(gained(before, before - 0.5))
    assert not excludes_zero(gained(before, before[::-1]))
    assert not excludes_zero(gained(before, np.array([np.inf, 0.0, 0.0, 0.0])))


@pytest.mark.slow
def test_nothing_is_proposed_before_anything_is_known(stages):
    decisions = [record["decision"] for record in stages[0].records]
    assert decisions == ["read", "trained"]
    assert stages[0].known == ("line",)


def test_decisions_come_with_their_numbers(stages):
    records = {r["decision"]: r for r in stages[1].records if r["stage"] == 1}
    proposal = records.get("propose") or records["keep"]
    low, median, high = proposal["fresh"]
    assert low <= median <= high
    worse = low > proposal["reference"][2]
    assert ("propose" in records) == (worse or proposal["novelty"] > 1)
    assert ("keep stage" in records) != ("undo stage" in records)
    read = records["read"]["families"]
    assert set(read) == {"line", "ripple"}
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in read.values())


def test_a_vertex_is_trained_alone_and_only_if_it_gains(stages, monkeypatch):
    """The decision follows the rule, whichever way the trial ended."""
    monkeypatch.setattr(module, "novelty", lambda *_, **__: 2.0)  # as if the support were novel
    before = stages[0].learner
    for verdict in (True, False):
        monkeypatch.setattr(module, "excludes_zero", lambda _, verdict=verdict: verdict)
        monkeypatch.setattr(module, "safe", lambda *_: True)
        after = grown(stages[0], STREAM, STREAM, {"ripple": 1.0}, OPTIONS)
        assert own_vertices(after.learner) == 1 + verdict == len(after.names)
        last = after.records[-1]
        trial = next(r for r in after.records if r["decision"] in ("accept", "reject"))["steps"]
        # The loser's trial counts. Only the rival replays, half of its tasks.
        assert last["tasks"] == (OPTIONS.steps + trial) * OPTIONS.batch
        assert last["replayed"] == (trial if verdict else OPTIONS.steps) * OPTIONS.batch / 2
        if verdict:  # everything else is what it was, bit for bit
            fewer = without_vertex(after.learner, 1)
            for a, b in zip(jax.tree.leaves(fewer), jax.tree.leaves(before), strict=True):
                np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        else:  # nothing was gained, so the stage is undone
            assert after.learner is before


def test_a_stage_is_undone_if_a_known_family_loses(stages, monkeypatch):
    monkeypatch.setattr(module, "excludes_zero", lambda _: True)
    monkeypatch.setattr(module, "safe", lambda *_: False)
    after = grown(stages[0], STREAM, STREAM, {"ripple": 1.0}, OPTIONS)
    assert after.learner is stages[0].learner
    assert "undo stage" in [record["decision"] for record in after.records]


@pytest.mark.slow
def test_a_stage_that_was_stopped_goes_on_as_if_it_had_not(stages, tmp_path, monkeypatch):
    whole = stages[1]
    keep, kept = resuming.write_json, []

    def stopped(file, held):
        keep(file, held)
        kept.append(file)
        if len(kept) == 7:
            raise KeyboardInterrupt

    def meet():
        return grown(stages[0], STREAM, STREAM, {"ripple": 1.0}, OPTIONS, folder=tmp_path)

    with monkeypatch.context() as patch:
        patch.setattr(resuming, "write_json", stopped)
        with pytest.raises(KeyboardInterrupt):
            meet()
    again = meet()
    assert again.records == whole.records
    for a, b in zip(jax.tree.leaves(again.learner), jax.tree.leaves(whole.learner), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.slow
def test_the_same_options_give_the_same_learner(stages):
    again = grown(stages[0], STREAM, STREAM, {"ripple": 1.0}, OPTIONS)
    assert again.records == stages[1].records
    for a, b in zip(
        jax.tree.leaves(again.learner), jax.tree.leaves(stages[1].learner), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.slow
def test_a_vertex_that_owns_what_the_other_owns_is_not_needed():
    two = learner(2)
    alike = jax.tree.map(lambda rows: rows[:1].repeat(2, 0), two.modulate)
    same = eqx.tree_at(lambda m: m.modulate, two, alike)
    vertex, effects = unneeded(same, STREAM, ("line",), n=20)
    assert vertex in (0, 1)
    assert [abs(row["line"]["mean"]) < 1e-4 for row in effects] == [True, True]


def test_a_new_learner_must_gain_and_lose_nothing_that_matters():
    def score(mean, ci95):
        return Score(mean=mean, ci95=ci95, n=100)

    better, old = score(0.10, 0.02), {"birds": 0.8, "cards": 0.5}
    cases = [
        (better, score(0.0, 0.01), True),
        (better, score(-0.009, 0.01), True),  # at most 1.9 points
        (better, score(-0.015, 0.01), False),  # it may lose more than two points
        (better, score(0.0, 0.03), False),
        (score(0.10, 0.11), score(0.0, 0.01), False),
        (score(None, None), score(0.0, 0.01), False),
    ]
    for new, known, wanted in cases:
        gains = {"cards": new, "birds": known}
        refused = refusals(gains, ["cards"], "accuracy", old)
        assert (not refused) is wanted, (new, known, refused)
    lost = {"cards": better, "birds": score(-0.03, 0.01)}
    assert not refusals(lost, ["cards"], "mse", {"birds": 0.8, "cards": 0.5})  # 5% of the error


def test_weights_go_a_part_of_the_way():
    old, new = learner(), learner(seed=1)
    half = between(old, new, 0.5)
    arrays = (jax.tree.leaves(eqx.filter(m, eqx.is_inexact_array)) for m in (old, new, half))
    for a, b, c in zip(*arrays, strict=True):
        np.testing.assert_allclose(c, (np.asarray(a) + np.asarray(b)) / 2, rtol=1e-5)


def test_hsml_dynamic_adds_a_leaf_where_the_loss_rises():
    falling = [2.0, 2.0, 1.5, 1.5]
    assert not rose(falling, 4)
    assert rose([*falling, 1.9, 1.9], 2)
    assert not rose([*falling, 1.8, 1.8], 2)  # 1.2 times
