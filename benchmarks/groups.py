"""How often `arml adapt photos` warns that pictures may belong together because many look like
another of their class: wrongly, and rightly.

    python benchmarks/groups.py clothing.zip foods.zip --objects coil-20/

The pictures of a source are independent. A draw has 5 classes of 5, 10 or 20 pictures. The classes
of a source of `--objects` are single objects, each seen from many sides. There, a class of a draw
has 2 to 5 objects, of which 2 to 4 views are drawn at random. The result is `results/groups.json`.
"""

import argparse
from pathlib import Path

import numpy as np

from arml.photographs.learner import PhotoLearner
from arml.predict.head import unit_roots
from arml.predict.together import together_in_space
from common import machine, write
from uneven import load

DRAWS, CLASSES = 100, 5
SIZES = (5, 10, 20)
VIEWS = ((2, 4), (3, 3), (5, 2), (5, 4))


def warned(x: np.ndarray, y: np.ndarray, things: int, shots: int, rng: np.random.Generator) -> bool:
    """Whether a draw is warned of: its classes have so many `things`, with `shots` of each."""
    enough = np.flatnonzero(np.bincount(y) >= shots)
    chosen = rng.permutation(enough)[: min(CLASSES, len(enough) // things) * things]
    places = [rng.choice(np.flatnonzero(y == k), shots, replace=False) for k in chosen]
    labels = np.repeat(np.arange(len(chosen)) // things, shots)
    return together_in_space(x[np.concatenate(places)], labels.tolist())


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("sources", nargs="*", type=Path)
    options.add_argument("--objects", nargs="*", type=Path, default=[])
    asked = options.parse_args()
    before, learner, rows = machine(), PhotoLearner(), []
    for path in (*asked.sources, *asked.objects):
        x, y = load(path, learner)
        for things, shots in VIEWS if path in asked.objects else [(1, n) for n in SIZES]:
            if np.sum(np.bincount(y) >= shots) < 2 * things:
                continue
            rng = np.random.default_rng(0)
            found = [warned(unit_roots(x), y, things, shots, rng) for _ in range(DRAWS)]
            name = path.parent.name if path.stem == "test" else path.stem
            row = {"source": name, "objects": things, "pictures": shots}
            rows.append(row | {"warned": float(np.mean(found))})
            print(*rows[-1].values(), flush=True)
    write("groups", rows, before, sources=("predict/together.py",))
