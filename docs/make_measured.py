"""Write `src/arml/data/measured.json`, the scores that `arml list` shows, from `results/laptop`:

python docs/make_measured.py [--check]

`--check` writes nothing, and fails if the file is not the one that it would write.
"""

import json
import sys
from pathlib import Path
from typing import Any

from arml.experiment.recipes import RECIPES

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "src" / "arml" / "data" / "measured.json"
SOURCES = {
    "regression2d": "regression2d",
    "starter": "starter-1shot-400",
    "starter-art": "starter-art-1shot-400",
}
"""The runs for each setting."""
NAMES = {"arml": "arml-film", "arml-evidence": "arml", "arml-templates": "arml"}
"""Methods whose stored runs have an older name."""


def measured() -> dict[str, Any]:
    """By setting: how the scores were made, and the mean over seeds of each method's score."""
    found: dict[str, Any] = {}
    for setting, place in SOURCES.items():
        methods: dict[str, list[float]] = {}
        about: dict[str, Any] = {}
        for path in sorted((ROOT / "results" / "laptop" / "runs" / place).glob("*/*/result.json")):
            result = json.loads(path.read_text(encoding="utf-8"))
            method = NAMES.get(path.parts[-3], path.parts[-3])
            if f"{setting}/{method}" not in RECIPES:
                continue  # a row of a side table
            methods.setdefault(method, []).append(result["score"]["mean"])
            about = {key: result[key] for key in ("metric", "steps", "protocol")}
            about["tasks"] = result["score"]["n"]
        means = {name: round(sum(some) / len(some), 4) for name, some in methods.items()}
        found[setting] = {**about, "scores": means}
    return found


def main() -> None:
    text = json.dumps(measured(), indent=2) + "\n"
    if "--check" not in sys.argv[1:]:
        PLACE.write_text(text, encoding="utf-8")
        print(f"wrote {PLACE.relative_to(ROOT)}")
    elif PLACE.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{PLACE.relative_to(ROOT)} is old: run python docs/make_measured.py")


if __name__ == "__main__":
    main()
