"""Command lines that mean nothing: each is refused in one line, or is answered; none starts to
train, and none ends in a traceback. `slow` has the thousand cases, the other a sample."""

import re
import shutil
from collections import Counter
from importlib import import_module
from pathlib import Path

import jax
import numpy as np
import pytest

import arml
from arml.cli import main

RUN = Path(__file__).parents[1] / "fixtures/run"
BASES = (
    ("train", "regression2d/maml", "--run", "new"),
    ("train", "regression2d/arml", "--run", "new"),
    ("train", "starter/arml-paper", "--run", "new"),
    ("train", "--data", "pictures", "--run", "new"),
    ("tune", "regression2d/hsml", "--run", "new"),
    ("evaluate", "run", "--json"),
    ("explain", "run", "--out", "figures"),
    ("report", "run", "--out", "page.html"),
    ("adapt", "regression2d", "--support", "table.csv", "--target", "y", "--query", "table.csv"),
    ("predict", "predictor", "table.csv"),
    ("export", "run", "shared"),
    ("app",),
    ("list",),
    ("features", "pictures", "--out", "features"),
    ("data", "list"),
    ("data", "prepare", "omniglot"),
)
"""Command lines that would be carried out as they are, each of which is then changed."""
WORDS = (
    "", " ", "-", "--", "---", "-x", "--no-such", "--run", "--run=", "--=", "=", "\x00", "é", "/",
    "..", "/dev/null", "no/such/folder", "x" * 5000, "[red]", "{}", "None", "true", "%s", "{0}",
    "\n", "a\nb", "--help=", "@file", "--plugin", "--plugin=/no/such.py", "--debug=1",
    "regression2d/no",
)  # fmt: skip
"""Words that stand in the place of another, or beside it."""
NO_NUMBERS = (
    "", "x", "1,5", "1e", "--3", "0x10", "nan", "1 2", "None", "1/2", "٣", "\x00", "1e999",
)  # fmt: skip
NO_WHOLE_NUMBERS = (*NO_NUMBERS, "1.5", "1e3", "-0.0", "inf")
NEVER = (*NO_NUMBERS, "-inf", "-1", "-1e30")
"""Values that no option with a number has."""


class Began(BaseException):
    """A command that would now train, download, or serve."""


BEGINNINGS = (
    "arml.cli.train.run",
    "arml.cli.train.train_seeds",
    "arml.cli.options.paced",
    "arml.cli.tune.tune",
    "arml.app.server.serve",
    "arml.datasets.prepare.download",
)
"""The functions that do the long work of a command, once everything is checked."""


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    """A predictor that is adapted to six points of a line."""
    folder = tmp_path_factory.mktemp("predictor") / "saved"
    x = np.arange(6.0)[:, None]
    arml.load("regression2d").adapt(np.hstack([x, x]), x[:, 0]).save(folder)
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, predictor):
    """A working folder with a run, a predictor, a table and pictures, in which nothing long can
    begin."""

    def began(*_, **__):
        raise Began

    for name in BEGINNINGS:
        module, _, function = name.rpartition(".")
        monkeypatch.setattr(import_module(module), function, began)
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "here"
    shutil.copytree(RUN, folder / "run")
    shutil.copytree(predictor, folder / "predictor")
    (folder / "table.csv").write_text("x1,x2,y\n" + "1,2,3\n2,3,4\n" * 3)
    (folder / "pictures").mkdir()
    monkeypatch.chdir(folder)
    with jax.numpy_dtype_promotion("standard"):
        yield folder


def options_of(base, capsys):
    """The options of a command and the kind of their values, from its own help."""
    asked = base[:2] if base[0] in ("train", "tune", "data") else base[:1]
    assert main([*asked, "--help"]) == 0
    said = capsys.readouterr().out
    return re.findall(r"^│ (--[a-z.-]+) ([A-Z]+|\[.*?\]|\{.*?\})", said, re.MULTILINE)


def hostile(base, options, rng):
    """A command line that was valid, and whether it now has a value that cannot be one."""
    words = list(base)
    numbers = [(name, kind) for name, kind in options if kind in ("INT", "FLOAT")]
    kind = rng.integers(6)
    if kind <= 2 and numbers:
        name, kind = numbers[rng.integers(len(numbers))]
        values = NO_WHOLE_NUMBERS if kind == "INT" else NO_NUMBERS
        value = str(rng.choice(values)) if rng.random() < 0.7 else str(rng.choice(NEVER))
        return [*words, *([name, value] if rng.random() < 0.8 else [f"{name}={value}"])], True
    at = int(rng.integers(1, len(words) + 1))
    word = WORDS[rng.integers(len(WORDS))]
    if kind == 3 and options:
        return [*words, options[rng.integers(len(options))][0], word], False
    if kind == 4 and at < len(words):
        words[at] = word
    elif kind == 5 and at < len(words):
        del words[at]
    else:
        words.insert(at, word)
    return words, False


def ended(words, capsys):
    """How a command line ended; the test fails where it ended otherwise than it should."""
    capsys.readouterr()
    try:
        status = main(words)
    except Began:
        return "would begin"
    said = capsys.readouterr()
    assert "Traceback" not in said.err + said.out
    assert "arml: error: unexpected" not in said.err, said.err
    if status == 0:
        return "answered"
    assert status == 2, said.err
    lines = [line for line in said.err.splitlines() if line.startswith("arml: error: ")]
    assert len(lines) == 1
    assert said.err.splitlines()[-1] == lines[0], "the error is not one line"
    assert 20 < len(lines[0]) < 9000
    return "refused"


@pytest.mark.parametrize("cases", [pytest.param(1000, marks=pytest.mark.slow), 60])
def test_command_lines(place, capsys, record_property, cases):
    rng, counts, known = np.random.default_rng(cases), Counter(), {}
    failed = []
    for _ in range(cases):
        base = BASES[rng.integers(len(BASES))]
        if base not in known:
            known[base] = options_of(base, capsys)
        words, never = hostile(base, known[base], rng)
        before = sorted(place.rglob("*"))
        try:
            how = ended(words, capsys)
            assert not never or how == "refused", f"a value that cannot be one: {how}"
            assert how != "refused" or sorted(place.rglob("*")) == before, "it left something"
        except (AssertionError, Exception) as error:
            failed.append(f"{words}: {type(error).__name__}: {str(error)[:300]}")
            how = "failed"
        counts[how] += 1
    record_property("counts", f"{cases} hostile command lines: {dict(counts)}")
    assert not failed, "\n".join(failed)
