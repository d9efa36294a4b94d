"""No speed: does meta-training gain on the vectors of photographs? ProtoNet and ARML, meta-trained
on the vectors of other families, against the plain class mean and the head of `photos`.

    arml features clothing.zip foods.zip ... --model efficientnet-lite0.onnx --out FEATURES
    python benchmarks/photos_meta.py FEATURES --held clothing foods stamps --runs RUNS

Each held family is left out of the training of all seeds. Tasks of it are drawn as in `photos.py`:
5-way 5-shot, 10 queries a class. A row is the mean over seeds and draws, with the 95% interval over
draws of the mean over seeds; `gain` is over the class mean, paired by draw. The results are in
`results/photos_meta.json`.
"""

import argparse
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import arml
from arml.datasets.features import load_features
from common import machine, write
from photos import WAYS, Family, draws, interval, softmax, unit

METHODS = ("protonet", "arml")
SHOTS, QUERIES, WAYS_TRAINED = 5, 3, 5


def trained(features: Path, held: str, method: str, seed: int, runs: Path, steps: int) -> Path:
    """The folder of a run on all families but one; it is trained unless it is there."""
    run = runs / f"{held}-{method}-{seed}"
    others = sorted(str(path) for path in features.iterdir() if path.name != held)
    command = [sys.executable, "-m", "arml", "train", f"features/{method}", "--data", *others]
    command += ["--run", str(run), "--seed", str(seed), "--steps", str(steps), "--ways", "2"]
    command += ["--train-ways", str(WAYS_TRAINED), "--shots", str(SHOTS), "--queries", str(QUERIES)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return run


def main() -> None:
    """Train what is not there, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", type=Path)
    parser.add_argument("--held", nargs="+", required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--draws", type=int, default=40)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    before, done = machine(), dict[str, Any]()
    for held in given.held:
        of_held = load_features([given.features / held]).families[0]
        labels = np.repeat(np.arange(len(of_held.classes)), of_held.counts)
        vectors = np.asarray(of_held.images, np.float32)
        family = Family(held, vectors, np.zeros(0), labels)
        tasks = list(draws(family, SHOTS, given.draws))
        scores: dict[str, list[np.ndarray]] = {"class mean": [], "photos": []}

        def score(predict: Any, family: Family = family, tasks: Any = tasks) -> np.ndarray:
            right = []
            for task in tasks:
                chances = predict(family.vectors[task.support], task.y, family.vectors[task.query])
                right.append(np.mean(chances.argmax(axis=1) == task.wanted))
            return np.array(right)

        scores["class mean"] = [score(class_mean)]
        scores["photos"] = [score(of_head)]
        for method in METHODS:
            for seed in range(given.seeds):
                run = trained(given.features, held, method, seed, given.runs, given.steps)
                learner = arml.load(run)
                found = score(lambda x, y, new, own=learner: own.adapt(x, y).predict_proba(new))
                scores.setdefault(method, []).append(found)
                print(held, method, seed, f"{found.mean():.3f}", flush=True)
        plain = scores["class mean"][0]
        done[held] = {
            name: {
                "accuracy": interval(np.mean(each, axis=0)),
                "gain": interval(np.mean(each, axis=0) - plain),
                "seeds": [round(float(one.mean()), 4) for one in each],
            }
            for name, each in scores.items()
        }
        for name, row in done[held].items():
            print(held, name, row, flush=True)
        write("photos_meta", {"steps": given.steps, "draws": given.draws, "held": done}, before)


def class_mean(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The cosine to the class means."""
    means = np.stack([x[y == k].mean(axis=0) for k in range(WAYS)])
    return softmax(10 * unit(new) @ unit(means).T)


def of_head(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The head of `photos`."""
    from arml.predict.photos import fit_head

    return softmax(fit_head(x, y, WAYS).logits(new))


if __name__ == "__main__":
    main()
