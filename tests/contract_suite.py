"""Every registered algorithm and every preset keeps the contract, on every kind of problem.

An algorithm is tested by being registered; an exception is declared beside its registration. The
tests are collected by `test_contract_<kind>.py`, one file a kind, so that they run side by side.
"""

from typing import Any

import pytest

from arml.algorithms import ALGORITHMS
from arml.experiment import contract
from arml.experiment.contract import KINDS, Case, make

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
