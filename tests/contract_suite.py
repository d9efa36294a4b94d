"""Every registered algorithm and every preset keeps the contract, on every kind of problem.

An algorithm is tested by being registered; an exception is declared beside its registration. The
tests are collected by `test_contract_<kind>.py`, one file a kind, so that they run side by side.
"""

from typing import Any

import jax
import numpy as np
import pytest

from arml.algorithms import ALGORITHMS
from arml.experiment.contract import CHECKS, SETUPS, Case, make, single

QUICK = ("maml", "protonet", "arml", "tables")
"""The methods that the quick tests check; the slow ones check the others, too."""


def cases(kind: str) -> Any:
    """The fixture `case`: each algorithm on one kind of problem, one after the other."""
    problem = SETUPS[kind].tasks.problem
    names = [name for name, known in ALGORITHMS.items() if known.suits(problem)]
    slow = pytest.mark.slow
    params = [pytest.param(name, marks=() if name in QUICK else slow) for name in names]

    @pytest.fixture(scope="module", params=params)
    def case(request) -> Case:
        return make(request.param, SETUPS[kind])

    return case


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(case, check):
    if reason := case.exceptions.get(check.__name__.replace("check_", "test_", 1)):
        pytest.skip(reason)
    check(case)


def check_runs(case: Case) -> None:
    """On one task, once: for ways and shots that no other check has."""
    task, key = jax.tree.map(lambda leaf: leaf[0], case.drawn)
    predictions, loss = single(case.learner, task, key)
    assert predictions.shape == (case.tasks.problem.query, case.tasks.problem.outputs)
    assert np.all(np.isfinite(predictions))
    assert np.isfinite(loss)
