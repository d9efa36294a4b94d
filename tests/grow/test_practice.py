"""`arml grow` on pictures of one's own, small."""

import hashlib
import json
import re
from pathlib import Path

import jax
import pytest

from arml.cli import main
from arml.experiment.folder import check_place
from arml.grow import practice, resuming, streaming
from arml.results.files import RunError
from arml.tasks.options import StarterOptions
from small_pictures import pictures

SMALL = """--ways 2 --shots 1 --queries 2 --size 16 --filters 2 --batch 1 --steps 2 --interval 1
--checkpoint-every 2 --validate-every 2 --validation-tasks 2"""


@pytest.fixture(autouse=True, scope="module")
def _optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with two families and a run on the first."""
    folder = tmp_path_factory.mktemp("grow")
    birds, cards = pictures(folder / "birds", 0), pictures(folder / "cards", 1)
    run = ["train", "folders/protonet", "--data", str(birds), "--run", str(folder / "run")]
    assert main([*run, *SMALL.split()]) == 0
    assert cards.is_dir()
    return folder


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def grow(place, learner, out, *more):
    given = ["--data", str(place / "cards"), "--out", str(out), "--tasks", "4"]
    return main(["grow", str(learner), *given, *(more or ("--steps", "2"))])


@pytest.mark.slow
def test_a_run_grows_and_stays_as_it_was(place, capsys):
    before, out = digests(place / "run"), place / "grown"
    assert grow(place, place / "run", out, "--json", "--minutes", "0.001") == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert list(found) == ["before", "after"]
    assert list(found["before"]) == list(found["after"]) == ["birds", "cards"]
    assert digests(place / "run") == before
    assert re.search(r"training: \d+ steps of 1 tasks, 50% of known families, about \d", said.err)
    assert re.search(r"\(\d+ s in all\)", said.err)
    records = [json.loads(line) for line in (out / "growth.jsonl").read_text().splitlines()]
    assert [record["decision"] for record in records] == ["trained"]
    kept = json.loads((out / "growth.json").read_text())
    assert kept["before"] == found["before"]
    if not kept["accepted"]:
        assert found["after"] == found["before"]
        assert "not accepted" in said.err
    # The new folder is a run on both families.
    assert main(["evaluate", str(out), "--tasks", "8", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["families"]) == ["birds", "cards"]
    page = place / "page.html"
    assert main(["report", str(out), "--out", str(page)]) == 0
    assert "Before and after" in page.read_text(encoding="utf-8")
    assert grow(place, place / "run", out) == 2
    assert "which holds a learner that has grown: name another" in capsys.readouterr().err


@pytest.mark.slow
def test_an_interrupted_run_goes_on_as_if_it_had_not(place, capsys, monkeypatch):
    whole, out, keep = place / "whole", place / "again", resuming.write_json
    assert grow(place, place / "run", whole) == 0

    def stopped(file, held):
        keep(file, held)
        raise RunError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(resuming, "write_json", stopped)
        assert grow(place, place / "run", out) == 2
    capsys.readouterr()
    assert grow(place, place / "run", place / "none", "--replay", "2") == 2
    assert "replay must be a share" in capsys.readouterr().err
    assert not (place / "none").exists()
    assert grow(place, place / "run", out, "--steps", "2", "--replay", "0.1") == 2
    assert "other options (replay 0.5 -> 0.1" in capsys.readouterr().err.replace("\n", " ")
    assert grow(place, place / "run", out) == 0
    assert "goes on where it was stopped" in capsys.readouterr().err
    for name in ("growth.jsonl", "growth.json", "metrics.jsonl"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert not (out / "growing").exists()


def test_a_family_of_ones_own_may_have_the_name_of_a_starter_family(tmp_path):
    pictures(tmp_path / "icons", 3)
    options = StarterOptions(data=(str(tmp_path / "icons"),), ways=2, queries=2)
    splits = options.build(tmp_path / "split.json")
    assert splits.train.families == ("glyphs", "icons", "textures", "icons (own)")
    assert list(json.loads((tmp_path / "split.json").read_text())["families"]) == ["icons (own)"]


def test_an_exported_learner_needs_the_data_that_it_knows(place, capsys):
    shared = place / "shared"
    assert main(["export", str(place / "run"), "--out", str(shared), "--tasks", "0"]) == 0
    capsys.readouterr()
    assert grow(place, shared, place / "nothing") == 2
    assert "give them with --known" in capsys.readouterr().err
    assert not (place / "nothing").exists()


def test_a_family_that_is_too_small_is_refused(place, capsys):
    assert grow(place, "starter", place / "small") == 2
    said = capsys.readouterr().err
    assert "expected at least 18 images of each class" in said
    assert "add some, because a learner keeps its ways, shots and queries when it grows" in said


def test_functions_take_no_data(place, capsys):
    assert grow(place, "regression2d", place / "functions") == 2
    assert "whose tasks take no data" in capsys.readouterr().err


@pytest.mark.parametrize("stages", [practice.KEPT, streaming.PLACE])
def test_a_folder_that_holds_stages_alone_can_go_on(tmp_path, stages):
    (tmp_path / stages).mkdir()
    check_place(tmp_path)
