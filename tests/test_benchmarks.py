"""The benchmarks' tables are those of their files; their counts are right."""

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from arml.algorithms.maml import MAMLOptions
from arml.core.inner import GradientDescent
from arml.core.losses import mse
from arml.experiment.recipes import recipe
from arml.nn.networks import MLPOptions, perceptron
from arml.tasks.conflict import ConflictOptions
from arml.tasks.functions import FAMILIES

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def beside(monkeypatch):
    """Benchmarks import each other by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_the_tables_are_those_of_the_files():
    command = [sys.executable, str(BENCHMARKS / "table.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_choice_can_be_made_otherwise(beside):
    import choices

    for choice in choices.CHOICES:
        assert choice.changes
        made = choices.texts(choice.changes)
        for file, old, new in choice.changes:
            compile(made[file], file, "exec")
            assert new in made[file]
            assert old not in made[file].replace(new, "")


def test_products_and_operations_against_xla(beside):
    """A second-order inner step has nine products a layer, four where it reads the data: what XLA
    counts in the compiled program, and the same as two ways to count its operations."""
    import counts
    import roofline

    width, n, steps = 64, 32, 2
    net = perceptron((width, width, width, width), key=jax.random.key(0))
    x, y = jnp.ones((n, width)), jnp.zeros((n, width))
    inner = GradientDescent(0.01, steps)

    def query_loss(net):
        return mse(inner(lambda net: mse(net(x), y), net)(x), y)

    compiled = eqx.filter_jit(eqx.filter_grad(query_loss)).lower(net).compile().compiled
    layers = counts.network(net, n)
    needed = counts.total(layers, counts.SECOND) * steps
    needed += counts.total(layers, counts.GRADIENT)
    assert compiled.cost_analysis()["flops"] == pytest.approx(needed.flops, rel=0.1)
    products = steps * (9 + 9 + 4) + 3 + 3 + 2
    assert products <= roofline.operations(compiled.as_text()) < 5 * products


def test_a_loops_operations_count_as_often_as_it_turns(beside):
    import roofline

    def turned(times):
        x = jnp.full((20, 20), 0.1)
        loop = jax.jit(lambda x: jax.lax.fori_loop(0, times, lambda _, x: jnp.tanh(x @ x), x))
        return roofline.operations(loop.lower(x).compile().as_text())

    assert turned(110) - turned(10) == pytest.approx(100 * (turned(11) - turned(10)))
    assert turned(11) - turned(10) >= 2


@contextmanager
def optimised():
    """Programs are compiled as users' are: `conftest.py` turns the optimisations off."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.mark.slow
def test_ten_seeds_of_arml_keep_a_finite_loss(beside):
    """Their inner steps overflowed before the inner gradients were bounded: a quadratic surface
    started where the curvature was 46 / inner_rate."""
    import divergence

    train = divergence.trainer(recipe("regression2d/arml"))
    # Optax adds a float to an integer count. Elsewhere the tests' time goes into the compiler.
    with jax.numpy_dtype_promotion("standard"), optimised():
        assert [train(seed, 2_000) for seed in range(10)] == [None] * 10


def test_a_divergence_is_reported_with_its_step_and_family(beside):
    import divergence

    small = recipe("regression2d/maml")
    small = replace(small, batch=2, network=MLPOptions((4,)), algorithm=MAMLOptions(inner_rate=1e9))
    with jax.numpy_dtype_promotion("standard"):
        step, family = divergence.trainer(small)(0, 100)
    assert step == 1
    assert family in FAMILIES


def test_images_of_noise_are_tasks(beside):
    import arml_steps

    task = arml_steps.noise_images(8, 1).sample(jax.random.key(0))
    assert task.support.x.shape == (5, 8, 8, 3)
    assert task.query.x.shape == (75, 8, 8, 3)


def test_the_share_of_the_specialists_gain_by_hand(beside):
    from fair_tables import Setting, curves, table
    from fair_trainings import GROUPS

    families = GROUPS["glyphs"]

    def runs(method, group, accuracies, rate=0.003):
        for seed in range(3):
            test = {
                family: " ".join(f"{accuracy + 0.01 * (i % 2):.2f}" for i in range(10))
                for family, accuracy in accuracies.items()
            }
            about = {"method": method, "group": group, "shots": 5, "seed": seed, "rate": rate}
            about |= {"steps": 200 * len(accuracies), "validation": sum(accuracies.values())}
            about["ways"] = 5
            yield f"{group}-{method}-{rate}-{seed}", {**about, "test": test}

    found = dict(runs("protonet", "glyphs", dict(zip(families, (0.5, 0.7), strict=True))))
    found |= dict(runs("arml-2", "glyphs", dict(zip(families, (0.55, 0.8), strict=True))))
    # Training tasks of more classes are another table.
    worse = dict(runs("arml-2", "glyphs", dict(zip(families, (0.5, 0.5), strict=True))))
    found |= {f"20-{name}": entry | {"ways": 20} for name, entry in worse.items()}
    # The search did not keep this rate.
    found |= dict(runs("arml-2", "glyphs", dict(zip(families, (0.9, 0.1), strict=True)), 0.01))
    for family, accuracy in zip(families, (0.6, 0.9), strict=True):
        found |= dict(runs("protonet", family, {family: accuracy}))
    # And so are averaged weights.
    found |= {f"mean-{name}": entry | {"averaged": True} for name, entry in worse.items()}
    setting = Setting("glyphs", 5, 400)
    lines = {line.name: line for line in table(found, setting).lines}
    ours = "`arml`, 2 vertices"
    assert [*lines] == ["a ProtoNet for each family", ours, "ProtoNet, one for all families"]
    seeds, rate, *_, difference, share = (cell.text for cell in lines[ours].cells)
    assert (seeds, rate, share) == ("0, 1, 2", "0.003", "50%")
    assert difference.startswith("+7.5 ± ")
    assert not curves(found, setting).lines
    long = {"curve": {"200": 0.5, "400": 0.625}}
    found = {name: entry | long for name, entry in found.items()}
    (best, *_) = curves(found, setting).lines
    assert best.name == "arml-2, seed 0, rate 0.003"
    assert [cell.text for cell in best.cells] == ["50.0%", "62.5%", "68.0%"]


def test_the_tables_of_the_results_are_those_of_the_file(beside):
    from fair import results
    from fair_tables import page

    text = (Path(__file__).parents[1] / "docs" / "results.md").read_text(encoding="utf-8")
    assert page(text, results()) == text, "run python benchmarks/fair.py --page docs/results.md"


@pytest.mark.slow
def test_one_example_a_class_shows_the_question_as_often_as_it_is_counted(beside):
    """Against tasks that the distribution draws."""
    import one_shot

    options = ConflictOptions(shots=1, queries=1, families=("icons-concept", "icons-style"))
    tasks = options.build(Path("none")).test
    source = jax.tree.map(lambda a: a[0], tasks.sources)
    keys = jax.random.split(jax.random.key(0), 4_000)

    def shared(draw, each):
        """How often two of a task's first pictures are equal in content or in style."""

        def one(key):
            places, styles, _ = draw(source, key)
            kinds = jnp.sort(places[:, 0] // each) if each else jnp.sort(styles[:, 0])
            return jnp.any(kinds[1:] == kinds[:-1])

        return float(jax.vmap(one)(keys).mean())

    found = one_shot.shown(tasks)
    assert shared(tasks._contents, 0) == pytest.approx(found["icons-concept"], abs=0.03)
    assert shared(tasks._styles, tasks.each) == pytest.approx(found["icons-style"], abs=0.03)
    assert shared(tasks._contents, tasks.each) == shared(tasks._styles, 0) == 0
