"""Problems; tasks of a user's own: what is made of them, and what is kept."""

import gc
import weakref

import jax
import jax.numpy as jnp
import pytest

import arml
from arml.core.episodes import in_words
from arml.core.own_tasks import as_tasks
from arml.experiment.options import problem_of


class Whole:
    """Tasks that are no pytree, of other types than the library's."""

    problem = arml.Problem("regression", (1,), 1, shots=2, queries=3)
    families = ("one",)

    def sample(self, key):
        x = jax.random.normal(key, (5, 1), jnp.bfloat16)
        return arml.Task(arml.Examples(x[:2], x[:2]), arml.Examples(x[2:], x[2:]), jnp.array(0))


def test_any_object_with_three_names_is_a_task_distribution():
    tasks = as_tasks(Whole())
    assert tasks.sample(jax.random.key(0)).query.y.dtype == jnp.float32
    assert tasks.protocol() == {"shots": 2, "queries": 3}
    assert tasks.floor() is None
    assert as_tasks(tasks) is tasks


def test_tasks_are_checked_once_and_not_kept():
    tasks = Whole()
    kept, known = weakref.ref(tasks), as_tasks(tasks)
    assert as_tasks(tasks) is known
    tasks.families = ("another",)
    assert as_tasks(tasks).families == ("another",)
    del tasks, known
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"ways": 5, "shots": 1, "queries": 15, "size": 28}, "5-way 1-shot, 15 queries, 28 px"),
        ({"noise": 0.3, "flat": True, "odd": False, "none": None}, "noise 0.3, flat"),
        ({}, ""),
    ],
)
def test_a_protocol_in_words(facts, words):
    assert in_words(facts) == words


@pytest.mark.parametrize(
    ("features", "inputs"), [((2,), "vectors"), ((8, 3), "tables"), ((32, 32, 3), "pictures")]
)
def test_a_problem_says_what_its_inputs_are(features, inputs):
    """The axes alone decide nothing; but files of earlier versions name no kind."""
    problem = arml.Problem("regression", features, 1, 5, 10, inputs=inputs)
    assert problem.form.name == inputs
    assert problem.spatial == (inputs == "pictures")
    with pytest.raises(ValueError, match=f"features of {inputs} have {len(features)} axes"):
        arml.Problem("regression", (*features, 4), 1, 5, 10, inputs=inputs)
    held = {"kind": "regression", "features": [*features], "outputs": 1, "shots": 5, "queries": 10}
    assert problem_of(held) == problem


def test_an_unknown_kind_of_inputs_gets_the_known_ones():
    with pytest.raises(ValueError, match="unknown inputs 'picture'; did you mean 'pictures'"):
        arml.Problem("classification", (32, 32, 3), 5, 1, 15, inputs="picture")
    with pytest.raises(ValueError, match="say what the inputs are, inputs='pictures'"):
        arml.Problem("classification", (32, 32, 3), 5, 1, 15)
