"""The contract of every algorithm that reads tables, on the cells of synthetic tables."""

from contract_suite import *  # noqa: F403
from contract_suite import cases

case = cases("tables")
