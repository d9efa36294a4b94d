"""The registry: every algorithm by name, as the dataclass of its options.

An options dataclass has the paper's defaults and `build(net, problem, *, key) -> MetaLearner`.
What is registered passes the contract tests; an exception that a method needs is declared here.
"""

from typing import Any

from arml.algorithms.arml import ARMLOptions
from arml.algorithms.maml import MAMLOptions

ALGORITHMS: dict[str, Any] = {
    "maml": MAMLOptions,
    "arml": ARMLOptions,
}

DEAD: dict[str, tuple[str, ...]] = {
    # Rows of the adjacency are normalised apart, and one layer reads the neighbours only.
    "arml-official": (".encode.graph.connect",),
}
"""Meta-parameters that no gradient reaches, as the beginnings of their paths, by the name of the
algorithm or of the preset (`<algorithm>-<preset>`)."""
