"""A training that goes on longer, that ends early, and whose best learner is kept."""

import dataclasses

import pytest

import arml
from arml.experiment.contract import Blobs, same
from arml.experiment.options import metric_of
from arml.experiment.scoring import evaluate_run
from arml.plugins import loading as plugins
from arml.results.files import read_metrics
from arml.training.fit import best_of
from small import experiment

TASKS = arml.recipe("regression2d/maml", shots=4, queries=4).tasks
MADE = experiment(tasks=TASKS, interval=5, validate_every=5, checkpoint_every=20)
pytestmark = pytest.mark.usefixtures("optax_promotes")


def with_outer(**options):
    return dataclasses.replace(MADE, outer=dataclasses.replace(MADE.outer, **options))


def test_a_run_of_a_constant_rate_goes_on_as_if_it_had_been_longer(tmp_path):
    arml.run(MADE, tmp_path / "whole", steps=40)
    arml.run(MADE, tmp_path / "longer")
    assert arml.run(MADE, tmp_path / "longer", steps=40).last == 40
    whole, longer = (arml.Run(tmp_path / name) for name in ("whole", "longer"))
    same(longer.state, whole.state)
    assert longer.metrics == whole.metrics
    assert longer.experiment == whole.experiment
    assert longer.made["extended"] == [20]
    for steps, other in ((30, {}), (60, {"batch": 3}), (60, {"extend": False})):
        with pytest.raises(ValueError, match=r"holds another run: .*steps 40 ->"):
            arml.run(MADE, tmp_path / "longer", steps=steps, **other)


@pytest.mark.parametrize(
    ("outer", "said"),
    [
        ({"schedule": "cosine"}, "the rate at step 20 is 0.0005, not 0"),
        ({"average": 0.5}, "the weights are averaged over the end of the longer training"),
    ],
)
def test_a_schedule_that_more_steps_change_needs_a_word(outer, said, tmp_path):
    made = with_outer(**outer)
    arml.run(made, tmp_path)
    with pytest.raises(ValueError, match=f"{said}. Give --extend"):
        arml.run(made, tmp_path, steps=40)
    assert arml.run(made, tmp_path, steps=40, extend=True).last == 40


def test_the_command_goes_on_where_more_steps_are_given(tmp_path, command):
    arml.run(MADE, tmp_path / "run")
    words = f"""train regression2d/maml --run {tmp_path / "run"} --shots 4 --queries 4 --hidden 4
    --interval 5 --validate-every 5 --checkpoint-every 20 --validation-tasks 8 --batch 2"""
    assert "holds another run: steps 20 -> 70000" in command(words, code=2)[1]
    assert "going on from 20 to 25 steps" in command(words, "--steps 25")[0]
    assert arml.Run(tmp_path / "run").step == 25


@pytest.mark.parametrize(
    ("scores", "falls", "best", "later"),
    [
        ([], True, 0, 0),
        ([3.0, 2.0, 2.0, None, 4.0], True, 2, 3),
        ([0.3, 0.2, 0.5], False, 3, 0),
        ([None, None], True, 0, 2),
    ],
)
def test_the_best_score_and_those_after_it(scores, falls, best, later):
    rows = [{"step": i + 1, "validation": score} for i, score in enumerate(scores)]
    assert best_of([{"step": 0, "loss": 1.0}, *rows], falls=falls) == (best, later)


def test_patience_ends_a_run_and_the_best_learner_is_kept(tmp_path):
    # At this rate the scores soon get worse.
    made = dataclasses.replace(with_outer(outer_rate=1.0), steps=40, patience=2, keep="best")
    reached = arml.run(made, tmp_path / "run").last
    assert arml.run(made, tmp_path / "run").last == reached < 40
    run, best = arml.Run(tmp_path / "run"), reached - 10
    assert (run.step, run.last, run.is_over) == (best, reached, True)
    scores = {row["step"]: row["validation"] for row in run.metrics if "validation" in row}
    assert min(scores, key=scores.get) == best
    rule = f"the best of {reached // 5} validation scores, at step {best}; the training ended after"
    assert run.chosen == f"{rule} 2 scores without a better one"
    arml.run(made, tmp_path / "short", steps=best)
    same(run.learner, arml.Run(tmp_path / "short").learner)
    result = evaluate_run(tmp_path / "run", tasks=4).result
    assert (result["steps"], result["chosen"]) == (best, run.chosen)
    tasks = run.tasks("validation")
    fitted = arml.fit(arml.build(made, tasks), tasks, steps=40, outer=made.outer, validation=tasks)
    assert fitted.chosen == run.chosen
    same(fitted.learner, run.learner)
    with pytest.raises(ValueError, match="patience and keep need validation tasks"):
        arml.fit(arml.build("maml", tasks), tasks, steps=4, patience=1)


def test_an_interruption_at_the_best_score_leaves_a_run_that_opens(tmp_path):
    made = dataclasses.replace(with_outer(outer_rate=0.001), steps=40, keep="best")

    def ends(moment):
        if moment.step == 20 and "validation" in moment.record:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        arml.run(made, tmp_path, callbacks=[ends])
    run = arml.Run(tmp_path)
    assert run.step <= run.last < 20
    assert run.learner


def test_the_best_accuracy_of_tasks_of_ones_own_is_the_highest(tmp_path):
    tasks = Blobs(arml.Problem("classification", (4,), 3, shots=1, queries=4), noise=2.0)
    few = {"steps": 20, "interval": 5, "validate_every": 5, "validation_tasks": 8, "batch": 2}
    outer = arml.OuterOptions(outer_rate=0.3)  # so that the scores differ
    arml.run("protonet", tmp_path, tasks=tasks, keep="best", outer=outer, **few)
    run = arml.Run(tmp_path)
    assert metric_of(run.experiment.tasks) == "accuracy"
    scores = {row["step"]: row["validation"] for row in run.metrics if "validation" in row}
    assert scores[run.step] == max(scores.values()) > min(scores.values())


PLUGIN = """
import json
import arml

def log(moment):
    with open(moment.folder / "log.jsonl", "a") as file:
        file.write(json.dumps({"step": moment.step, **moment.record}) + "\\\\n")
    return moment.step == 10

arml.register("callback", "log", log)
"""


def test_a_plug_in_brings_a_callback(tmp_path, monkeypatch, alone):
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, str(tmp_path / "logger_of_a_test.py"))
    (tmp_path / "logger_of_a_test.py").write_text(PLUGIN.replace("\\\\n", "\\n"))
    seen = []
    assert (
        arml.run(MADE, tmp_path / "run", callbacks=[lambda now: seen.append(now.step)]).last == 10
    )
    assert seen == [5, 10]
    assert [row["step"] for row in read_metrics(tmp_path / "run" / "log.jsonl")] == [5, 10]
    run = arml.Run(tmp_path / "run")
    assert (run.chosen, run.is_over) == ("the last step, 10 of 20", True)
    assert arml.run(MADE, tmp_path / "run").last == 10
    assert seen == [5, 10]
    arml.run(MADE, tmp_path / "run", stop=lambda: True, extend=True)
    assert (arml.Run(tmp_path / "run").last, arml.Run(tmp_path / "run").is_over) == (15, False)
