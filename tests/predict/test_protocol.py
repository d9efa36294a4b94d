"""Every predictor keeps one contract, whatever its inputs are: those of the package's kinds, and of
a kind that a plug-in brings."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

import arml
from arml.cli.adapt import AdaptOptions, adapt_options
from arml.core.inputs import INPUTS
from arml.plugins.loading import load_plugin
from arml.predict.base import CAPABILITIES
from arml.predict.contract import check_predictor
from arml.predict.kinds import named_kind
from tests.untrained import untrained

OWN = Path(__file__).parents[2] / "docs" / "own_inputs.py"
LABELS = ["low", "high"] * 6


def numbers(columns):
    draw = np.random.default_rng(0).normal(size=(12, columns))
    return draw + np.array([[0.0], [3.0]] * 6)


def cells():
    x = numbers(2)
    return {"a": x[:, 0].tolist(), "b": x[:, 1].tolist(), "kind": ["x", "y", "y", "x"] * 3}


CASES = {
    "photographs": lambda: ("photos", *named_kind("photographs").examples()),
    "pictures": lambda: (
        "starter",
        np.stack([np.full((32, 32, 3), 20 * i, np.uint8) for i in range(12)]),
        LABELS,
    ),
    "vectors": lambda: (untrained("protonet", 4), numbers(4), LABELS),
    "functions": lambda: ("regression2d", (numbers(2) + 3) / 3, numbers(1)[:, 0].tolist()),
    "tables": lambda: ("tables", cells(), LABELS),
    "numbers of tables": lambda: ("tables-regression", cells(), numbers(1)[:, 0].tolist()),
    "texts": lambda: ("texts", *named_kind("texts").examples()),
    "sounds": lambda: ("sounds", *named_kind("sounds").examples()),
}


@pytest.mark.parametrize("kind", CASES)
def test_every_predictor_keeps_the_contract(kind, alone):
    load_plugin(OWN)
    learner, x, y = CASES[kind]()
    findings = list(check_predictor(kind, arml.load(learner), x, y))
    assert len(findings) == 5
    assert [one for one in findings if not one.passed] == []


def test_the_kinds_say_what_their_predictors_can_and_bring_options(alone):
    load_plugin(OWN)
    options, usual = adapt_options(), {one.name for one in fields(AdaptOptions)}
    assert {one.name for one in fields(options)} - usual == {"text"}
    assert "sounds: Short sounds: WAV files" in options.__doc__
    for kind in INPUTS.values():
        assert kind.can <= CAPABILITIES.keys()
    assert {kind.name for kind in INPUTS.values() if "add" in kind.can} == {*INPUTS}


def test_sounds_of_a_plug_in_go_everywhere(tmp_path, monkeypatch, alone, command):
    load_plugin(OWN)
    waves, labels = named_kind("sounds").examples()
    for i, (wave, label) in enumerate(zip(waves, labels, strict=True)):
        file = tmp_path / ("claps" if i < 8 else "new") / label / f"{i}.wav"
        file.parent.mkdir(parents=True, exist_ok=True)
        wavfile.write(file, 16_000, (8_000 * wave).astype(np.int16))
    (tmp_path / "new" / "bad.wav").write_text("no sound")
    byte = tmp_path / "new" / "low" / "8.wav"  # a file of 8 bits has no sign
    wavfile.write(byte, 16_000, (128 + 31 * waves[8]).astype(np.uint8))
    alone()
    monkeypatch.chdir(tmp_path)
    own, page = ("--plugin", OWN), tmp_path / "page.html"
    answers, said = command(
        "adapt sounds --support claps --query new --save kept --report", page, *own
    )
    assert [line.split(",")[1] for line in answers.splitlines()[1:]] == ["", "high", "low"]
    assert "1 of 3 sounds cannot be read" in said
    assert "accuracy 100%" in said
    assert "Answers about sounds" in page.read_text()
    assert command("predict kept new", *own)[0] == answers
    assert "100%" in command("evaluate kept --query claps", *own)[0]
    (tmp_path / "new" / "cut.wav").write_bytes(byte.read_bytes()[:30])
    said = command("predict kept new", *own)[1]
    assert "2 of 4 sounds cannot be read" in said
    alone()
    with pytest.raises(ValueError, match=r"its inputs are sounds of own_inputs\.py: give --plugin"):
        arml.load_predictor("kept")
    load_plugin(OWN)
    files = sorted(map(str, tmp_path.glob("claps/*/*.wav")))
    model = arml.FewShotClassifier("sounds").fit(files, [Path(f).parent.name for f in files])
    assert model.predict(["new/low/8.wav"]) == ["low"]
    assert arml.load_predictor("kept").add(waves[:2], ["hum", "hum"]).classes.tolist() == [
        *("high", "hum", "low")
    ]
    assert arml.adapt("sounds", "claps").classes.tolist() == ["high", "low"]


class Whole(arml.Inputs):
    """A kind without a fault."""

    one, many, suffixes, dimension = "thing", "things", (".thing",), 2

    def vector(self, content, where):
        return np.array([len(content), np.nan if b"?" in content else 0.0])


def short(self, content):
    return np.zeros(2)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"vector": arml.Inputs.vector}, r"Kind: define vector\(self, content, where\)"),
        ({"vector": short}, r"Kind: expected vector\(self, content, where\)"),
        ({"dimension": 0}, "Kind: give the length of a vector as dimension, got 0"),
        ({"suffixes": ".thing"}, r"Kind: expected suffixes as .*, got '\.thing'"),
        ({"suffixes": ("thing",)}, r"Kind: expected suffixes as .*, got \('thing',\)"),
        ({"suffixes": (".nii.gz",)}, r"with one point each, got \('\.nii\.gz',\)"),
        ({"suffixes": [".thing"]}, r"Kind: expected suffixes as a tuple"),
        ({"dimension": "2"}, "Kind: give the length of a vector as dimension, got '2'"),
        ({"dimension": 3}, r"expected 3 finite numbers from Kind\.vector, got shape \[2\]"),
        ({}, r"expected 2 finite numbers from Kind\.vector, got NaN or infinity"),
    ],
)
def test_a_part_that_a_kind_lacks_is_named(fault, said, alone):
    arml.register("inputs", "things", type("Kind", (Whole,), fault))
    with pytest.raises(ValueError, match=said):
        arml.adapt("things", [b"a?", b"bb?"], ["x", "y"])
