"""Growing by vertices: propose, train, accept, guard; and what its ways train on."""

import argparse
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml
from arml.algorithms.arml_extensions import with_own_layers
from arml.nn.networks import MLPOptions
from arml.report.tables import markdown
from arml.results.files import read_json
from arml.results.scores import paired
from arml.tasks.functions import functions_2d
from arml.tasks.mixture import mixture
from arml.tasks.options import FunctionsOptions
from study import growing as module
from study.growing import (
    BOUND,
    RESULTS,
    SETTINGS,
    Growth,
    Options,
    alone,
    band,
    excludes_zero,
    growing_table,
    grown,
    handicapped,
    log_losses,
    measured,
    own_vertices,
    signature,
    signatures,
    with_vertex,
)
from study.replay import kept

TASKS = functions_2d(shots=6, queries=6)
STREAM = mixture(TASKS)
LINE, RIPPLE = {"line": 1.0}, {"ripple": 1.0}
OPTIONS = Options(held=40)
STAGE = arml.Experiment("stage", steps=80, batch=8, outer=arml.OuterOptions(outer_rate=0.01))


def learner(vertices=1):
    made = arml.recipe("regression2d/arml-layers").algorithm
    small = replace(made, gate="weights", hidden=(8,), width=4, vertices=vertices, inner_steps=2)
    return arml.build(small, TASKS, network=MLPOptions(hidden=(16,), init="he"))


def decisions(growth, stage):
    return [r["decision"] for r in growth.records if r["stage"] == stage]


@pytest.fixture(scope="module", autouse=True)
def _a_longer_trial():
    with pytest.MonkeyPatch.context() as patch, jax.numpy_dtype_promotion("standard"):
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
def test_the_tasks_of_the_loser_are_counted_and_the_rival_replays(stages):
    last = next(r for r in stages[2].records if r["stage"] == 1 and r["decision"] == "trained")
    trial = STAGE.steps // 2
    assert last["tasks"] == (STAGE.steps + trial) * STAGE.batch
    assert last["replayed"] == trial * STAGE.batch / 2


@pytest.mark.slow
def test_a_stage_is_undone_if_a_known_family_loses_or_nothing_is_paired(
    stages, memory, monkeypatch
):
    for name in ("within", "excludes_zero"):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *_: False)
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


FEW = functions_2d(shots=4, queries=4)
SMALL = MLPOptions(hidden=(8, 8), init="he")
LAYERS = replace(with_own_layers(FEW.problem), hidden=(8,), width=4, vertices=2, inner_steps=1)


@pytest.fixture(scope="module")
def two():
    return arml.build(LAYERS, FEW, network=SMALL)


@eqx.filter_jit
def predicted(learner, support, x):
    return learner.adapt(support, key=jax.random.key(0)).predict(x)


def outputs(learner, task):
    return np.asarray(predicted(learner, task.support, task.query.x))


def test_a_new_vertex_owns_the_blend(two):
    more = with_vertex(two, np.zeros(4), np.array([0.25, 0.75]))
    first, second = np.asarray(two.modulate.weights[0], float)
    np.testing.assert_allclose(more.modulate.weights[0][2], 0.25 * first + 0.75 * second, rtol=1e-5)


@pytest.fixture(scope="module")
def three(two):
    """Two vertices that are read by their places, and two that were grown and differ."""
    more = with_vertex(two, np.zeros(4), np.array([1.0, 0.0]))
    more = with_vertex(more, np.zeros(4), np.array([0.0, 1.0, 0.0]))
    shift = jnp.array([0.0, 0.0, 1.0, -1.0])[:, None]
    return eqx.tree_at(lambda m: m.modulate.biases[0], more, more.modulate.biases[0] + shift)


@pytest.mark.slow
def test_a_task_reads_what_explains_it_best(three, two):
    """Another route: each choice as a learner of its own."""
    alones = [two, alone(three, slice(2, 3)), alone(three, slice(3, 4))]
    seen, read = set(), eqx.filter_jit(signature)
    for i in range(5):
        task = FEW.sample(jax.random.key(i))
        support = task.support
        misfits = []
        for one in alones:
            errors = []
            for fold in range(4):  # four examples, each left out once
                others = np.delete(np.arange(4), fold)
                given = arml.Examples(support.x[others], support.y[others])
                found = predicted(one, given, support.x[fold][None])
                errors.append(float(np.mean(np.square(found - support.y[fold]))))
            found = predicted(one, support, support.x)
            misfits.append(float(np.mean(np.square(found - support.y))) * np.mean(errors))
        best = int(np.argmin(misfits))
        seen.add(best)
        np.testing.assert_allclose(
            outputs(three, task), outputs(alones[best], task), rtol=1e-4, atol=1e-5
        )
        reading = np.asarray(read(three, task, jax.random.key(0))[1])
        assert reading[2:].tolist() == [best == 1, best == 2]
    assert len(seen) > 1
    # A handicap that is large enough keeps all tasks from the newest vertex.
    barred = handicapped(three, 1e3)
    task = FEW.sample(jax.random.key(0))
    assert float(read(barred, task, jax.random.key(0))[1][3]) == 0
    # What is shown of a task is what it reads.
    shown = eqx.filter_jit(three.reading())(task.support).reading.links
    np.testing.assert_array_equal(shown, read(three, task, jax.random.key(0))[1][None])


def test_the_file_of_figures_makes_the_table():
    table = markdown(growing_table(read_json(RESULTS / "growing.json")))
    assert "| as listed: growing | 0, 1, 2 | 0.238 (SD 0.008) |" in table


@pytest.mark.slow
def test_the_ways_differ_in_what_they_train_on():
    made = SETTINGS["functions"].experiment()
    algorithm = replace(made.algorithm, inner_steps=1)
    made = replace(made, algorithm=algorithm, network=MLPOptions(hidden=(8,)), batch=2)
    made = replace(made, tasks=FunctionsOptions(shots=4, queries=4))
    given = argparse.Namespace(steps=10, replay=0.5, held=4, tested=4)
    fine_tuning, replay = (
        measured(made, 3, way, ("line", "ripple"), 0, given) for way in ("fine-tuning", "replay")
    )
    assert [r["replayed"] for r in fine_tuning] == [0, 0]
    assert [r["replayed"] for r in replay] == [0, 10]
    # The first stage is the same for both: there is nothing to replay.
    assert fine_tuning[0]["scores"] == replay[0]["scores"]
    assert fine_tuning[1]["scores"] != replay[1]["scores"]
