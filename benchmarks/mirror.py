"""How much a mirror takes from families of pictures: whether `--augment` would mirror them.

    python benchmarks/mirror.py --data cards.zip clothing.zip --stores real-four

It writes `results/mirror.json`: the families of the starter set, of prepared data sets, and of your
own folders or zips.
"""

import argparse
from pathlib import Path

from arml.datasets.folders import SPLIT_PARTS, load_families
from arml.datasets.prepare import open_store, place
from arml.datasets.starter import load_starter
from arml.results.files import write_json
from arml.tasks.images import MIRROR_LOSS, mirror_loss
from arml.training.provenance import provenance

OUT = Path(__file__).parent / "results" / "mirror.json"


def main() -> None:
    """Measure each family, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--stores", nargs="*", default=[])
    options = parser.parse_args()
    groups = {"starter": load_starter(art=True)[0]}
    for name in options.stores:
        groups[name] = open_store(place(name)).part("train")
    if options.data:
        groups["own"] = load_families(options.data, size=32)
    rows = {}
    for group, families in groups.items():
        for family in families:
            classes = (family.split or {SPLIT_PARTS[0]: family.classes})[SPLIT_PARTS[0]]
            rows[f"{group}/{family.name}"] = round(mirror_loss(family, classes), 3)
            print(f"{group}/{family.name}: {rows[f'{group}/{family.name}']:.3f}", flush=True)
    write_json(OUT, {"below": MIRROR_LOSS, "mirror_loss": rows, "made": provenance()})


if __name__ == "__main__":
    main()
