"""Every recipe is an experiment that a result file or a run may name, so none may change unseen."""

import json
from pathlib import Path

import pytest

from arml.experiment.options import from_json
from arml.experiment.recipes import recipe

FILE = json.loads(Path(__file__).with_name("recipes.json").read_text(encoding="utf-8"))
USUAL, KNOWN = FILE["defaults"], FILE["recipes"]
"""The defaults of each kind of options, and of each recipe what differs from them, one a line. A
deliberate change edits the line."""


def whole(name):
    """The experiment of a recipe as plain data."""
    value = {**USUAL["experiment"], **KNOWN[name], "recipe": name}
    parts = {part: own for part, own in value.items() if isinstance(own, dict)}
    return value | {part: {**USUAL[f"{part} {o['kind']}"], **o} for part, o in parts.items()}


@pytest.mark.parametrize("name", KNOWN)
def test_a_recipe_is_the_experiment_that_it_was(name):
    # An option that a later version added has its default.
    assert recipe(name) == from_json(whole(name), "recipes.json")
