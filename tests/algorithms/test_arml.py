"""ARML: where it equals MAML, what reaches what, and every slot and ablation."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms import ALGORITHMS
from arml.algorithms.arml import ARMLOptions
from arml.algorithms.conditioned import Conditioned
from arml.algorithms.maml import MAMLOptions
from arml.core.episodes import Examples, Problem, Task
from arml.nn.modulation import FiLM, Gate
from arml.nn.networks import Linear, MLPOptions
from small import KEY, REGRESSION, VECTORS, meta, predictions, task

SMALL: dict[str, Any] = {"width": 8, "vertices": 3, "inner_steps": 1, "inner_rate": 0.05}


def learner(problem: Problem = REGRESSION, **options: Any) -> Conditioned:
    net = MLPOptions(hidden=(4,), init="he").build(problem, key=jax.random.key(1))
    built: Conditioned = ARMLOptions(**(SMALL | options)).build(net, problem, key=KEY)
    return built


@eqx.filter_jit
def encode(learner: Conditioned, support: Examples) -> tuple:
    return learner.encode(support)


@eqx.filter_jit
def traced(learner: Conditioned, support: Examples) -> Any:
    return learner.encode.trace(support)


def constant(dense: Linear, bias: float) -> Linear:
    return Linear(jnp.zeros_like(dense.weight), jnp.full_like(dense.bias, bias))


@pytest.mark.parametrize(
    "gate", ["sigmoid", *(pytest.param(gate, marks=pytest.mark.slow) for gate in ("tanh", "film"))]
)
def test_with_a_neutral_modulation_it_is_maml(gate):
    """A saturated sigmoid or tanh is one, and FiLM without weights is the identity."""
    arml = learner(gate=gate)
    modulate = (
        FiLM(constant(arml.modulate.scale, 0.0), constant(arml.modulate.shift, 0.0))
        if gate == "film"
        else Gate(constant(arml.modulate.dense, 100.0), arml.modulate.activation)
    )
    arml = eqx.tree_at(lambda x: x.modulate, arml, modulate)
    maml = MAMLOptions(inner_steps=1, inner_rate=0.05).build(arml.net, REGRESSION, key=KEY)
    code, penalty = encode(arml, task().support)
    jax.tree.map(np.testing.assert_array_equal, arml.modulate(arml.net, code), maml.net)
    np.testing.assert_allclose(predictions(arml, task()), predictions(maml, task()), rtol=1e-5)
    (ours, ours_grad), (theirs, theirs_grad) = meta(arml, task()), meta(maml, task())
    np.testing.assert_allclose(ours, theirs + penalty, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        ours_grad.net,
        theirs_grad.net,
    )


def test_without_a_code_film_on_units_is_maml():
    arml = learner(gate="film", granularity="unit")
    assert repr(arml) == "ARML(Relational, UnitModulation, 2,093 parameters)"
    layers = tuple(constant(layer, 0.0) for layer in arml.modulate.layers)
    arml = eqx.tree_at(lambda x: x.modulate.layers, arml, layers)
    maml = MAMLOptions(inner_steps=1, inner_rate=0.05).build(arml.net, REGRESSION, key=KEY)
    np.testing.assert_allclose(predictions(arml, task()), predictions(maml, task()), rtol=1e-5)


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
    for layer in (graph.connect.dense, graph.relate.dense):
        assert np.all(np.isfinite(layer.weight))
    assert np.any(graph.connect.dense.weight) == reached
    assert np.any(graph.connect.dense.bias) == reached
    assert np.any(graph.relate.dense.weight)
    assert np.any(graph.vertices)


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
    "row": {"normalise": "row", "message_init": "authors"},
    "sage": {"propagation": "sage", "layers": 2},
    "gat": {"propagation": "gat", "layers": 2},
    "reads samples": {"sequence": "samples", "error": "frobenius"},
    "deep embedding": {"hidden": (8,), "activation": "relu", "own_values": True},
    "learned rates": {"learn_rates": True, "first_order": True},
    "shared FiLM": {"gate": "film", "granularity": "filter", "clusters": 3},
    "FiLM on units": {"gate": "film", "granularity": "unit", "learn_rates": True},
    "tanh on units": {"gate": "tanh", "granularity": "unit"},
}


def check_learns(arml: Conditioned, on: Task) -> None:
    """Finite everywhere, and what makes ARML out of MAML gets a gradient."""
    loss, gradient = meta(arml, on)
    assert np.isfinite(loss)
    for path, leaf in jax.tree_util.tree_flatten_with_path(gradient)[0]:
        assert np.all(np.isfinite(leaf)), jax.tree_util.keystr(path)
    for part in (gradient.net, gradient.modulate, gradient.encode.embed):
        assert all(np.any(leaf) for leaf in jax.tree.leaves(part))


@pytest.mark.parametrize(
    "name", [*ABLATIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOTS)]
)
def test_every_slot_and_ablation_learns(name):
    check_learns(learner(**(ABLATIONS | SLOTS)[name]), task())


@pytest.mark.slow
@pytest.mark.parametrize("sequence", ["prototypes", "labelled prototypes"])
def test_class_prototypes_learn(sequence):
    options: dict[str, Any] = {"structure": "classes", "sequence": sequence, "summary": "mlp"}
    check_learns(learner(VECTORS, **options), task(VECTORS, shuffled=True))


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
    assert encode(learner(), support)[0].shape == (16,)
    net_sizes = [leaf.shape[-1] for leaf in jax.tree.leaves(bare.net)]
    assert len(learner(granularity="filter").modulate.dense.bias) == sum(net_sizes)


def test_the_penalty_weighs_both_reconstructions():
    support, arml = task().support, learner(mu_1=2.0, mu_2=3.0)
    trace = traced(arml, support)
    loss_q, loss_t = trace.loss_q, trace.loss_t
    np.testing.assert_allclose(encode(arml, support)[1], 2 * loss_t + 3 * loss_q, rtol=1e-5)
    assert encode(learner(mu_1=0.0, mu_2=0.0), support)[1] == 0


def test_links_and_assignments_sum_to_one():
    arml, support = learner(clusters=3), task().support
    trace = traced(arml, support)
    np.testing.assert_allclose(trace.reading.links.sum(axis=1), 1, rtol=1e-5)
    assignment = arml.encode.structure.assignment(trace.embeddings)
    np.testing.assert_allclose(assignment.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(("summary", "same"), [("mlp", True), ("gru", False)])
def test_without_recurrence_the_order_of_the_samples_is_irrelevant(summary, same):
    arml = learner(summary=summary, sequence="samples")
    x, y = task().support
    code, penalty = encode(arml, Examples(x, y))
    other, other_penalty = encode(arml, Examples(x[::-1], y[::-1]))
    assert np.allclose(code, other, rtol=1e-4, atol=1e-6) == same
    assert np.allclose(penalty, other_penalty, rtol=1e-4) == same


def test_class_prototypes_do_not_depend_on_the_order_of_the_samples():
    arml = learner(VECTORS, structure="classes")
    x, y = task(VECTORS, shuffled=True).support
    order = np.argsort(np.asarray(y), kind="stable")
    code, _ = encode(arml, Examples(x, y))
    ordered, _ = encode(arml, Examples(x[order], y[order]))
    np.testing.assert_allclose(code, ordered, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["arml", "arml-official", "arml-paper"])
@pytest.mark.parametrize("problem", [REGRESSION, VECTORS], ids=lambda p: p.kind)
def test_presets_are_valid_options(name, problem):
    options = ALGORITHMS[name].options(problem)
    options.check()
    options.check_problem(problem)


def test_bad_options():
    bad: list[tuple[dict[str, Any], str]] = [
        ({"clusters": 0}, "clusters must be at least 1, got 0"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"vertices": -1}, "vertices must be 0 or more, got -1"),
        ({"mu_1": -0.1}, r"mu_1 must be 0 or more, got -0\.1"),
        ({"gamma_s": 0.0}, r"gamma_s must be above 0, got 0\.0"),
        ({"inner_steps": -1}, "inner_steps must be 0 or more, got -1"),
    ]
    for options, message in bad:
        with pytest.raises(ValueError, match=message):
            replace(ARMLOptions(), **options).check()
    with pytest.raises(ValueError, match="class prototypes need classification tasks"):
        learner(structure="classes")
    with pytest.raises(ValueError, match="labelled prototypes need one prototype for each class"):
        learner(VECTORS, sequence="labelled prototypes")
    with pytest.raises(ValueError, match="needs the structure clusters, got classes"):
        learner(VECTORS, structure="classes", own_values=True)
