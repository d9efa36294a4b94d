"""Makes an experiment from a name, and a learner with its initial weights from an experiment.

A recipe is a setting and a method. A setting is a data set with everything that the experiments on
it share, except the method. Recipes are made when they are used, so methods and tasks that are
registered later also have recipes.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from inspect import isfunction
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from arml.algorithms import ALGORITHMS, Changes, Method
from arml.core.checks import Options, check_options, check_size
from arml.core.compilation import RUN_ONCE, short
from arml.core.episodes import Problem
from arml.core.learner import MetaLearner, parameters, predictions_of
from arml.core.registry import nearest, options_of, with_options
from arml.experiment.options import (
    BENCHMARK,
    IMAGES,
    NETWORKS,
    REGISTRIES,
    REGRESSION,
    STARTER,
    TASKS,
    VECTORS,
    Experiment,
    TaskFamily,
)
from arml.experiment.weights import given_weights
from arml.nn.networks import BaseNetwork, Conv4Options, MLPOptions, SetNetwork
from arml.results.files import Json, JsonView
from arml.tasks.options import (
    FoldersOptions,
    FunctionsOptions,
    StarterOptions,
    StoreOptions,
    VectorsOptions,
)
from arml.tasks.own import OwnOptions
from arml.tasks.splits import TasksLike, TasksOptions, splits_of
from arml.training.checkpoint import filled, named
from arml.training.fit import OuterOptions, TrainState, seeded, start


def changed(experiment: Experiment, changes: Changes) -> Experiment:
    """The experiment with these changes of its options, by part."""
    own = dict(changes.get("experiment", {}))
    for part, options in changes.items():
        if part != "experiment":
            old = getattr(experiment, part)
            # Your own network may not have this option.
            known = {field.name for field in fields(old)}
            own[part] = replace(old, **{k: v for k, v in options.items() if k in known})
    return replace(experiment, **own)


def kind_of(problem: Problem) -> str:
    """The kind of tasks with this problem: `regression` of vectors, or else that of its inputs."""
    like = problem.form.like
    return "regression" if (like, problem.kind) == ("vectors", "regression") else like


USUAL_OPTIONS: dict[str, Json] = {
    "regression": {"network": MLPOptions(init="he"), "outer": OuterOptions(clip=10.0)},
    "vectors": {
        "network": MLPOptions(hidden=(64,), init="he"),
        "outer": OuterOptions(clip=10.0, schedule="cosine"),
        "steps": 5_000,
        "batch": 16,
        "chunk": 16,
        "interval": 50,
        "checkpoint_every": 500,
        "validate_every": 500,
    },
    "pictures": {
        "network": Conv4Options(),
        # On validation tasks this rate is better than 0.001 for each method that was tried, except
        # for ARML with its published settings (study/results/starter-outer-rates.json).
        "outer": OuterOptions(outer_rate=0.003, schedule="cosine"),
        "steps": 20_000,
        "batch": 4,
        "chunk": 1,
        "interval": 20,
        "checkpoint_every": 100,
        "validate_every": 500,
        "validation_tasks": 200,
        "scan": False,
    },
    "tables": {
        "network": MLPOptions(hidden=(64,), init="he"),
        "outer": OuterOptions(outer_rate=0.003, clip=1.0, schedule="cosine", warmup=0.04),
        "steps": 5_000,
        "batch": 16,
        "chunk": 16,
        "interval": 50,
        "checkpoint_every": 250,
        "validate_every": 500,
        "validation_tasks": 256,
        "scan": False,
    },
}
"""Options of experiments that differ from those of the paper's 2-D regression, by the kind of their
tasks."""


@dataclass(frozen=True)
class Setting:
    """A data set, with everything that the experiments on it share except the method."""

    name: str
    problem: Problem
    description: str = ""
    tasks: TasksOptions = field(default_factory=OwnOptions)
    traits: tuple[str, ...] = ()
    """Words for which methods state settings, beside `any`, the kind of its tasks (`regression`,
    `vectors`, `pictures` or `tables`), and its name."""
    changes: JsonView = field(default_factory=dict)
    """Options of its experiments that are not the usual ones for the kind of its tasks."""

    @property
    def shared(self) -> Experiment:
        """Everything but the method."""
        options = {**USUAL_OPTIONS[kind_of(self.problem)], **self.changes}
        return Experiment(self.name, tasks=self.tasks, **options)

    def of(self, method: Method, **shape: int) -> Experiment:
        """A method's experiment in this setting, whose tasks may have other `ways`, `shots` or
        `queries`, each at least one. **Raises** `TypeError` for an option that the tasks do not
        have."""
        changes: Json = {"outputs" if k == "ways" else k: n for k, n in shape.items()}
        made = replace(
            self.shared,
            recipe=f"{self.name}/{method.name}",
            algorithm=method.options(replace(self.problem, **changes)),
            tasks=replace(self.tasks, **shape),
        )
        for trait in ("any", kind_of(self.problem), *self.traits, self.name):
            made = changed(made, method.settings.get(trait, {}))
        return made


def prepared(
    store: str,
    description: str,
    steps: int,
    *traits: str,
    size: int = 84,
    augment: bool = False,
    **outer: Any,
) -> Setting:
    """A benchmark that `arml data prepare` made, as in the paper: 5-way 1-shot, 15 queries, 84 px,
    Conv-4 with 32 filters, batch 4, 5 inner steps, Adam with a constant rate unless `outer`, its
    options, has another. `steps` is the authors' number of outer steps for Plain- and Art-Multi,
    and MAML's for miniImageNet. `augment` varies the training pictures."""
    return Setting(
        store,
        replace(BENCHMARK, features=(size, size, 3)),
        description,
        StoreOptions(store=store, size=size, augment=augment),
        traits,
        {
            "outer": OuterOptions(**outer),
            "steps": steps,
            "validate_every": min(1_000, steps // 10),
        },
    )


_PAPER_OPTIONS: Json = {"network": MLPOptions(), "outer": OuterOptions()}
"""The paper's 2-D regression: 10-shot, batch 25, 5 inner steps, 70,000 outer steps, two hidden
layers of 40."""
_SMALL_IMAGES = ("small images",)
OWN_SETTINGS = {
    one.name: one
    for one in (
        Setting(
            "regression2d",
            REGRESSION,
            "2-D regression of six families",
            FunctionsOptions(),
            changes=_PAPER_OPTIONS,
        ),
        Setting(
            "regression2d-wide",
            REGRESSION,
            "2-D regression of six families, inputs U[-5, 5]",
            FunctionsOptions(low=-5.0),
            changes=_PAPER_OPTIONS,
        ),  # as in the authors' code
        Setting(
            "starter",
            STARTER,
            "The pictures in the package, three families",
            StarterOptions(),
            _SMALL_IMAGES,
        ),
        Setting(
            "starter-art",
            STARTER,
            "The pictures in the package, also blurred and in pencil, nine families",
            StarterOptions(art=True),
            _SMALL_IMAGES,
        ),
        Setting(
            "folders",
            IMAGES,
            "Your own images (--data FOLDER_OR_ZIP...)",
            FoldersOptions(),
            _SMALL_IMAGES,
        ),
        Setting(
            "features", VECTORS, "Frozen features of images (--data FEATURES...)", VectorsOptions()
        ),
        prepared("plain-multi", "Plain-Multi, four families", 50_000),
        prepared("art-multi", "Art-Multi, twelve families", 60_000, "many families"),
        prepared("mini-imagenet", "miniImageNet", 60_000),
        prepared("tiered-imagenet", "tieredImageNet", 60_000),
        prepared(
            "real-four",
            "Birds, flowers, characters and objects at 32 px, four families",
            5_000,
            *_SMALL_IMAGES,
            size=32,
            augment=True,
            outer_rate=0.003,
            schedule="cosine",
            average=0.2,
        ),
    )
}
"""The package's own settings."""


def setting(name: str) -> Setting:
    """The setting of that name: one of the package's, or that of registered tasks.
    **Raises** `KeyError` for an unknown one, and `ValueError` if the problem of the tasks is not
    known."""
    return OWN_SETTINGS[name] if name in OWN_SETTINGS else _of_family(TASKS.others[name])


@cache
def _of_family(family: TaskFamily) -> Setting:
    changes = {"network": NETWORKS.known(family.network).options_class()} if family.network else {}
    tasks, about = family.options_class(), family.about.rstrip(".")
    return Setting(family.name, family.problem, about, tasks, changes=changes)


def settings() -> dict[str, Setting]:
    """All settings by name."""
    found = dict(OWN_SETTINGS)
    for name in TASKS.others:
        # Tasks that need data and do not state a usual problem raise an error when named.
        with contextlib.suppress(ValueError):
            found[name] = setting(name)
    return found


def variants_of(method: Method) -> list[str]:
    """The names of a method's variants. Each has its own recipes."""
    return [f"{method.name}-{variant}" for variant in method.variants]


def method_of(name: str) -> Method:
    """The registered method of that name, or the variant of one. **Raises** `KeyError`."""
    whole, _, variant = name.rpartition("-")
    if name in ALGORITHMS or whole not in ALGORITHMS:
        return ALGORITHMS[name]
    return ALGORITHMS[whole].variant(variant)


class Recipes(Mapping[str, Experiment]):
    """Every recipe by name, made at its first use."""

    def __getitem__(self, name: str) -> Experiment:
        return self.shaped(name)

    def shaped(self, name: str, **shape: int) -> Experiment:
        """The recipe of that name for tasks of another shape: see `Setting.of`."""
        place, _, method = name.partition("/")
        found, known = setting(place), method_of(method)
        if not known.suits(found.problem, place):
            raise KeyError(name)
        return found.of(known, **shape)

    def __iter__(self) -> Iterator[str]:
        for place, found in settings().items():
            for method, known in ALGORITHMS.items():
                if known.suits(found.problem, place):
                    yield from (f"{place}/{name}" for name in (method, *variants_of(known)))

    def __len__(self) -> int:
        return len(list(iter(self)))


RECIPES = Recipes()


def recipe(name: str, **shape: int) -> Experiment:
    """The experiment of that name.

        arml.recipe("regression2d/arml").algorithm.vertices
        arml.recipe("starter/arml", shots=5).algorithm.inner_rate

    **Arguments**

    - `shape`: `ways`, `shots` or `queries` of its tasks, each at least one. Options of the method
      that depend on the shape of the tasks follow: inner rates, weights of reconstructions.

    **Raises** `ValueError` with the nearest names for an unknown one, and for another option than
    those of the shape of its tasks.
    """
    if name in RECIPES:
        known = {"ways", "shots", "queries"} & {*RECIPES[name].tasks.__dataclass_fields__}
        if odd := sorted({*shape} - known):
            options = " or ".join(sorted(known)) or "no option"
            raise ValueError(f"{name}: expected {options}, got {odd[0]}: arml.run sets all options")
        return RECIPES.shaped(name, **shape)
    place, slash, method = name.partition("/")
    if method in ALGORITHMS and place in settings():
        raise ValueError(
            f"{method!r} is not for the tasks of {place!r}; `arml list {method}` names its recipes"
        )
    hint = ""
    if slash and not any(known.startswith(f"{place}/") for known in RECIPES):
        hint = f"; if a script of yours registers {place!r}, give --plugin FILE.py, or import it"
    raise ValueError(f"unknown recipe {name!r}{nearest(name, RECIPES)}{hint}")


class _Origin(NamedTuple):
    """How `build` made a learner."""

    experiment: Experiment
    problem: Problem


def build(
    what: str | Options | Experiment,
    tasks: TasksLike | Problem,
    *,
    seed: int | None = None,
    network: Options | str | JsonView | Callable[..., object] | None = None,
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
    - `network`: the name of a network, options, a function that builds one, or a mapping that
      changes options of the method's usual one: an MLP for vectors, Conv-4 for pictures.
    - `options`: options of the method that differ from its usual ones.

    **Raises** `ValueError` in one line for an unknown name or option, and for a method that is not
    made for such tasks.
    """
    problem = tasks if isinstance(tasks, Problem) else splits_of(tasks).train.problem
    experiment = what if isinstance(what, Experiment) else experiment_for(what, problem)
    experiment = replace(
        experiment,
        network=options_for("network", {} if network is None else network, experiment.network),
        algorithm=with_options(experiment.algorithm, options, experiment.recipe),
        seed=experiment.seed if seed is None else seed,
    )
    for part in (experiment.algorithm, experiment.network, experiment.outer):
        check_options(part)
    learner = built(experiment, problem)
    # A learner with its own constructor lacks this argument and has the usual options.
    with contextlib.suppress(TypeError):
        # Seed and steps are not part of it: learners of one recipe share their compiled programs.
        return replace(learner, origin=_Origin(replace(experiment, seed=0, steps=0), problem))
    return learner


def options_for(part: str, given: object, usual: Options) -> Any:
    """The options of a part of an experiment from options, a mapping that changes the `usual` ones,
    a name, or a function that builds the part. `check_options` refuses anything else."""
    if isinstance(given, Mapping):
        return with_options(usual, given, f"{part} {type(usual).__name__}")
    if isinstance(given, str) and part != "algorithm":  # another method has another recipe
        return REGISTRIES[part].known(given).options_class()
    return options_of(given)() if isfunction(given) else given


def experiment_for(what: str | Options, problem: Problem | None) -> Experiment:
    """The experiment of a method, a recipe or options of a method, for tasks of this problem. If
    the problem is None, `what` must name a recipe, whose tasks stay."""
    if problem is None:
        return recipe(str(what))
    own = Setting("own", problem)
    if not isinstance(what, str):
        check_options(what)
        return replace(own.shared, recipe=type(what).__name__, algorithm=what)
    if what in RECIPES:
        shape = {"ways": problem.outputs, "shots": problem.shots, "queries": problem.queries}
        known = RECIPES[what].tasks.__dataclass_fields__
        return recipe(what, **{name: n for name, n in shape.items() if name in known})
    try:
        return own.of(method_of(what))
    except KeyError:
        return own.of(ALGORITHMS.known(what))  # which names the nearest ones


def widened(
    learner: MetaLearner, experiment: Experiment | None, problem: Problem, ways: int
) -> MetaLearner:
    """The learner, which `experiment` built for this problem, for tasks of `ways` classes or fewer.

    Training orders the classes of a task at random, so the outputs of a head that each task adapts
    have no fixed meaning. With more classes, all begin at the mean of the learned ones [1].

    [1] Ye and Chao, How to Train Your MAML to Excel in Few-Shot Classification, ICLR 2022, where
        one learned vector for all classes is as good as one for each.

    **Raises** `ValueError` for more than in its meta-training if weights depend on their number.
    """
    if ways <= problem.outputs:
        return learner
    trained, name = named(learner), type(learner).__name__
    if experiment is not None:
        name = experiment.recipe
        # A method may refuse this many classes.
        with contextlib.suppress(ValueError):
            blank = eqx.filter_eval_shape(initial, experiment, replace(problem, outputs=ways))
            wanted = {name: leaf.shape for name, leaf in named(blank).items()}
            if ALGORITHMS.of(experiment.algorithm).widens:
                trained = {k: _wider(a, wanted.get(k, ())) for k, a in trained.items()}
            if {name: leaf.shape for name, leaf in trained.items()} == wanted:
                return filled(blank, trained)
    raise ValueError(
        f"{ways} classes are more than the {problem.outputs} that this learner of {name} can "
        "distinguish: use a learner that compares with class prototypes, such as ProtoNet, or "
        "train one with more --ways"
    )


def _wider(leaf: Array, shape: tuple[int, ...]) -> Array:
    """The mean of the outputs of a head for each output of a larger one; other leaves stay."""
    grown = [i for i, (a, b) in enumerate(zip(leaf.shape, shape, strict=False)) if a != b]
    if len(grown) != 1 or leaf.ndim != len(shape):
        return leaf
    return jnp.broadcast_to(jnp.mean(leaf, axis=grown[0], keepdims=True), shape)


def initial(experiment: Experiment, problem: Problem) -> MetaLearner:
    """The learner with its initial weights, which depend on the experiment's seed. It can be
    called inside `eqx.filter_eval_shape`, only for the shapes."""
    return _drawn(*_parts(experiment, problem))


def built(experiment: Experiment, problem: Problem) -> MetaLearner:
    """`initial`, by a compiled program that serves all seeds."""
    return drawn_once(*_parts(experiment, problem), _given(experiment, problem))


def started(experiment: Experiment, problem: Problem) -> TrainState:
    """The state before the first step of a training, by one compiled program for all seeds."""
    # Of the number of steps only whether there are any changes the state.
    steps = min(experiment.steps, 1)
    parts = *_parts(experiment, problem), _given(experiment, problem)
    return _started_once(experiment.outer, steps, *parts)


def _given(experiment: Experiment, problem: Problem) -> BaseNetwork | None:
    """The base network with the weights of a file; None if none is named."""
    if not (file := getattr(experiment.network, "weights", "")):
        return None
    net_key, _ = jax.random.split(seeded(experiment.seed)[0])
    return given_weights(experiment.network.build(problem, key=net_key), file)[0]


def _parts(
    experiment: Experiment, problem: Problem
) -> tuple[Options, Options, Problem, PRNGKeyArray]:
    return experiment.algorithm, experiment.network, problem, seeded(experiment.seed)[0]


def _drawn(
    algorithm: Options,
    network: Options,
    problem: Problem,
    key: PRNGKeyArray,
    given: BaseNetwork | None = None,
) -> MetaLearner:
    with warnings.catch_warnings():
        # Equinox warns at length of functions of JAX, which `_check_outputs` checks.
        warnings.filterwarnings("ignore", r"\s*Possibly assigning a JAX-transformed")
        net_key, key = jax.random.split(key)
        net = network.build(problem, key=net_key) if given is None else given
        _check_made(callable(net), network, "a network", net)
        net = net if hasattr(net, "given") else SetNetwork(net)
        learner = algorithm.build(net, problem, key=key)
        _check_made(isinstance(learner, MetaLearner), algorithm, "an arml.MetaLearner", learner)
        check_size(parameters(learner))
        kinds = type(network), type(algorithm)
        if own := [kind.__name__ for kind in kinds if not kind.__module__.startswith("arml.")]:
            _check_outputs(learner, problem, own[0])
    return learner


def _check_outputs(learner: MetaLearner, problem: Problem, own: str) -> None:
    """Raise `ValueError` in one line if a learner with a part of a user's own does not give an
    output for each class or target, or hides arrays in a function. Nothing is computed."""
    shape, hidden = predictions_of(learner, problem)
    if any(isinstance(array, jax.core.Tracer) for array in hidden):
        raise ValueError(
            f"{own}: expected build to return an eqx.Module with trainable arrays, got arrays "
            "inside a function, such as jax.vmap(MODULE): call jax.vmap in the module's __call__"
        )
    wanted = problem.query, problem.outputs
    if shape != wanted:
        raise ValueError(
            f"{type(learner).__name__}: expected predictions of shape {wanted} for {problem.query} "
            f"queries, got {shape}: change the network, or the function that adapt returns"
        )


def _check_made(right: bool, options: object, wanted: str, got: object) -> None:
    if not right:
        raise ValueError(
            f"{type(options).__name__}: expected build to return {wanted}, got "
            f"{type(got).__name__}: change the function that builds it"
        )


def _start_of(outer: Options, steps: int, *parts: PyTree) -> TrainState:
    return start(_drawn(*parts), outer.build(steps))


drawn_once, _started_once = short(_drawn, RUN_ONCE), short(_start_of, RUN_ONCE)
