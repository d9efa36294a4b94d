"""Drawing episodes: from images on the device, streamed from a memory map, and by a loader that
opens files for each episode, as learn2learn's and easyfsl's do; and what preparation takes.

The loader is written from their logic, not their code: the classes of an episode are drawn, then
images of each, and each image's file is opened, decoded with Pillow, resized and made an array
`[3, size, size]` of float32 (learn2learn's `TaskDataset` over an image folder; easyfsl's `EasySet`
with `TaskSampler`), in this process or in as many processes as there are cores.
"""

import argparse
import io
import json
import os
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from common import machine, spread, write

SIZE, WAYS, SHOTS, QUERIES, BATCH = 84, 5, 1, 15, 4
PICTURE = (375, 500)
"""Height and width of the pictures in the archives: those of ImageNet in the median."""


def pictures(number: int) -> Iterator[bytes]:
    """JPEGs as large as photographs: smooth shapes with some noise."""
    random_ = np.random.default_rng(0)
    few = []
    for _ in range(50):
        coarse = random_.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        image = cv2.resize(coarse, PICTURE[::-1], interpolation=cv2.INTER_CUBIC).astype(np.int16)
        image = np.clip(image + random_.normal(0, 12, image.shape), 0, 255).astype(np.uint8)
        few.append(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes())
    for i in range(number):
        # As many different files; the decoder does not know them apart.
        yield few[i % len(few)]


def archive(folder: Path, images: int) -> tuple[Path, Path]:
    """An archive in the layout of ILSVRC 2012, and a split of it: 600 images a class, or fewer."""
    from arml.datasets.splits import published
    from arml.results.files import checksum, write_json

    classes = max(images // 600, 32)
    each = images // classes
    names = published("tiered-imagenet").wanted()[:classes]
    path = folder / "ILSVRC2012_img_train.tar"
    every = pictures(classes * each)
    with tarfile.open(path, "w") as outer:
        for name in names:
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as one:
                for i in range(each):
                    _add(one, f"{name}_{i}.JPEG", next(every))
            _add(outer, f"{name}.tar", inner.getvalue())
    cut = [int(classes * share) for share in (0.64, 0.8)]
    parts = {
        "train": names[: cut[0]],
        "validation": names[cut[0] : cut[1]],
        "test": names[cut[1] :],
    }
    split = folder / "split.json"
    content = {"origin": "tiered-imagenet", "method": "benchmark", "parts": parts}
    write_json(split, {**content, "sha256": checksum(content)})
    return path, split


def _add(one: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    one.addfile(info, io.BytesIO(data))


def preparation(folder: Path, images: int) -> dict[str, Any]:
    """Seconds and memory of `arml data prepare`, in a process of its own."""
    path, split = archive(folder, images)
    words = ["data", "prepare", "tiered-imagenet", "--unverified", "--from", str(path)]
    command = [sys.executable, "-m", "arml", *words, "--split", str(split)]
    command += ["--out", str(folder / "store")]
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    begun = time.perf_counter()
    from arml.datasets.store import open_store, verify

    store = open_store(folder / "store")
    opened = time.perf_counter() - begun
    verify(store)
    return {
        "images": images,
        "archive_bytes": path.stat().st_size,
        "store_bytes": store.bytes,
        "seconds": seconds,
        "images_a_second": images / seconds,
        "peak_megabytes": peak / 1024,
        "open_seconds": opened,
        "verify_seconds": time.perf_counter() - begun - opened,
    }


def per_second(batches: Callable[[int], None], *, seconds: float, rounds: int) -> dict[str, float]:
    """Episodes a second of a function that draws some batches."""
    batches(2)
    begun = time.perf_counter()
    batches(4)
    number = max(4, round(4 * seconds / (time.perf_counter() - begun)))
    rates = []
    for _ in range(rounds):
        begun = time.perf_counter()
        batches(number)
        rates.append(BATCH * number / (time.perf_counter() - begun))
    return spread(rates)


def episodes(folder: Path, *, streamed: bool) -> Any:
    """The training tasks of the store."""
    from arml.tasks.options import StoreOptions

    os.environ["ARML_DEVICE_GIB"] = "0" if streamed else "1000"
    options = StoreOptions(str(folder / "store"), SHOTS, WAYS, 0, QUERIES, SIZE)
    return options.build(folder / "none").train


def ours(folder: Path, *, streamed: bool, ahead: bool, **timing: Any) -> dict[str, float]:
    """Batches drawn by a compiled program, as in a step of the training, and nothing else."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from arml.tasks.stream import prefetched
    from arml.training.step import task_keys

    tasks = episodes(folder, streamed=streamed)
    keys = partial(task_keys, jax.random.key(0), batch=BATCH)
    draw = eqx.filter_jit(lambda tasks, step: jax.vmap(tasks.sample)(keys(step)))
    steps = count()

    def batches(number: int) -> None:
        for _ in range(number):
            jax.block_until_ready(draw(tasks, jnp.asarray(next(steps), jnp.int32)))

    with prefetched(tasks, keys, start=0, stop=2**31 - 1 if ahead else 0):
        return per_second(batches, **timing)


def outer_steps(folder: Path, *, rounds: int, each: int) -> dict[str, dict[str, float]]:
    """Seconds of an outer step of ProtoNet (Conv-4, 32 filters), whose step is the quickest of all
    methods; the routes take turns."""
    import equinox as eqx
    import jax

    from arml.experiment.building import built
    from arml.experiment.recipes import recipe
    from arml.tasks.stream import prefetched
    from arml.training.step import make_step, start, task_keys

    experiment = recipe("plain-multi/protonet")
    key = jax.random.key(0)
    optimiser = experiment.outer.build(experiment.steps)
    compiled = eqx.filter_jit(make_step(optimiser, batch=BATCH, chunk=1, key=key))
    routes = {
        "on the device": (episodes(folder, streamed=False), False),
        "streamed, prefetched": (episodes(folder, streamed=True), True),
        "streamed, not prefetched": (episodes(folder, streamed=True), False),
    }
    state = start(built(experiment, routes["on the device"][0].problem), optimiser)
    taken: dict[str, list[float]] = {name: [] for name in routes}
    for round_ in range(rounds + 1):
        for name, (tasks, ahead) in routes.items():
            first = int(state.step)
            keys = partial(task_keys, key, batch=BATCH)
            with prefetched(tasks, keys, start=first, stop=first + each + 2 if ahead else 0):
                for number in range(each + 2):
                    # The first two wait for the prefetching thread, which compiles.
                    if number == 2:
                        jax.block_until_ready(state)
                        begun = time.perf_counter()
                    state, _ = compiled(tasks, state)
                jax.block_until_ready(state)
            if round_:
                taken[name].append((time.perf_counter() - begun) / each)
    return {name: spread(seconds) for name, seconds in taken.items()}


def files(folder: Path, source: Path) -> list[list[Path]]:
    """The images as files, one folder a class."""
    found: dict[str, list[Path]] = {}
    with tarfile.open(source) as outer:
        for info in outer:
            inner = outer.extractfile(info)
            with tarfile.open(fileobj=inner) as one:
                for member in one:
                    path = folder / "files" / Path(info.name).stem / member.name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(one.extractfile(member).read())  # type: ignore[union-attr]
                    found.setdefault(path.parent.name, []).append(path)
    return list(found.values())


def episode(classes: list[list[Path]], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One episode from files, by the logic of the loaders of learn2learn and easyfsl."""
    from PIL import Image

    random_ = random.Random(seed)
    images, labels = [], []
    for label, paths in enumerate(random_.sample(classes, WAYS)):
        for path in random_.sample(paths, SHOTS + QUERIES):
            with Image.open(path) as image:
                small = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
            images.append(np.asarray(small, np.float32).transpose(2, 0, 1) / 255)
            labels.append(label)
    return np.stack(images), np.asarray(labels)


_KNOWN: list[list[Path]] = []
"""The classes, in each process of a loader."""


def _know(classes: list[list[Path]]) -> None:
    _KNOWN.extend(classes)


def known_episode(seed: int) -> tuple[np.ndarray, np.ndarray]:
    return episode(_KNOWN, seed)


def loader(classes: list[list[Path]], *, workers: int, **timing: Any) -> dict[str, float]:
    """Batches from files, in this process or in several."""
    if not workers:
        return per_second(
            lambda number: [episode(classes, i) for i in range(BATCH * number)] and None, **timing
        )
    with ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=_know, initargs=(classes,)
    ) as pool:

        def batches(number: int) -> None:
            for _ in pool.map(known_episode, range(BATCH * number), chunksize=BATCH):
                pass

        return per_second(batches, **timing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer images and shorter turns")
    parser.add_argument("--images", type=int, help="images of the data set (100,000; quick 6,000)")
    options = parser.parse_args()
    images = options.images or (6_000 if options.quick else 100_000)
    timing = {"seconds": 2.0 if options.quick else 10.0, "rounds": 3 if options.quick else 7}
    before = machine()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results["preparation"] = preparation(folder, images)
        print(json.dumps(results["preparation"]), file=sys.stderr)
        rates = {
            "on the device": ours(folder, streamed=False, ahead=False, **timing),
            "streamed, prefetched": ours(folder, streamed=True, ahead=True, **timing),
            "streamed, not prefetched": ours(folder, streamed=True, ahead=False, **timing),
        }
        classes = files(folder, folder / "ILSVRC2012_img_train.tar")
        rates["files, one process"] = loader(classes, workers=0, **timing)
        cores = len(os.sched_getaffinity(0))
        rates[f"files, {cores} processes"] = loader(classes, workers=cores, **timing)
        results["seconds_a_step"] = outer_steps(
            folder, rounds=timing["rounds"], each=5 if options.quick else 20
        )
    results["episodes_a_second"] = rates
    for what, rate in rates.items():
        print(f"{what}: {rate['median']:.1f} episodes/s ({rate['min']:.1f} to {rate['max']:.1f})")
    for what, step in results["seconds_a_step"].items():
        print(f"{what}: {step['median']:.3f} s a step ({step['min']:.3f} to {step['max']:.3f})")
    name = "sampling-quick" if options.quick else "sampling"
    write(name, {"episode": [WAYS, SHOTS, QUERIES, SIZE], **results}, before)


if __name__ == "__main__":
    main()
