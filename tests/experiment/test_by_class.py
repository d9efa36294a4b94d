"""Which classes of a run are hard: counted from the predictions, and shown in the report."""

import base64

import cv2
import equinox as eqx
import jax
import numpy as np
import pytest

import arml
from arml.cli import main
from arml.core.learner import Adapted, MetaLearner
from arml.datasets.folders import ImageFamily
from arml.experiment.scoring import by_class, class_names
from arml.results.files import read_json
from arml.results.folder import CLASSES, read_by_class
from arml.tasks.images import listed
from arml.training.evaluate import predictions

NAMES = ["a", "b", "c", "d"]


class Blind(MetaLearner):
    """It knows the brightness of each class, but takes b for a: 0.2 is as near to it as 0."""

    unused: jax.Array
    loss: object = eqx.field(static=True, default=None)

    def adapt(self, support, *, key):
        seen = support.x.mean(axis=(1, 2, 3))
        seen = jax.numpy.where(seen < 0.3, 0.0, seen)

        def predict(x):
            of = x.mean(axis=(1, 2, 3))
            of = jax.numpy.where(of < 0.3, 0.0, of)
            away = jax.numpy.abs(of[:, None] - seen[None])
            # Of equally near classes, the darker.
            return -100 * away - 0.1 * support.x.mean(axis=(1, 2, 3))[None]

        return Adapted(predict)


@pytest.fixture(scope="module")
def tasks():
    images = np.repeat(np.array([0, 51, 153, 255], np.uint8), 6)[:, None, None, None]
    images = np.broadcast_to(images, (24, 4, 4, 3)).copy()
    family = ImageFamily("greys", tuple(NAMES), images, np.full(4, 6), "")
    split = {"greys": {"train": [], "validation": [], "test": NAMES}}
    images = listed([family], split, part="test", ways=2, shots=1, queries=3)
    return images.on_the_device()


def test_only_the_class_that_is_taken_for_another_is_hard(tasks):
    predicted = predictions(Blind(jax.numpy.zeros(1)), tasks, split="test", n=60, chunk=20)
    found = by_class(predicted, NAMES, tasks, step=7)
    accuracy = {one.name: one.accuracy for one in found.classes}
    with_both = sum({0, 1} == {*own.tolist()} for own in predicted.classes)
    of_b = sum(1 in own for own in predicted.classes)
    assert found.classes[0].name == "b"
    assert accuracy == pytest.approx({"a": 1, "b": 1 - with_both / of_b, "c": 1, "d": 1})
    (pair,) = found.pairs
    assert (pair.label, pair.predicted) == ("b", "a")
    assert pair.count == pair.of == 3 * with_both
    assert np.mean(predicted.scores.values) == pytest.approx(
        sum(one.accuracy * one.n for one in found.classes) / sum(one.n for one in found.classes)
    )
    # The pictures are those of the queries that were mistaken.
    for one in found.mistakes:
        shown = cv2.imdecode(np.frombuffer(base64.b64decode(one.picture), np.uint8), 1)
        assert np.all(shown == 51)
        assert one.own < one.probability


@pytest.mark.slow
def test_a_run_says_which_classes_are_hard(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for k in range(10):
        (tmp_path / "own" / f"kind{k}").mkdir(parents=True)
        for i in range(3):
            picture = rng.integers(0, 255, (16, 16, 3)).astype(np.uint8)
            cv2.imwrite(str(tmp_path / "own" / f"kind{k}" / f"{i}.png"), picture)
    small = "--ways 2 --shots 1 --queries 2 --size 16 --filters 2 --batch 1 --chunk 1"
    pace = "--steps 1 --interval 1 --checkpoint-every 1 --validate-every 1 --validation-tasks 2"
    run = str(tmp_path / "run")
    given = ["--data", str(tmp_path / "own"), "--run", run, *small.split(), *pace.split()]
    with jax.numpy_dtype_promotion("standard"):  # Optax mixes integers and floats in its schedules
        assert main(["train", "folders/protonet", *given]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, "--tasks", "10"]) == 0
    said = capsys.readouterr().out
    opened = arml.Run(run)
    found = read_by_class(opened.folder, opened.step)
    assert f"hardest of {len(found.classes)} classes: {found.classes[0].name} " in said
    names = class_names(opened.folder, opened.tasks(), "test")
    assert {one.name for one in found.classes} <= {*names} <= {f"kind{k}" for k in range(10)}
    mean = opened.result["score"]["mean"]
    assert mean == pytest.approx(sum(one.accuracy * one.n for one in found.classes) / 40)
    assert main(["report", run, "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "Which classes are hard" in page
    assert page.count("data:image/png;base64,") == min(len(found.mistakes), 24)
    # It is of this checkpoint only, and other scores leave it as it is.
    assert read_by_class(opened.folder, opened.step + 1) is None
    before = read_json(opened.folder / CLASSES)
    assert main(["evaluate", run, "--tasks", "3", "--split", "validation"]) == 0
    assert read_json(opened.folder / CLASSES) == before
