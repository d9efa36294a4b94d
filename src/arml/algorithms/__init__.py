"""The registry: every algorithm by name, as the dataclass of its options.

An options dataclass has the paper's defaults and `build(net, problem, *, key) -> MetaLearner`.
"""

from typing import Any

from arml.algorithms.arml import ARMLOptions
from arml.algorithms.maml import MAMLOptions

ALGORITHMS: dict[str, Any] = {
    "maml": MAMLOptions,
    "arml": ARMLOptions,
}
