"""Image episodes: what a task holds, and that every task is equally likely."""

import itertools
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arml.core.episodes import Problem, Task
from arml.datasets.folders import ImageFamily
from arml.experiment.contract import Blobs
from arml.tasks.images import (
    MIRROR_LOSS,
    SHOTS_STREAM,
    VARY_STREAM,
    Augmented,
    Disk,
    ImageEpisodes,
    MixedShots,
    distinct,
    mirror_loss,
    varied,
)
from arml.tasks.options import VectorsOptions
from arml.tasks.splits import EpisodeOptions
from arml.training.fit import DROP_STREAM

COUNTS = {"few": [4, 5, 6, 4, 9], "many": [5, 4, 12, 7, 4, 4, 30, 4, 6]}
"""Images of each class; the families and the classes differ in size."""


def family(name: str, counts: list[int]) -> ImageFamily:
    """The red of an image says its family, the green its class, the blue which image it is."""
    images = np.zeros((sum(counts), 4, 4, 3), np.uint8)
    at = 0
    for i, count in enumerate(counts):
        images[at : at + count, ..., 0] = list(COUNTS).index(name)
        images[at : at + count, ..., 1] = i
        images[at : at + count, ..., 2] = np.arange(count)[:, None, None]
        at += count
    classes = tuple(f"{i:02}" for i in range(len(counts)))
    split = {"train": [*classes[:-2]], "validation": [classes[-2]], "test": [classes[-1]]}
    return ImageFamily(name, classes, images, np.array(counts), "digest", split)


FAMILIES = [family(name, counts) for name, counts in COUNTS.items()]


def episodes(ways: int = 3, shots: int = 1, queries: int = 2) -> ImageEpisodes:
    options = EpisodeOptions(ways=ways, shots=shots, queries=queries)
    return options.episodes(FAMILIES, "train", stated="")


@eqx.filter_jit
def batched(tasks: ImageEpisodes, keys: jax.Array) -> Task:
    return jax.vmap(tasks.sample)(keys)


def draw(tasks: ImageEpisodes, keys: jax.Array) -> Task:
    return jax.tree.map(np.asarray, batched(tasks, keys))


def marks(x: jax.Array) -> np.ndarray:
    """Family, class and image of each drawn picture."""
    return np.rint(np.asarray(x)[..., 0, 0, :] * 255).astype(int)


@pytest.mark.parametrize(("ways", "shots", "queries"), [(2, 1, 3), (3, 2, 2)])
def test_a_task_holds_distinct_classes_and_distinct_images(ways, shots, queries):
    tasks = episodes(ways, shots, queries)
    batch = draw(tasks, jax.random.split(jax.random.key(0), 300))
    assert batch.support.x.shape == (300, ways * shots, 4, 4, 3)
    assert batch.query.x.shape == (300, ways * queries, 4, 4, 3)
    assert batch.support.x.dtype == batch.query.x.dtype == jnp.float32
    assert batch.support.y.dtype == batch.query.y.dtype == jnp.int32
    assert 0 <= batch.support.x.min() <= batch.support.x.max() <= 1
    support, query = marks(batch.support.x), marks(batch.query.x)
    for task in range(300):
        assert batch.support.y[task].tolist() == np.repeat(range(ways), shots).tolist()
        assert batch.query.y[task].tolist() == np.repeat(range(ways), queries).tolist()
        together = np.concatenate([support[task], query[task]])
        labels = np.concatenate([batch.support.y[task], batch.query.y[task]])
        assert len({tuple(row) for row in together}) == ways * (shots + queries)
        assert {row[0] for row in together} == {int(batch.family[task])}
        pairs = {(row[1], label) for row, label in zip(together, labels, strict=True)}
        assert len(pairs) == len({c for c, _ in pairs}) == len({y for _, y in pairs}) == ways
        trained = FAMILIES[int(batch.family[task])].split["train"]
        assert {f"{c:02}" for c, _ in pairs} <= {*trained}


def chi_square(counts: Counter, cells: int) -> float:
    """The statistic in standard deviations from its mean under uniformity."""
    expected = sum(counts.values()) / cells
    observed = np.array(list(counts.values()) + [0] * (cells - len(counts)))
    return (np.sum((observed - expected) ** 2 / expected) - (cells - 1)) / np.sqrt(2 * (cells - 1))


def test_every_ordered_choice_is_equally_likely():
    keys = jax.random.split(jax.random.key(1), 20_000)
    drawn = jax.jit(jax.vmap(lambda key: distinct(5, 3, key=key)))(keys)
    counts = Counter(map(tuple, np.asarray(drawn).tolist()))
    assert set(counts) == set(itertools.permutations(range(5), 3))
    assert abs(chi_square(counts, 60)) < 4


def test_families_classes_and_images_are_uniform():
    batch = draw(episodes(), jax.random.split(jax.random.key(2), 20_000))
    assert abs(chi_square(Counter(batch.family.tolist()), 2)) < 4
    rows = np.concatenate([marks(batch.support.x), marks(batch.query.x)], axis=1)
    for number, (name, sizes) in enumerate(COUNTS.items()):
        of_family = rows[np.asarray(batch.family) == number]
        trained = sizes[:-2]
        for label in range(3):  # each place in a task has each class equally often
            classes = Counter(of_family[:, label, 1].tolist())
            assert set(classes) == set(range(len(trained))), name
            assert abs(chi_square(classes, len(trained))) < 4
        for c, size in enumerate(trained):  # in support and in query, each image equally often
            for place in (0, 3, 4):
                drawn = of_family[of_family[:, place, 1] == c][:, place, 2]
                assert abs(chi_square(Counter(drawn.tolist()), size)) < 4


twelve = jax.jit(lambda count, key: distinct(count, 12, key=key))


@given(count=st.integers(12, 40) | st.integers(12, 2**31 - 1), seed=st.integers(0, 2**31 - 1))
@settings(max_examples=100, deadline=None)
def test_distinct_integers_in_range(count, seed):
    drawn = np.asarray(twelve(count, jax.random.key(seed)))
    assert len(set(drawn.tolist())) == 12
    assert drawn.min() >= 0
    assert drawn.max() < count


def test_pixels_of_several_arrays_are_one_list():
    arrays = [
        np.full((n, 2, 2, 3), np.arange(n)[:, None, None, None] + 10 * n, np.uint8)
        for n in (3, 1, 4)
    ]
    index = np.array([[7, 0], [3, 2], [4, 4]])
    found = Disk(arrays).gather(index)[..., 0, 0, 0]
    np.testing.assert_array_equal(found, [[43, 30], [10, 32], [40, 40]])


def test_mixed_shots_repeat_some_examples_and_change_nothing_else():
    tasks = episodes(shots=2, queries=1)
    mixed, seen = MixedShots(tasks.families, tasks.problem, tasks), set()
    draw = eqx.filter_jit(lambda t, key: t.sample(key))
    for key in jax.random.split(jax.random.key(5), 20):
        plain, task = draw(tasks, key), draw(mixed, key)
        np.testing.assert_array_equal(plain.query.x, task.query.x)
        np.testing.assert_array_equal(plain.support.y, task.support.y)
        whole, part = (np.asarray(t.support.x).reshape(3, 2, -1) for t in (plain, task))
        k = len(np.unique(part[0], axis=0))
        np.testing.assert_allclose(part.mean(axis=1), whole[:, :k].mean(axis=1), rtol=1e-4)
        seen.add(k)
    assert seen == {1, 2}


def test_augmented_pictures_are_shifted_and_mirrored_where_a_mirror_keeps_the_classes():
    """A gradient from left to right shows its shift and its direction; labels stay."""
    row = np.linspace(0, 1, 20, dtype=np.float32)
    picture = jnp.asarray(np.broadcast_to(row[:, None], (20, 20, 3)))
    x = jnp.stack([picture] * 200)
    for mirror in (False, True):
        made = np.asarray(varied(x, jnp.asarray(mirror), key=jax.random.key(3)))
        assert made.min() >= 0
        assert made.max() <= 1
        rises = made[:, 10, 12].mean(axis=1) > made[:, 10, 8].mean(axis=1)
        assert (0.3 < np.mean(~rises) < 0.7) == mirror
        if not mirror:  # a row of the picture itself, from up to two pixels away
            shifts = {round(19 * each[10, 10, 0]) - 10 for each in made}
            assert shifts == {-2, -1, 0, 1, 2}
    tasks = episodes(shots=2, queries=1)
    other = Augmented(tasks.families, tasks.problem, tasks, jnp.zeros(len(COUNTS), bool))
    plain, task = (t.sample(jax.random.key(5)) for t in (tasks, other))
    np.testing.assert_array_equal(plain.classes, task.classes)
    np.testing.assert_array_equal(plain.query.y, task.query.y)


def test_features_cannot_be_augmented():
    with pytest.raises(ValueError, match=r"augment varies pictures.* leave --augment out"):
        VectorsOptions(data=("features",), augment=True).check()
    tasks = Blobs(Problem("classification", (3,), 2, 1, 1))
    with pytest.raises(ValueError, match=r"has the shape \(3,\): leave --augment out"):
        VectorsOptions(augment=True).varied(tasks, list)


def test_a_stream_of_a_key_is_no_key_that_a_split_gives():
    """`fold_in(key, i)` equals `split(key, n)[i]`, so small numbers would give a key twice."""
    key, streams = jax.random.key(0), (SHOTS_STREAM, VARY_STREAM, DROP_STREAM)
    split = jax.random.key_data(jax.random.split(key, 10_000))
    folded = jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(key, i)))
    np.testing.assert_array_equal(split, folded(jnp.arange(10_000)))
    assert len(set(streams)) == 3
    assert min(streams) > 2**30


def test_a_mirror_keeps_the_classes_of_symmetric_pictures_alone():
    rng = np.random.default_rng(0)
    one = rng.integers(0, 256, (30, 1, 16, 16, 3))
    noise = rng.integers(-60, 61, (30, 12, 16, 16, 3))
    for symmetric in (False, True):
        base = (one + one[:, :, :, ::-1]) / 2 if symmetric else one
        images = np.clip(base + noise, 0, 255).astype(np.uint8).reshape(-1, 16, 16, 3)
        names = tuple(map(str, range(30)))
        family = ImageFamily("some", names, images, np.full(30, 12), "digest")
        assert (mirror_loss(family, names) < MIRROR_LOSS) == symmetric
