"""Every registered algorithm and every preset keeps the contract, on every kind of problem.

An algorithm is tested by being registered; an exception is declared beside its registration. The
tests are collected by `test_contract_<kind>.py`, one file a kind, so that they run side by side.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import pytest
from jaxtyping import PRNGKeyArray

import contract
from arml.algorithms import ALGORITHMS
from arml.core.episodes import Problem, TaskDistribution
from arml.core.inner import with_steps
from arml.core.learner import MetaLearner
from arml.nn.flat import CellsOptions
from arml.nn.networks import BaseNetwork, Body, Conv4Options, MLPOptions, linear
from arml.tasks.functions import functions_2d
from contract import Blobs, Case


class Kind(NamedTuple):
    tasks: TaskDistribution
    network: Any
    cancelled: tuple[str, ...] = ()
    steps: int = 2
    """Inner steps."""
    sizes: Mapping[str, int] = MappingProxyType({})
    """Options of methods that make them smaller, and sooner compiled."""


def blobs(features: tuple[int, ...], ways: int, shots: int, noise: float = 0.3) -> Blobs:
    return Blobs(Problem("classification", features, ways, shots, 2), noise=noise)


class OneBlock(NamedTuple):
    """A network of one of Conv-4's blocks: four would do the same, and compile four times as
    long."""

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> BaseNetwork:
        net = Conv4Options(filters=4).build(replace(problem, outputs=1), key=key)
        body = Body(net.body.blocks[:1], "support")
        return BaseNetwork(body, linear(8 * 8 * 4, problem.outputs, key=key))


MLP = MLPOptions(hidden=(8,), init="he")
KINDS = {
    "regression": Kind(functions_2d(shots=5, queries=4), MLP),
    "vectors": Kind(blobs((4,), 3, 2), MLP),
    # Batch normalisation follows the convolution and cancels its bias.
    "images": Kind(
        # Noisy, so that no method is certain: a loss of zero has no gradient.
        blobs((16, 16, 1), 3, 1, noise=4.0),
        OneBlock(),
        (".blocks[0].layer.bias", ".blocks[0].layer.layer.bias"),
        steps=1,
    ),
    # The last axis is a cell: its value, whether it is there, its kind.
    "tables": Kind(
        blobs((6, 3), 3, 3, noise=1.0),
        CellsOptions(width=8),
        sizes=MappingProxyType({"width": 8, "depth": 1, "vertices": 3}),
    ),
}


def make(name: str, kind: Kind) -> Case:
    problem = kind.tasks.problem
    options = ALGORITHMS[name].options(problem)
    smaller = {k: v for k, v in kind.sizes.items() if hasattr(options, k)}
    options = replace(options, **smaller)

    def build(key: PRNGKeyArray) -> MetaLearner:
        net_key, key = jax.random.split(key)
        learner = options.build(kind.network.build(problem, key=net_key), problem, key=key)
        return with_steps(learner, kind.steps)

    known = ALGORITHMS[name]
    descends = known.descends if isinstance(known.descends, bool) else known.descends(problem)
    return Case(build, kind.tasks, known.dead, kind.cancelled, descends, known.exceptions)


PRESETS = ("arml-official", "arml-paper", "first-order-maml", "meta-sgd")
"""Presets of a method that is checked under another name: they are among the slow tests."""


def cases(kind: str, only: tuple[str, ...] = ()) -> Any:
    """The fixture `case`: each algorithm on one kind of problem, one after the other."""
    problem = KINDS[kind].tasks.problem
    names = [
        name
        for name, known in ALGORITHMS.items()
        if known.suits(problem) and (not only or name in only)
    ]

    slow = {name: [pytest.mark.slow] for name in PRESETS}
    params = [pytest.param(name, marks=slow.get(name, ())) for name in names]

    @pytest.fixture(scope="module", params=params)
    def case(request) -> Case:
        return make(request.param, KINDS[kind])

    return case


@pytest.fixture(autouse=True)
def declared(request):
    """Skips a check that the method's entry says does not hold, with its reason."""
    if "case" in request.fixturenames:
        reason = request.getfixturevalue("case").exceptions.get(request.node.originalname)
        if reason:
            pytest.skip(reason)


def test_a_gradient_reaches_every_meta_parameter(case):
    contract.check_a_gradient_reaches_every_meta_parameter(case)


def test_a_task_is_learned_whatever_stands_beside_it(case):
    contract.check_a_task_is_learned_whatever_stands_beside_it(case)


def test_lapack_gets_one_matrix_at_a_time(case):
    contract.check_lapack_gets_one_matrix_at_a_time(case)


def test_the_order_of_the_queries_is_irrelevant(case):
    contract.check_the_order_of_the_queries_is_irrelevant(case)


def test_one_query_by_itself_equals_one_among_all(case):
    contract.check_one_query_by_itself_equals_one_among_all(case)


def test_adaptation_lowers_the_support_loss(case):
    contract.check_adaptation_lowers_the_support_loss(case)


def test_a_step_traces_once(case):
    contract.check_a_step_traces_once(case)


def test_the_same_step_gives_the_same_result(case):
    contract.check_the_same_step_gives_the_same_result(case)


def test_float32_stays_float32(case):
    contract.check_float32_stays_float32(case)


def test_saved_and_restored_is_identical(case, tmp_path):
    contract.check_saved_and_restored_is_identical(case, tmp_path)


def test_the_seed_decides_the_weights(case):
    contract.check_the_seed_decides_the_weights(case)
