"""The preset `official` against numbers that the authors' own code gave.

Same weights, same inputs: losses after every inner step, predictions, reconstruction losses, all
intermediate values and all meta-gradients agree to float32 rounding. See golden/README.md.
"""

from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arml.algorithms.arml import official
from arml.episodes import Examples, Problem, Task
from arml.inner import GradientDescent, Shared, with_steps
from arml.nn.graphs import MetaKnowledgeGraph
from arml.nn.networks import Conv4Options, Linear, MLPOptions
from arml.nn.summaries import GRUCell

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
                np.concatenate([tree[name] for name in names]),
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
        np.concatenate([g.weight for g in gate], axis=1), np.concatenate([g.bias for g in gate])
    )
    return eqx.tree_at(lambda x: (x.encode, x.modulate.dense), learner, (encode, stacked))


def regression(tree, learner):
    learner = filled(learner, tree, ["w1", "b1", "w2", "b2", "w3", "b3"])
    name = "model/first_embedding_sync/first_embedding_sync_dense"
    weights = [tree[f"model/Variable{suffix}"] for suffix in ("", "_1", "_2", "_3", "_4", "_5")]
    return eqx.tree_at(
        lambda x: (x.net.layers, x.encode.embed.net.layers[0], x.encode.structure.assign),
        learner,
        (
            tuple(Linear(w, b) for w, b in zip(weights[::2], weights[1::2], strict=True)),
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
            lambda b: (b.kernel, b.bias, b.offset),
            block,
            (tree[f"model/conv{i + 1}"], tree[variables[i]], Shared(tree[f"model/{i}/beta"])),
        )
        for i, block in enumerate(learner.net.blocks)
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
        lambda x: (x.net.blocks, x.net.head, x.encode.embed),
        learner,
        (changed, Linear(tree["model/w5"], tree["model/b5"]), embed),
    )


class Case:
    """One golden file, and our learner with its weights."""

    def __init__(self, file, problem, net, options, fill):
        z = np.load(FOLDER / file)
        self.z = {k: z[k] for k in z.files}
        self.problem = problem
        self.fill = fill
        net = net.build(problem, key=jax.random.key(0))
        self.blank = options.build(net, problem, key=jax.random.key(1))
        self.learner = self.of("var/")

    def of(self, prefix):
        tree = {k.removeprefix(prefix): v for k, v in self.z.items() if k.startswith(prefix)}
        return jax.tree.map(
            lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf,
            self.fill(tree, self.blank),
        )

    @property
    def scale(self):
        """The authors' losses are sums over images divided by the shots; ours are means."""
        return self.problem.query / self.problem.shots if len(self.problem.features) == 3 else 1.0

    def tasks(self):
        def examples(side):
            x, y = self.z[f"input{side}"], self.z[f"label{side}"]
            if len(self.problem.features) == 3:
                x, y = x.astype(np.float32) / 255, np.argmax(y, axis=-1)
            return Examples(jnp.asarray(x), jnp.asarray(y))

        n = len(self.z["inputa"])
        return Task(examples("a"), examples("b"), jnp.zeros(n, jnp.int32))


def regression_case():
    problem = Problem("regression", (2,), 1, 10, 10)
    net = MLPOptions()
    return Case("arml2d_seed11.npz", problem, net, official(problem), regression)


def images_case():
    problem = Problem("classification", (84, 84, 3), 5, 1, 3)
    options = replace(official(problem), width=16)
    net = Conv4Options(filters=8)
    return Case("arml_images_1shot_seed11.npz", problem, net, options, images)


@pytest.fixture(scope="module", params=[regression_case, images_case], ids=["2d", "images"])
def case(request):
    return request.param()


def close(ours, theirs, tolerance, floor=0.0):
    """Within `tolerance` of the largest entry, or within `floor`."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(
        ours, theirs, rtol=0, atol=max(tolerance * np.abs(theirs).max(), floor)
    )


def test_intermediate_values(case):
    support = jax.tree.map(lambda a: a[0], case.tasks().support)
    encode, mid = case.learner.encode, {k: v for k, v in case.z.items() if k.startswith("mid/")}
    trace = encode.trace(support)
    k = len(trace.prototypes)
    graph: MetaKnowledgeGraph = encode.graph
    close(trace.embeddings, mid["mid/sample_embeddings"], 1e-5)
    close(trace.prototypes, mid["mid/prototypes"], 1e-5)
    close(trace.reading.links, mid["mid/cross_links"], 1e-5)
    close(trace.reading.adjacency, mid["mid/graph_adjacency"], 1e-5)
    close(trace.reading.adjacency[:k, :k], mid["mid/proto_adjacency"], 1e-5)
    close(graph.connect(graph.vertices), mid["mid/vertex_adjacency"], 1e-5)
    close(trace.reading.prototypes, mid["mid/gcn_output"], 1e-5)
    close(trace.raw, mid["mid/code"], 1e-5)
    close(trace.enriched, mid["mid/code_graph"], 1e-5)
    close(trace.penalties[0], case.z["embed_loss"][0], 1e-5)
    close(trace.penalties[1], case.z["embed_loss_graph"][0], 1e-5)
    gates = case.learner.modulate.gates(
        case.learner.net, jnp.concatenate([trace.raw, trace.enriched])
    )
    names = [str(pair).split("=")[0] for pair in case.z["weight_names"]]
    for name, gate in zip(names, jax.tree.leaves(gates), strict=True):
        close(gate, mid[f"mid/gate/{name}"], 1e-5)


def test_soft_assignment():
    case = regression_case()
    support = jax.tree.map(lambda a: a[0], case.tasks().support)
    encode = case.learner.encode
    ours = encode.structure.assignment(encode.embed(support))
    close(ours, case.z["mid/assignment"], 1e-5)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5])
def test_losses_and_predictions_after_each_step(case, steps):
    learner, tasks, scale = with_steps(case.learner, steps), case.tasks(), case.scale

    def one(task):
        adapted = learner.adapt(task.support, key=jax.random.key(0))
        on = task.support if steps == 0 else task.query
        predictions = adapted.predict(on.x)
        return predictions, learner.loss(predictions, on.y)

    predictions, losses = jax.jit(jax.vmap(one))(tasks)
    if steps == 0:
        images = len(case.problem.features) == 3
        close(predictions, case.z["outputa"], 1e-5)
        close(
            losses * (case.problem.support / case.problem.shots if images else 1.0),
            case.z["lossa"],
            1e-5,
        )
    else:
        close(predictions, case.z["outputb"][:, steps - 1], 2e-5)
        close(losses * scale, case.z["lossb"][:, steps - 1], 1e-5)


def test_meta_gradients(case):
    tasks, scale = case.tasks(), case.scale
    trained, rest = eqx.partition(case.learner, eqx.is_inexact_array)

    @jax.jit
    def objective(trained):
        learner = eqx.combine(trained, rest)
        return jnp.mean(jax.vmap(lambda t: learner.meta_loss(t, key=jax.random.key(0)))(tasks))

    total, gradient = jax.value_and_grad(objective)(trained)
    close(total * scale, case.z["total"], 1e-5)
    expected = eqx.filter(case.of("grad/"), eqx.is_inexact_array)
    ours = jax.tree_util.tree_flatten_with_path(gradient)[0]
    theirs = jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for (path, mine), golden in zip(ours, theirs, strict=True):
        name = jax.tree_util.keystr(path)
        # Batch norm cancels the convolutions' biases: theirs is rounding noise of about 5e-6.
        cancelled = "blocks" in name and name.endswith(".bias")
        try:
            close(mine * scale, golden, 1e-4, 2e-5 if cancelled else 0.0)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def test_the_edges_between_vertices_get_no_gradient(case):
    connect = case.of("grad/").encode.graph.connect.dense
    assert not np.any(connect.weight)
    assert not np.any(connect.bias)
    assert isinstance(case.learner.inner, GradientDescent)
