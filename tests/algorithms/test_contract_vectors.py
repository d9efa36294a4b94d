"""The contract on vectors, with few ways and many; and what regression is refused for."""

from dataclasses import replace

import jax
import pytest

from arml.algorithms import ALGORITHMS
from arml.core.checks import check_options
from arml.experiment.contract import SETUPS, SMALL_MLP, Setup, blobs, make
from contract_suite import *  # noqa: F403
from contract_suite import cases, check_runs

case = cases("vectors")
CLASSES_ONLY = [name for name, known in ALGORITHMS.items() if "regression" not in known.kinds]


MANY = blobs((4,), 7, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n, known in ALGORITHMS.items() if known.suits(MANY.problem)]
)
def test_many_ways_and_one_shot(name):
    check_runs(make(name, Setup(MANY, SMALL_MLP)))


@pytest.mark.parametrize("name", CLASSES_ONLY)
def test_regression_is_refused_where_it_has_no_meaning(name):
    case = make(name, SETUPS["regression"])
    with pytest.raises(ValueError, match="needs classification tasks"):
        case.build(jax.random.key(0))


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_numbers_below_their_bounds_are_refused(name):
    usual = ALGORITHMS[name].options(SETUPS["vectors"].tasks.problem)
    check_options(usual)
    bounds = [(key, 0) for kind in type(usual).__mro__ for key in vars(kind).get("POSITIVE", ())]
    for kind in type(usual).__mro__:
        for key, least in vars(kind).get("LEAST", {}).items():
            bounds.append((key, (least[0] if isinstance(least, tuple) else least) - 1))
    for key, bad in bounds:
        value = (bad,) if isinstance(getattr(usual, key), tuple) else type(getattr(usual, key))(bad)
        with pytest.raises(ValueError, match=f"{key} must be"):
            check_options(replace(usual, **{key: value}))
