"""The contract on vectors, with few ways and many; and what regression is refused for."""

from dataclasses import replace
from typing import Annotated, get_args, get_origin, get_type_hints

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
    for name, kind in get_type_hints(type(usual), include_extras=True).items():
        many = get_origin(kind) is tuple
        kind = get_args(kind)[0] if many else kind
        if get_origin(kind) is not Annotated:
            continue
        number, bounds = get_args(kind)
        bad = number(bounds.gt if bounds.ge is None else bounds.ge - 1)
        with pytest.raises(ValueError, match=f"{name} must be"):
            check_options(replace(usual, **{name: (bad,) if many else bad}))
