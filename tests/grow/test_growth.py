"""Propose, train, accept, prune."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

import arml
from arml.algorithms.arml_presets import with_templates
from arml.grow import growth as module
from arml.grow.comparisons import rose
from arml.grow.growth import GrowthOptions, begun, grown
from arml.grow.judging import band, excludes_zero, gained, unneeded
from arml.grow.practice import accepts
from arml.grow.streams import mixture
from arml.grow.vertices import own_vertices
from arml.nn.networks import MLPOptions
from arml.results.intervals import Score
from arml.tasks.functions import functions_2d

TASKS = functions_2d(shots=4, queries=4)
STREAM = mixture(TASKS)
OPTIONS = GrowthOptions(steps=10, tasks=20, batch=4, prune=False, curve=False)


@pytest.fixture(autouse=True, scope="module")
def _optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def learner(vertices=1):
    options = with_templates(TASKS.problem)
    options = replace(options, hidden=(8,), width=4, vertices=vertices, inner_steps=1)
    return arml.build(options, TASKS, network=MLPOptions(hidden=(8,), init="he"))


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


def test_nothing_is_proposed_before_anything_is_known(stages):
    decisions = [record["decision"] for record in stages[0].records]
    assert decisions == ["read", "trained"]
    assert stages[0].known == ("line",)


def test_decisions_come_with_their_numbers(stages):
    records = {r["decision"]: r for r in stages[1].records if r["stage"] == 1}
    proposal = records.get("propose") or records["keep"]
    low, median, high = proposal["fresh"]
    assert low <= median <= high
    assert list(proposal["reference"]) == ["line"]
    worse = low > proposal["reference"]["line"][2]
    assert ("propose" in records) == (worse or proposal["novelty"] > 1)
    trained = records["trained"]
    assert trained["replayed"] == trained["tasks"] / 2  # the stated share
    read = records["read"]["families"]
    assert set(read) == {"line", "ripple"}
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in read.values())


def test_a_rejected_candidate_costs_its_steps_and_is_not_kept(stages, monkeypatch):
    """The decision follows the rule, whichever way the trial ended."""
    monkeypatch.setattr(module, "novelty", lambda *_, **__: 2.0)  # as if the support were novel
    for verdict in (True, False):
        monkeypatch.setattr(module, "excludes_zero", lambda _, verdict=verdict: verdict)
        after = grown(stages[0], STREAM, STREAM, {"ripple": 1.0}, OPTIONS)
        assert own_vertices(after.learner) == 1 + verdict == len(after.names)
        last = after.records[-1]
        trial = next(r for r in after.records if r["decision"] in ("accept", "reject"))["steps"]
        assert last["tasks"] == (OPTIONS.steps + trial) * OPTIONS.batch


def test_the_same_options_give_the_same_learner(stages):
    again = grown(stages[0], STREAM, STREAM, {"ripple": 1.0}, OPTIONS)
    assert again.records == stages[1].records
    for a, b in zip(
        jax.tree.leaves(again.learner), jax.tree.leaves(stages[1].learner), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


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
        (better, score(-0.015, 0.01), True),  # less than two points
        (better, score(-0.03, 0.04), True),  # may be chance
        (better, score(-0.03, 0.01), False),
        (score(0.10, 0.11), score(0.0, 0.01), False),
        (score(None, None), score(0.0, 0.01), False),
    ]
    for new, known, wanted in cases:
        gains = {"cards": new, "birds": known}
        assert accepts(gains, ["cards"], "accuracy", old) is wanted, (new, known)
    lost = {"cards": better, "birds": score(-0.03, 0.01)}
    assert accepts(lost, ["cards"], "mse", {"birds": 0.8, "cards": 0.5})  # 4% of the error


def test_hsml_dynamic_adds_a_leaf_where_the_loss_rises():
    falling = [2.0, 2.0, 1.5, 1.5]
    assert not rose(falling, 4)
    assert rose([*falling, 1.9, 1.9], 2)
    assert not rose([*falling, 1.8, 1.8], 2)  # 1.2 times
