"""Work that grows: seconds of the processor for many rows, many labelled examples, many queries and
large pictures, beside other libraries that do the same.

- `rows`: 100,000 rows of a table with 45 and with 500 examples; scikit-learn's random forest
- `check`: 5,000 labelled vectors of 1,280 random numbers are learned and checked; scikit-learn's
  logistic regression on the same vectors and as many folds
- `memory`: the peak memory of a process that predicts 50, and 400 photographs
- `decode`: a JPEG of 12 megapixels to 224 px; Pillow and OpenCV unpack the whole picture
- `accuracy`: what the smaller size at which a JPEG is unpacked changes. `--pictures ZIP` names
  photographs, a folder a class. They are small, so they are shrunk to a size at which they, too,
  are unpacked at a half, and then enlarged to the size of the network.

Figures are medians, in processes with one thread, and the sides take turns.
"""

import io
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from common import arguments, machine, spread, write

Result = dict[str, Any]
RNG = np.random.default_rng(0)


def turns(rounds: int, **sides: Callable[[], object]) -> Result:
    """Seconds of the processor of each side; the others' as a multiple of the first one's."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, work in sides.items():
            begun = time.process_time()
            work()
            taken[name].append(time.process_time() - begun)
    first = spread(taken["ours"])["median"]
    found = {name: spread(values) for name, values in taken.items()}
    times = {name: one["median"] / first for name, one in found.items() if name != "ours"}
    return {"seconds": found, "times_as_fast": times}


def rows(rounds: int) -> Result:
    import pandas as pd
    from sklearn.ensemble import RandomForestClassifier

    import arml

    def table(n: int) -> tuple[Any, np.ndarray]:
        y = RNG.integers(0, 3, n)
        x = RNG.normal(size=(n, 8)) + y[:, None]
        return pd.DataFrame(x, columns=[*"abcdefgh"]), np.array(["x", "y", "z"])[y]

    found, many = {}, table(100_000)[0]
    for n in (45, 500):
        x, y = table(n)
        predictor = arml.load("tables").adapt(x, y)
        forest = RandomForestClassifier(random_state=0).fit(x, y)
        for side in (predictor, forest):
            side.predict_proba(many[:1000])
        found[f"{n} examples"] = turns(
            rounds,
            ours=lambda p=predictor: p.predict_proba(many),
            forest=lambda f=forest: f.predict_proba(many),
        ) | {"model": predictor.model}
    return found


def check(rounds: int) -> Result:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    import arml

    learner = arml.load("photos")
    y = RNG.integers(0, 10, 5_000)
    centres = np.abs(RNG.normal(size=(10, 1280)))
    x = np.abs(centres[y] + 3 * RNG.normal(size=(5_000, 1280))).astype(np.float32)

    def ours() -> None:
        learner.adapt(x, y).reliability()

    def scikit() -> None:
        model = LogisticRegression(max_iter=100)
        model.fit(x, y)
        cross_val_predict(model, x, y, cv=10)

    return turns(1 if rounds < 3 else 3, ours=ours, scikit=scikit)


def photographs(folder: Path, n: int) -> None:
    from PIL import Image

    for i in range(n):
        small = RNG.integers(0, 256, (15, 20, 3), np.uint8)
        Image.fromarray(small).resize((640, 480)).save(folder / f"{i}.jpg")


def memory(rounds: int) -> Result:
    import arml

    found = {}
    with TemporaryDirectory() as name:
        place = Path(name)
        (place / "few").mkdir()
        photographs(place / "few", 10)
        learner = arml.load("photos")
        examples = sorted((place / "few").iterdir())
        learner.adapt(examples, ["a", "b"] * 5).save(place / "predictor")
        for n in (50, 400):
            folder = place / str(n)
            folder.mkdir()
            photographs(folder, n)
            code = (
                "import resource, sys; from arml.cli import main; main(sys.argv[1:]); "
                "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)"
            )
            words = ["predict", str(place / "predictor"), str(folder)]
            environment = {**os.environ, "ARML_CACHE": str(place / "cache")}
            command = [sys.executable, "-c", code, *words, "--out", str(place / f"{n}.csv")]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                command, env=environment, check=True, capture_output=True, text=True
            )
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
            peak = float(done.stderr.split()[-1])
            found[f"{n} photographs"] = {"peak_megabytes": peak, "seconds": spent}
    return found


def decode(rounds: int) -> Result:
    import cv2
    from PIL import Image

    import arml.datasets.decode as arml_decode

    small = RNG.integers(0, 256, (150, 200, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((4000, 3000), Image.Resampling.BICUBIC).save(
        file, "JPEG", quality=90
    )
    data = file.getvalue()

    def pillow() -> np.ndarray:
        return arml_decode.resize(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")), 224)

    def opencv() -> np.ndarray:
        whole = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        return arml_decode.resize(whole, 224)

    def eighth() -> np.ndarray:
        part = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_REDUCED_COLOR_8)
        return arml_decode.resize(part, 224)

    def ours() -> np.ndarray:
        return arml_decode.decode(data, size=224, where="a picture")

    found = turns(2 * rounds + 1, ours=ours, pillow=pillow, opencv=opencv, opencv_eighth=eighth)
    return found | {"megabytes": len(data) / 1e6}


def accuracy(pictures: Path) -> Result:
    from zipfile import ZipFile

    import arml
    import arml.datasets.decode as arml_decode

    few, most, size = 10, 100, 60
    learner = arml.load("photos")
    by_class: dict[str, list[bytes]] = {}
    with ZipFile(pictures) as opened:
        for name in sorted(opened.namelist()):
            if name.lower().endswith((".jpg", ".jpeg")):
                by_class.setdefault(name.split("/")[-2], []).append(opened.read(name))
    data = [one for some in by_class.values() for one in some[:most]]
    y = np.concatenate([[k] * min(len(some), most) for k, some in enumerate(by_class.values())])
    support = np.concatenate([np.flatnonzero(y == k)[:few] for k in range(len(by_class))])
    query = np.setdiff1d(np.arange(len(y)), support)
    whole = [arml_decode.size_of(one, where="a picture") for one in data]
    usual, vectors = arml_decode.SPARE_RESOLUTION, {}
    for name, spare in (("whole", 1e6), ("usual", usual)):
        arml_decode.SPARE_RESOLUTION = spare
        small = [arml_decode.decode(one, size=size, where="a picture", crop=True) for one in data]
        wide = [arml_decode.resize(one, learner.extractor.size) for one in small]
        vectors[name] = np.concatenate([learner.extractor(one[None]) for one in wide])
    arml_decode.SPARE_RESOLUTION = usual
    answers = {
        name: learner.adapt(v[support], y[support]).predict_proba(v[query])
        for name, v in vectors.items()
    }
    right = {name: p.argmax(axis=1) == y[query] for name, p in answers.items()}
    found: Result = {
        "pictures": len(data),
        "queries": len(query),
        "smaller": sum(min(sides) >= 2 * usual * size for sides in whole),
        "accuracy": {name: float(hits.mean()) for name, hits in right.items()},
    }
    apart = right["usual"].astype(float) - right["whole"]
    other = answers["usual"].argmax(axis=1) != answers["whole"].argmax(axis=1)
    return found | {
        "difference": float(apart.mean()),
        "ci95": float(1.96 * apart.std(ddof=1) / np.sqrt(len(apart))),
        "other_answers": int(other.sum()),
        "mean_change_of_a_probability": float(np.abs(answers["usual"] - answers["whole"]).mean()),
    }


PARTS = {"rows": rows, "check": check, "memory": memory, "decode": decode}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--parts", nargs="+", choices=[*PARTS, "accuracy"], default=[*PARTS])
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rounds = 2 if options.quick else 5
    for part in options.parts:
        before = machine()
        if part == "accuracy":
            if options.pictures is None:
                parser.error("the accuracy needs --pictures ZIP")
            found = accuracy(options.pictures)
        else:
            found = PARTS[part](rounds)
        print(part, found, flush=True)
        write(f"growing-{part}", found, before, quick=options.quick)


if __name__ == "__main__":
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")
    if os.environ.get("BENCHMARK_CLOCK") != "processor":
        os.environ["BENCHMARK_CLOCK"] = "processor"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main()
