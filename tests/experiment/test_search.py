"""A sweep: what is searched, that it goes on where it stopped, and what it says at the end."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
from filelock import FileLock
from optuna.storages import JournalStorage
from optuna.storages._heartbeat import get_heartbeat_thread

from arml.algorithms.maml import MAMLOptions
from arml.cli.options import TrainingOptions, read_command
from arml.cli.tune import TuneOptions, _best
from arml.experiment import search
from arml.experiment.recipes import recipe
from arml.experiment.search import chosen, opened, space, space_in_words, tune, usual
from arml.results.files import RunError, locked, read_metrics, write_json
from small import experiment

TINY = experiment(algorithm=MAMLOptions(inner_steps=1))
WEIGHTS = (("plain-multi/hsml", ["mu"]), ("art-multi/arml-official", ["mu_1", "mu_2"]))
COMMAND = ["tune", "regression2d/maml", "--hidden", "4", "--inner-steps", "1", "--steps", "20"]
for every in ("--interval", "--checkpoint-every", "--validate-every"):
    COMMAND += [every, "10"]
COMMAND += ["--validation-tasks", "8", "--batch", "2", "--search"]
COMMAND += ["algorithm.inner_rate=0.0001..0.01", "outer.outer_rate=0.01,0.001"]


pytestmark = pytest.mark.usefixtures("optax_promotes")


def only(text):
    """The distribution of the only option of a search."""
    (found,) = space((text,), TINY).values()
    return found


def test_a_range_of_a_factor_of_ten_is_logarithmic():
    rate = only("algorithm.inner_rate=0.001..0.1")
    assert (rate.low, rate.high, rate.log) == (0.001, 0.1, True)
    steps = only("algorithm.inner_steps=1..5")
    assert (steps.low, steps.high, steps.log) == (1, 5, False)
    assert isinstance(steps.low, int)
    assert only("algorithm.first_order=true,false").choices == (True, False)
    both = space(("algorithm.inner_rate=0.01..0.1", "outer.clip=1,2"), TINY)
    assert space_in_words(both) == "algorithm.inner_rate=0.01..0.1  outer.clip=1.0,2.0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks.shots=1..5", "expected an option of algorithm, outer, network"),
        ("algorithm.rate=1..5", "algorithm has inner_rate, inner_steps"),
        ("algorithm.inner_rate=1..0.1", "a range of numbers from low to high"),
        ("algorithm.inner_rate=0.1..x", "algorithm.inner_rate=0.1..x: Expected `float`, got `str`"),
        ("algorithm.inner_rate=-1..1", "Expected `float` >= 0"),
        ("outer.schedule=steep", "outer.schedule=steep: Invalid enum value 'steep'"),
        ("algorithm.inner_rate", "LOW..HIGH or"),
        ("network.hidden=4,8", "LOW..HIGH or"),
    ],
)
def test_what_cannot_be_searched_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        space((text,), TINY)


def test_step_sizes_and_weights_are_searched_by_default():
    def paths(name):
        return [*usual(recipe(name))]

    assert paths("regression2d/maml") == ["algorithm.inner_rate", "outer.outer_rate"]
    assert {"algorithm.mu_1", "algorithm.mu_2"} < {*paths("regression2d/arml-official")}
    assert paths("starter/protonet") == ["outer.outer_rate"]


def test_the_command_of_the_best_trial_makes_its_experiment():
    given = "--hidden=8 --clip 1 --inner-rate 0.5 --algorithm.no-first-order --outer-rate=0.1"
    words = shlex.split(f"regression2d/hsml --shots 5 {given} --run sweep --steps 90000")
    asked = read_command(TuneOptions, words, prog="arml tune")
    values = {
        "algorithm.inner_rate": 0.0123,
        "algorithm.first_order": True,
        "outer.outer_rate": 0.2,
    }
    trial = SimpleNamespace(value=1.0, params=values, user_attrs={"run": "0000"})
    said = _best(trial, asked)["command"]
    assert shlex.split(said)[:2] == ["arml", "train"]
    again = read_command(TrainingOptions, shlex.split(said)[2:], prog="arml train").experiment
    assert again == chosen(asked.experiment, values)


def test_a_sweep_goes_on_where_it_was_stopped_and_names_the_best(tmp_path, monkeypatch, command):
    folder = tmp_path / "sweep"
    words = " ".join([*COMMAND, "--trials", "2", "--run", str(folder)])
    train = search.run

    def pressed(experiment, place, *, watch, stop):
        def told(step, record):
            watch(step, record)
            if place.name == "0001" and "validation" in record:
                os.kill(os.getpid(), signal.SIGINT)

        return train(experiment, place, watch=told, stop=stop)

    with monkeypatch.context() as patch:
        patch.setattr(search, "run", pressed)
        said, _ = command(words, code=130)
    assert "stopped after 1 trials; to continue: arml tune" in said
    first = (folder / "trials" / "0000" / "metrics.jsonl").read_bytes()
    half = (folder / "trials" / "0001" / "metrics.jsonl").read_bytes()
    said, _ = command(words)
    assert (folder / "trials" / "0000" / "metrics.jsonl").read_bytes() == first
    whole = (folder / "trials" / "0001" / "metrics.jsonl").read_bytes()
    assert whole.startswith(half)
    assert len(whole) > len(half)
    assert {path.name for path in (folder / "trials").iterdir()} == {"0000", "0001"}

    best = json.loads((folder / "best.json").read_text())
    scores = {}
    for run in (folder / "trials").iterdir():
        scores[str(run)] = read_metrics(run / "metrics.jsonl")[-1]["validation"]
        assert not (run / "result.json").exists()
    assert best["score"] == min(scores.values()) == scores[best["run"]]
    assert best["split"] == "validation"
    # The command is of the recipe's own length, with the values that were found.
    assert best["command"] in said
    assert f"--algorithm.inner-rate {best['values']['algorithm.inner_rate']}" in best["command"]
    assert "--steps" not in best["command"]
    # A rate of 20 steps may not suit 70,000: both commands stand there, and what each trains.
    assert "trains all 70,000 steps with options that were best after 20;" in " ".join(said.split())
    assert best["short"] in said
    assert "--steps 20" in best["short"]
    # Nothing is left to do.
    command(words)
    other = words.replace("=0.01,0.001", "=0.01,0.002")
    said = "holds another sweep: outer.outer_rate '0.01,0.001' -> '0.01,0.002'. Give the options"
    assert said in command(other, code=2)[1]


def test_a_trial_whose_loss_is_not_finite_is_ended(tmp_path):
    (trial,) = tune(TINY, space(("algorithm.inner_rate=1e30",), TINY), tmp_path, trials=1)
    assert (trial.state.name, trial.intermediate_values) == ("PRUNED", {})
    assert trial.user_attrs["why"].startswith("the loss is not finite at step 1,")


def test_values_that_do_not_go_together_are_pruned(tmp_path):
    made = replace(TINY, outer=replace(TINY.outer, optimiser="adamw"))
    both = space(("outer.optimiser=adam,adamw", "outer.weight_decay=0.01,0.1"), made)
    trials = tune(made, both, tmp_path, trials=4)
    states = {trial.params["outer.optimiser"]: trial.state.name for trial in trials}
    assert states == {"adam": "PRUNED", "adamw": "COMPLETE"}
    why = next(trial.user_attrs["why"] for trial in trials if trial.state.name == "PRUNED")
    assert "weight_decay" in why


def test_a_trial_is_locked_until_its_score_is_written(tmp_path, monkeypatch):
    seen, ended = [], JournalStorage.set_trial_state_values

    def watched(storage, number, state, values=None):
        if state.is_finished():
            with ThreadPoolExecutor(1) as other, pytest.raises(RunError, match="is using it"):
                other.submit(lambda: locked(tmp_path / "trials" / "0000").__enter__()).result()
            seen.append(number)
        return ended(storage, number, state, values)

    monkeypatch.setattr(JournalStorage, "set_trial_state_values", watched)
    tune(TINY, space(("outer.clip=1,2",), TINY), tmp_path, trials=1)
    assert seen


def test_a_trial_that_its_patience_ends_is_over(tmp_path):
    outer = replace(TINY.outer, outer_rate=1.0)  # the scores soon get worse
    made = replace(TINY, steps=60, patience=1, keep="best", outer=outer)
    (trial,) = tune(made, space(("outer.clip=1,2",), made), tmp_path, trials=1)
    scores = trial.intermediate_values
    assert (trial.state.name, trial.value) == ("COMPLETE", min(scores.values()))
    assert max(scores) < 60


def test_a_trial_that_falls_behind_is_ended(tmp_path, monkeypatch):
    """Optuna's median: the sixth trial is worse than five others at their first score."""
    scores = iter([1.0] * 5 + [2.0, 0.5])

    def train(experiment, place, *, watch, stop):
        score = next(scores)
        for step in (10, 20):
            watch(step, {"validation": score})
            if stop():
                break
        return SimpleNamespace(last=step)

    monkeypatch.setattr(search, "run", train)
    ended = tune(TINY, space(("algorithm.inner_rate=0.001",), TINY), tmp_path, trials=7)
    assert [(trial.number, trial.value) for trial in ended[:1] + ended[-1:]] == [(6, 0.5), (5, 2.0)]
    assert [trial.state.name for trial in ended] == ["COMPLETE"] * 6 + ["PRUNED"]
    assert [*ended[-1].intermediate_values] == [10]


@pytest.mark.filterwarnings("ignore:Heartbeat of storage is supposed")  # of `ask`
@pytest.mark.parametrize("storage", [None, "sqlite:///{}/sweep.db"])
def test_a_trial_of_a_dead_process_is_taken_up_and_one_of_a_live_process_is_not(
    storage, tmp_path, monkeypatch
):
    monkeypatch.setattr(search, "DEAD_SECONDS", 1)
    monkeypatch.setattr(search, "HEARTBEAT_SECONDS", 1)
    scored = []

    def train(experiment, place, *, watch, stop):
        scored.append((place.name, experiment.algorithm.inner_rate))
        watch(20, {"validation": 1.0})
        return SimpleNamespace(last=20)

    monkeypatch.setattr(search, "run", train)
    options, storage = space(("algorithm.inner_rate=0.001..0.1",), TINY), storage
    storage = storage and storage.format(tmp_path)
    study = opened(TINY, options, tmp_path / "sweep", storage)
    dead, live = study.ask(options), study.ask(options)
    for trial, name in ((dead, "dead"), (live, "live")):
        trial.set_user_attr("run", name)
        if storage:
            study._storage.record_heartbeat(trial._trial_id)
    place = tmp_path / "sweep" / "trials" / "live"
    place.mkdir(parents=True)
    with (
        FileLock(place / ".lock"),  # as another process does
        get_heartbeat_thread(live._trial_id, study._storage),
    ):
        time.sleep(2.5 if storage else 0)
        ended = tune(TINY, options, tmp_path / "sweep", trials=3, storage=storage)
    assert scored[0] == ("dead", dead.params["algorithm.inner_rate"])
    assert [name for name, _ in scored[1:]] == [f"{ended[-1].number:04d}"]
    assert study.get_trials()[live.number].state.name == "RUNNING"


@pytest.mark.slow
def test_two_commands_share_a_sweep_and_one_goes_on_when_the_other_is_killed(tmp_path, command):
    folder = tmp_path / "sweep"
    words = [*COMMAND, "--trials", "6", "--run", str(folder)]
    both = [subprocess.Popen([sys.executable, "-m", "arml", *words]) for _ in range(2)]
    try:
        while len(list(folder.glob("trials/*/metrics.jsonl"))) < 2:
            assert both[0].poll() is both[1].poll() is None
            time.sleep(0.05)
        both[0].kill()
        assert both[1].wait(300) == 0
    finally:
        for one in both:
            one.kill()
    assert "finished trials, on validation tasks" in command(*words)[0]
    best = json.loads((folder / "best.json").read_text())
    assert len(list(folder.glob("trials/*"))) == 6
    assert best["values"]


def test_a_lock_that_a_dead_process_left_is_no_lock(tmp_path):
    (tmp_path / "study.jsonl.lock").symlink_to("nowhere")  # as Optuna's own lock would be
    search = space(("algorithm.inner_rate=0.001",), TINY)
    opened(TINY, search, tmp_path).set_user_attr("a", 1)
    assert opened(TINY, search, tmp_path).user_attrs["a"] == 1


def test_a_damaged_record_of_optunas_is_named(tmp_path):
    search = space(("algorithm.inner_rate=0.001",), TINY)
    opened(TINY, search, tmp_path).ask(search)
    record = tmp_path / "study.jsonl"
    record.write_text(record.read_text().replace('"op_code"', '"op"'))
    with pytest.raises(RunError, match=r"study\.jsonl: Optuna cannot read its record .KeyError"):
        opened(TINY, search, tmp_path)


def test_a_record_that_a_full_disk_cut_short_goes_on(tmp_path, monkeypatch):
    search = space(("algorithm.inner_rate=0.001,0.01",), TINY)
    study, record = opened(TINY, search, tmp_path), tmp_path / "study.jsonl"
    trial = study.ask(search)
    whole = record.read_bytes()
    for half in (b'{"op_code":5,"wor', whole.splitlines()[-1]):
        record.write_bytes(whole + half)
        for one in (study, opened(TINY, search, tmp_path)):  # alive, and opened later
            one.ask(search)
        assert len(opened(TINY, search, tmp_path).trials) == 3
        record.write_bytes(whole)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("optuna.storages.journal._file.os.fsync", full)
    with pytest.raises(RunError, match=r"could not write .*study\.jsonl: No space left"):
        study.tell(trial, 1.0)


@pytest.mark.slow
def test_two_trials_at_a_time_are_those_of_one_at_a_time(tmp_path):
    search = space(("algorithm.inner_rate=0.001,0.01",), TINY)
    ended = tune(TINY, search, tmp_path / "two", trials=3, workers=2)
    assert [trial.state.name for trial in ended] == ["COMPLETE"] * 3
    assert all(sorted(trial.intermediate_values) == [10, 20] for trial in ended)
    # The seed and the options alone decide a score.
    one = tune(TINY, search, tmp_path / "one", trials=1)[0]
    same = [trial for trial in ended if trial.params == one.params]
    assert same
    for trial in same:
        assert trial.value == pytest.approx(one.value, rel=1e-5)
    write_json(tmp_path / "two" / "trials" / "0003" / "config.json", {})
    with pytest.raises(ValueError, match="0003 failed: "):
        tune(TINY, search, tmp_path / "two", trials=4, workers=2)


def test_bad_sweeps_are_refused(tmp_path, command, monkeypatch):
    for words in ("--trials 0", "--workers 0"):
        _, said = command(*COMMAND, "--run", tmp_path / "x", words, code=2)
        assert "must be at least 1, got 0" in said
    words = "--storage postgresql://nobody@127.0.0.1:9/none"
    _, said = command(*COMMAND, "--run", tmp_path / "x", words, code=2)
    assert "--storage: Optuna cannot read its record (OperationalError: " in said
    assert "that the server runs" in said
    monkeypatch.setitem(sys.modules, "psycopg", None)
    _, said = command(*COMMAND, "--run", tmp_path / "x", words, code=2)
    assert "no driver for this database" in said
    assert "pip install 'arml[postgresql]'" in said
    with pytest.raises(ValueError, match="each option once"):
        space(("algorithm.inner_rate=1..2",) * 2, TINY)
    with pytest.raises(ValueError, match="got none: give --search"):
        tune(TINY, {}, tmp_path / "x", trials=1)


def test_defaults_follow_the_ways_and_shots():
    """Theory: the authors' rate is .01 and their weight .01 on losses that are summed over images
    and divided by shots."""
    for name, weights in WEIGHTS:
        given = recipe(name, shots=5, ways=10)
        assert (given.tasks.shots, given.tasks.ways) == (5, 10)
        assert given.algorithm.inner_rate == pytest.approx(0.01 * 10)
        for weight in weights:
            assert getattr(given.algorithm, weight) == pytest.approx(0.01 * 5 / (10 * 15))
    # What a recipe has otherwise than the preset stays.
    assert recipe("art-multi/arml-paper", shots=5).algorithm.vertices == 8
    assert recipe("folders/protonet", ways=3).tasks.ways == 3


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("--ways 10", 0.1),
        ("--ways=10 --inner-rate 0.05", 0.05),
        ("--ways 0", 0.05),  # is refused when the experiment is checked
    ],
)
def test_the_command_line_has_the_defaults_for_its_ways(words, rate):
    given = read_command(
        TrainingOptions, ["starter/hsml", "--run", "unused", *shlex.split(words)], prog="arml"
    ).experiment
    assert given.algorithm.inner_rate == pytest.approx(rate)
