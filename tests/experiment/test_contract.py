"""The contract as users run it: `check` in Python, and `arml check FILE.py`."""

import re
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax import lax

import arml
import arml.nn
from arml.core.episodes import Problem
from arml.core.registry import options_of
from arml.experiment.contract import (
    SETUPS,
    _cases,
    check_convolutions_stay_fast,
    check_the_seed_decides_the_weights,
    make,
)
from arml.nn.networks import conv2d
from arml.predict.contract import check

pytestmark = pytest.mark.usefixtures("alone")
FEATURES = SETUPS["pictures"].tasks.problem.features


class Grouped(eqx.Module):
    """A convolution by `lax`, which `vmap` over kernels groups."""

    kernel: jax.Array

    def __call__(self, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, self.kernel, (2, 2), "SAME", dimension_numbers=numbers)


class Fast(eqx.Module):
    layer: arml.nn.Conv2d

    def __call__(self, x):
        return arml.nn.max_pool(jax.nn.relu(self.layer(x)))


class Options(arml.Options):
    def __init__(self, block):
        self.block = block

    def build(self, problem: Problem, *, key):
        return arml.network([self.block], arml.nn.linear(8 * 8 * 2, problem.outputs, key=key))


@pytest.mark.parametrize("fast", [True, False])
def test_a_network_with_grouped_convolutions_is_warned_of(fast, recwarn):
    layer = conv2d(FEATURES[2], 2, key=jax.random.key(0))
    block = Fast(layer) if fast else Grouped(layer.kernel)
    check_convolutions_stay_fast(make("maml", SETUPS["pictures"]._replace(network=Options(block))))
    assert [("grouped under vmap" in str(w.message)) for w in recwarn] == [True] * (not fast)


FAULTY = """
import jax
import jax.numpy as jnp
import arml
from arml.core.losses import loss_of

class Late(arml.MetaLearner):
    "A learner whose second weight has no gradient, and whose predictions depend on other queries."
    net: arml.nn.Linear
    unused: jax.Array
    loss: arml.Loss

    def adapt(self, support, *, key):
        return arml.Adapted(lambda x: self.net(x) - self.net(x).mean())

def late(net, problem, *, key):
    layer = arml.nn.linear(problem.features[0], problem.outputs, key=key)
    return Late(layer, jnp.ones(2), loss_of(problem))

class Broken(Late):
    def adapt(self, support, *, key):
        return arml.Adapted(lambda x: self.missing)

def broken(net, problem, *, key):
    return Broken(None, None, loss_of(problem))

arml.register("method", "late", late, kinds=("regression",), descends=False)
arml.register("method", "broken", broken, descends=False)
"""


def test_a_plug_ins_faults_are_found_and_said_once_with_their_place(tmp_path, command):
    file = tmp_path / "faulty_of_a_test.py"
    file.write_text(FAULTY)
    said, _ = command("check", file, code=1)
    late = [line for line in said.splitlines() if line.startswith("method late on regression")]
    failed = [line.split(": ")[2] for line in late if "FAILED" in line]
    assert failed == [
        "a gradient reaches every meta parameter",
        "one query by itself equals one among all",
    ]
    assert "no gradient reaches .unused" in said
    assert late[-1].endswith("9 checks passed")
    assert said.count("has no attribute 'missing'") == 1
    assert "faulty_of_a_test.py, line 22: AttributeError: 'Broken' object has no" in said
    assert re.search(r"on vectors: \d+ checks? passed, \d+ more failed for a reason above", said)


def test_a_name_that_nothing_has_and_a_file_that_registers_nothing(tmp_path, command):
    empty = tmp_path / "empty.py"
    empty.write_text("")
    for what, said in (
        (empty, "registers no method, network, tasks or inputs"),
        ("mamml", "no method, network, tasks or inputs"),
    ):
        assert said in command("check", what, code=2)[1]
    with pytest.raises(ValueError, match="a method, network, tasks or inputs"):
        list(check("outer", "adam"))


def test_tasks_are_drawn_and_looked_at():
    class Wrong(arml.TaskDistribution):
        problem = arml.Problem("regression", (1,), 1, shots=2, queries=2)
        families = ("one",)

        def sample(self, key):
            x = jax.random.normal(key, (2, 1))
            return arml.Task(arml.Examples(x, jnp.log(x)), arml.Examples(x, x), jnp.array(0))

    arml.register("tasks", "wrong", Wrong)
    (finding,) = check("tasks", "wrong")
    assert not finding.passed
    assert "not finite" in finding.message
    finding, elsewhere = check("tasks", "functions")
    assert elsewhere.passed
    assert finding == ("tasks functions", "tasks_are_as_their_problem_says", "", True, "")


PARTS = """
import equinox as eqx
import jax

class Plain(eqx.Module):
    mlp: eqx.nn.MLP

    def __call__(self, x):
        return jax.vmap(self.mlp)(x)

def drawn(problem, key):
    return eqx.nn.MLP(problem.features[0], problem.outputs, 4, 1, key=key)

def plain(problem, *, key):
    return Plain(drawn(problem, key))

def hiding(problem, *, key):
    return jax.vmap(drawn(problem, key))
"""
REGISTERING = """
import arml
import parts_of_a_test

arml.register("network", "plain", parts_of_a_test.plain)
arml.register("network", "hiding", parts_of_a_test.hiding)
arml.register("network", "odd", lambda problem, *, key: problem.features[2])
arml.register("method", "bare", lambda net, problem: net)
"""


def test_parts_are_built_as_recipes_build_them(tmp_path, command, monkeypatch, recwarn):
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "parts_of_a_test.py").write_text(PARTS)
    file = tmp_path / "registering.py"
    file.write_text(REGISTERING)
    checked = []

    def seen(part, name):
        checked.append(name)
        return iter(()) if name == "plain" else check(part, name)

    monkeypatch.setattr("arml.predict.contract.check", seen)
    said, _ = command("check", file, code=1)
    # What another file defines is of the file that registers it.
    assert checked == ["plain", "hiding", "odd", "bare"]
    hides = "expected build to return an eqx.Module with trainable arrays, got arrays inside a func"
    assert f"reads some kind of tasks: regression, vectors: HidingOptions: {hides}" in said
    assert re.search(r"regression, vectors, tables: \S*registering.py, line 7: IndexError", said)
    assert "expected build to return an arml.MetaLearner, got BaseNetwork" in said
    cases, _ = _cases("network", "plain")
    assert [*cases] == ["regression", "vectors"]
    check_the_seed_decides_the_weights(cases["vectors"])
    tasks = SETUPS["vectors"].tasks
    with pytest.raises(ValueError, match=hides):
        arml.build("maml", tasks, network="hiding")
    hiding = sys.modules["parts_of_a_test"].hiding

    def blocks(problem, *, key):
        return arml.network([hiding(problem, key=key)], arml.nn.linear(3, 3, key=key))

    with pytest.raises(ValueError, match=hides):
        arml.build("maml", tasks, network=options_of(blocks)())
    assert not recwarn.list
