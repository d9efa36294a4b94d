"""One run on several devices: the same numbers."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.maml import MAMLOptions
from arml.core.episodes import Problem
from arml.experiment.running import Run, run
from arml.experiment.scoring import evaluate_run
from arml.nn.networks import Conv4Options
from arml.tasks.images import ClassTable, Disk, ImageEpisodes
from arml.training.devices import at_once, mesh_of, share, sharing
from arml.training.fit import OuterOptions, compiled, make_step, start
from small import experiment

STEPS = 40
ONE_STEP = MAMLOptions(inner_steps=1)
EXPERIMENT = experiment(algorithm=ONE_STEP, steps=STEPS, validate_every=20, batch=8, chunk=1)


pytestmark = pytest.mark.usefixtures("optax_promotes")


def test_one_device_then_four_make_the_run_that_one_makes(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(EXPERIMENT, whole)
    assert run(EXPERIMENT, parts, stop=lambda: True).last == 10
    assert run(EXPERIMENT, parts, devices=4).last == STEPS
    one, several = Run(whole).metrics, Run(parts).metrics
    assert [row.keys() for row in one] == [row.keys() for row in several]
    for a, b in zip(one, several, strict=True):
        np.testing.assert_allclose([*a.values()], [*b.values()], rtol=1e-3)
    ends = (eqx.filter(Run(folder).learner, eqx.is_array) for folder in (whole, parts))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), *ends)

    alone, shared = (evaluate_run(parts, tasks=10, mesh=mesh_of(n)).scores for n in (1, 4))
    np.testing.assert_allclose(alone.values, shared.values, rtol=1e-5)
    np.testing.assert_array_equal(alone.families, shared.families)


@pytest.mark.slow
def test_images_that_are_streamed_to_two_devices_give_the_step_of_one():
    key = jax.random.key(0)
    images = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), np.uint8)
    problem = Problem(
        "classification", (16, 16, 3), 2, shots=1, queries=1, classes=6, inputs="pictures"
    )
    tables = {
        "families": ("one", "two"),
        "problem": problem,
        "table": ClassTable(
            first=4 * jnp.arange(6),
            count=jnp.full(6, 4),
            first_class=jnp.asarray([0, 3]),
            classes=jnp.asarray([3, 3]),
        ),
        "stated": "",
        "size": None,
    }
    net = Conv4Options(filters=2).build(problem, key=key)
    learner = MAMLOptions(inner_steps=1, inner_rate=0.1, first_order=True).build(
        net, problem, key=key
    )
    optimiser = OuterOptions(optimiser="sgd", outer_rate=0.1).build(10)
    ends = []
    for devices in (1, 2):
        mesh = mesh_of(devices)
        if mesh is None:
            tasks = ImageEpisodes(pixels=jnp.asarray(images), **tables)
        else:
            disk = Disk([images[:10], images[10:]])
            tasks = ImageEpisodes(pixels=None, disk=disk, **tables)
        step = make_step(optimiser, batch=4, chunk=1, mesh=mesh, key=key)
        state = start(learner, optimiser)
        for _ in range(2):
            state, record = compiled(step)(tasks, state)
        ends.append((eqx.filter(state, eqx.is_inexact_array), record.loss))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), *ends)


@pytest.mark.parametrize(
    ("batch", "chunk", "devices", "share"),
    [(4, 1, 1, 1), (4, 1, 2, 2), (4, 4, 3, 2), (4, 1, 8, 4), (6, 2, 2, 1), (25, 25, 4, 1)],
)
def test_as_many_cores_share_a_batch_as_can(batch, chunk, devices, share):
    assert sharing(batch, chunk, devices) == share


@pytest.mark.parametrize(
    ("chunk", "own", "together"),
    [(100, 25, 25), (100, 150, 75), (4, 6, 3), (2, 3, 3), (1, 7, 1), (100, 101, 101), (4, 4, 4)],
)
def test_a_device_adapts_to_a_divisor_of_its_tasks_near_the_chunk(chunk, own, together):
    assert at_once(chunk, own) == together


def test_tasks_are_shared_out_evenly_or_not_at_all(tmp_path):
    mesh = mesh_of(4)
    assert mesh_of(1) is None
    assert (share(None, 25), share(mesh, 8)) == (25, 2)
    with pytest.raises(ValueError, match="multiple of the 4 devices of the run, got 6"):
        run(replace(EXPERIMENT, batch=6), tmp_path / "run", devices=4)
    with pytest.raises(ValueError, match="from 1 to the 4 that this process has, got 5"):
        run(EXPERIMENT, tmp_path / "run", devices=5)
    assert not (tmp_path / "run").exists()
