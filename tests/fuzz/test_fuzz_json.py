"""JSON with a value that is another: what reads it refuses it in one line, or gets something that
tables and figures can be drawn from."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import archives
from arml.datasets.features import load_features
from arml.datasets.prepare import open_store, prepare
from arml.datasets.published import Files, classes_of
from arml.datasets.splits import read_split
from arml.experiment.options import from_json
from arml.experiment.running import differences
from arml.report.tables import make_rows, table_of, terminal
from arml.results.files import digest_of, read_metrics
from arml.results.folder import read_config, read_run
from hostile import CASES, altered, tried

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests/fixtures/run"


def result(tmp_path):
    run = shutil.copytree(RUN, tmp_path / "run")
    return run / "result.json", lambda: terminal(table_of(make_rows([read_run(run).result])))


def configuration(tmp_path):
    path = Path(shutil.copy(RUN / "config.json", tmp_path))
    return path, lambda: from_json(read_config(tmp_path).get("experiment"), path.name)


def store(tmp_path):
    archive = archives.tar(tmp_path / "dtd-r1.0.1.tar.gz", archives.dtd(images=4))
    folder = prepare("texture", [archive], folder=tmp_path / "made", size=16, unverified=True)

    def read():
        found = open_store(folder)
        for part in ("train", "validation", "test"):
            for family in found.part(part):
                assert len(family.images) == family.counts.sum()
        found.digests()

    return folder / "index.json", read


def features(tmp_path):
    vectors = np.ones((6, 3), np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    content = {
        "format": 1, "what": "arml features", "family": "inks", "place": 0,
        "classes": ["a", "b", "c"], "counts": [2, 2, 2], "source": "0" * 64,
        "split": {"train": ["a"], "validation": ["b"], "test": ["c"]},
        "extractor": {
            "model": "m.onnx", "sha256": "0" * 64, "size": 16, "mean": [0.5, 0.5, 0.5],
            "std": [1.0, 1.0, 1.0], "output": "y", "unit": True, "dimension": 3, "saw": "unknown",
        },
        "key": "0" * 64, "vectors": digest_of(tmp_path / "vectors.npy"),
    }  # fmt: skip
    (tmp_path / "features.json").write_text(json.dumps(content))

    def read():
        found = load_features([tmp_path])
        assert sum(map(len, (family.images for family in found[0]))) == 6

    return tmp_path / "features.json", read


def split(tmp_path):
    parts = {"train": ["a", "b"], "validation": ["c"], "test": ["d"]}
    content = {"format": 1, "method": "m", "seed": 0, "sources": {}, "families": {"inks": parts}}
    (tmp_path / "split.json").write_text(json.dumps(content))

    def read():
        for found in read_split(tmp_path / "split.json").values():
            assert all(isinstance(name, str) for names in found.values() for name in names)

    return tmp_path / "split.json", read


def metrics(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5, "validation": 1.0}\n')
    return tmp_path / "metrics.jsonl", lambda: read_metrics(tmp_path / "metrics.jsonl")


def annotations(tmp_path):
    content = {
        "images": [{"id": i, "file_name": f"images/{i}.JPG"} for i in range(4)],
        "categories": [{"id": i, "name": f"species {i}"} for i in range(2)],
        "annotations": [{"image_id": i, "category_id": i % 2} for i in range(4)],
    }
    path = tmp_path / "train.json"
    path.write_text(json.dumps(content))
    pictures = {f"images/{i}.JPG": tmp_path for i in range(4)}
    return path, lambda: classes_of("fungi", Files(pictures, {"train.json": path.read_bytes()}))


MORE = '\n{"step": 2, "loss": 0.25}\n'
"""A line after the altered one, because a last one that is damaged is left out as torn."""
KINDS = (result, configuration, store, features, split, metrics, annotations)
"""Each makes a file, and gives its path, and what reads it."""


@pytest.mark.parametrize("cases", [CASES[0], 15])
def test_json_that_means_something_else(tmp_path, record_property, cases):
    rng, counts, failed = np.random.default_rng(cases), Counter(), []
    for make in KINDS:
        kind = make.__name__
        (tmp_path / kind).mkdir()
        path, read = make(tmp_path / kind)
        whole = path.read_text()
        read()
        content, own = json.loads(whole), Counter()
        for _ in range(max(cases // len(KINDS), 2)):
            change = altered(content, rng)
            path.write_text(json.dumps(change) + (MORE if kind == "metrics" else ""))
            try:
                tried(read, own)
            except Exception as error:
                where = "; ".join(differences(content, change, kind))[:200]
                failed.append(f"{type(error).__name__}: {error}: {where}")
        path.write_text(whole)
        counts[kind] = f"{own['refused']} refused, {own['accepted']} accepted"
    record_property("counts", f"{cases} altered JSON files: {dict(counts)}")
    assert not failed, "\n".join(failed)
