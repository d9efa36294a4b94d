"""From a name or options to a learner with its initial weights."""

import contextlib
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from arml.algorithms import ALGORITHMS
from arml.core.checks import check_size
from arml.core.compilation import ONCE, short
from arml.core.episodes import Examples, Problem
from arml.core.learner import MetaLearner, MethodOptions, NetworkOptions, parameters
from arml.core.registry import nearest
from arml.experiment.options import NETWORKS, Experiment
from arml.experiment.recipes import RECIPES, recipe, reshaped, setting_for
from arml.nn.networks import Alone
from arml.tasks.options import TasksLike, splits_of
from arml.training.fit import FitOptions, OuterOptions, TrainState, seeded, start

if TYPE_CHECKING:
    What = str | MethodOptions | Experiment
else:
    What = object  # `experiment_for` checks what it is given


def build(
    what: What,
    tasks: TasksLike | Problem,
    *,
    seed: int | None = None,
    network: NetworkOptions | str | None = None,
    **options: object,
) -> MetaLearner:
    """An untrained learner for tasks.

        learner = arml.build("maml", tasks, seed=0, inner_rate=0.05)

    **Arguments**

    - `what`: the name of a method (with its settings for such tasks) or of a recipe, the options
      of a method, or an `Experiment`.
    - `tasks`: task distribution, `Splits`, the options of a recipe's tasks, or a `Problem`.
    - `seed`: seeds the initial weights; 0, or the experiment's, if None. `arml.run` begins with the
      same weights.
    - `network`: options of the base network, or the name of one; if None the method's usual one:
      an MLP for vectors, Conv-4 for pictures.
    - `options`: options of the method that differ from its usual ones.

    **Raises** `ValueError` in one line for an unknown name or option, and for a method that is not
    made for such tasks.
    """
    problem = tasks if isinstance(tasks, Problem) else splits_of(tasks).train.problem
    experiment = what if isinstance(what, Experiment) else experiment_for(what, problem)
    if isinstance(network, str):
        network = NETWORKS.known(network).options_class()
    known = [field.name for field in fields(experiment.algorithm)]
    if odd := sorted({*options} - {*known}):
        raise ValueError(f"{experiment.recipe} has no option {odd[0]!r}{nearest(odd[0], known)}")
    experiment = replace(
        experiment,
        network=experiment.network if network is None else network,
        algorithm=replace(experiment.algorithm, **options),
        seed=experiment.seed if seed is None else seed,
    )
    experiment.algorithm.check()
    experiment.network.check()
    learner = built(experiment, problem)
    # A learner with a constructor of its own has no such argument: it has the usual options.
    with contextlib.suppress(TypeError):
        # The steps are no part of it: learners of one recipe share their compiled programs.
        return replace(learner, training=replace(FitOptions.of(experiment), steps=0))
    return learner


def experiment_for(what: What, problem: Problem | None) -> Experiment:
    """The experiment of a method, a recipe or options of a method, for tasks of this problem. If
    the problem is None, `what` must name a recipe, whose tasks stay."""
    if problem is None:
        return recipe(str(what))
    if not isinstance(what, str):
        if not (hasattr(what, "check") and hasattr(what, "build")):
            raise ValueError(
                "expected the name of a method or recipe, or options with check and build, got "
                f"{type(what).__name__}: `arml list` names the methods"
            )
        assert not isinstance(what, Experiment)
        shared = setting_for(problem).shared
        return replace(shared, recipe=type(what).__name__, algorithm=what)
    if what not in RECIPES:
        return setting_for(problem).of(ALGORITHMS.known(what))
    shape = {"ways": problem.outputs, "shots": problem.shots, "queries": problem.queries}
    made = RECIPES[what].make()
    known = {field.name for field in fields(made.tasks)}
    return reshaped(made, **{name: n for name, n in shape.items() if name in known})


def initial(experiment: Experiment, problem: Problem) -> MetaLearner:
    """The learner with its initial weights, which depend on the experiment's seed. It can be
    called inside `eqx.filter_eval_shape`, for the shapes alone."""
    weights = seeded(experiment.seed)[0]
    return _drawn(experiment.algorithm, experiment.network, problem, weights)


def built(experiment: Experiment, problem: Problem) -> MetaLearner:
    """`initial`, by a compiled program that serves all seeds."""
    weights = seeded(experiment.seed)[0]
    return _drawn_once(experiment.algorithm, experiment.network, problem, weights)


def started(experiment: Experiment, problem: Problem) -> TrainState:
    """The state before the first step of a training, by one compiled program for all seeds."""
    weights = seeded(experiment.seed)[0]
    # Of the number of steps only whether there are any changes the state.
    optimiser = experiment.outer, min(experiment.steps, 1)
    parts = experiment.algorithm, experiment.network
    return _started_once(*optimiser, *parts, problem, weights)


def _drawn(
    algorithm: MethodOptions, network: NetworkOptions, problem: Problem, key: PRNGKeyArray
) -> MetaLearner:
    net_key, key = jax.random.split(key)
    net = network.build(problem, key=net_key)
    _check_made(callable(net), network, "a network", net)
    net = net if hasattr(net, "given") else Alone(net)
    learner = algorithm.build(net, problem, key=key)
    _check_made(isinstance(learner, MetaLearner), algorithm, "an arml.MetaLearner", learner)
    check_size(parameters(learner))
    if not all(type(part).__module__.startswith("arml.") for part in (algorithm, network)):
        _check_outputs(learner, problem)
    return learner


def _check_outputs(learner: MetaLearner, problem: Problem) -> None:
    """Raise `ValueError` in one line if a learner with a part of a user's own does not give an
    output for each class or target. Nothing is computed."""
    classes = problem.kind == "classification"
    n, name = problem.support, type(learner).__name__
    y = jnp.zeros(n, jnp.int32) if classes else jnp.zeros((n, problem.outputs))
    support = Examples(jnp.zeros((n, *problem.features)), y)
    queries = jnp.zeros((problem.query, *problem.features))

    def outputs() -> Array:
        return learner.adapt(support, key=jax.random.key(0)).predict(queries)

    try:
        shape = jax.eval_shape(outputs).shape
    except TypeError as error:
        if "argument" not in str(error) or type(learner).__module__.startswith("arml."):
            raise
        raise ValueError(
            f"{name}: expected adapt(support, *, key), which returns arml.Adapted(predict), got: "
            f"{error}"
        ) from error
    wanted = problem.query, problem.outputs
    if shape != wanted:
        raise ValueError(
            f"{name}: expected predictions of shape {wanted} for {problem.query} queries, got "
            f"{shape}: change the network, or the function that adapt returns"
        )


def _check_made(right: bool, options: object, wanted: str, got: object) -> None:
    if not right:
        raise ValueError(
            f"{type(options).__name__}: expected build to return {wanted}, got "
            f"{type(got).__name__}: change the function that builds it"
        )


def _start_of(
    outer: OuterOptions,
    steps: int,
    algorithm: MethodOptions,
    network: NetworkOptions,
    problem: Problem,
    key: PRNGKeyArray,
) -> TrainState:
    return start(_drawn(algorithm, network, problem, key), outer.build(steps))


_drawn_once, _started_once = short(_drawn, ONCE), short(_start_of, ONCE)
