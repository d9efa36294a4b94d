"""The preset `official` against numbers that the authors' own code gave.

Same weights, same inputs: losses after every inner step, predictions, reconstruction losses, all
intermediate values and all meta-gradients agree to float32 rounding. See golden/README.md.

Pooling and batch statistics amplify rounding, step by step, so the images are compared in float64;
a float32 run of their losses has a wider bound.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.arml import SoftClusters, Trace, official
from arml.core.episodes import Examples, Problem, Task
from arml.core.inner import Shared, with_steps
from arml.nn.autoencoders import GRUCell
from arml.nn.networks import Conv4Options, Linear, MLPOptions

FOLDER = Path(__file__).parent / "golden"
PAIRED = "model/task_specific_mapping/eta_"


def cell(tree, name, inputs):
    gates, candidate = tree[f"{name}/gates/kernel"], tree[f"{name}/candidate/kernel"]
    return GRUCell(
        Linear(gates[:inputs], tree[f"{name}/gates/bias"]),
        gates[inputs:],
        Linear(candidate[:inputs], tree[f"{name}/candidate/bias"]),
        candidate[inputs:],
    )


def autoencoder(like, tree, suffix):
    inputs = tree[f"dec_bias_lstm_ae{suffix}"].shape[0]
    return eqx.tree_at(
        lambda a: (a.encoder, a.decoder, a.output),
        like,
        (
            cell(tree, f"model/encoder_lstm_ae{suffix}/rnn/encoder_cell_lstm_ae{suffix}", inputs),
            cell(tree, f"model/decoder_lstm_ae{suffix}/decoder_cell_lstm_ae{suffix}", inputs),
            Linear(tree[f"dec_weight_lstm_ae{suffix}"], tree[f"dec_bias_lstm_ae{suffix}"]),
        ),
    )


def filled(learner, tree, gates):
    """The learner with the authors' variables (or their gradients) in place of its arrays."""

    def dense(name):
        return Linear(tree[f"{name}/kernel"], tree[f"{name}/bias"])

    def graph(like):
        names = [f"{i}_node_cluster_center" for i in range(len(like.vertices))]
        return eqx.tree_at(
            lambda g: (g.vertices, g.relate.dense, g.connect.dense, g.propagate[0].dense),
            like,
            (
                jnp.concatenate([tree[name] for name in names]),
                dense("model/proto_dist"),
                dense("model/meta_dist"),
                Linear(tree["data_gcn_vars/gcn_weight"], tree["data_gcn_vars/gcn_bias"]),
            ),
        )

    encode, gate = learner.encode, [dense(PAIRED + name) for name in gates]
    encode = eqx.tree_at(
        lambda e: (e.graph, e.summarise, e.summarise_reading),
        encode,
        (
            graph(encode.graph),
            autoencoder(encode.summarise, tree, ""),
            autoencoder(encode.summarise_reading, tree, "_graph"),
        ),
    )
    stacked = Linear(
        jnp.concatenate([g.weight for g in gate], axis=1), jnp.concatenate([g.bias for g in gate])
    )
    return eqx.tree_at(lambda x: (x.encode, x.modulate.dense), learner, (encode, stacked))


def regression(tree, learner):
    learner = filled(learner, tree, ["w1", "b1", "w2", "b2", "w3", "b3"])
    name = "model/first_embedding_sync/first_embedding_sync_dense"
    weights = [tree[f"model/Variable{suffix}"] for suffix in ("", "_1", "_2", "_3", "_4", "_5")]
    return eqx.tree_at(
        lambda x: (
            *(b.layer for b in x.net.body.blocks),
            x.net.head,
            x.encode.embed.net.layers[0],
            x.encode.structure.assign,
        ),
        learner,
        (
            *(Linear(w, b) for w, b in zip(weights[::2], weights[1::2], strict=True)),
            Linear(tree[f"{name}/kernel"], tree[f"{name}/bias"]),
            Linear(
                tree["model/reg_clustering/dense/kernel"], tree["model/reg_clustering/dense/bias"]
            ),
        ),
    )


def images(tree, learner):
    blocks = [name for i in range(1, 5) for name in (f"conv{i}", f"b{i}")]
    learner = filled(learner, tree, [*blocks, "w5", "b5"])
    variables = ["model/Variable", "model/Variable_1", "model/Variable_2", "model/Variable_3"]
    changed = tuple(
        eqx.tree_at(
            lambda b: (b.layer.kernel, b.layer.bias, b.offset),
            block,
            (tree[f"model/conv{i + 1}"], tree[variables[i]], Shared(tree[f"model/{i}/beta"])),
        )
        for i, block in enumerate(learner.net.body.blocks)
    )
    embed = eqx.tree_at(
        lambda e: (e.first, e.second, e.hidden, e.output),
        learner.encode.embed,
        (
            tree["image_embedding/conv1_kernel"],
            tree["image_embedding/conv2_kernel"],
            Linear(tree["model/local3/weight"], tree["model/local3/biases"]),
            Linear(tree["model/local4/weight"], tree["model/local4/biases"]),
        ),
    )
    return eqx.tree_at(
        lambda x: (x.net.body.blocks, x.net.head, x.encode.embed),
        learner,
        (changed, Linear(tree["model/w5"], tree["model/b5"]), embed),
    )


class Case(NamedTuple):
    """One golden file, and our learner with its weights."""

    z: dict
    learner: eqx.Module
    gradients: eqx.Module
    """Their meta-gradients, in the structure of the learner."""
    tasks: Task
    scales: tuple[float, float]
    """The authors' losses of images are sums divided by the shots, and ours are means: their loss
    over ours on support and query."""


def load(file, problem, net, options, fill, dtype):
    with np.load(FOLDER / file) as archive:
        z = {k: archive[k] for k in archive.files}
    pictures = problem.inputs == "pictures"
    blank = options.build(net.build(problem, key=jax.random.key(0)), problem, key=jax.random.key(1))

    def of(prefix):
        arrays = {k: v for k, v in z.items() if k.startswith(prefix)}
        return fill(
            {k.removeprefix(prefix): jnp.asarray(v, dtype) for k, v in arrays.items()}, blank
        )

    def examples(side):
        x, y = z[f"input{side}"], z[f"label{side}"]
        if pictures:
            return Examples(jnp.asarray(x, dtype) / 255, jnp.asarray(np.argmax(y, axis=-1)))
        return Examples(jnp.asarray(x, dtype), jnp.asarray(y, dtype))

    tasks = Task(examples("a"), examples("b"), jnp.zeros(len(z["inputa"]), jnp.int32))
    sizes = (problem.support, problem.query)
    scales = tuple(size / problem.shots if pictures else 1.0 for size in sizes)
    return Case(z, of("var/"), of("grad/"), tasks, scales)


def regression_case():
    problem = Problem("regression", (2,), 1, 10, 10)
    net, options = MLPOptions(), official(problem)
    return load("arml2d_seed11.npz", problem, net, options, regression, jnp.float32)


def images_case(dtype=jnp.float64):
    problem = Problem("classification", (84, 84, 3), 5, 1, 3, inputs="pictures")
    net, options = Conv4Options(filters=8), replace(official(problem), width=16)
    return load("arml_images_1shot_seed11.npz", problem, net, options, images, dtype)


@pytest.fixture(scope="module", params=["2d", pytest.param("images", marks=pytest.mark.slow)])
def case(request) -> Iterator[Case]:
    wide = request.param == "images"
    with jax.enable_x64(True) if wide else contextlib.nullcontext():
        yield images_case() if wide else regression_case()


class Run(NamedTuple):
    """What one task went through: its encoding, its gates, and what it predicted on its way."""

    trace: Trace
    assignment: jax.Array | None
    gates: eqx.Module
    before: tuple[jax.Array, jax.Array]
    """Predictions and loss on the support set before adaptation."""
    after: tuple[jax.Array, jax.Array]
    """On the query set after each inner step."""


def one_run(learner, task) -> Run:
    encode, inner = learner.encode, with_steps(learner.inner, 1)
    trace = encode.trace(task.support)
    code = jnp.concatenate([trace.q, trace.t])
    net = learner.modulate(learner.net, code)
    before = net(task.support.x)
    after = []
    for _ in range(5):
        net = inner(lambda n: learner.loss(n(task.support.x), task.support.y), net)
        predictions = net.given(task.support.x)(task.query.x)
        after.append((predictions, learner.loss(predictions, task.query.y)))
    soft = isinstance(encode.structure, SoftClusters)
    return Run(
        trace,
        encode.structure.assignment(trace.embeddings) if soft else None,
        learner.modulate.gates(learner.net, code),
        (before, learner.loss(before, task.support.y)),
        jax.tree.map(lambda *steps: jnp.stack(steps), *after),
    )


def follow(case) -> Run:
    @jax.jit
    def many(tasks):
        return jax.vmap(lambda task: one_run(case.learner, task))(tasks)

    return many(case.tasks)


@pytest.fixture(scope="module")
def followed(case) -> Run:
    return follow(case)


def close(ours, theirs, tolerance, floor=0.0):
    """Within `tolerance` of the largest entry, or within `floor`."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(
        ours, theirs, rtol=0, atol=max(tolerance * np.abs(theirs).max(), floor)
    )


def test_intermediate_values(case, followed):
    mid = {k.removeprefix("mid/"): v for k, v in case.z.items() if k.startswith("mid/")}
    first: Run = jax.tree.map(lambda a: a[0], followed)
    trace, reading = first.trace, first.trace.reading
    k = len(trace.prototypes)
    ours = {
        "sample_embeddings": trace.embeddings,
        "prototypes": trace.prototypes,
        "cross_links": reading.links,
        "graph_adjacency": reading.adjacency,
        "proto_adjacency": reading.adjacency[:k, :k],
        "vertex_adjacency": reading.adjacency[k:, k:],
        "graph_nodes": jnp.concatenate([trace.prototypes, case.learner.encode.graph.vertices]),
        "gcn_output": reading.prototypes,
        "code": trace.q,
        "code_graph": trace.t,
    }
    if first.assignment is not None:
        ours["assignment"] = first.assignment
    names = [str(pair).split("=")[0] for pair in case.z["weight_names"]]
    gates = zip(names, jax.tree.leaves(first.gates), strict=True)
    ours |= {f"gate/{name}": gate for name, gate in gates}
    assert set(ours) == set(mid)
    for name, value in ours.items():
        close(value, mid[name], 1e-5)


def test_reconstruction_losses(case, followed):
    raw, enriched = followed.trace.loss_q, followed.trace.loss_t
    close(raw, case.z["embed_loss"], 1e-5)
    close(enriched, case.z["embed_loss_graph"], 1e-5)


def test_losses_and_predictions_after_each_step(case, followed):
    predictions, losses = followed.before
    close(predictions, case.z["outputa"], 1e-5)
    close(losses * case.scales[0], case.z["lossa"], 1e-5)
    predictions, losses = followed.after
    close(predictions, case.z["outputb"], 1e-5)
    close(losses * case.scales[1], case.z["lossb"], 2e-6)


@pytest.mark.slow
def test_losses_of_images_in_float32():
    case = images_case(jnp.float32)
    predictions, losses = follow(case).after
    assert predictions.dtype == losses.dtype == jnp.float32
    close(losses * case.scales[1], case.z["lossb"], 1e-4)


def test_meta_gradients(case):
    trained, rest = eqx.partition(case.learner, eqx.is_inexact_array)

    @jax.jit
    @jax.value_and_grad
    def objective(trained):
        learner = eqx.combine(trained, rest)
        return jnp.mean(jax.vmap(lambda t: learner.meta_loss(t, key=jax.random.key(0)))(case.tasks))

    total, gradient = objective(trained)
    close(total * case.scales[1], case.z["total"], 1e-5)
    ours = jax.tree_util.tree_flatten_with_path(gradient)[0]
    theirs = jax.tree.leaves(eqx.filter(case.gradients, eqx.is_inexact_array))
    for (path, mine), golden in zip(ours, theirs, strict=True):
        name = jax.tree_util.keystr(path)
        # Batch norm cancels the convolutions' biases: theirs is rounding noise of about 5e-6.
        cancelled = "blocks" in name and name.endswith(".bias")
        try:
            close(mine * case.scales[1], golden, 1e-4, 2e-5 if cancelled else 0.0)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
