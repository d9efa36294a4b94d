"""What the ARML paper reports, as data, so that tables can show it apart from what was measured.

[1] Huaxiu Yao, Xian Wu, Zhiqiang Tao, Yaliang Li, Bolin Ding, Ruirui Li, Zhenhui Li. "Automated
    Relational Meta-learning". ICLR 2020.
"""

from typing import NamedTuple


class Reported(NamedTuple):
    """A mean and the half-width of its 95% interval, as the paper prints them."""

    mean: float
    ci95: float


REGRESSION_2D = {
    "MAML": Reported(2.29, 0.16),
    "Meta-SGD": Reported(2.91, 0.23),
    "BMAML": Reported(1.65, 0.10),
    "MT-Net": Reported(1.76, 0.12),
    "MUMOMAML": Reported(0.52, 0.04),
    "HSML": Reported(0.49, 0.04),
    "ARML": Reported(0.44, 0.03),
}
"""Mean squared error of 10-shot 2-D regression: [1], the table within Figure 2."""

_ALGORITHMS = {
    "maml": "MAML",
    "meta-sgd": "Meta-SGD",
    "bmaml": "BMAML",
    "mt-net": "MT-Net",
    "mumomaml": "MUMOMAML",
    "hsml": "HSML",
    "arml": "ARML",
    "arml-official": "ARML",
    "arml-paper": "ARML",
}


def reported(recipe: str) -> Reported | None:
    """The paper's figure for the algorithm of a recipe such as `regression2d/maml`.

    None where the paper has no figure for it: an algorithm that it did not run, a variant of one
    (an ablation, first-order MAML), or another problem.
    """
    problem, _, algorithm = recipe.rpartition("/")
    name = _ALGORITHMS.get(algorithm)
    return REGRESSION_2D.get(name) if problem == "regression2d" and name else None
