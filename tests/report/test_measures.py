"""The measures of a stream against values computed by hand."""

import math

import numpy as np
import pytest

from arml.report.growth import forgetting, measured

ERRORS = np.array([[1.0, 9.0, 9.0], [1.5, 2.0, 9.0], [0.9, 3.0, 4.0]])
"""R[stage, family] of an error; family f comes at stage f."""


def test_forgetting_by_hand():
    # a ends at its best; b's best was 2; c came last.
    assert forgetting(ERRORS, (0, 1, 2), "mse") == pytest.approx((0.0 + 0.5) / 2)
    accuracies = np.array([[0.8, 0.2], [0.6, 0.7], [0.7, 0.9]])
    assert forgetting(accuracies, (0, 1), "accuracy") == pytest.approx((0.1 / 0.8 + 0.0) / 2)
    assert math.isnan(forgetting(np.array([[0.5]]), (0,), "mse"))


def test_a_stream_is_measured_over_its_families():
    names = ("a", "b", "c")
    stages = [
        {"family": name, "scores": dict(zip(names, row, strict=True)), "tasks": 10}
        | {"replayed": 5 * (i > 0)}
        for i, (name, row) in enumerate(zip(names, ERRORS.tolist(), strict=True))
    ]
    found = measured(stages, "mse")
    assert found["final_mean"] == pytest.approx((0.9 + 3.0 + 4.0) / 3)
    assert found["forgetting"] == forgetting(ERRORS, (0, 1, 2), "mse")
    assert (found["tasks"], found["replayed"]) == (30, 10)
