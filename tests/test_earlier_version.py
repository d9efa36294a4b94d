"""Files that version 0.1.0 wrote, before its modules were moved into rooms, still load, resume,
score and predict as they did.

The numbers in `expected.json` are those that it wrote itself; they may differ by rounding, since
another XLA compiles them.
"""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import arml
from arml.cli import main
from arml.experiment.loaded import Run
from arml.experiment.scoring import evaluate_run
from arml.results.files import RunError
from arml.results.folder import read_run
from arml.results.scores import read_scores

FILES = Path(__file__).parent / "fixtures" / "v0.1.0"
EXPECTED = json.loads((FILES / "expected.json").read_text())
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


pytestmark = pytest.mark.usefixtures("optax_promotes")


@pytest.fixture
def copy(tmp_path):
    return lambda name: shutil.copytree(FILES / name, tmp_path / name)


@pytest.mark.parametrize("name", ["regression", "pictures"])
def test_a_run_scores_as_it_did_and_stays_paired(name, copy):
    expected, folder = EXPECTED[name], copy(name)
    found = evaluate_run(folder, tasks=len(expected["values"]))
    assert found.run.step == expected["step"]
    np.testing.assert_array_equal(found.scores.families, expected["families"])
    np.testing.assert_allclose(found.scores.values, expected["values"], **CLOSE)
    np.testing.assert_allclose(found.result["score"]["mean"], expected["mean"], **CLOSE)
    # Seeds of one experiment stay so, and scores of the same tasks stay paired.
    assert found.result["options"] == expected["options"]
    kept = read_scores(folder / "scores.npz")
    assert found.scores.tasks == kept.tasks == expected["tasks"]
    np.testing.assert_allclose(kept.values, expected["values"], rtol=1e-6)
    old, new = read_run(folder).result, found.result
    for field in ("recipe", "protocol", "metric", "inner_steps", "parameters", "steps", "floor"):
        assert new[field] == old[field], field


def test_a_run_goes_on_from_its_checkpoint(copy):
    whole = read_run(FILES / "regression").metrics
    folder = copy("regression")
    shutil.rmtree(folder / "checkpoints" / "20")
    experiment = Run(folder).experiment
    assert Run(folder).step == 10
    assert arml.run(experiment, folder) == 20
    for old, new in zip(whole, read_run(folder).metrics, strict=True):
        assert old.keys() == new.keys()
        for name in old:
            assert new[name] == pytest.approx(old[name], rel=1e-3), name
    before, after = Run(FILES / "regression").learner, Run(folder).learner
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(one, other, **CLOSE)


def test_the_same_command_resumes_a_run_of_before(copy, capsys):
    folder = copy("regression")
    options = (
        "--steps 20 --interval 5 --checkpoint-every 10 --validate-every 10 --validation-tasks 20 "
        "--batch 4 --hidden 8 --inner-steps 2 --chunk 20 --low -1 --shots 5"
    )
    assert main(["train", "regression2d/maml", "--run", str(folder), *options.split()]) == 0
    assert "already trained for 20 steps" in capsys.readouterr().out


def test_a_learner_of_a_run_adapts_as_it_did():
    expected = EXPECTED["regression predictor"]
    x, y = (np.asarray(expected[name], np.float32) for name in "xy")
    predicted = arml.load(FILES / "regression").adapt(x, y).predict(x)
    np.testing.assert_allclose(predicted, expected["outputs"], **CLOSE)


def test_a_shared_learner_and_a_predictor_predict_as_they_did():
    expected, query = EXPECTED["predictor"], load_file(FILES / "query.safetensors")["query"]
    saved = arml.load_predictor(FILES / "predictor")
    assert saved.portable.temperature == expected["temperature"]
    about = "starter/protonet, 572 parameters, 5-way 1-shot, 3 queries, 32 px"
    assert repr(saved) == f"Predictor(5 classes, 5 examples; {about})"
    assert repr(arml.load(FILES / "learner")) == f"FewShotLearner({about})"
    shared = arml.load(FILES / "learner").adapt(saved.x, saved.classes[saved.y])
    for predictor in (saved, shared):
        assert predictor.predict(query).tolist() == expected["labels"]
        np.testing.assert_allclose(predictor.predict_proba(query), expected["chances"], **CLOSE)
        np.testing.assert_allclose(predictor.novelty(query), expected["novelty"], **CLOSE)
        # The distance is as it was; since then small support sets have a higher bound.
        known = predictor.portable.novelty
        raised = known.bounds(np.bincount(predictor.y))[0] / known.support
        before = predictor.support_novelty() * raised
        assert before == pytest.approx(expected["support_novelty"], rel=1e-3)


def test_a_shared_learner_is_not_opened_as_a_run():
    with pytest.raises(
        RunError, match=r"expected a run folder.*shared learner; arml.load opens it"
    ):
        arml.Run(FILES / "learner")


def test_a_report_reads_results_of_before(tmp_path):
    page = tmp_path / "page.html"
    assert main(["report", *(str(FILES / n) for n in EXPECTED if " " not in n and n != "predictor"),
                 "--out", str(page)]) == 0  # fmt: skip
    text = page.read_text(encoding="utf-8")
    assert "regression2d/maml" in text
    assert "starter/protonet" in text
