"""The store: what makes it whole, what is refused; and that both routes give the same tasks."""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import archives
from archives import pack, picture, tar
from arml.cli import main
from arml.core.episodes import in_words
from arml.datasets import prepare as preparing
from arml.datasets.prepare import INDEX_FILE, Store, open_store, place, prepare, verify
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.experiment.running import Run, run
from arml.results.files import LOCK_ENDING, digest_of, locked
from arml.tasks.images import device_room
from arml.tasks.options import StoreOptions


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tar(tmp_path_factory.mktemp("dtd") / "dtd-r1.0.1.tar.gz", archives.dtd(images=4))


@pytest.fixture
def made(archive: Path) -> Store:
    return open_store(textures(archive))


def textures(archive: Path) -> Path:
    return prepare("texture", [archive], size=16, unverified=True)


# --- what makes a store whole


def test_the_index_says_what_there_is_and_where_it_is_from(made):
    assert [*made.index["families"]] == ["texture"]
    about = made.index["families"]["texture"]
    assert about["origin"] == "dtd"
    assert about["filter"] is None
    assert "sha256('0/<class>')" in about["split"]["method"]
    assert about["citation"].startswith("Cimpoi")
    arrays = {f"texture.{part}.npy" for part in ("train", "validation", "test")}
    assert {path.name for path in made.folder.iterdir()} == {INDEX_FILE, LOCK_ENDING, *arrays}
    for family in made.part("train"):
        assert isinstance(family.images, np.memmap)
        assert not family.images.flags.writeable
        assert family.images.shape == (120, 16, 16, 3)


def test_altered_arrays_are_refused(made):
    path = made.folder / "texture.train.npy"
    whole = path.read_bytes()
    for harmed in (whole[:-1], whole[:60] + b"x" + whole[61:], None):
        path.unlink() if harmed is None else path.write_bytes(harmed)
        with pytest.raises(ValueError, match=r"texture\.train\.npy: .*prepare the data set again"):
            open_store(made.folder)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"texture\.train\.npy: expected SHA-256"):
        verify(open_store(made.folder))


def test_a_damaged_index_is_refused(made):
    path = made.folder / INDEX_FILE
    whole = path.read_text()
    for content, said in (
        (whole[: len(whole) // 2], "cut short or damaged"),
        ("[]", "expected a JSON object"),
        (whole.replace('"train": {', '"train2": {'), "Invalid enum value 'train2'"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=said):
            open_store(made.folder)


# --- preparation that fails


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_preparation_that_is_interrupted_leaves_no_store(archive, monkeypatch, error):
    calls = iter(range(1000))

    def stopped(path: Path) -> str:
        if next(calls) == 1:
            raise error
        return digest_of(path)

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "digest_of", stopped)
        with pytest.raises((KeyboardInterrupt, ValueError), match=r"^$|device; free some space"):
            textures(archive)
    folder = place("texture")
    assert not [path for path in folder.parent.iterdir() if path.name != LOCK_ENDING]
    verify(open_store(textures(archive)))


def test_a_folder_with_other_files_is_not_replaced(archive, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(ValueError, match="expected a new or empty folder"):
        prepare("texture", [archive], size=16, unverified=True, folder=tmp_path / "mine")


def test_two_at_once_are_refused(archive):
    making = place("texture").with_name(".texture.part")
    # A thread stands for the other process: the one that holds the folder may hold it again.
    with ThreadPoolExecutor(1) as pool, locked(making):
        other = pool.submit(textures, archive)
        with pytest.raises(ValueError, match="another process is using it"):
            other.result()


def without_banded(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if "banded" not in name}


def with_bad(data: bytes) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda files: files | {"dtd/images/zigzagged/zigzagged_0002.jpg": data}


@pytest.mark.parametrize("make", [pack, tar])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda files: archives.aircraft(), "expected the files of dtd as they are published"),
        (without_banded, r"classes of the split dtd, 1 are not there \('banded', ...\)"),
        (with_bad(b"just words"), r"zigzagged_0002\.jpg: .* cannot be decoded"),
        (with_bad(picture(1)[:-10]), r"zigzagged_0002\.jpg: .* a JPEG that is cut short"),
        (lambda files: files | {"../evil.jpg": b""}, "leads outside"),
    ],
)
def test_archives_of_other_content_leave_nothing_behind(tmp_path, capsys, make, change, said):
    path = make(tmp_path / "dtd-r1.0.1.tar.gz", change(archives.dtd()))
    words = ["data", "prepare", "texture", "--size", "16", "--unverified", "--from", str(path)]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert re.match(f"arml: error: .*{said}.*\n$", err)
    assert [found for found in tmp_path.rglob("*") if found.is_file()] in (
        [path],
        [path, LOCK_ENDING],
    )
    assert not place("texture").exists()


def test_a_wrong_checksum(tmp_path, command):
    path = tar(tmp_path / "mine.tar.gz", archives.dtd())
    _, said = command("data prepare texture --from", path, code=2)
    assert "expected dtd-r1.0.1.tar.gz as published, with MD5 fff73e5086ae" in said
    assert not place("texture").exists()


# --- tasks


def options(**change: object) -> StoreOptions:
    usual = StoreOptions(store="texture", ways=3, shots=1, queries=2, size=16)
    return dataclasses.replace(usual, **change)


def test_a_key_gives_the_same_task_on_the_device_and_from_the_disk(made, tmp_path, monkeypatch):
    device = options().build(tmp_path / "split.json").train
    monkeypatch.setenv("ARML_DEVICE_GIB", "0")
    streamed = options().build(tmp_path / "split.json").train
    assert device.disk is None
    assert streamed.pixels is None
    assert device.problem == streamed.problem
    keys = jax.random.split(jax.random.key(0), 40)
    drawn = eqx.filter_jit(lambda tasks: jax.vmap(tasks.sample)(keys))
    tasks = [drawn(device), drawn(streamed)]
    for one, other in zip(*map(jax.tree.leaves, tasks), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(streamed.sample(keys[3]).query.x, tasks[0].query.x[3])


def small() -> Experiment:
    """A run of seconds."""
    usual = recipe("plain-multi/protonet")
    few = {"steps": 4, "interval": 1, "checkpoint_every": 2, "validate_every": 4, "batch": 2}
    network = dataclasses.replace(usual.network, filters=2)
    return dataclasses.replace(usual, network=network, tasks=options(), validation_tasks=2, **few)


def weights(folder: Path) -> list[np.ndarray]:
    return [np.asarray(a) for a in jax.tree.leaves(eqx.filter(Run(folder).learner, eqx.is_array))]


@pytest.mark.slow
@pytest.mark.usefixtures("optax_promotes")
def test_training_streams_resumes_bit_for_bit_and_refuses_another_store(
    made, tmp_path, monkeypatch
):
    monkeypatch.setenv("ARML_DEVICE_GIB", "0")
    run(small(), tmp_path / "streamed")
    reached: list[int] = []
    run(
        small(),
        tmp_path / "again",
        watch=lambda step, _: reached.append(step),
        stop=lambda: reached[-1] == 3,
    )
    assert reached[-1] == 3
    assert run(small(), tmp_path / "again").last == 4
    for one, other in zip(weights(tmp_path / "streamed"), weights(tmp_path / "again"), strict=True):
        np.testing.assert_array_equal(one, other)

    for path in made.folder.iterdir():
        path.unlink()
    textures(tar(tmp_path / "dtd-r1.0.1.tar.gz", archives.dtd(images=5)))
    with pytest.raises(ValueError, match="holds another run: data"):
        run(small(), tmp_path / "again")
    with pytest.raises(ValueError, match="the data has changed"):
        Run(tmp_path / "again").tasks()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"store": ""}, "give --store NAME"),
        ({"store": "nothing"}, "found nothing; run `arml data prepare`"),
        ({"size": 84}, "expected pictures of 84 px, got 16"),
        ({"ways": 1}, "ways must be at least 2, got 1"),
        ({"shots": 0}, "shots must be at least 1, got 0"),
        ({"train_ways": 2}, "train_ways must be 0 or at least the 3 ways, got 2"),
        ({"ways": 9}, "at least 9 validation classes for 9-way tasks, got 7"),
        ({"queries": 9}, "at least 10 examples of each class"),
        ({"only": ("textur",)}, "unknown family 'textur'; did you mean 'texture'"),
    ],
)
def test_options_that_cannot_be_are_refused(made, tmp_path, change, said):
    with pytest.raises(ValueError, match=said):
        options(**change).build(tmp_path / "split.json")


def test_one_family_for_training_and_all_for_the_test(made, tmp_path):
    index = json.loads((made.folder / INDEX_FILE).read_text())
    index["families"]["other"] = {**index["families"]["texture"], "copy": "84 px copy"}
    (made.folder / INDEX_FILE).write_text(json.dumps(index))
    for file in made.folder.glob("texture.*.npy"):
        shutil.copy(file, file.with_name(file.name.replace("texture", "other")))
    every, one = (options(only=only).build(tmp_path / "none") for only in ((), ("other",)))
    assert (one.train.families, one.test.families) == (("other",), ("texture", "other"))
    assert one.test.identity() == every.test.identity()
    assert one.validation.identity() != every.validation.identity()
    assert in_words(one.test.protocol()).endswith("16 px, 84 px copy of other")


def test_the_room_on_the_device(monkeypatch):
    monkeypatch.delenv("ARML_DEVICE_GIB", raising=False)
    assert device_room() >= 2**30
    monkeypatch.setenv("ARML_DEVICE_GIB", "0.5")
    assert device_room() == 2**29
    monkeypatch.setenv("ARML_DEVICE_GIB", "much")
    with pytest.raises(ValueError, match="ARML_DEVICE_GIB must be a number"):
        device_room()


# --- the command


def test_the_command_lists_the_data_sets(made, command):
    assert "prepare  Make a data set" in command("data")[0]
    said, _ = command("data list")
    assert re.search(r"texture +0\.12 GB +yes +fetched", said)
    assert re.search(r"plain-multi +0\.78 GB +no +your own", said)
    for words, near in (("prepar texture", "prepare"), ("prepare textures", "texture")):
        assert f"did you mean '{near}'?" in command("data", words, code=2)[1]
