"""Every predictor keeps one contract, whatever its inputs are: those of the package's kinds, and of
a kind that a plug-in brings."""

import numpy as np
import pytest

import arml
from arml.core.inputs import INPUTS
from arml.plugins.loading import load_plugin
from arml.predict.base import CAPABILITIES
from arml.predict.contract import check_predictor
from arml.predict.kinds import named_kind
from tests.untrained import untrained

LABELS = ["low", "high"] * 6


def numbers(columns):
    draw = np.random.default_rng(0).normal(size=(12, columns))
    return draw + np.array([[0.0], [3.0]] * 6)


def cells():
    x = numbers(2)
    return {"a": x[:, 0].tolist(), "b": x[:, 1].tolist(), "kind": ["x", "y", "y", "x"] * 3}


CASES = {
    "photographs": lambda: ("photos", *named_kind("photographs").examples()),
    "pictures": lambda: (
        "starter",
        np.stack([np.full((32, 32, 3), 20 * i, np.uint8) for i in range(12)]),
        LABELS,
    ),
    "vectors": lambda: (untrained("protonet", 4), numbers(4), LABELS),
    "functions": lambda: ("regression2d", (numbers(2) + 3) / 3, numbers(1)[:, 0].tolist()),
    "tables": lambda: ("tables", cells(), LABELS),
    "numbers of tables": lambda: ("tables-regression", cells(), numbers(1)[:, 0].tolist()),
    "sounds": lambda: ("sounds", *named_kind("sounds").examples()),
}


@pytest.fixture(autouse=True, scope="module")
def sounds():
    load_plugin("docs/own_inputs.py")
    yield
    del INPUTS.others["sounds"]


@pytest.mark.parametrize("kind", CASES)
def test_every_predictor_keeps_the_contract(kind):
    learner, x, y = CASES[kind]()
    findings = list(check_predictor(kind, arml.load(learner), x, y))
    assert len(findings) == 5
    assert [one for one in findings if not one.passed] == []


def test_the_kinds_say_what_their_predictors_can():
    for kind in INPUTS.values():
        assert kind.can <= CAPABILITIES.keys()
    assert {kind.name for kind in INPUTS.values() if "add" in kind.can} == {*INPUTS}
