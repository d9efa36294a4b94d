"""The measures of a stream against values computed by hand."""

import math

import numpy as np
import pytest

from arml.report.growth import (
    backward_transfer,
    final_mean,
    first_stages,
    forgetting,
    gain,
)
from growing import tasks_to

ERRORS = np.array([[1.0, 9.0, 9.0], [1.5, 2.0, 9.0], [0.9, 3.0, 4.0]])
"""R[stage, family] of an error; family f comes at stage f."""
FIRST = np.array([0, 1, 2])


def test_the_stage_in_which_a_family_came_first():
    stages = [["a"], ["b"], ["a", "c"]]
    assert first_stages(stages, ["a", "b", "c"]).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="'d'"):
        first_stages(stages, ["d"])


def test_errors_by_hand():
    assert final_mean(ERRORS) == pytest.approx((0.9 + 3.0 + 4.0) / 3)
    # a gained 0.1 and b lost 1; c came last.
    assert backward_transfer(ERRORS, FIRST, "mse") == pytest.approx((0.1 - 1.0) / 2)
    # a ends at its best; b's best was 2.
    assert forgetting(ERRORS, FIRST, "mse") == pytest.approx((0.0 + 0.5) / 2)


def test_accuracies_by_hand():
    r = np.array([[0.8, 0.2], [0.6, 0.7], [0.7, 0.9]])
    first = np.array([0, 1])
    assert backward_transfer(r, first, "accuracy") == pytest.approx((-0.1 + 0.2) / 2)
    assert forgetting(r, first, "accuracy") == pytest.approx((0.1 / 0.8 + 0.0) / 2)
    assert gain(0.5, 0.75, "accuracy") == 0.25 == gain(0.75, 0.5, "mse")


def test_one_stage_forgets_nothing_that_can_be_measured():
    one = np.array([[0.5]])
    assert math.isnan(forgetting(one, np.array([0]), "mse"))
    assert math.isnan(backward_transfer(one, np.array([0]), "mse"))


def test_tasks_to_a_share_of_the_bound():
    seen = [100, 200, 300]
    assert tasks_to(seen, [3.0, 1.11, 1.0], 1.0, "mse") == 200  # 1 / 0.9 = 1.111
    assert tasks_to(seen, [3.0, 1.12, 1.2], 1.0, "mse") is None
    assert tasks_to(seen, [0.71, 0.73, 0.9], 0.8, "accuracy") == 200
