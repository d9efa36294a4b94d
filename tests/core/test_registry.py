"""Registries: what may be registered, how it is found, and what is said of what is not."""

import sys
from dataclasses import dataclass, field, fields

import jax
import jax.numpy as jnp
import pytest

import arml
from arml.algorithms import ALGORITHMS, Method
from arml.algorithms.maml import MAMLOptions
from arml.core.losses import loss_of
from arml.core.registry import Registry, options_of
from arml.experiment.options import NETWORKS, REGISTRIES, TASKS
from arml.experiment.recipes import RECIPES, recipe
from arml.explain.explaining import inside as shown
from arml.plugins import loading as plugins
from arml.plugins import sources
from arml.tasks.functions import functions_2d

OPTIONS = '''
from dataclasses import dataclass
import arml

@dataclass(frozen=True)
class {name}Options(arml.InnerOptions):
    """A method of a test. It is MAML."""

    def build(self, net, problem, *, key):
        return arml.ALGORITHMS["maml"].options(problem).build(net, problem, key=key)
'''


@dataclass(frozen=True)
class ToyOptions(arml.InnerOptions):
    """A toy. It does nothing."""

    def build(self, net, problem, *, key):
        raise NotImplementedError


@pytest.mark.usefixtures("alone")
def test_a_method_has_recipes_as_soon_as_it_is_registered():
    arml.register("method", "toy", ToyOptions, kinds=("regression",))
    assert ALGORITHMS["toy"].about == "A toy."
    assert isinstance(recipe("regression2d/toy").algorithm, ToyOptions)
    assert "regression2d-wide/toy" in list(RECIPES)
    assert "starter/toy" not in RECIPES
    # Registered again, as a notebook's cell does that is run twice.
    arml.register("method", "toy", ToyOptions)
    assert "starter/toy" in RECIPES


def test_an_unknown_name_gets_the_nearest_ones_in_a_short_line():
    for known, name in ((ALGORITHMS.known, "mmal"), (recipe, "starter/mmal")):
        with pytest.raises(ValueError, match=r"did you mean '.*maml'") as error:
            known(name)
        assert len(str(error.value)) < 120
    with pytest.raises(ValueError, match="`arml list` names all"):
        recipe("zzzzzzzzz")


def built(net, problem, *, key, rate: float = 0.1, steps: int = 2):
    """A method as a function. It returns its arguments."""
    return net, problem, key, rate, steps


def unready(problem, *, key, width: int):
    """A network whose width has no default."""


class Lines(arml.TaskDistribution):
    """Lines through the origin."""

    shots: int = 3
    families = ("lines",)
    problem = property(lambda self: arml.Problem("regression", (1,), 1, self.shots, queries=2))

    def sample(self, key):
        x, n = jax.random.normal(key, (self.shots + 2, 1)), self.shots
        y = x * x[0]
        return arml.Task(arml.Examples(x[:n], y[:n]), arml.Examples(x[n:], y[n:]), jnp.array(0))


def test_a_function_is_a_class_of_options():
    made = options_of(built)
    assert [(f.name, f.type, f.default) for f in fields(made)] == [
        ("rate", float, 0.1),
        ("steps", int, 2),
    ]
    assert made(steps=5).build("net", "problem", key="key") == ("net", "problem", "key", 0.1, 5)
    entry = Registry("method", Method).make("built", built)
    assert entry.about == "A method as a function."
    assert entry.options_class.__module__ == __name__  # its file is the plug-in
    with pytest.raises(ValueError, match="the option width of unready needs a default"):
        NETWORKS.make("unready", unready)


def test_a_class_of_tasks_is_its_own_options():
    entry = TASKS.make("lines", Lines)
    assert entry.problem.shots == 3
    tasks = entry.options_class(shots=7).build(None, progress=None)
    assert (type(tasks), tasks.problem.shots) == (Lines, 7)


@dataclass(frozen=True)
class NoBuild(arml.Options):
    size: int = 1


@dataclass(frozen=True)
class Bare(ToyOptions):
    size: int = field(kw_only=True)


@pytest.mark.parametrize(
    ("part", "name", "options", "says"),
    [
        ("method", "maml", ToyOptions, "arml has a method 'maml' already"),
        ("network", "toy", NoBuild, "NoBuild needs the method build"),
        ("network", "toy", Bare, "the option size of Bare needs a default"),
        ("tasks", "toy", int, "expected options as a dataclass"),
        (
            "model",
            "toy",
            ToyOptions,
            "register a method, tasks, network, outer, inputs or",
        ),
    ],
)
def test_what_cannot_be_registered_is_refused_in_one_line(part, name, options, says):
    with pytest.raises(ValueError, match=says):
        arml.register(part, name, options)


@pytest.mark.usefixtures("alone")
def test_a_method_of_ones_own_says_what_is_inside():
    def inside(learner, tasks, *, n, chunk):
        return {"learner": type(learner).__name__, "tasks": n}

    arml.register("method", "toy", ToyOptions, inside=inside)
    learner = arml.build("maml", functions_2d())
    found = shown(ToyOptions(), "r", learner, functions_2d(), n=3, chunk=1)
    assert found == {"kind": "own", "learner": "MAML", "tasks": 3}


class Mean(arml.MetaLearner):
    """The mean target, with outputs to spare."""

    loss: object = loss_of(functions_2d().problem)
    more: int = 0

    def adapt(self, support, *, key):
        mean = jnp.mean(support.y, axis=0)
        return arml.Adapted(lambda x: jnp.tile(mean, (len(x), 1 + self.more)))


def test_a_learner_of_ones_own_is_checked_before_it_trains():
    def mean(net, problem, *, key, more: int = 0):
        return Mean(more=more)

    tasks, options = functions_2d(), options_of(mean)
    assert isinstance(arml.build(options(), tasks), Mean)
    with pytest.raises(ValueError, match=r"Mean: expected predictions of shape .* got \(10, 2\)"):
        arml.build(options(more=1), tasks)


def test_a_function_is_network_enough():
    def ones(problem, *, key):
        return lambda x: jnp.ones((len(x), problem.outputs))

    def nines(problem, *, key):
        return lambda x: jnp.ones((len(x), 9))

    tasks = functions_2d()
    learner = arml.build("maml", tasks, network=options_of(ones)())
    assert arml.evaluate(learner, tasks, n=2).score["mean"] > 0
    four = arml.Problem("classification", (3,), 4, shots=1, queries=2)
    with pytest.raises(ValueError, match=r"of shape \(8, 4\) .* got \(8, 9\): change the network"):
        arml.build("maml", four, network=options_of(nines)())


def test_an_installed_package_brings_a_method_by_an_entry_point(tmp_path, monkeypatch):
    (tmp_path / "somebodys.py").write_text(OPTIONS.format(name="Theirs"))
    about = tmp_path / "somebodys-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.2\n")
    (about / "top_level.txt").write_text("somebodys\n")
    (about / "RECORD").write_text("somebodys.py,,\n")
    entries = "[arml.methods]\ntheirs = somebodys:TheirsOptions\n"
    (about / "entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(tmp_path)
    sources._distributions.cache_clear()
    found = Registry("method", Method)
    assert list(found) == ["theirs"]
    assert found["theirs"].about == "A method of a test."
    assert found["theirs"].source == ("somebodys", "1.2")
    # One that cannot be loaded is named.
    (about / "entry_points.txt").write_text(entries.replace("\n", "\nbad = somebodys:Missing\n", 1))
    with pytest.raises(ValueError, match="could not load 'bad' of somebodys: AttributeError"):
        list(found := Registry("method", Method))
    assert list(found) == ["theirs"]  # the others are found then
    monkeypatch.delitem(sys.modules, "somebodys")
    sources._distributions.cache_clear()


def test_a_plugin_that_fails_is_one_line(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    with pytest.raises(ValueError, match=r"could not load the plug-in .*broken.py: ModuleNotFound"):
        plugins.load_plugin(broken)
    assert "broken" not in sys.modules
    broken.write_text("import sys\nsys.exit('no licence')\n")
    with pytest.raises(ValueError, match=r"could not load the plug-in .*: SystemExit: no licence"):
        plugins.load_plugin(broken)
    with pytest.raises(ValueError, match=r"expected a plug-in file at nowhere.py, found none"):
        plugins.announce("nowhere.py")


def test_the_settings_of_methods_name_options_that_there_are():
    known = {
        part: {f.name for entry in registry.values() for f in fields(entry.options_class)}
        for part, registry in REGISTRIES.items()
    }
    for method in ALGORITHMS.values():
        known["algorithm"] = {f.name for f in fields(method.options_class)}
        for changes in method.settings.values():
            for part, options in changes.items():
                assert part == "experiment" or {*options} <= known[part], (method.name, part)


def test_every_entry_is_complete():
    for method in ALGORITHMS.values():
        assert method.title != method.name, method.name
        assert method.paper, method.name
        assert 2000 < method.year < 2100, method.name
        assert {*(method.tune or ())} <= {f.name for f in fields(method.options_class)}
    assert ALGORITHMS.of(MAMLOptions()).name == "maml"
    assert {entry.source for registry in (TASKS, NETWORKS) for entry in registry.values()} == {None}
