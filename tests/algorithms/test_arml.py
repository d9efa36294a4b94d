"""ARML: what reaches what, and every slot and ablation; MAML in `test_limits.py`."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml
from arml.algorithms import ALGORITHMS
from arml.algorithms.arml import ARMLOptions
from arml.algorithms.conditioned import Conditioned
from arml.core.episodes import Examples, Problem
from arml.experiment.recipes import initial, setting
from arml.explain.explaining import read_task
from small import KEY, REGRESSION, VECTORS, meta, network, task


def learner(problem: Problem = REGRESSION, **options: Any) -> Conditioned:
    options = {"width": 8, "vertices": 3, "inner_steps": 1, "inner_rate": 0.05, **options}
    built: Conditioned = ARMLOptions(**options).build(network(problem), problem, key=KEY)
    return built


@eqx.filter_jit
def encode(learner: Conditioned, support: Examples) -> tuple:
    return learner.encode(support)


@eqx.filter_jit
def traced(learner: Conditioned, support: Examples) -> Any:
    return learner.encode.trace(support)


@pytest.mark.parametrize(
    ("options", "reached"),
    [
        ({"normalise": "row", "layers": 1}, False),
        ({"normalise": "symmetric", "layers": 1}, True),
        ({"normalise": "row", "layers": 2}, True),
        ({"propagation": "sage", "layers": 1}, False),
        ({"propagation": "sage", "layers": 2}, True),
        ({"propagation": "gat", "layers": 1}, False),
        ({"propagation": "gat", "layers": 2}, True),
        ({"normalise": "symmetric", "vertices": 1}, False),
    ],
    ids=str,
)
def test_the_edges_between_vertices_learn_exactly_when_they_reach_the_prototypes(options, reached):
    arml = learner(summary="mlp", **options)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(encode: Any) -> jax.Array:
        code, penalty = encode(task().support)
        return jnp.sum(jnp.sin(code)) + penalty

    graph = gradient(arml.encode).graph
    assert np.any(graph.connect.dense.weight) == np.any(graph.connect.dense.bias) == reached
    assert np.any(graph.relate.dense.weight)
    assert np.any(graph.vertices)
    # `arml explain` says the same of a task.
    found = eqx.filter_jit(read_task)(arml, task(), KEY)
    assert bool(found.reached) == reached
    assert found.effect > 1e-4 if reached else found.effect < 1e-5


ABLATIONS: dict[str, dict[str, Any]] = {
    "full": {},
    "I, mean of the samples": {"structure": "mean"},
    "II, samples": {"structure": "samples"},
    "III, no links": {"links": "none"},
    "IV, no graph": {"vertices": 0},
    "V, no reconstruction": {"mu_1": 0.0, "mu_2": 0.0},
    "VI, no recurrence": {"summary": "mlp"},
    "VII, a gate a filter": {"granularity": "filter"},
    "VIII, tanh": {"gate": "tanh"},
    "IX, FiLM": {"gate": "film"},
}
SLOTS: dict[str, dict[str, Any]] = {
    "sage": {"propagation": "sage", "layers": 2},
    "gat": {"propagation": "gat", "layers": 2},
    "reads samples": {"sequence": "samples", "error": "frobenius"},
    "deep embedding": {"hidden": (8,), "activation": "relu", "own_values": True},
    "learned rates": {"learn_rates": True, "first_order": True},
    "shared FiLM": {"gate": "film", "granularity": "filter", "clusters": 3},
    "FiLM on units": {"gate": "film", "granularity": "unit", "learn_rates": True},
    "tanh on units": {"gate": "tanh", "granularity": "unit"},
}


@pytest.mark.parametrize(
    "name", [*ABLATIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOTS)]
)
def test_every_slot_and_ablation_learns(name):
    """Finite everywhere, and what makes ARML out of MAML gets a gradient."""
    _, gradient = found = meta(learner(**(ABLATIONS | SLOTS)[name]), task())
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(found))
    for part in (gradient.net, gradient.modulate, gradient.encode.embed):
        assert all(np.any(leaf) for leaf in jax.tree.leaves(part))


def test_ablations_are_what_they_say():
    support = task().support
    mean, samples = (traced(learner(structure=s), support) for s in ("mean", "samples"))
    np.testing.assert_allclose(mean.prototypes[0], mean.embeddings.mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(samples.prototypes, samples.embeddings)
    reading = traced(learner(links="none"), support).reading
    assert not np.any(reading.adjacency[:2, :2])
    assert np.any(reading.adjacency[2:, 2:])
    bare = learner(vertices=0)
    assert traced(bare, support).reading is None
    assert encode(bare, support)[0].shape == (8,)
    net_sizes = [leaf.shape[-1] for leaf in jax.tree.leaves(bare.net)]
    assert len(learner(granularity="filter").modulate.dense.bias) == sum(net_sizes)


def test_the_penalty_weighs_both_reconstructions():
    support, arml = task().support, learner(mu_1=2.0, mu_2=3.0)
    trace = traced(arml, support)
    expected = 2 * trace.loss_t + 3 * trace.loss_q
    np.testing.assert_allclose(encode(arml, support)[1], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("problem", "options", "words"),
    [
        (REGRESSION, {"structure": "classes"}, "class prototypes need classification tasks"),
        (VECTORS, {"sequence": "labelled prototypes"}, "need one prototype for each class"),
        (VECTORS, {"structure": "classes", "own_values": True}, "the structure clusters, got cl"),
    ],
)
def test_options_that_do_not_suit_the_problem_are_refused(problem, options, words):
    with pytest.raises(ValueError, match=words):
        learner(problem, **options)


RECIPE_NAMES = [*arml.RECIPES]


@pytest.mark.parametrize("variant", ALGORITHMS["arml-paper"].variants)
@pytest.mark.parametrize("place", ["regression2d", "starter", "art-multi"])
def test_each_row_of_the_ablation_study_is_a_recipe_that_can_be_built(place, variant):
    base, made = (arml.recipe(f"{place}/arml-paper{end}") for end in ("", f"-{variant}"))
    changes = ALGORITHMS["arml-paper"].variants[variant][1]
    assert made.algorithm == replace(base.algorithm, **changes)  # the setting's options stay
    assert replace(made, recipe=base.recipe, algorithm=base.algorithm) == base
    assert made.recipe in RECIPE_NAMES
    problem = setting(place).problem
    if place == "art-multi":
        return  # it differs from the other pictures in its options alone
    shapes = eqx.filter_eval_shape(initial, made, problem)
    assert shapes.problem == problem
