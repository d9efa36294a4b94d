"""Problems: the kind of their inputs."""

import pytest

import arml


@pytest.mark.parametrize(
    ("features", "inputs"), [((2,), "vectors"), ((8, 3), "tables"), ((32, 32, 3), "pictures")]
)
def test_inputs_follow_from_the_axes_and_must_fit_them(features, inputs):
    problem = arml.Problem("regression", features, 1, 5, 10)
    assert problem.inputs == inputs
    assert problem == arml.Problem("regression", features, 1, 5, 10, inputs=inputs)
    with pytest.raises(ValueError, match="inputs must be one of"):
        arml.Problem("regression", (*features, 4), 1, 5, 10, inputs=inputs)
