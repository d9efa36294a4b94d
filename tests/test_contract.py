"""Every registered algorithm and every preset keeps the contract, on every kind of problem.

An algorithm is tested by being registered; an exception is declared beside its registration.
"""

from typing import Any, NamedTuple

import jax
import pytest
from jaxtyping import PRNGKeyArray

import contract
from arml.algorithms import ALGORITHMS
from arml.episodes import Problem, TaskDistribution
from arml.inner import with_steps
from arml.learner import MetaLearner
from arml.nn.networks import BaseNetwork, Body, MLPOptions, conv4, linear
from arml.tasks.functions import functions_2d
from contract import Blobs, Case

pytestmark = pytest.mark.usefixtures("compile_quickly")


class Kind(NamedTuple):
    tasks: TaskDistribution
    network: Any
    cancelled: tuple[str, ...] = ()


def blobs(features: tuple[int, ...], ways: int, shots: int) -> Blobs:
    return Blobs(Problem("classification", features, ways, shots, 2))


class OneBlock(NamedTuple):
    """A network of one of Conv-4's blocks: four would do the same, and compile four times as
    long."""

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> BaseNetwork:
        net = conv4(problem.features, 1, filters=4, key=key)
        body = Body(net.body.blocks[:1], "support")
        return BaseNetwork(body, linear(8 * 8 * 4, problem.outputs, key=key))


MLP = MLPOptions(hidden=(8,), init="he")
KINDS = {
    "regression": Kind(functions_2d(shots=5, queries=4), MLP),
    "vectors": Kind(blobs((4,), 3, 2), MLP),
    # Batch normalisation follows the convolution and cancels its bias.
    "images": Kind(
        blobs((16, 16, 1), 2, 2),
        OneBlock(),
        (".blocks[0].layer.bias", ".blocks[0].layer.layer.bias"),
    ),
}


def make(name: str, kind: Kind) -> Case:
    problem = kind.tasks.problem
    options = ALGORITHMS[name].options(problem)

    def build(key: PRNGKeyArray) -> MetaLearner:
        net_key, key = jax.random.split(key)
        learner = options.build(kind.network.build(problem, key=net_key), problem, key=key)
        return with_steps(learner, 2)

    known = ALGORITHMS[name]
    return Case(build, kind.tasks, known.dead, kind.cancelled, known.descends)


PAIRS = [
    (name, kind)
    for name, known in ALGORITHMS.items()
    for kind in KINDS
    if KINDS[kind].tasks.problem.kind in known.kinds
]
CLASSES_ONLY = [name for name, known in ALGORITHMS.items() if "regression" not in known.kinds]


# One case after the other, and each in one process, so that what it compiled serves all its checks.
@pytest.fixture(
    scope="module",
    params=[
        pytest.param(pair, marks=pytest.mark.xdist_group("-".join(pair)), id="-".join(pair))
        for pair in PAIRS
    ],
)
def case(request) -> Case:
    name, kind = request.param
    return make(name, KINDS[kind])


def test_a_gradient_reaches_every_meta_parameter(case):
    contract.check_a_gradient_reaches_every_meta_parameter(case)


def test_a_batch_equals_a_loop(case):
    contract.check_a_batch_equals_a_loop(case)


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


@pytest.mark.parametrize(("ways", "shots"), [(2, 3), (7, 1)])
@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_any_ways_and_shots(name, ways, shots):
    contract.check_runs(make(name, Kind(blobs((4,), ways, shots), MLP)))


@pytest.mark.parametrize("name", CLASSES_ONLY)
def test_regression_is_refused_where_it_has_no_meaning(name):
    case = make(name, KINDS["regression"])
    with pytest.raises(ValueError, match="needs classification tasks"):
        case.build(contract.KEY)
