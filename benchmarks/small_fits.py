"""Fits of simple models to a few examples, by one thread of linear algebra as `arml` makes them,
against the same fits by as many threads as NumPy and SciPy choose. Results go to
`results/small_fits.json`.
"""

import sys

import numpy as np

from arml.predict.process import fitted_process
from arml.predict.simple import fitted, logistic
from common import Worker, arguments, duel, machine, serve, write

CASES = {
    "logistic regression, 25 pictures of 32 x 32 x 3 in 5 classes": ("inputs", 25),
    "logistic regression, 10 pictures of 32 x 32 x 3 in 5 classes": ("inputs", 10),
    "a Gaussian process, 20 points": ("process", 20),
    "a Gaussian process, 100 points": ("process", 100),
}


def work(case: str, side: str) -> None:
    """One side of a case: a fit a call."""
    uses, n = CASES[case]
    rng = np.random.default_rng(0)
    if uses == "process":
        x = rng.uniform(0, 5, (n, 2))
        y = np.sin(x[:, :1]) + 0.2 * rng.normal(size=(n, 1))
    else:
        x, y = rng.uniform(size=(n, 32 * 32 * 3)), np.arange(n) % 5

    def fit() -> None:
        if side == "ours":
            fitted(x, y, uses)
        elif uses == "process":
            fitted_process(x, y)
        else:
            logistic(x, y, 5)

    serve(lambda calls: [fit() for _ in range(calls)] and None)


def main() -> None:
    options, before, results = arguments(__doc__ or "").parse_args(), machine(), []
    rounds, seconds = (5, 0.5) if options.quick else (9, 2.0)
    for case in CASES:
        sides = [Worker(sys.executable, "small_fits.py", "work", case, s) for s in ("ours", "all")]
        result = duel(sides[0], sides[1], rounds=rounds, seconds=seconds)
        for side in sides:
            side.close()
        results.append({"case": case, **result})
        gain = result["times_as_fast"]
        print(f"{case}: {gain['median']:.1f} times ({gain['min']:.1f} to {gain['max']:.1f})")
    write("small_fits", results, before, quick=options.quick)


if __name__ == "__main__":
    work(*sys.argv[2:]) if sys.argv[1:2] == ["work"] else main()
