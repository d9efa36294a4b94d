"""The promises of every method, as checks on a `Case`: a method on a kind of tasks. The package's
tests run them on all methods, and `check` on those of a plug-in. No check depends on a method's
name. A check raises `AssertionError`, whose message names the compared values.
"""

import contextlib
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from arml.algorithms import ALGORITHMS
from arml.core.checks import Options
from arml.core.episodes import Examples, Problem, Task, TaskDistribution
from arml.core.inner import with_steps
from arml.core.learner import MetaLearner
from arml.core.own_tasks import fault
from arml.experiment.options import NETWORKS, TASKS
from arml.experiment.recipes import drawn_once
from arml.nn.networks import BaseNetwork, Body, Conv4Options, MLPOptions, linear
from arml.plugins.loading import announced, place_in_plugin
from arml.plugins.sources import package_of, source_of
from arml.results.files import brief
from arml.tasks.functions import functions_2d
from arml.tasks.splits import TasksOptions, splits_of
from arml.training import checkpoint
from arml.training.checkpoint import named
from arml.training.fit import Record, TrainState, make_step, start

_BATCH_TASKS = 2


def require(holds: object, message: str) -> None:
    """Raise `AssertionError` unless a promise holds; Python's `assert` can be switched off."""
    if not holds:
        raise AssertionError(message)


class Blobs(TaskDistribution):
    """Classification for the checks: a task's classes are Gaussian blobs around random centres."""

    problem: Problem = eqx.field(static=True)
    noise: float = eqx.field(static=True, default=0.3)
    families = ("blobs",)

    def sample(self, key: PRNGKeyArray) -> Task:
        key, centre_key = jax.random.split(key)
        ways, features = self.problem.outputs, self.problem.features
        centres = jax.random.normal(centre_key, (ways, *features))

        def examples(key: PRNGKeyArray, each: int) -> Examples:
            label_key, noise_key = jax.random.split(key)
            y = jax.random.permutation(label_key, jnp.tile(jnp.arange(ways), each))
            x = centres[y] + self.noise * jax.random.normal(noise_key, (ways * each, *features))
            return Examples(x, y)

        support, query = jax.random.split(key)
        return Task(
            examples(support, self.problem.shots),
            examples(query, self.problem.queries),
            jnp.zeros((), jnp.int32),
        )


class Outcome(NamedTuple):
    """The outcomes of adapting a learner to one task."""

    predictions: Array
    backwards: Array
    """The same queries in the opposite order."""
    apart: Array
    """The first query without the others."""
    before: Array
    """Support loss without inner steps."""
    after: Array


def outcome(learner: MetaLearner, task: Task, key: PRNGKeyArray) -> Outcome:
    (x, y), queries = task.support, task.query.x
    predict = learner.adapt(task.support, key=key).predict
    unadapted = with_steps(learner, 0).adapt(task.support, key=key).predict
    return Outcome(
        predict(queries),
        predict(queries[::-1])[::-1],
        predict(queries[:1]),
        learner.loss(unadapted(x), y),
        learner.loss(predict(x), y),
    )


@eqx.filter_jit
def many(learner: MetaLearner, tasks: Task, keys: Array) -> Outcome:
    return jax.vmap(lambda task, key: outcome(learner, task, key))(tasks, keys)


@eqx.filter_jit
def single(learner: MetaLearner, task: Task, key: PRNGKeyArray) -> tuple[Array, Array]:
    predict = learner.adapt(task.support, key=key).predict
    return predict(task.query.x), learner.meta_loss(task, key=key)


GRADIENT_RECORDER = optax.chain(optax.trace(0.0), optax.sign_sgd(1e-5))
"""Small steps against the gradient's signs; its state is the gradient that it got."""


class Trained(NamedTuple):
    """Two outer steps, and the first one again."""

    first: tuple[TrainState, Record]
    second: tuple[TrainState, Record]
    again: tuple[TrainState, Record]
    traces: int


@dataclass
class Case:
    """An algorithm on a kind of problem. `dead` are parts of the paths of meta-parameters that no
    gradient reaches; `cancelled` those that only rounding reaches; `descends` is whether it adapts
    by gradient steps; `exceptions` are tests that do not hold, with the reasons."""

    build: Callable[[PRNGKeyArray], MetaLearner]
    tasks: TaskDistribution
    dead: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    descends: bool = True
    exceptions: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def learner(self) -> MetaLearner:
        return self.build(jax.random.key(0))

    @cached_property
    def drawn(self) -> tuple[Task, Array]:
        keys = jax.random.split(jax.random.key(0), (2, _BATCH_TASKS))
        return jax.jit(jax.vmap(self.tasks.sample))(keys[0]), keys[1]

    @cached_property
    def lowered(self) -> Any:  # a type of Equinox that is not public
        """The program of `many`, before it is compiled."""
        return many.lower(self.learner, *self.drawn)  # type: ignore[attr-defined]

    @cached_property
    def compiled(self) -> Any:
        return self.lowered.compile()

    @cached_property
    def outcomes(self) -> Outcome:
        return self.compiled(self.learner, *self.drawn)

    @cached_property
    def trained(self) -> Trained:
        traces = 0
        step = make_step(GRADIENT_RECORDER, batch=_BATCH_TASKS, key=jax.random.key(0))

        @eqx.filter_jit
        def counted(tasks: TaskDistribution, state: TrainState) -> tuple[TrainState, Record]:
            nonlocal traces
            traces += 1
            return step(tasks, state)

        initial = start(self.learner, GRADIENT_RECORDER)
        first = counted(self.tasks, initial)
        second = counted(self.tasks, first[0])
        return Trained(first, second, counted(self.tasks, initial), traces)


def same(one: object, other: object) -> None:
    """Raise `AssertionError` unless the arrays of both are identical."""
    a, b = named(one), named(other)
    require(a.keys() == b.keys(), f"arrays differ: {sorted(a.keys() ^ b.keys())}")
    for name, leaf in a.items():
        np.testing.assert_array_equal(leaf, b[name], err_msg=name, strict=True)


def check_a_gradient_reaches_every_meta_parameter(case: Case) -> None:
    gradient = named(case.trained.first[0].optimiser[0].trace)
    learned = named(eqx.filter(case.learner, eqx.is_inexact_array)).keys()
    require(gradient.keys() == learned, "the gradient has other arrays than the learner")
    for name, leaf in gradient.items():
        require(np.all(np.isfinite(leaf)), f"the gradient of {name} is not finite")
        if not any(part in name for part in case.cancelled):
            dead = any(name.startswith(part) for part in case.dead)
            alive = f"a gradient reaches {name}, but the entry names it in `dead`"
            lost = f"no gradient reaches {name}: leave it out, or name it in the entry's `dead`"
            require(np.any(leaf) != dead, alive if dead else lost)
    for part in case.dead:
        there = any(name.startswith(part) for name in gradient)
        require(there, f"{part} is declared, not there")


def check_a_task_is_learned_whatever_stands_beside_it(case: Case) -> None:
    tasks, keys = case.drawn
    alike = case.compiled(
        case.learner, *jax.tree.map(lambda leaf: leaf[jnp.zeros(_BATCH_TASKS, int)], (tasks, keys))
    )
    wanted = case.outcomes.predictions[:1].repeat(_BATCH_TASKS, 0)
    np.testing.assert_allclose(alike.predictions, wanted, rtol=1e-3, atol=1e-4)


def check_lapack_gets_one_matrix_at_a_time(case: Case) -> None:
    """Batches can wait for each other for ever: see `arml.core.compilation.unbatched`."""
    text = case.lowered.as_text()
    batched = [
        line for line in text.splitlines() if re.search(r"@(lapack|blas)_.*<(\d+x){3}", line)
    ]
    require(not batched, f"expected LAPACK on single matrices, got {''.join(batched[:1]).strip()}")


def check_the_order_of_the_queries_is_irrelevant(case: Case) -> None:
    ours = case.outcomes
    np.testing.assert_allclose(ours.predictions, ours.backwards, rtol=1e-3, atol=1e-4)


def check_one_query_by_itself_equals_one_among_all(case: Case) -> None:
    ours = case.outcomes
    close = np.allclose(ours.predictions[:, :1], ours.apart, rtol=1e-3, atol=1e-4)
    found = "depends on" if not close else "does not depend on"
    require(
        close != case.learner.is_transductive,
        f"is_transductive is {case.learner.is_transductive}, but a prediction {found} other "
        "queries",
    )


def check_adaptation_lowers_the_support_loss(case: Case) -> None:
    ours = case.outcomes
    before, after = float(np.mean(ours.before)), float(np.mean(ours.after))
    if case.descends:
        message = f"support loss {before:g} before inner steps, {after:g} after them"
        require(after < before, f"{message}; a method without inner steps has descends=False")
    else:
        message = "inner steps change the support loss, but the entry says descends=False"
        np.testing.assert_array_equal(ours.after, ours.before, err_msg=message)


def check_a_step_traces_once(case: Case) -> None:
    require(case.trained.traces == 1, f"a step was compiled {case.trained.traces} times")


def check_the_same_step_gives_the_same_result(case: Case) -> None:
    same(case.trained.first, case.trained.again)
    first, second = case.trained.first[1].loss, case.trained.second[1].loss
    require(not np.array_equal(first, second), f"two steps have the same loss {first}")


def check_float32_stays_float32(case: Case) -> None:
    state, record = case.trained.second
    for name, leaf in named((state.learner, record.loss, case.outcomes)).items():
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            require(leaf.dtype == jnp.float32, f"{name} is {leaf.dtype}")
    require(record.finite, f"loss {record.loss} or its gradient is not finite")


def check_saved_and_restored_is_identical(case: Case) -> None:
    state = case.trained.second[0]
    other = start(case.build(jax.random.key(1)), GRADIENT_RECORDER)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(Path(folder), 2, state)
        same(state, checkpoint.restore(Path(folder), 2, other))


def check_the_seed_decides_the_weights(case: Case) -> None:
    same(case.learner, case.build(jax.random.key(0)))
    ours, other = named(case.learner), named(case.build(jax.random.key(1)))
    alike = all(np.array_equal(leaf, other[name]) for name, leaf in ours.items())
    require(not alike, "two keys give the same weights")


def check_convolutions_stay_fast(case: Case) -> None:
    """Warn if `vmap` over tasks groups convolutions, which are several times slower on a CPU."""
    task, key = jax.tree.map(lambda leaf: leaf[0], case.drawn)
    alone = single.lower(case.learner, task, key)  # type: ignore[attr-defined]
    several = [
        len(re.findall(r"(?:feature|batch)_group_count = (?!1\b)", program.as_text()))
        for program in (alone, case.lowered)
    ]
    if several[1] > several[0]:
        warnings.warn(
            "the network's convolutions become grouped under vmap, and several times slower on a "
            "CPU: make them with arml.nn.conv2d or arml.nn.convolve",
            stacklevel=2,
        )


def queries_seen(case: Case) -> str:
    """A note if the outer loss adapts to the queries of its task; empty if it does not. The loss of
    predictions is a sum over queries, so it changes by the label of one query alike whatever label
    another has."""
    task, key = jax.tree.map(lambda leaf: leaf[0], case.drawn)
    y, problem = task.query.y, case.tasks.problem
    classes = problem.kind == "classification"
    other = (y + 1) % problem.outputs if classes else y + 10.0

    @eqx.filter_jit
    def loss(learner: MetaLearner, y: Array) -> Array:
        return learner.meta_loss(task._replace(query=Examples(task.query.x, y)), key=key)

    def change(*queries: int) -> float:
        some = jnp.asarray(queries)
        return float(loss(case.learner, y.at[some].set(other[some])) - loss(case.learner, y))

    one, last, both = change(0), change(len(y) - 1), change(0, len(y) - 1)
    if not abs(both - one - last) > 2e-5 * max(abs(one), abs(last), 1e-6):
        return ""
    return (
        "the outer loss of a query changes with the label of another, so the adaptation in "
        "meta_loss saw the queries: adapt must see only the support set, and a training loss far "
        "below that of new tasks is not a success"
    )


def _results(part: str, name: str) -> dict[str, np.ndarray]:
    """Numbers of a registered part that its code and its seed decide."""
    if part == "tasks":
        splits = splits_of(TASKS.known(name).options_class())
        keys = jax.random.split(jax.random.key(0), _BATCH_TASKS)
        found: Any = {i: jax.vmap(tasks.sample)(keys) for i, tasks in enumerate(splits[:3])}
    else:
        cases = _cases(part, name)[0]
        found = {kind: (case.learner, case.outcomes) for kind, case in cases.items()}
    return {name: np.asarray(leaf) for name, leaf in named(found).items()}


def _same_elsewhere(part: str, name: str) -> None:
    """Raise `AssertionError` unless a fresh process has the same numbers. Randomness of the host,
    such as `np.random`, is drawn once, when a function is traced, and looks like a constant."""
    ours = _results(part, name)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "results.npz")
        work = f"import numpy; from {__name__} import _results; "
        work += f"numpy.savez({path!r}, **_results({part!r}, {name!r}))"
        ran = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True)
        said = (ran.stderr.strip().splitlines() or [""])[-1]
        require(not ran.returncode, f"a fresh process cannot make it: {said}")
        with np.load(path, allow_pickle=False) as file:
            other = {key: file[key] for key in file.files}
    require(ours.keys() == other.keys(), "a fresh process has other arrays")
    for key, leaf in ours.items():
        require(
            np.allclose(leaf, other[key], rtol=1e-3, atol=1e-4, equal_nan=True),
            f"{key} differs in a fresh process with the same seed: draw all random numbers from "
            "the key, none from np.random, random or the clock",
        )


CHECKS = (
    check_a_gradient_reaches_every_meta_parameter,
    check_a_task_is_learned_whatever_stands_beside_it,
    check_lapack_gets_one_matrix_at_a_time,
    check_the_order_of_the_queries_is_irrelevant,
    check_one_query_by_itself_equals_one_among_all,
    check_adaptation_lowers_the_support_loss,
    check_a_step_traces_once,
    check_the_same_step_gives_the_same_result,
    check_float32_stays_float32,
    check_saved_and_restored_is_identical,
    check_the_seed_decides_the_weights,
)
"""The contract."""


class Setup(NamedTuple):
    """Small tasks of one kind, and a small network for them."""

    tasks: TaskDistribution
    network: Any
    cancelled: tuple[str, ...] = ()
    steps: int = 2
    """Inner steps."""
    sizes: Mapping[str, int] = MappingProxyType({})
    """Options of methods that make them smaller, and sooner compiled."""


def blobs(
    features: tuple[int, ...], ways: int, shots: int, noise: float = 0.3, inputs: str = "vectors"
) -> Blobs:
    """Classification of Gaussian blobs, with two queries of each class."""
    problem = Problem("classification", features, ways, shots, 2, inputs=inputs)
    return Blobs(problem=problem, noise=noise)  # type: ignore[call-arg]


@dataclass(frozen=True)
class OneBlock(Options):
    """A network of one of Conv-4's blocks: four would do the same, and compile four times as
    long."""

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> BaseNetwork:
        net = Conv4Options(filters=4).build(replace(problem, outputs=1), key=key)
        body = Body(blocks=net.body.blocks[:1], normalisation="support")
        return BaseNetwork(body, linear(8 * 8 * 4, problem.outputs, key=key))


SMALL_MLP = MLPOptions(hidden=(8,), init="he")
SETUPS = {
    "regression": Setup(functions_2d(shots=5, queries=4), SMALL_MLP),
    "vectors": Setup(blobs((4,), 3, 2), SMALL_MLP),
    # Batch normalisation follows the convolution and cancels its bias.
    "pictures": Setup(
        # Noisy, so that no method is certain: a loss of zero has no gradient.
        blobs((16, 16, 1), 3, 1, 4.0, "pictures"),
        OneBlock(),
        (".blocks[0].layer.bias", ".blocks[0].layer.layer.bias"),
        steps=1,
    ),
    # The last axis is a cell: its value, whether it is there, its kind.
    "tables": Setup(
        blobs((6, 3), 3, 3, 1.0, "tables"),
        SMALL_MLP,
        sizes=MappingProxyType({"width": 8, "depth": 1, "vertices": 3}),
    ),
}


def make(name: str, kind: Setup) -> Case:
    """The registered method of that name on a kind of tasks."""
    problem, known = kind.tasks.problem, ALGORITHMS[name]
    options: Any = known.options(problem)
    options = replace(options, **{k: v for k, v in kind.sizes.items() if hasattr(options, k)})

    def build(key: PRNGKeyArray) -> MetaLearner:
        learner = drawn_once(options, kind.network, problem, key)
        return with_steps(learner, kind.steps) if known.descends else learner

    return Case(build, kind.tasks, known.dead, kind.cancelled, known.descends, known.exceptions)


class Finding(NamedTuple):
    """The outcome of one check."""

    subject: str
    """Such as `method rescale on regression`."""
    check: str
    message: str
    """The fault, or the reason why the check does not apply; empty if all is well."""
    passed: bool
    place: str = ""
    """The file and the line of the plug-in that raised the error, if it was one."""


def check_part(part: str, name: str) -> Iterator[Finding]:
    """Run the contract on a registered method, network or kind of tasks: see `check` in
    `arml.predict.contract`. **Raises** `ValueError` for a name that is not registered."""
    checks: tuple[Callable[[Case], None], ...] = CHECKS
    if part == "tasks":
        options = TASKS.known(name).options_class()
        yield found_by(f"tasks {name}", "tasks_are_as_their_problem_says", partial(_drawn, options))
        if _is_found_elsewhere(type(options)):
            yield found_by(f"tasks {name}", _FRESH_PROCESS, partial(_same_elsewhere, part, name))
        return
    cases, refused = _cases(part, name)
    if part == "network":
        checks = (*CHECKS, check_convolutions_stay_fast)
        if not cases:
            yield Finding(f"network {name}", "reads_some_kind_of_tasks", refused, False)
    for kind, case in cases.items():
        for one in checks:
            what, subject = one.__name__.removeprefix("check_"), f"{part} {name} on {kind}"
            if reason := case.exceptions.get(f"test_{what}"):
                yield Finding(subject, what, reason, True)
            else:
                yield found_by(subject, what, partial(one, case))
        with contextlib.suppress(Exception):  # another check says why it has no loss
            if part == "method" and (note := queries_seen(case)):
                yield Finding(subject, QUERIES_NOTE, note, True)
    known = ALGORITHMS.known(name) if part == "method" else NETWORKS.known(name)
    if cases and _is_found_elsewhere(known.options_class):
        yield found_by(f"{part} {name}", _FRESH_PROCESS, partial(_same_elsewhere, part, name))


QUERIES_NOTE = "meta_loss_sees_the_queries"
"""The name of a finding that is not a check: some published methods do this on purpose."""
_FRESH_PROCESS = "a_fresh_process_gives_the_same_result"


def _is_found_elsewhere(options: type) -> bool:
    """Whether a fresh process also has a part: one of a package, or of an announced plug-in."""
    file = getattr(sys.modules.get(options.__module__), "__file__", None)
    ours = source_of(options) is None
    return ours or package_of(options.__module__) is not None or file in announced()


def _cases(part: str, name: str) -> tuple[dict[str, Case], str]:
    """The cases of a method or a network, and why a network cannot read the other kinds."""
    if part == "network":
        return _readable(NETWORKS.known(name).options_class())
    if part != "method":
        raise ValueError(f"expected to check a method, network, tasks or inputs, got {part!r}")
    known = ALGORITHMS.known(name)
    suited = {kind: of for kind, of in SETUPS.items() if known.suits(of.tasks.problem)}
    return {kind: make(name, of) for kind, of in suited.items()}, ""


def _readable(network: Options) -> tuple[dict[str, Case], str]:
    """MAML with the network on each kind of tasks that it can read, and why it cannot read the
    others."""
    cases, refused = {}, dict[str, list[str]]()
    for kind, about in SETUPS.items():
        cancelled = (*about.cancelled, ".bias") if kind == "pictures" else about.cancelled
        case = make("maml", about._replace(network=network, cancelled=cancelled))
        built = found_by(kind, "is_built", partial(getattr, case, "learner"))
        if built.passed:
            cases[kind] = case
        else:
            why = ": ".join(filter(None, (built.place, built.message)))
            refused.setdefault(why, []).append(kind)
    return cases, "; ".join(f"{', '.join(kinds)}: {why}" for why, kinds in refused.items())


def found_by(subject: str, name: str, run: Callable[[], None]) -> Finding:
    """The finding of a check that raises an error if it fails."""
    try:
        run()
    except Exception as error:  # of any kind: a plug-in's own code runs here
        said, place = brief(error), place_in_plugin(error)
        if not isinstance(error, AssertionError | ValueError | TypeError):
            said = f"{type(error).__name__}: {said}"
        return Finding(subject, name, said, False, place)
    return Finding(subject, name, "", True)


def _drawn(options: TasksOptions) -> None:
    """Raise `ValueError` unless tasks of these options are as their problem says."""
    options.check()
    for split in splits_of(options)[:3]:
        if wrong := fault(split, jax.random.split(jax.random.key(0), 100)):
            raise ValueError(wrong)
