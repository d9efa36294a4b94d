"""Signs that several examples show one thing: their names, when they were taken, their vectors.

These examples must be left out together, or the check is too optimistic. A sign counts if it joins
at least half of the examples to another one of their class, and if a class has several such things.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np
from jaxtyping import Float

from arml.predict.folds import MAX_COMPARED_IN_PAIRS

_CHANGED = (
    r"(?:[-_. ]+(?:aug|bright|[ck]op(?:y|i[ae])|crop|edit|flip|mirror|rot|small|thumb)"
    r"[a-z]*[-_]?\d*| ?\(\d+\))*"
)
"""What programs and people append to the name of a changed copy, as in 5_flip_rot90.png and
5 - Copy (2).jpg."""
_NUMBERED_NAMES = (
    r"([^/]+)\.rf\.\w+\.\w+$",  # Roboflow appends a hash
    rf"(?i)([^/\d]*\d[^/]*?){_CHANGED}\.\w+$",
    r"([^/]*?\d[^/]*?)[-_ ]\d+\.\w+$",
)
"""Names of files of one thing: IMG_7_jpg.rf.0c3f.jpg, 5_small.jpg and IMG_0412 (2).jpg, and those
with a running number, such as 00012_00003.png and dog3-1.jpg. A stem without digits is usually the
name of a class or of a camera."""
_NAMED_THINGS = (
    *_NUMBERED_NAMES,
    rf"(?i)([^/]+?){_CHANGED}\.\w+$",
    r"([^/]*?)[-_ ]\(?\d+\)?\.\w+$",
)
"""Also stems without digits, as in rex-1.jpg, for use if another sign supports them."""
MAX_DISTANCE_WITHIN_THING = 0.5
"""Two examples may show one thing if their distance is below this share of the median distance
within their class; `benchmarks/groups.py` measures it."""
MAX_DISTANCE_BEFORE_GAP, MIN_GAP = 0.65, 1.3
"""This larger share suffices if the distance grows by this factor from one neighbour to the next,
as it does for copies that were cropped, turned and mirrored."""


def joins(things: Sequence[Hashable], labels: Iterable[object]) -> bool:
    """Whether half of the examples share their thing with another one of their class, and one class
    has several such things: a class of one thing is the class itself."""
    counts = Counter(zip(labels, things, strict=True))
    several = {key: n for key, n in counts.items() if n > 1}
    most = max(Counter(label for label, _ in several).values(), default=0)
    return most > 1 and 2 * sum(several.values()) >= len(things)


def together_by(
    names: Sequence[str], labels: Sequence[object], patterns: Sequence[str] = _NUMBERED_NAMES
) -> str:
    """The first pattern whose group names things that several files show; otherwise empty."""
    for pattern in patterns:
        matches = [re.search(pattern, name) for name in names]
        stems = [found[1] if found else name for found, name in zip(matches, names, strict=True)]
        if joins(stems, labels):
            return pattern
    return ""


def together_in_time(seconds: Sequence[str], labels: Sequence[object]) -> bool:
    """Whether examples were taken in the same seconds. An unknown second is an empty text."""
    return joins([second or i for i, second in enumerate(seconds)], labels)


def near_in_class(
    vectors: Float[np.ndarray, "n d"],
    labels: Sequence[object],
    distances: Callable[[Float[np.ndarray, "m d"]], Float[np.ndarray, "m m"]],
) -> list[Float[np.ndarray, "m near"]]:
    """For each class, the distances of its vectors to the nearest others of this class, as shares
    of the median distance there. Copies count once. A class with fewer than four vectors is left
    out. Empty if this leaves less than half of the vectors."""
    found = []
    for label in dict.fromkeys(labels):
        own = np.unique(vectors[[one == label for one in labels]], axis=0)[:MAX_COMPARED_IN_PAIRS]
        away = distances(own)
        if len(own) > 3 and (usual := np.median(away[np.triu_indices(len(own), 1)])) > 0:
            np.fill_diagonal(away, np.inf)
            found.append(np.sort(away, axis=1)[:, : max(3, len(own) // 2 + 1)] / usual)
    return found if 2 * sum(map(len, found)) >= len(labels) else []


def together_in_space(vectors: Float[np.ndarray, "n d"], labels: Sequence[object]) -> bool:
    """Whether half of the vectors are much nearer to another one of their class than usual in this
    class, or nearer and a gap follows: see `near_in_class`."""
    from scipy.spatial.distance import pdist, squareform

    if not (found := near_in_class(vectors, labels, lambda own: squareform(pdist(own)))):
        return False
    nearest = np.median(np.concatenate([near[:, 0] for near in found]))
    gaps = [np.max(near[:, 1:] / near[:, :-1], axis=1) for near in found]
    gap = np.median(np.concatenate(gaps)) > MIN_GAP
    return bool(nearest < (MAX_DISTANCE_BEFORE_GAP if gap else MAX_DISTANCE_WITHIN_THING))


def warning(names: Sequence[str], labels: Sequence[object], many: str, sign: str = "") -> str:
    """A warning about files that their names, or another `sign`, join; otherwise empty."""
    pattern = together_by(names, labels, _NAMED_THINGS if sign else _NUMBERED_NAMES)
    if not pattern and not sign:
        return ""
    remedy = f"--group '{pattern}'"
    if not pattern:
        remedy = (
            "if so, begin the names of those that show one thing alike, such as rex-1.jpg and "
            r"rex-2.jpg, and give --group '([^/]+)-\d+\.'"
        )
    return told(many, sign or "as their names do", remedy)


def told(many: str, sign: str, remedy: str) -> str:
    """A warning about examples that a `sign` joins."""
    return (
        f"some {many} may belong together, {sign}, and the check would be too optimistic: {remedy}"
    )
