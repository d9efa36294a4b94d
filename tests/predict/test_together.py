"""Files that may show one thing, by their names, their times and their vectors."""

import re

import numpy as np
import pytest
from PIL import ExifTags, Image

import arml
from arml.predict.together import together_by, together_in_space

COPIES = (
    *(".png", "_small.jpg", "-thumb.jpg", " (1).jpg", "_aug3.jpg", "_aug_4.jpg", "_flip.png"),
    *("_rot90.png", "_flip_rot90.png", " copy.jpg", " - Copy (2).jpg", "_edited.jpg"),
)


@pytest.mark.parametrize(
    ("names", "stems"),
    [
        ([f"{k}/{k}{track}_{i:05}.png" for k in "ab" for track in "12" for i in range(3)], 4),
        ([f"a/dog{n}-{i}.jpg" for n in range(3) for i in range(2)], 3),
        (["a/IMG_0412.jpg", "a/IMG_0412 (1).jpg", "a/IMG_0413.jpg", "a/IMG_0413(2).jpg"], 2),
        ([f"a/IMG_{i // 3}_jpg.rf.{i:032x}.jpg" for i in range(9)], 3),  # of Roboflow
        ([f"a/{n}{end}" for n in (5, 6) for end in COPIES], 2),
        ([f"a/IMG_{i:04}.jpg" for i in range(9)], 0),
        ([f"a/cat_{i:02}.jpg" for i in range(9)], 0),
        ([f"a/thumb_{i:02}_small.jpg" for i in range(9)], 0),
        ([f"a/{k}_crop_{i}.jpg" for k in ("oak", "elm") for i in range(9)], 0),
        ([f"a/{97 * i:032x}.jpg" for i in range(9)], 0),
        ([f"a/IMG_{i}_jpg.rf.{i:032x}.jpg" for i in range(9)], 0),
        ([f"{k}/{k}_{i}.jpg" for k in ("oak", "elm") for i in range(9)], 0),
        ([f"a/n0144_{i}.jpg" for i in range(9)], 0),
        ([f"a/{i:04}_{10 * i}.jpg" for i in range(9)], 0),
    ],
)
def test_a_pattern_is_named_that_fits(names, stems):
    pattern = together_by(names, [name[0] for name in names])
    assert bool(pattern) == bool(stems)
    if stems:
        assert len({re.search(pattern, name)[1] for name in names}) == stems


@pytest.mark.parametrize(("sign", "warned"), [("time", True), ("look", True), ("none", False)])
def test_pictures_of_one_thing_are_warned_of(sign, warned, tmp_path, command, caplog):
    """Each class has two things with four pictures of each, whose names say nothing."""
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for thing in range(2):
            base = rng.integers(0, 255, (8, 8, 3))
            for number in range(4):
                pixels = base if sign == "look" else rng.integers(0, 255, (8, 8, 3))
                pixels = np.clip(pixels + rng.normal(0, 3, pixels.shape), 0, 255).astype(np.uint8)
                picture = Image.fromarray(pixels).resize((64, 64))
                exif = Image.Exif()
                if sign == "time":
                    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = (
                        f"2026:05:0{1 + thing} 10:00:00"
                    )
                picture.save(tmp_path / label / f"{'ab'[thing]}{'wxyz'[number]}.jpg", exif=exif)
    _, said = command(f"adapt photos --support {tmp_path} --query {tmp_path}")
    assert ("may belong together" in said) == warned
    assert ("rex-1.jpg and rex-2.jpg" in said) == warned
    caplog.clear()
    arml.adapt("photos", tmp_path)
    assert ("in Python: groups=" in caplog.text) == warned


def test_vectors_of_independent_examples_and_of_repeated_ones():
    rng, labels = np.random.default_rng(0), np.repeat(["a", "b"], 12)
    independent = rng.normal(size=(24, 40))
    things, noise = np.repeat(rng.normal(size=(8, 40)), 3, axis=0), rng.normal(size=(24, 40))
    assert not together_in_space(independent, labels.tolist())
    # Views that differ by two thirds as much as two things are known by the gap to the next thing.
    assert together_in_space(things + 0.2 * noise, labels.tolist())
    assert together_in_space(things + 0.7 * noise, labels.tolist())
    assert not together_in_space(things + 2.0 * noise, labels.tolist())
    # Copies are left out together, whatever they are told.
    assert not together_in_space(np.repeat(independent[::3], 3, axis=0), labels.tolist())
