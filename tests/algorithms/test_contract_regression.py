"""The contract on 2-D regression."""

import pytest

from contract_suite import *  # noqa: F403
from contract_suite import cases

pytestmark = pytest.mark.slow
case = cases("regression")
