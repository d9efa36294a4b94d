"""The library's hot paths as functions to compile alone, each with the operations and bytes that it
needs (`counts.py`): what `roofline.py` measures."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

import counts
from arml.algorithms.maml import MAML
from arml.algorithms.protonet import ProtoNet
from arml.core.compilation import short
from arml.core.episodes import TaskDistribution
from arml.core.learner import Conditioned, MetaLearner
from arml.core.losses import score_of
from arml.nn.convolution import convolve
from arml.nn.networks import Body, ConvBlock
from arml.training.evaluate import look_chunk, predicted
from arml.training.step import make_step, start
from counts import FORWARD, GRADIENT, RANDOM, SECOND, Work


class Path(NamedTuple):
    """A hot path: `function(*arguments)`, and what it needs. Where it `carries`, its first result
    is its last argument of the next call. One call does `each` times what the path is."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    needs: Work
    carries: bool = False
    each: int = 1


def with_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of the sum of all that `function` returns, by its arguments."""

    def total(given: tuple[Any, ...]) -> jax.Array:
        leaves = jax.tree.leaves(eqx.filter(function(*given), eqx.is_inexact_array))
        return sum((jnp.sum(leaf) for leaf in leaves), jnp.zeros(()))

    return lambda *given: eqx.filter_value_and_grad(total)(given)


def paths(
    learner: MetaLearner, tasks: TaskDistribution, experiment: Any, *, dispatch: int
) -> list[Path]:
    """The hot paths of one learner. Those before the outer step are of the tasks adapted to at
    once."""
    problem = tasks.problem
    side = problem.features[0] if len(problem.features) == 3 else 0
    at_once = min(experiment.chunk, experiment.batch)
    support, query = problem.support, problem.query
    keys = jax.random.split(jax.random.key(0), at_once)
    drawn = short(lambda tasks, keys: jax.vmap(tasks.sample)(keys))(tasks, keys)
    n, numbers = support + query, (support + query) * math.prod(problem.features)
    # Images are read as bytes and written as floats; vectors are drawn, two numbers and a noise.
    sampled = Work(numbers + RANDOM * n, 5 * numbers) if side else Work(3 * RANDOM * n, 4 * numbers)
    found = [Path("sampling", lambda t, k: jax.vmap(t.sample)(k), (tasks, keys), sampled * at_once)]
    encoded = tested = Work()  # of one task
    if isinstance(learner, ProtoNet):
        layers = [counts.network(learner.body, n, side) for n in (support, query)]
        inner, forward = (
            counts.total(layers[0], passes) + counts.total(layers[1], passes)
            for passes in (GRADIENT, FORWARD)
        )
    else:
        assert isinstance(learner, MAML | Conditioned)
        net = learner.net
        if isinstance(learner, Conditioned):
            parts, (encoded, tested), codes = encoding(learner, drawn, side)
            found += parts
            encoded, tested = encoded * (1 / at_once), tested * (1 / at_once)
            net = short(lambda c: jax.vmap(lambda c: learner.modulate(learner.net, c))(c))(codes)
        layers = [counts.network(learner.net, n, side) for n in (support, query)]
        steps = learner.inner.steps
        inner = counts.total(layers[0], SECOND) * steps + counts.total(layers[1], GRADIENT)
        forward = counts.total(layers[0], GRADIENT) * steps + counts.total(layers[1], FORWARD)
        given = (learner.inner, net, drawn)
        shared = isinstance(learner, MAML)
        function = partial(meta_gradient, loss=learner.loss, shared=shared)
        found.append(Path("inner loop, with its gradient", function, given, inner * at_once))
    if side and isinstance(learner, MAML):
        found += [
            convolutions(learner.net.body, f"convolutions of the {name} set", n, side)
            for name, n in (("support", support), ("query", query))
        ]
    step = (sampled + encoded + inner) * experiment.batch + counts.adam(counts.size(learner))
    found.append(outer(learner, tasks, experiment, step, dispatch))
    chunk = experiment.chunk
    evaluation = (sampled + tested + forward) * chunk
    part = (learner, score_of(tasks.problem)[1])
    given = (predicted, part, tasks, jax.random.split(jax.random.key(1), chunk), None)
    many = f"{chunk} tasks" if chunk > 1 else "one task"
    found.append(Path(f"evaluation, {many}", look_chunk, given, evaluation))
    return found


def meta_gradient(inner: Any, net: Any, tasks: Any, *, loss: Any, shared: bool) -> Any:
    """The gradient of the tasks' query losses by where each begins: one network shared by all, or
    one a task."""

    def query_loss(net: Any, task: Any) -> jax.Array:
        adapted = inner(lambda net: loss(net(task.support.x), task.support.y), net)
        return loss(adapted.given(task.support.x)(task.query.x), task.query.y)

    mapped = jax.vmap(query_loss, in_axes=(None if shared else 0, 0))
    return eqx.filter_grad(lambda net: jnp.sum(mapped(net, tasks)))(net)


def convolutions(body: Body, name: str, n: int, side: int) -> Path:
    """The convolutions of one task alone, each by itself with both its gradients: what a step of
    images would take if all else were free, divided by how often it makes them."""
    kernels = [block.layer.kernel for block in body.blocks if isinstance(block, ConvBlock)]
    sides = [side // 2**i for i in range(len(kernels))]
    inputs = [
        jnp.ones((n, size, size, kernel.shape[2]))
        for size, kernel in zip(sides, kernels, strict=True)
    ]

    def each(inputs: list[jax.Array], kernels: list[jax.Array]) -> Any:
        made = [jax.vjp(convolve, x, kernel) for x, kernel in zip(inputs, kernels, strict=True)]
        return [(result, *gradients(result)) for result, gradients in made]

    layers = [
        counts.convolution(n, size, *kernel.shape[1:])
        for size, kernel in zip(sides, kernels, strict=True)
    ]
    return Path(name, each, (inputs, kernels), sum(layers, Work()) * 3)


def encoding(
    learner: Any, drawn: Any, side: int
) -> tuple[list[Path], tuple[Work, Work], jax.Array]:
    """The parts of the encoder, each with its gradient; all that they need, with gradient and
    without; and the tasks' codes."""
    encode, support = learner.encode, drawn.support
    at_once, n = support.x.shape[:2]
    trace = short(lambda support: jax.vmap(encode.trace)(support))(support)
    codes = jnp.concatenate([trace.raw, trace.enriched], axis=1)
    sequences = jax.vmap(encode.sequence)(trace.embeddings, trace.prototypes)
    readings = trace.reading.prototypes

    def embed(encode: Any, support: Any) -> Any:
        def one(support: Any) -> Any:
            e = encode.embed(support)
            f = e if encode.embed_values is None else encode.embed_values(support)
            return encode.structure(e, f, support.y)

        return jax.vmap(one)(support)

    def embed_with_gradient(encode: Any, support: Any) -> Any:
        return with_gradient(lambda encode: embed(encode, support))(encode)

    def summarise(q: Any, t: Any, x: Any, y: Any) -> Any:
        return jax.vmap(q)(x), jax.vmap(t)(y)

    def read(graph: Any, prototypes: Any) -> Any:
        return jax.vmap(lambda p: graph(p).prototypes)(prototypes)

    def modulate(modulate: Any, net: Any, codes: Any) -> Any:
        return jax.vmap(lambda code: modulate(net, code))(codes)

    layers = counts.embedding(encode, at_once * n, side)
    embeddings = 1 if encode.embed_values is None else 2
    both = [(encode.summarise, sequences), (encode.summarise_reading, readings)]
    summaries = sum((counts.summary(s, at_once, x.shape[1]) for s, x in both), Work())
    graph = counts.graph(encode, at_once, trace.prototypes.shape[1])
    gates = counts.modulation(learner.modulate, at_once)
    embedded, forward = (counts.total(layers, p) * embeddings for p in (GRADIENT, FORWARD))
    rest = summaries + graph + gates
    kind = type(encode.summarise).__name__.removesuffix("Autoencoder")
    autoencoders = (encode.summarise, encode.summarise_reading)
    found = [
        Path("embedding and prototypes", embed_with_gradient, (encode, support), embedded),
        Path(
            f"summaries ({kind})",
            with_gradient(summarise),
            (*autoencoders, sequences, readings),
            summaries * 3,
        ),
        Path("graph", with_gradient(read), (encode.graph, trace.prototypes), graph * 3),
        Path("gates", with_gradient(modulate), (learner.modulate, learner.net, codes), gates * 3),
    ]
    return found, (embedded + rest * 3, forward + rest), codes


def outer(
    learner: MetaLearner, tasks: TaskDistribution, experiment: Any, needs: Work, dispatch: int
) -> Path:
    """`dispatch` outer steps."""
    optimiser = experiment.outer.build(1_000_000)
    chunk = min(experiment.chunk, experiment.batch)
    step = make_step(optimiser, batch=experiment.batch, chunk=chunk, key=jax.random.key(1))
    state = start(learner, optimiser)
    static = eqx.filter(state, eqx.is_array, inverse=True)

    def steps(tasks: TaskDistribution, state: Any) -> Any:
        def body(arrays: Any, _: None) -> Any:
            after, record = step(tasks, eqx.combine(arrays, static))
            return eqx.filter(after, eqx.is_array), record

        if dispatch == 1:
            return step(tasks, state)
        return jax.lax.scan(body, eqx.filter(state, eqx.is_array), None, length=dispatch)

    return Path("outer step", steps, (tasks, state), needs, carries=True, each=dispatch)
