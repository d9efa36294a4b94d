"""Alterations of files, and how what reads them may end."""

import copy

import pytest

VALUES = (
    None, True, 0, -1, 10**9, 10**30, 0.5, 1e308, -1e308, "", "x", "\x00", [], [0], [10**9], [[]],
    {}, {"kind": "x"},
)  # fmt: skip
"""What stands in the place of a value."""


def places(value, path=()):
    """The path of every value in JSON."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items if isinstance(value, dict | list) else ():
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))
        else:
            yield (*path, key)


def altered(content, rng):
    """JSON with one value that is another, or is gone."""
    content = copy.deepcopy(content)
    every = list(places(content))
    *parents, last = every[rng.integers(len(every))]
    owner = content
    for key in parents:
        owner = owner[key]
    if rng.random() < 0.15:
        del owner[last]
    else:
        owner[last] = VALUES[rng.integers(len(VALUES))]
    return content


def flipped(data, rng):
    """Bytes with one bit that is another."""
    changed = bytearray(data)
    changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def flips(files, cases, rng):
    """Flip one bit of one of the files, as often as there are cases; gives the file and its whole
    content, which is restored afterwards."""
    for _ in range(cases):
        path = files[rng.integers(len(files))]
        whole = path.read_bytes()
        path.write_bytes(flipped(whole, rng))
        yield path, whole
        path.write_bytes(whole)


def tried(action, counts):
    """Carry out; count how it ended. Whatever is no `ValueError` of one line fails the test."""
    try:
        value = action()
    except ValueError as error:
        said = str(error)
    else:
        counts["accepted"] += 1
        return value
    assert "\n" not in said
    assert 10 < len(said) < 1000
    counts["refused"] += 1
    return None


CASES = [pytest.param(1000, marks=pytest.mark.slow), 40]
