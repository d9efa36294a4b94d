"""Photographs on the command line."""

import csv
import json

import numpy as np
from PIL import Image

from arml.cli import main


def test_evaluate_and_predict_read_pictures_alike(tmp_path, monkeypatch, capsys):
    """Also pictures that are not square, of which the network sees the middle."""
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for part, n in (("support", 2), ("labelled", 2)):
        for name, colour in (("warm", (200, 80, 40)), ("cold", (40, 80, 200))):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for i in range(n):
                noise = rng.integers(0, 90, (40, 90, 3))
                pixels = np.clip(np.asarray(colour) + noise - 45, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    kept, answers = tmp_path / "kept", tmp_path / "answers.csv"
    queries = str(tmp_path / "labelled")
    words = ["--support", str(tmp_path / "support"), "--query", queries, "--out", str(answers)]
    assert main(["adapt", *words, "--save", str(kept)]) == 0
    assert "learner: photos" in capsys.readouterr().err
    with answers.open(newline="") as file:
        sure = [float(row["probability"]) for row in csv.DictReader(file)]
    assert main(["evaluate", str(kept), "--query", queries, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n"] == len(sure) == 4
    assert found["accuracy"] == 1
    by_predict = tmp_path / "again.csv"
    assert main(["predict", str(kept), queries, "--out", str(by_predict)]) == 0
    assert by_predict.read_text() == answers.read_text()


def test_the_patch_that_matters_is_the_coloured_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for name, colour in (("red", (220, 30, 30)), ("blue", (30, 30, 220))):
        (tmp_path / "own" / name).mkdir(parents=True)
        for i in range(2):
            pixels = 128 + rng.integers(-20, 20, (64, 64, 3))
            pixels[34:46, 18:30] = colour
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "own" / name / f"{i}.png")
    own = str(tmp_path / "own")
    words = ["adapt", "photos", "--support", own, "--query", own + "/red", "--no-reliability"]
    assert main([*words, "--matter"]) == 0
    for answer in csv.DictReader(capsys.readouterr().out.splitlines()):
        assert answer["matters"].startswith("row 3 of 4, column 2 of 4 (")
