"""Which checks of the contract are among the slow tests."""

import pytest

COMPILED = (
    "test_a_gradient_reaches_every_meta_parameter",
    "test_a_task_is_learned_whatever_stands_beside_it",
)
"""These two take nearly all of the contract's time."""
LATER = ("bmaml", "hsml", "llama", "mt-net", "mumomaml", "platipus", "reptile", "versa")
"""Methods for which they compile longest; they have other tests that train them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if (
            item.path.name.startswith("test_contract_")
            and item.originalname in COMPILED
            and item.callspec.params["case"] in LATER
        ):
            item.add_marker(pytest.mark.slow)
