"""A run that was stopped, killed or damaged: what is kept, what is refused, what comes back."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest
from filelock import FileLock

from arml.cli import main
from arml.cli.train import Training
from arml.experiment.contract import same
from arml.experiment.running import Run
from arml.experiment.scoring import evaluate_run
from arml.results.folder import read_config
from arml.training.checkpoint import place_of

STEPS = 200
OPTIONS = (
    f"train regression2d/maml --steps {STEPS} --interval 10 --checkpoint-every 20 "
    "--validate-every 50 --validation-tasks 10 --batch 4 --hidden 8 --inner-steps 1 --chunk 10"
).split()


def train(folder, *more):
    """With `more` in place of those of `OPTIONS` that it names."""
    given = [*OPTIONS]
    for word in {*more} & {*given}:
        del given[(at := given.index(word)) : at + 2]
    return main([*given, "--run", str(folder), *more])


pytestmark = pytest.mark.usefixtures("optax_promotes")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert train(folder) == 0
    return folder


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def assert_same_run(a, b):
    assert (a / "metrics.jsonl").read_bytes() == (b / "metrics.jsonl").read_bytes()
    assert Run(a).step == Run(b).step == STEPS
    same(Run(a).state, Run(b).state)


def interrupted_at(monkeypatch, step):
    watch, left = Training.watch, [step]

    def pressed(self, now, record):
        watch(self, now, record)
        if now in left and record:
            left.remove(now)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Training, "watch", pressed)


def refused(capsys, folder, *more):
    capsys.readouterr()
    assert train(folder, *more) == 2
    said = capsys.readouterr().err
    assert said.startswith("arml: error: ")
    assert said.count("\n") == 1
    return said


def test_a_stopped_run_resumes_bit_for_bit(whole, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        # 30 is no step of a checkpoint: stopping saves one.
        interrupted_at(patch, 30)
        assert train(folder) == 130
    said = capsys.readouterr().out
    assert "stopped and saved at step 30" in said
    assert "to resume: arml train regression2d/maml" in said
    assert Run(folder).metrics[-1]["step"] == 30
    assert train(folder) == 0
    assert "resuming at step 30" in capsys.readouterr().out
    assert_same_run(whole, folder)


def test_slow_steps_are_shown_one_by_one_and_a_stop_saves_within_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("arml.training.fit.SLOW_STEP_SECONDS", -1.0)
    slow = ["--no-scan", "--steps", "20"]
    assert train(tmp_path / "whole", *slow) == 0
    with monkeypatch.context() as patch:
        interrupted_at(patch, 13)
        assert train(tmp_path / "stopped", *slow) == 130
    assert "stopped and saved at step 13" in capsys.readouterr().out
    assert train(tmp_path / "stopped", *slow) == 0
    stopped = Run(tmp_path / "stopped")
    assert sorted({row["step"] for row in stopped.metrics}) == [10, 13, 20]
    same(Run(tmp_path / "whole").state, stopped.state)


def test_a_killed_run_resumes_bit_for_bit(whole, tmp_path):
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "arml", *OPTIONS, "--run", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    first = place_of(folder / "checkpoints", 40)
    while not first.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    # What a kill in the middle of a write leaves.
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 1')
    assert train(folder) == 0
    assert_same_run(whole, folder)


def test_another_configuration_is_refused_with_the_difference(copy, capsys):
    before = (copy / "metrics.jsonl").read_bytes()
    said = refused(capsys, copy, "--batch", "5", "--inner-rate", "0.5")
    assert "batch 4 -> 5" in said
    assert "algorithm.inner_rate 0.001 -> 0.5" in said
    assert (copy / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "advice"),
    [((), "the outer optimiser's clip"), (("--clip", "5"), "the method's inner_bound")],
)
def test_a_loss_that_is_not_finite_names_step_family_and_remedy(tmp_path, capsys, options, advice):
    message = refused(capsys, tmp_path / "run", "--inner-rate", "1e30", *options)
    for words in ("not finite at step 1,", "of the family '", f"or set {advice}"):
        assert words in message


def test_where_a_run_was_made_is_told_and_does_not_bind_it(copy, capsys):
    config = read_config(copy)
    assert config["made"].keys() == {"commit", "versions", "device", "malloc"}
    assert evaluate_run(str(copy), tasks=4).result["trained"] == config["made"]
    elsewhere = {**config["made"], "device": "elsewhere"}
    (copy / "config.json").write_text(json.dumps({**config, "made": elsewhere}))
    assert train(copy) == 0
    result = evaluate_run(copy, tasks=4).result
    assert result["trained"] == elsewhere
    assert result["device"] != "elsewhere"
    del config["made"]
    (copy / "config.json").write_text(json.dumps(config))
    assert train(copy) == 0
    assert evaluate_run(copy, tasks=4).result["trained"] is None


def cut(file):
    """Cut a file in half."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(checkpoint):
    """Alter one bit of the last array."""
    data = bytearray(checkpoint.read_bytes())
    data[-2] ^= 1
    checkpoint.write_bytes(data)


def empty(checkpoint):
    """What a file system leaves after a power cut."""
    checkpoint.write_bytes(b"")


@pytest.mark.parametrize(
    ("command", "damage", "said"),
    [
        ("train", lambda run: (run / "config.json").unlink(), "restore the file"),
        ("train", lambda run: cut(run / "config.json"), "cut short or damaged"),
        ("evaluate", lambda run: (run / "config.json").write_text("{}"), "expected an experiment"),
        ("evaluate", lambda run: shutil.rmtree(run / "checkpoints"), "expected a checkpoint"),
    ],
)
def test_a_folder_that_lacks_a_file_is_refused(copy, capsys, command, damage, said):
    damage(copy)
    assert (train(copy) if command == "train" else main([command, str(copy)])) == 2
    assert said in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("damage", [cut, flip, empty])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_serves(copy, whole, capsys, damage):
    newest = place_of(copy / "checkpoints", STEPS)
    damage(newest)
    # A score of another step than the last must not be taken for one of the whole run.
    assert main(["evaluate", str(copy)]) == 2
    assert f"the checkpoint {newest} " in capsys.readouterr().err
    assert train(copy) == 0
    said = capsys.readouterr().err
    assert said.startswith(f"arml: warning: the checkpoint {newest} ")
    assert f"going on from the checkpoint of step {STEPS - 20}" in said
    assert_same_run(whole, copy)
    assert [path.name for path in (copy / "damaged").iterdir()] == [newest.name]


def test_a_run_of_which_no_checkpoint_can_be_read_is_not_begun_anew(copy, capsys):
    before = (copy / "metrics.jsonl").read_bytes()
    for checkpoint in (copy / "checkpoints").iterdir():
        flip(checkpoint)
    assert "no other checkpoint is left" in refused(capsys, copy)
    assert (copy / "metrics.jsonl").read_bytes() == before


def test_the_checkpoint_of_another_network_is_refused(copy, capsys):
    path = copy / "config.json"
    path.write_text(path.read_text().replace('"hidden": [\n        8', '"hidden": [\n        9'))
    assert "config.json was altered" in refused(capsys, copy)
    path.write_text(path.read_text().replace('"sha256"', '"changed"'))
    assert main(["evaluate", str(copy)]) == 2
    assert "is of another learner: expected " in capsys.readouterr().err
    place_of(copy / "checkpoints", STEPS).unlink()
    assert "is of another learner: expected " in refused(capsys, copy, "--hidden", "9")


def test_a_place_that_is_no_folder_of_its_own_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    for place, said in (
        ("/", "separate folder for the run"),
        ("", "separate folder for the run"),
        (tmp_path / "file", "got the file"),
    ):
        assert said in refused(capsys, place)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_in_which_another_process_trains_is_refused(tmp_path, capsys):
    with FileLock(tmp_path / ".lock"):  # as another process does
        assert "another process is using it" in refused(capsys, tmp_path)
    assert not (tmp_path / "config.json").exists()


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, capsys):
    """A limit on the size of files stands for a full disk: a checkpoint does not fit."""
    folder, wide = tmp_path / "run", ("--hidden", "64", "64")
    with monkeypatch.context() as patch:
        interrupted_at(patch, 20)
        assert train(folder, *wide) == 130
    before = Run(folder).state
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        said = refused(capsys, folder, *wide)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "could not write the checkpoint of step 40" in said
    assert ": File too large; earlier checkpoints are unchanged" in said
    assert Run(folder).step == 20
    same(before, Run(folder).state)
    with monkeypatch.context() as patch:
        interrupted_at(patch, 60)
        assert train(folder, *wide) == 130
    assert Run(folder).step == 60
