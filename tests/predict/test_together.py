"""Names of files that may be one thing."""

import re

import pytest

from arml.predict.kinds import together_by


@pytest.mark.parametrize(
    ("names", "stems"),
    [
        ([f"{k}/{k}{track}_{i:05}.png" for k in "ab" for track in "12" for i in range(3)], 4),
        ([f"a/dog{n}-{i}.jpg" for n in range(3) for i in range(2)], 3),
        (["a/IMG_0412.jpg", "a/IMG_0412 (1).jpg", "a/IMG_0413.jpg", "a/IMG_0413(2).jpg"], 2),
        ([f"a/IMG_{i:04}.jpg" for i in range(9)], 0),
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
