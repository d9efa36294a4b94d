"""Every recipe is an experiment that a result file or a run may name, so none may change unseen."""

import json
from pathlib import Path

import pytest

from arml.experiment.options import from_json
from arml.experiment.recipes import recipe

KNOWN = json.loads(Path(__file__).with_name("recipes.json").read_text(encoding="utf-8"))
"""The experiments of the recipes, one a line. A deliberate change edits the line."""


@pytest.mark.parametrize("name", KNOWN)
def test_a_recipe_is_the_experiment_that_it_was(name):
    # An option that a later version added has its default.
    assert recipe(name) == from_json(KNOWN[name], "recipes.json")
