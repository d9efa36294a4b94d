"""Meta-training: the outer loop. One compiled step draws a batch of tasks on the device, adapts to
each, and moves the meta-parameters against the mean gradient.

Averaged weights: in the last part of a training the learner is the mean of the weights that the
optimiser makes. Gradients are still taken at the newest weights. The mean has less of the noise of
single tasks, and fits the training tasks less closely.

[1] Izmailov, Podoprikhin, Garipov, Vetrov and Wilson, Averaging Weights Leads to Wider Optima and
    Better Generalization, UAI 2018.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree

from arml.algorithms.conditioned import Conditioned
from arml.core.checks import at_least
from arml.core.compilation import LARGE, jit, vmap
from arml.core.episodes import Task, TaskDistribution
from arml.core.inner import is_inner
from arml.core.learner import MetaLearner
from arml.training.devices import over_tasks, share

if TYPE_CHECKING:
    import optax


class Averaged(NamedTuple):
    """The state of an optimiser whose weights are averaged."""

    newest: PyTree
    """The weights at which gradients are taken."""
    inner: "optax.OptState"
    step: Int[Array, ""]


def averaged(
    inner: "optax.GradientTransformation", first: float | Array
) -> "optax.GradientTransformation":
    """The optimiser, whose weights are the newest up to the step `first`, and then the mean of all
    that it made after this step."""
    import optax

    def init(weights: PyTree) -> Averaged:
        newest = jax.tree.map(jnp.copy, weights)  # the step reuses the memory of each
        return Averaged(newest, inner.init(weights), jnp.zeros((), jnp.int32))

    def update(gradient: PyTree, state: PyTree, weights: Any = None) -> tuple[PyTree, Averaged]:
        moves, after = inner.update(gradient, state.inner, state.newest)
        newest = optax.apply_updates(state.newest, moves)
        step = state.step + 1
        share = 1 / jnp.maximum(step - first, 1)
        change = jax.tree.map(lambda new, mean: share * (new - mean), newest, weights)
        return change, Averaged(newest, after, step)

    return optax.GradientTransformation(init, update)


@dataclass(frozen=True)
class OuterOptions:
    """The outer optimiser.

        arml.OuterOptions(outer_rate=0.003, schedule="cosine", clip=10.0)

    It minimises the mean of the tasks' outer losses.
    """

    outer_rate: float = 0.001
    """Its step size."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam, or plain gradient descent."""
    momentum: float = 0.0
    """Of plain gradient descent."""
    weight_decay: float = 0.0
    """Weight of half the squared norm of the meta-parameters, added to the loss."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Keep the rate, or let it fall to zero along a line or half a cosine."""
    warmup: float = 0.0
    """Share of the outer steps, at the start, over which the rate rises from zero."""
    rates_factor: float = 1.0
    """Factor on the outer step of learned inner rates, which are small compared with Adam's
    steps."""
    encoder_factor: float = 1.0
    """Factor on the outer step of task encoders: without it they may change faster than the network
    that they tailor can follow."""
    clip: float = 0.0
    """Bound on the gradient's global norm; 0 for none."""
    average: float = 0.0
    """Share of the outer steps, at the end, over which the learner is the mean of the weights
    (`arml.training.step`); 0 for the last weights."""

    def build(self, steps: int | Array) -> "optax.GradientTransformation":
        """The optimiser for a run of `steps` outer steps."""
        import optax  # here, so that programs that only predict do not import it

        clip = optax.clip_by_global_norm(self.clip) if self.clip else optax.identity()
        decay = optax.add_decayed_weights(self.weight_decay) if self.weight_decay else None
        slow = [
            optax.masked(optax.scale(factor), part)
            for factor, part in (
                (self.rates_factor, _learned_rates),
                (self.encoder_factor, _encoder),
            )
            if factor != 1
        ]
        rate = self.rate(steps)
        if self.optimiser == "sgd":
            descent = optax.sgd(rate, self.momentum or None)
        else:
            descent = optax.adam(rate)
        whole = optax.chain(*([decay] if decay else []), clip, descent, *slow)
        return averaged(whole, (1 - self.average) * steps) if self.average else whole

    def rate(self, steps: int | Array) -> Callable[[Array], Array] | float:
        """The step size at each of `steps` outer steps: it rises over the share `warmup` of them,
        then follows the schedule. `steps` may be a traced array."""
        nothing = isinstance(steps, int) and not steps
        if nothing or (self.schedule == "constant" and not self.warmup):
            return self.outer_rate

        def at(count: ArrayLike) -> Array:
            warmup = jnp.minimum(jnp.round(self.warmup * steps), steps - 1)
            done, total = jnp.clip(count - warmup, 0, steps - warmup), steps - warmup
            factor = {
                "constant": jnp.ones_like(done / total),
                "linear": 1.0 - done / total,
                "cosine": 0.5 * (1.0 + jnp.cos(jnp.pi * done / total)),
            }[self.schedule]
            rise = count / jnp.maximum(warmup, 1)
            return self.outer_rate * jnp.where(count < warmup, rise, factor)

        return at

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        at_least(self, ("outer_rate",), 0, strict=True)
        at_least(self, ("clip", "rates_factor", "momentum", "weight_decay"), 0)
        at_least(self, ("warmup", "average"), 0, most=1)
        if self.momentum and self.optimiser != "sgd":
            raise ValueError(
                f"momentum belongs to the optimiser sgd, got {self.momentum:g} with "
                f"{self.optimiser}: leave it at 0, or choose sgd"
            )


def _learned_rates(learner: PyTree) -> PyTree:
    """A mask of the learner: True at the learned rates of inner loops, False elsewhere."""

    return jax.tree.map(
        lambda node: jax.tree.map(lambda _: is_inner(node), node), learner, is_leaf=is_inner
    )


def _encoder(learner: PyTree) -> PyTree:
    """A mask of the learner: True at the parts that encode tasks, False elsewhere."""

    def has(node: PyTree) -> bool:
        return isinstance(node, Conditioned)

    def mark(node: PyTree) -> PyTree:
        nowhere = jax.tree.map(lambda _: False, node)
        if not has(node):
            return nowhere
        everywhere = jax.tree.map(lambda _: True, node.encode)
        return eqx.tree_at(lambda learner: learner.encode, nowhere, everywhere)

    return jax.tree.map(mark, learner, is_leaf=has)


class TrainState(eqx.Module):
    """Everything that a run must remember between two steps."""

    learner: MetaLearner
    optimiser: "optax.OptState"
    step: Int[Array, ""]


class Record(NamedTuple):
    """The report of one outer step."""

    loss: Float[Array, ""]
    """Mean meta-loss of the batch."""
    bad_family: Int[Array, ""]
    """The family of the first task whose loss is not finite; -1 if none is."""
    finite: Array
    """Whether loss and gradient are finite."""


Step = Callable[[PyTree, TrainState], tuple[TrainState, Record]]
"""One or more outer steps on tasks, or on tasks and other values, from a state."""


def start(learner: MetaLearner, optimiser: "optax.GradientTransformation") -> TrainState:
    """The state before the first step."""
    # Copies, because a compiled interval reuses the memory of the state that it gets. Their dtypes
    # are explicit: a step returns a weakly typed array as a strong one, which compiles it again.
    learner = jax.tree.map(lambda a: jnp.array(a, a.dtype) if eqx.is_array(a) else a, learner)
    trained = eqx.filter(learner, eqx.is_inexact_array)
    return TrainState(learner, optimiser.init(trained), jnp.zeros((), jnp.int32))


def task_keys(key: PRNGKeyArray, step: Int[Array, ""], batch: int) -> Array:
    """The keys of the `batch` tasks of an outer step."""
    task_key, _ = jax.random.split(jax.random.fold_in(key, step))
    return jax.random.split(task_key, batch)


def make_step(
    optimiser: "optax.GradientTransformation",
    *,
    batch: int,
    chunk: int | None = None,
    mesh: Mesh | None = None,
    key: PRNGKeyArray,
) -> Step:
    """One outer step over `batch` tasks, which the devices of `mesh` share. Each device adapts to
    `chunk` of its tasks at once: a divisor of their number, or None for all.

    It is pure: the tasks of step `s` depend on `key` and `s` alone, so a run can resume at any
    step. A smaller chunk needs less memory. Chunks and devices change nothing but rounding.
    """
    import optax

    own = share(mesh, batch)

    def gradients(
        given: tuple[TaskDistribution, MetaLearner], keys: tuple[Array, Array]
    ) -> tuple[PyTree, PyTree]:
        """The part of the gradient of the batch's mean loss that comes from the tasks of these keys
        (one draws a task, one is for its adaptation); and their losses and families."""
        tasks, learner = given
        drawn = jax.vmap(tasks.sample)(keys[0])
        trained, rest = eqx.partition(learner, eqx.is_inexact_array)

        def objective(trained: MetaLearner, some: Task, keys: Array) -> tuple[Array, Array]:
            learner = eqx.combine(trained, rest)
            losses = vmap(lambda task, key: learner.meta_loss(task, key=key))(some, keys)
            return jnp.sum(losses) / batch, losses  # Eq. (1), (11)

        def accumulate(total: MetaLearner, some: tuple[Task, Array]) -> tuple[MetaLearner, Array]:
            gradient, losses = jax.grad(objective, has_aux=True)(trained, *some)
            return jax.tree.map(jnp.add, total, gradient), losses

        every = (drawn, keys[1])
        if chunk in (None, own):
            gradient, losses = jax.grad(objective, has_aux=True)(trained, *every)
        else:
            chunks = jax.tree.map(lambda a: a.reshape(-1, chunk, *a.shape[1:]), every)
            zeros = jax.tree.map(jnp.zeros_like, trained)
            gradient, losses = jax.lax.scan(accumulate, zeros, chunks)
            losses = losses.reshape(own)
        return gradient, (losses, drawn.family)

    def step(tasks: TaskDistribution, state: TrainState) -> tuple[TrainState, Record]:
        adapt_key = jax.random.split(jax.random.fold_in(key, state.step))[1]
        keys = (task_keys(key, state.step, batch), jax.random.split(adapt_key, batch))
        newest = state.learner
        if isinstance(state.optimiser, Averaged):
            newest = eqx.combine(state.optimiser.newest, newest)
        gradient, (losses, families) = over_tasks(mesh, gradients)((tasks, newest), keys)
        trained, rest = eqx.partition(state.learner, eqx.is_inexact_array)
        loss = jnp.mean(losses)
        updates, optimiser_state = optimiser.update(gradient, state.optimiser, trained)
        learner = eqx.combine(optax.apply_updates(trained, updates), rest)
        bad = ~jnp.isfinite(losses)
        record = Record(
            loss=loss,
            bad_family=jnp.where(jnp.any(bad), families[jnp.argmax(bad)], -1),
            finite=jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(gradient)),
        )
        return TrainState(learner, optimiser_state, state.step + 1), record

    return step


@lru_cache(maxsize=64)
def _one(step: Step) -> Step:
    """A compiled step, which intervals of all lengths use."""
    return jit(step, LARGE, donate="all-except-first")


def make_interval(step: Step, *, steps: int, scan: bool) -> Step:
    """`steps` outer steps; the records are stacked.

    With `scan` they are one compiled loop and one dispatch, which is faster for small networks. If
    a step takes a tenth of a second, its dispatch hardly matters, and it compiles faster alone.
    """

    def looped(tasks: PyTree, state: TrainState) -> tuple[TrainState, Record]:
        arrays, static = eqx.partition(state, eqx.is_array)

        def body(arrays: TrainState, _: None) -> tuple[TrainState, Record]:
            state, record = step(tasks, eqx.combine(arrays, static))
            return eqx.filter(state, eqx.is_array), record

        arrays, records = jax.lax.scan(body, arrays, None, length=steps)
        return eqx.combine(arrays, static), records

    if scan:
        return eqx.filter_jit(looped, donate="all-except-first")
    compiled = _one(step)

    def dispatched(tasks: PyTree, state: TrainState) -> tuple[TrainState, Record]:
        records = []
        for _ in range(steps):
            state, record = compiled(tasks, state)
            records.append(record)
        return state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *records)

    return dispatched
