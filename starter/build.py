"""Build the starter set: small pictures of three kinds, from free sources, for the wheel.

    python starter/build.py fetch           # the source packages, 330 MB, into build/starter
    python starter/build.py build           # src/arml/data/starter, from them
    python starter/build.py check           # the same elsewhere, and whether it is what is there
    python starter/build.py measure         # nearest class mean on raw pixels, of what is there
    python starter/build.py draw            # the documentation's picture of what is there

`README.md` beside this file says what it needs. The output is a function of the sources, of the
files here and of the tools' versions in `requirements.txt`.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import glyphs
import icons
import licences
import textures
from arml.datasets.splits import split_classes
from arml.datasets.starter import load_starter
from arml.results.files import checksum, write_bytes
from sheet import contact_sheet
from vary import SIDE

HERE = Path(__file__).parent
OUT = HERE.parent / "src" / "arml" / "data" / "starter"
SOURCES = HERE.parent / "build" / "starter"
IMAGES = HERE.parent / "docs" / "images"
APACHE = Path("/usr/share/common-licenses/Apache-2.0")
VERSION = "1"
"""To be raised with every change of a picture, a class or the split."""
SPLIT_SEED = 0
EPISODES = 4_000
WITHIN = (0.25, 0.50)
"""What nearest class mean on raw pixels may score: the set is neither hopeless nor trivial."""
ABOUT = {
    "glyphs": "a class is a character, a sample a font family's drawing of it",
    "icons": "a class is a concept, a sample an author's drawing of it",
    "textures": "a class is a texture, a sample a window of it",
}

Samples = dict[str, list[tuple[str, np.ndarray]]]


def wanted() -> dict[str, Any]:
    """The source packages, their versions and SHA-256."""
    value: dict[str, Any] = json.loads((HERE / "sources.json").read_text("utf-8"))
    return value


def fetch(folder: Path) -> None:
    """Download what is not there yet with `apt-get` and `npm`."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, command in (("debian", ["apt-get", "download"]), ("npm", ["npm", "pack"])):
        for name, about in wanted()[kind].items():
            if archive(folder, name, about) is None:
                said = f"{name}{'=' if kind == 'debian' else '@'}{about['version']}"
                print("fetching", said, flush=True)
                subprocess.run([*command, said], cwd=folder, check=True, capture_output=True)
                if archive(folder, name, about) is None:
                    raise ValueError(
                        f"{said}: expected a file with SHA-256 {about['sha256'][:12]}..., got none "
                        f"in {folder}; fetch that version, or write the new one in sources.json"
                    )


def archive(folder: Path, name: str, about: dict[str, str]) -> Path | None:
    """The downloaded file of a package, if it is the one that is wanted."""
    stem = name.strip("@").replace("/", "-")
    for path in sorted(folder.glob(f"{stem}[_-]*")):
        if path.is_file():
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == about["sha256"]:
                    return path
    return None


def unpacked(folder: Path) -> dict[str, Path]:
    """Each package as a folder, unpacked once."""
    made = {}
    sources = wanted()
    for name, about in (sources["debian"] | sources["npm"]).items():
        found = archive(folder, name, about)
        if found is None:
            raise ValueError(f"{name} is not in {folder}: run `python starter/build.py fetch`")
        made[name] = folder / "unpacked" / about["sha256"][:16]
        if made[name].exists():
            continue
        made[name].parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=made[name].parent) as temporary:
            if found.suffix == ".deb":
                subprocess.run(["dpkg-deb", "-x", str(found), temporary], check=True)
            else:
                with tarfile.open(found) as tar:
                    tar.extractall(temporary, filter="data")
            Path(temporary).rename(made[name])
    return made


def built(sources: Path) -> dict[str, bytes]:
    """The files of the set, made in a folder of their own: a set that is refused replaces none."""
    with tempfile.TemporaryDirectory() as temporary:
        build(sources, Path(temporary))
        return {path.name: path.read_bytes() for path in sorted(Path(temporary).iterdir())}


def build(sources: Path, out: Path) -> None:
    """Write the sheets, the index and the licences."""
    packages = unpacked(sources)
    npm = packages["@iconify/json"] / "package"
    families: dict[str, Samples] = {}
    for name, make in (
        (glyphs.FAMILY, lambda: glyphs.samples(packages)),
        (icons.FAMILY, lambda: icons.samples(npm)),
        (textures.FAMILY, lambda: textures.samples(packages)),
    ):
        print("drawing", name, flush=True)
        families[name] = dict(sorted(make().items()))
    index = {
        "format": 1,
        "version": VERSION,
        "size": SIDE,
        "families": {name: sheet(out, name, found) for name, found in families.items()},
        "packages": {
            name: about["version"]
            for kind in ("debian", "npm")
            for name, about in wanted()[kind].items()
        },
    }
    write_index(out, index)
    scores = measure(out)
    for name, score in scores.items():
        index["families"][name]["nearest_mean"] = score
    write_index(out, index)
    text = licences.text(families, packages, wanted(), icons.sets(npm))
    (out / "LICENCES.md").write_text(text, "utf-8")
    (out / f"{APACHE.name}.txt").write_bytes(APACHE.read_bytes())


def sheet(out: Path, name: str, found: Samples) -> dict[str, Any]:
    """Write a family's sheet, a row a class and a column a sample; returns its index."""
    (each,) = {len(samples) for samples in found.values()}
    rows = [np.hstack([pixels for _, pixels in samples]) for samples in found.values()]
    options = [cv2.IMWRITE_PNG_COMPRESSION, 9]
    data = cv2.imencode(".png", np.vstack(rows), options)[1].tobytes()
    (out / f"{name}.png").write_bytes(data)
    return {
        "about": ABOUT[name],
        "file": f"{name}.png",
        "sha256": hashlib.sha256(data).hexdigest(),
        "each": each,
        "split": split_classes(found, seed=SPLIT_SEED),
        "samples": {label: [source for source, _ in samples] for label, samples in found.items()},
    }


def write_index(out: Path, index: dict[str, Any]) -> None:
    text = json.dumps({**index, "sha256": checksum(index)}, ensure_ascii=False, indent=0)
    (out / "index.json").write_text(text + "\n", "utf-8")


def measure(folder: Path) -> dict[str, dict[str, Any]]:
    """Nearest class mean on raw pixels, 5-way 1-shot, of every family, plain and filtered.

    Raises `ValueError` if one is not `WITHIN`.
    """
    families, split = load_starter(art=True, folder=folder)
    scores: dict[str, dict[str, Any]] = {}
    for family in families:
        grey = family.images[..., 0].reshape(len(family.classes), -1, SIDE * SIDE)
        # Whole numbers, so that every machine counts the same.
        pixels = grey.astype(np.float64)
        test = [family.classes.index(name) for name in split[family.name]["test"]]
        score = {"test": nearest_mean(pixels[test]), "all": nearest_mean(pixels)}
        print(f"{family.name:16} test {score['test']:.2%}  all {score['all']:.2%}", flush=True)
        plain, _, kind = family.name.partition("-")
        if kind:
            scores[plain][kind] = score
        else:
            scores[plain] = {"episodes": EPISODES, "ways": 5, "shots": 1, "queries": 15, **score}
        if not all(WITHIN[0] <= value <= WITHIN[1] for value in score.values()):
            raise ValueError(f"{family.name}: expected {WITHIN}, got {score}; vary it otherwise")
    return scores


def nearest_mean(
    pixels: np.ndarray, *, ways: int = 5, shots: int = 1, queries: int = 15, seed: int = 0
) -> float:
    """Mean accuracy over `EPISODES` episodes, each from `ways` of the classes of
    `pixels [classes, each, features]`; the nearest mean by Euclidean distance."""
    rng = np.random.default_rng(seed)
    right = 0
    for _ in range(EPISODES):
        chosen = rng.choice(len(pixels), ways, replace=False)
        places = np.stack([rng.permutation(pixels.shape[1])[: shots + queries] for _ in chosen])
        drawn = pixels[chosen[:, None], places]
        means = drawn[:, :shots].mean(1)
        query = drawn[:, shots:].reshape(ways * queries, -1)
        nearest = ((means**2).sum(1) - 2 * query @ means.T).argmin(1)
        right += int((nearest == np.repeat(np.arange(ways), queries)).sum())
    return round(right / (EPISODES * ways * queries), 4)


def check(sources: Path, out: Path) -> int:
    """Build elsewhere; say which files differ from those that are there."""
    made = built(sources)
    there = {path.name: path.read_bytes() for path in out.iterdir()}
    differ = sorted(
        name for name in made.keys() | there.keys() if made.get(name) != there.get(name)
    )
    print("differs: " + ", ".join(differ) if differ else f"{len(made)} files are as built")
    return 1 if differ else 0


def draw() -> None:
    """A contact sheet: twelve classes of each family, three samples of each."""
    rows: list[tuple[str, np.ndarray]] = []
    for family in load_starter()[0]:
        places = family.first[np.linspace(0, len(family.classes) - 1, 12).astype(int)]
        rows += [(family.name if row == 0 else "", family.images[places + row]) for row in range(3)]
    grey = contact_sheet(rows)[..., 0]
    cv2.imwrite(str(IMAGES / "starter.png"), grey, [cv2.IMWRITE_PNG_COMPRESSION, 9])


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the starter set.")
    parser.add_argument("command", choices=("fetch", "build", "check", "measure", "draw"))
    parser.add_argument("--sources", type=Path, default=SOURCES, help="folder of the downloads")
    given = parser.parse_args()
    if given.command == "fetch":
        fetch(given.sources)
    elif given.command == "build":
        for name, content in built(given.sources).items():
            write_bytes(OUT / name, content)
    elif given.command == "measure":
        measure(OUT)
    elif given.command == "draw":
        draw()
    else:
        return check(given.sources, OUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
