"""Batches of pictures and rows: the same answers as one by one, in Ray, Dask and frames."""

import json
import pickle
import re
import textwrap
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as parquet
import pytest

import arml
from arml.datasets.decode import SUFFIXES
from arml.experiment.workers import cluster
from arml.predict import batches
from arml.predict.batches import BatchPredictor, PartWriter, parts_of

DOCS = Path(__file__).parents[2] / "docs" / "scaling.md"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A predictor of photographs, a folder of pictures, one of which is broken, and its answers."""
    place, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    pictures = rng.integers(0, 256, (9, 40, 48, 3), np.uint8)
    pictures[::2] //= 4
    predictor = arml.load("photos").adapt(list(pictures), ["dark", "light"] * 4 + ["dark"])
    predictor.save(place / "saved")
    (place / "many" / "deep").mkdir(parents=True)
    files = [place / "many" / "deep" / f"{i}.png" for i in range(9)]
    for file, picture in zip(files, pictures, strict=True):
        assert cv2.imwrite(str(file), picture[..., ::-1])
    files[4].write_bytes(b"no picture")
    good = [file for file in files if file != files[4]]
    return place / "saved", files, predictor.predict_proba(good).max(axis=1)


@pytest.fixture(scope="module")
def ray():
    """A cluster on this machine."""
    ray = pytest.importorskip("ray")
    yield "ray"
    ray.shutdown()


def right(answers, chances):
    """The answers to nine pictures."""
    errors = [*answers["error"]]
    assert [bool(error) for error in errors] == [i == 4 for i in range(9)]
    labels = ["dark", "light"] * 4 + ["dark"]
    assert [*answers["label"]] == [*labels[:4], "", *labels[5:]]
    found = np.asarray(answers["probability"], float)
    np.testing.assert_allclose(np.delete(found, 4), chances, rtol=1e-4)
    assert np.isnan(found[4])


def test_a_batch_has_the_answers_of_single_pictures_and_errors_of_broken_ones(photos):
    saved, files, chances = photos
    predict = pickle.loads(pickle.dumps(BatchPredictor(saved)))
    paths = np.array([str(file) for file in files])
    found = predict({"path": paths, "size": np.arange(9)})
    right(found, chances)
    assert str(files[4]) in found["error"][4]
    assert [*found["path"], *found["size"]] == [*paths, *range(9)]
    contents = [file.read_bytes() for file in files]
    frame = predict(pd.DataFrame({"bytes": contents, "n": range(9)}, index=np.arange(9) + 5))
    right(frame, chances)
    assert [*frame.columns] == ["n", "label", "probability", "novelty", "error"]
    assert [*frame.index] == [*range(5, 14)]
    both = [{"bytes": None, "path": str(file)} for file in files[:4]]
    both += [{"bytes": one, "path": None} for one in contents[4:]]
    right(predict({"image": both}), chances)
    own = predict({"path": paths[:1], "label": ["mine"]})
    assert [*own][:3] == ["path", "label", "arml_label"]
    assert [*own["label"], *own["arml_label"]] == ["mine", "dark"]
    nothing = predict({"path": paths[4:5]})
    assert nothing["label"].tolist() == [""]


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of Dask
def test_rows_are_predicted_as_by_the_predictor_and_by_dask_as_the_docs_have_it(tmp_path):
    import dask.dataframe

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"length": rng.normal(size=30), "colour": [*"rgb"] * 10})
    price = 2 * frame["length"] + (frame["colour"] == "r")
    predictor = arml.load("tables-regression").adapt(frame[:20], price[:20])
    predictor.save(tmp_path / "my-predictor")
    (tmp_path / "rows").mkdir()
    frame.to_parquet(tmp_path / "rows" / "one.parquet")
    (block,) = re.findall(r"^```python\n([^`]*dask[^`]*)^```$", DOCS.read_text(), re.M)
    for name in ("my-predictor", "rows", "answers"):
        block = block.replace(f'"{name}', f'"{tmp_path / name}')
    exec(compile(block, "scaling.md", "exec"), {})
    found = dask.dataframe.read_parquet(tmp_path / "answers").compute()
    np.testing.assert_allclose(found["prediction"], predictor.predict(frame), rtol=1e-4)
    assert (found["low"] < found["high"]).all()
    assert [*found["colour"]] == [*frame["colour"]]


def test_the_parts_of_a_source_are_its_pictures_or_its_tables(
    photos, tmp_path, monkeypatch, caplog, request
):
    _, files, _ = photos
    monkeypatch.setattr(batches, "PART", 4)
    names = [str(file) for file in files]
    more = SUFFIXES, "pictures"
    assert parts_of(str(files[0].parents[1]), *more)[1] == [
        names[:4],
        names[4:8],
        names[8:],
    ]
    note = files[0].parent / "notes.md"
    note.write_text("no picture")
    request.addfinalizer(note.unlink)  # other tests share the folder
    assert parts_of(f"file://{files[0].parent}", *more)[1][2] == names[8:]
    assert "left out 1 of 10 files (not pictures): /" in caplog.text
    (tmp_path / "list.txt").write_text("\n".join(["file:///nowhere/a.png", *names[:2], ""]))
    assert parts_of(str(tmp_path / "list.txt"), *more)[1] == [["/nowhere/a.png", *names[:2]]]
    table = tmp_path / "t" / "one.parquet"
    table.parent.mkdir()
    parquet.write_table(pa.table({"path": names}), table)
    assert parts_of(str(table.parent), *more)[1] == [[str(table)]]


def test_a_part_of_a_table_is_read_in_batches(photos, tmp_path, monkeypatch):
    saved, files, chances = photos
    monkeypatch.setattr(batches, "_AT_ONCE", 4)
    table = tmp_path / "one.parquet"
    late = [None] * 4 + ["x"] * 5
    columns = {"file": [str(file) for file in files], "n": range(9), "late": late}
    parquet.write_table(pa.table(columns), table)
    system, ((name,),) = parts_of(str(table), SUFFIXES, "pictures")
    row = {"name": "part.parquet", "files": json.dumps([name])}
    writer = PartWriter(BatchPredictor(saved), system, tmp_path)
    assert writer(row) == {"answers": 9, "errors": 1}
    found = parquet.read_table(tmp_path / "part.parquet").to_pandas()
    right(found, chances)
    assert [*found["n"]] == [*range(9)]
    assert [*found["late"]][4:] == late[4:]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray
def test_ray_predicts_a_source_and_makes_no_part_twice(ray, photos, tmp_path, monkeypatch, command):
    saved, files, chances = photos
    monkeypatch.setattr(batches, "PART", 4)
    out = tmp_path / "answers"
    words = f"predict {saved} {files[0].parents[1]} --on ray --out {out}"
    assert "9 new answers" in command(words)[1]
    parts = sorted(out.glob("*.parquet"))
    right(dataset.dataset(parts).to_table().to_pandas(), chances)
    times = [part.stat().st_mtime_ns for part in parts]
    parts[1].unlink()
    assert "4 new answers" in command(words)[1]
    again = [part.stat().st_mtime_ns for part in parts]
    assert [a == b for a, b in zip(times, again, strict=True)] == [True, False, True]
    right(dataset.dataset(parts).to_table().to_pandas(), chances)
    _, said = command(f"predict {saved} {files[0]} --on ray --out {out}", code=2)
    assert "holds the answers of another predictor, level or source" in said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray
def test_ray_data_maps_batches_as_the_docstring_has_it(ray, photos):
    saved, files, chances = photos
    example = BatchPredictor.__doc__.split("frames.\n")[1].split("A batch has")[0]
    example = example.replace("photos/", str(files[0].parent)).replace("my-predictor", str(saved))
    lines = textwrap.dedent(example).strip().splitlines()
    names = {"ray": cluster(ray), "BatchPredictor": BatchPredictor}
    exec("import ray.data\n" + "\n".join([*lines[:-1], f"found = {lines[-1]}"]), names)
    right(names["found"].to_pandas().sort_values("path"), chances)


def test_what_cannot_be_predicted_on_a_cluster_is_refused(photos, tmp_path, command):
    saved, files, _ = photos
    for words, said in (
        (f"{tmp_path} --out {tmp_path}/out", "pictures or Parquet files at"),
        (f"{files[0]}", "--on takes one source and --out FOLDER"),
        (f"{files[0]} --out {tmp_path}/out --none", "--none is for"),
    ):
        assert said in command(f"predict {saved} {words} --on ray", code=2)[1]
