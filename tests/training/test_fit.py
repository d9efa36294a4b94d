"""Training, scoring and comparing in memory, on tasks that a user's script defines."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import arml
from arml.experiment.contract import same
from arml.experiment.options import REGISTRIES
from arml.experiment.running import Run
from arml.nn.networks import MLPOptions
from arml.training.fit import FitOptions, OuterOptions, intervals, start
from experiment.waves import Waves
from small import close, experiment

TASKS = Waves()
SMALL = {"batch": 4, "interval": 5, "validate_every": 10, "validation_tasks": 8}


pytestmark = pytest.mark.usefixtures("optax_promotes")


def build(seed=0):
    return arml.build("maml", TASKS, seed=seed, network=MLPOptions(hidden=(8,)))


@pytest.fixture(scope="module")
def fitted():
    return arml.fit(build(), TASKS, steps=20, validation=TASKS, **SMALL)


def test_the_history_has_the_losses_and_the_validation_scores(fitted):
    assert [row["step"] for row in fitted.history] == [5, 10, 15, 20]
    assert all(np.isfinite(row["loss"]) for row in fitted.history)
    assert [row["step"] for row in fitted.history if "validation" in row] == [10, 20]
    assert fitted.step == 20
    assert fitted.history[-1]["validation"] == pytest.approx(
        arml.evaluate(fitted, TASKS, 8, split="validation").mean
    )


def test_it_goes_on_as_if_it_had_never_stopped(fitted):
    half = arml.fit(build(), TASKS, steps=10, validation=TASKS, **SMALL)
    whole = arml.fit(half, TASKS, steps=20, validation=TASKS)
    assert whole.history == fitted.history
    same(whole.state, fitted.state)
    # What it went on from is as it was.
    assert half.step == 10
    again = arml.fit(half, TASKS, steps=20, validation=TASKS)
    same(again.learner, fitted.learner)


def test_a_callback_sees_each_interval_and_may_stop_a_schedule_that_goes_on_later():
    outer = OuterOptions(schedule="cosine")
    whole = arml.fit(build(), TASKS, steps=20, outer=outer, **SMALL)
    seen = []

    def watch(now):
        seen.append((now.step, now.steps, now.learner))
        return now.step == 10

    half = arml.fit(build(), TASKS, steps=20, outer=outer, callbacks=[watch], **SMALL)
    assert [step for step, *_ in seen] == [5, 10]
    assert half.step == 10
    same(seen[1][2], half.learner)
    same(arml.fit(half, TASKS, steps=20).learner, whole.learner)


def test_a_callback_ends_a_training_by_true_alone():
    def fit(callback):
        return arml.fit(build(), TASKS, steps=10, callbacks=[callback], **SMALL).step

    assert (fit(lambda now: np.True_), fit(lambda now: False)) == (5, 10)
    for answer in (1, "stop"):
        with pytest.raises(ValueError, match=f"callback .* return True, .* got {answer!r}"):
            fit(lambda now, answer=answer: answer)


def test_callbacks_are_checked_before_any_work():
    untraced = arml.fit.__wrapped__  # without the tests' own check of types
    for wrong in (print, [3], [lambda: True], "print"):
        said = r"expected callbacks=\[FUNCTION, \.\.\.\], each a function of a Moment, got "
        with pytest.raises(ValueError, match=said + re.escape(repr(wrong))):
            untraced(build(), TASKS, steps=10, callbacks=wrong)
    with pytest.raises(ValueError, match=said):
        arml.register("callback", "wrong", lambda: True)
    seen = []
    arml.fit(build(), TASKS, steps=10, callbacks=(seen.append,), **SMALL)  # a function of C
    assert [now.step for now in seen] == [5, 10]


@pytest.mark.slow
def test_any_optimiser_of_optax_trains():
    def fit(outer):
        return arml.fit(build(), TASKS, steps=10, outer=outer, **SMALL).learner

    sgd = OuterOptions(outer_rate=0.1, optimiser="sgd")
    same(fit(optax.sgd(0.1)), fit(sgd))
    falling = dataclasses.replace(sgd, schedule="linear")
    own = fit(lambda steps: optax.sgd(optax.linear_schedule(0.1, 0.0, steps)))
    close(own, fit(falling), rtol=1e-5)
    decayed = OuterOptions(outer_rate=0.1, optimiser="adamw", weight_decay=0.5)
    same(fit(optax.adamw(0.1, weight_decay=0.5)), fit(decayed))
    for wrong, said in (
        (3, "with its rate, .* got int"),
        (optax.adamw, "with its rate, .* got adamw"),
        (
            optax.MultiSteps(optax.sgd(0.1), 2),
            r"got optax.MultiSteps: .*gradient_transformation\(\)",
        ),
    ):
        with pytest.raises(ValueError, match=rf"optimiser of Optax.* {said}"):
            fit(wrong)


def slow(steps, *, rate: float = 0.01, every: int = 2):
    """AdamW on the mean gradient of some steps."""
    adamw = optax.adamw(optax.cosine_decay_schedule(rate, max(steps, 1)))
    return optax.MultiSteps(adamw, every).gradient_transformation()


@pytest.mark.usefixtures("alone")
def test_a_registered_optimiser_is_saved_and_resumed(tmp_path):
    arml.register("outer", "slow", slow)
    outer = REGISTRIES["outer"]["slow"].options_class(every=3)
    made = experiment(outer=outer, **SMALL, checkpoint_every=5)
    arml.run(made, tmp_path / "whole")
    asked = []
    arml.run(made, tmp_path / "half", stop=lambda: not asked.append(0) and len(asked) == 2)
    assert arml.Run(tmp_path / "half").step == 10
    arml.run(made, tmp_path / "half")
    whole, half = (arml.Run(tmp_path / name) for name in ("whole", "half"))
    assert half.experiment.outer == outer
    same(half.state, whole.state)


def test_a_method_is_trained_by_name_as_its_recipe_says(tmp_path):
    """Not by a constant Adam: the outer optimiser and the batch are those of the recipe."""
    tasks = arml.Problem("classification", (4,), 2, shots=2, queries=2)
    learner = arml.build("arml", tasks)
    assert isinstance(learner, arml.ARML)
    assert learner.origin.experiment.outer == arml.recipe("features/arml").outer
    assert learner.origin.experiment.batch == arml.recipe("features/arml").batch
    name, less = "first-order-maml", {"steps": 3, "validation_tasks": 8, "interval": 3, "seed": 3}
    tasks = dataclasses.replace(arml.recipe(f"regression2d/{name}").tasks, shots=4, queries=4)
    arml.run(name, tmp_path / "run", tasks=tasks, **less)
    own = arml.fit(arml.build(name, tasks, seed=3), tasks, **less)
    assert own.options.outer.clip == 10
    same(own.learner, Run(tmp_path / "run").learner)


def test_options_of_a_method_are_given_to_build():
    assert arml.build("maml", TASKS, inner_rate=0.5).inner.rate == 0.5
    with pytest.raises(ValueError, match="has no option 'inner_lr'; did you mean 'inner_rate'"):
        arml.build("maml", TASKS, inner_lr=0.5)


def test_one_compilation_serves_all_seeds():
    traces = []

    class Counted(Waves):
        def sample(self, key):
            traces.append(None)
            return super().sample(key)

    tasks = Counted()
    for seed in range(3):
        learner = arml.build("maml", tasks, seed=seed)
        one = arml.fit(learner, tasks, steps=4, seed=seed, batch=2)
        arml.evaluate(one, tasks, 4)
        if not seed:
            first = len(traces)
    assert len(traces) == first


def test_scores_of_two_learners_are_compared_task_by_task(fitted):
    scores, other = arml.evaluate(fitted, TASKS, 40), arml.evaluate(build(), TASKS, 40)
    found, gap = arml.compare(scores, other), scores.values - other.values
    assert found.mean == pytest.approx(gap.mean())
    assert found.ci95 == pytest.approx(1.96 * gap.std(ddof=1) / np.sqrt(40))
    assert found.by_family()["slow"].mean == pytest.approx(gap[scores.families == 0].mean())
    assert (found.metric, found.runs, found.tasks) == ("mse", (1, 1), 40)
    # One training of each has no p-value: two untrained learners had one of 1.6e-05.
    assert (found.p, found.counts) == (None, False)
    assert "an indication: a p-value needs 5 training runs of each" in repr(found)
    assert arml.compare([scores], [other]).to_dict() == found.to_dict()


def test_scores_become_a_data_frame(fitted):
    scores = arml.evaluate(fitted, TASKS, 12)
    frame = scores.to_frame()
    assert list(frame.columns) == ["family", "mse"]
    assert len(frame) == 12
    means = frame.groupby("family")["mse"].mean()
    assert means["fast"] == pytest.approx(scores.by_family()["fast"]["mean"])


def test_what_a_notebook_shows_is_short(fitted):
    scores = arml.evaluate(fitted, TASKS, 12)
    assert repr(fitted.learner) == "MAML(25 parameters)"
    assert repr(fitted).startswith("Fitted(MAML(25 parameters), step 20, loss ")
    said = f"{scores.mean:.4f} ± {scores.ci95:.4f} over 12 tasks of the training distribution"
    assert repr(scores) == f"Scores(mse {said})"
    accuracies = dataclasses.replace(scores, values=np.full(12, 0.5), metric="accuracy")
    more = dataclasses.replace(accuracies, values=np.full(12, 0.625))
    assert "accuracy 50.0 ± 0.0%" in repr(accuracies)
    assert "+12.5 ± 0.0 points" in repr(arml.compare(more, accuracies))


class Plain:
    """A distribution that knows nothing of the package's classes but the values."""

    problem = arml.Problem("classification", (3,), 2, shots=2, queries=3)
    families = ("only",)

    def __init__(self, noise):
        self.noise = noise

    def sample(self, key):
        y = jnp.arange(10) % 2
        x = y[:, None] + self.noise * jax.random.normal(key, (10, 3))
        return arml.Task(arml.Examples(x[:4], y[:4]), arml.Examples(x[4:], y[4:]), 0)


def test_any_object_that_draws_tasks_will_do():
    tasks = Plain(0.1)
    fitted = arml.fit(arml.build("protonet", tasks), tasks, steps=4, batch=2)
    scores = arml.evaluate(fitted.learner, tasks, 6)
    assert scores.metric == "accuracy"
    assert scores.names == ("only",)
    assert scores.mean == 1.0
    assert arml.compare(scores, arml.evaluate(fitted, Plain(0.1), 6)).mean == 0
    with pytest.raises(ValueError, match="differ in their tasks"):
        arml.compare(scores, arml.evaluate(fitted, Plain(0.2), 6))


def test_steps_count_from_the_first(fitted):
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        arml.fit(build(), TASKS, steps=0)
    with pytest.raises(ValueError, match="steps must be above the 20 already taken, got 20"):
        arml.fit(fitted, TASKS, steps=20)
    with pytest.raises(ValueError, match="expected the seed 0 to go on, got 1"):
        arml.fit(fitted, TASKS, steps=30, seed=1)


def test_a_bar_is_shown_where_it_is_asked_for(capsys):
    arml.fit(build(), TASKS, steps=5, **SMALL)
    assert capsys.readouterr().err == ""
    arml.fit(build(), TASKS, steps=5, progress=True, **SMALL)
    assert "100%" in capsys.readouterr().err


def test_a_best_learner_is_one_that_was_scored(fitted):
    some = {"steps": 40, "validation": TASKS, "keep": "best"}
    early = arml.fit(build(), TASKS, **{**SMALL, **some}, callbacks=[lambda at: at.step >= 5])
    same(early.learner, early.state.learner)
    # A training that kept the last learner has lost the better ones before it.
    history = [{**row} for row in fitted.history]
    history[1]["validation"] = 0.0
    after = arml.fit(dataclasses.replace(fitted, history=tuple(history)), TASKS, **some)
    assert "the best of 2 validation scores, at step" in after.chosen
    assert int(after.chosen.rpartition(" ")[2]) > 20


def test_an_interval_that_was_interrupted_is_scored_as_a_whole_one(monkeypatch):
    """With slow steps an interval may end early, and the rest of it is an interval of its own."""
    given = {"batch": 4, "interval": 20, "validate_every": 30, "validation_tasks": 8}
    monkeypatch.setattr("arml.training.fit.SLOW_STEP_SECONDS", 0.0)
    learner = arml.build("maml", TASKS, network=MLPOptions(hidden=(8,)))
    options = FitOptions(steps=60, scan=False, outer=OuterOptions(), **given)
    steps = []
    state = start(learner, OuterOptions().build(60))
    for _ in range(3):  # an interruption at 33
        for moment in intervals(
            options, state, TASKS, TASKS, key=jax.random.key(0), each=lambda step, _: step == 33
        ):
            state = moment.state
            if "validation" in moment.record:
                steps.append(moment.step)
            if moment.step == 33:
                break
    assert steps == [40, 60]


def test_a_saved_learner_names_the_options_of_its_training(tmp_path):
    outer = OuterOptions(outer_rate=0.05, clip=1.0)
    arml.fit(build(), TASKS, steps=4, batch=3, interval=2, outer=outer).save(tmp_path / "kept")
    made = arml.load(tmp_path / "kept").experiment
    assert (made.outer, made.batch, made.steps) == (outer, 3, 4)


def test_tasks_whose_attribute_changed_are_other_tasks():
    class Lines:
        problem, families = arml.Problem("regression", (1,), 1, 4, 4), ("lines",)

        def __init__(self, scale):
            self.scale = scale

        def sample(self, key):
            x = jax.random.normal(key, (8, 1))
            y = self.scale * x
            zero = jnp.zeros((), jnp.int32)
            return arml.Task(arml.Examples(x[:4], y[:4]), arml.Examples(x[4:], y[4:]), zero)

    tasks = Lines(1.0)
    learner = arml.build("maml", tasks, network=MLPOptions(hidden=(8,)))
    first = arml.evaluate(learner, tasks, 8)
    tasks.scale = 10.0
    second, fresh = (arml.evaluate(learner, one, 8) for one in (tasks, Lines(10.0)))
    assert second.mean == fresh.mean != first.mean
