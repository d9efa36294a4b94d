"""The contract on images."""

import pytest

from contract_suite import *  # noqa: F403
from contract_suite import cases

pytestmark = pytest.mark.slow
case = cases("pictures")
