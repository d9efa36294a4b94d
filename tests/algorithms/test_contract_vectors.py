"""The contract on vectors, with few ways and many; and what regression is refused for."""

import jax
import pytest

from arml.algorithms import ALGORITHMS
from arml.experiment.contract import KINDS, MLP, Kind, blobs, make
from contract_suite import *  # noqa: F403
from contract_suite import cases, check_runs

case = cases("vectors")
CLASSES_ONLY = [name for name, known in ALGORITHMS.items() if "regression" not in known.kinds]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_many_ways_and_one_shot(name):
    check_runs(make(name, Kind(blobs((4,), 7, 1), MLP)))


@pytest.mark.parametrize("name", CLASSES_ONLY)
def test_regression_is_refused_where_it_has_no_meaning(name):
    case = make(name, KINDS["regression"])
    with pytest.raises(ValueError, match="needs classification tasks"):
        case.build(jax.random.key(0))
