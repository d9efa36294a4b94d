"""Waiting: Ctrl-C is answered at once, and progress shows from the first second."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from rich.console import Console

from arml.cli import console, main
from arml.cli.console import Display, Stop
from arml.cli.train import Training, time_in_words
from arml.experiment.recipes import recipe
from arml.results.files import read_metrics

TINY = "--steps 20 --interval 10 --checkpoint-every 10 --validate-every 10 --validation-tasks 10"
TINY += " --batch 4 --network.hidden 8 --inner-steps 1 --chunk 10"
BUSY = """
import hashlib
from arml.cli.console import Stop
with Stop("stopping soon").listening():
    print("ready", flush=True)
    # Minutes within one call of C, as compilation is: no handler of Python's runs.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000_000)
"""
# A mistake, so that nothing is trained where the machine is quicker than this.
IMPORTING = """
import sys
sys.argv[1:] = ["train", "regression2d/maml", "--run", ""]
from arml.__main__ import program
print("ready", flush=True)
sys.exit(program())
"""


def ready(program):
    """A process that has printed that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


pytestmark = pytest.mark.usefixtures("optax_promotes")


def test_ctrl_c_is_answered_within_a_call_of_c_and_the_second_ends_the_program():
    process = ready(BUSY)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "\n"
    said = "arml: stopping soon; press Ctrl-C again to stop at once\n"
    assert process.stderr.readline() == said
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "\narml: stopped\n"
    assert process.returncode == 130


@pytest.mark.parametrize("seconds", [pytest.param(0.02, marks=pytest.mark.slow), 0.3])
def test_ctrl_c_while_a_command_is_imported_is_one_line(seconds):
    process = ready(IMPORTING)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1].replace("arml: loading ...\n", "").strip()
    assert (process.returncode, said) == (130, "arml: interrupted") or (
        process.returncode == 2 and said.startswith("arml: error: expected a separate folder")
    )


def test_the_first_signal_asks_and_the_handlers_are_restored(capfd):
    for number in (signal.SIGINT, signal.SIGTERM):
        before, stop = signal.getsignal(number), Stop("stopping soon")
        with stop.listening():
            assert not stop()
            os.kill(os.getpid(), number)
            assert stop()
        assert signal.getsignal(number) is before
        assert "stopping soon; press Ctrl-C again" in capfd.readouterr().err


def test_a_training_is_shown_from_its_compilation_on(monkeypatch):
    monkeypatch.setattr(console, "PROGRESS_SECONDS", 0.1)
    text = io.StringIO()
    experiment = replace(recipe("starter/maml"), steps=20)
    with Display(Console(file=text, width=200), "loading") as display:
        training = Training(display, experiment)
        assert training.idle().startswith("stopped; no step is done")
        training.watch(0, {})
        time.sleep(0.25)
        training.watch(10, {"loss": 1.5})
        assert training.idle() == ""
        time.sleep(0.25)
        training.watch(20, {"loss": 1.25, "validation": 0.66, "validation_ci95": 0.01})
    said = text.getvalue()
    assert said.startswith("compiling and making the first steps\ncompiling (0 s)\n")
    assert re.search(r"^training step 10 of 20, loss 1\.5 \(0 s.*\)$", said, re.MULTILINE)
    last = "step 20: accuracy 0.66 ± 0.01 on 5-way validation tasks (chance 0.20)"
    assert last in said
    assert "accuracy not finite on" in time_in_words(experiment, {"validation": None})
    for name, words in (("regression2d/maml", "mean square"), ("starter/maml", "accuracy")):
        assert time_in_words(recipe(name), {"validation": 0.5}).startswith(words)


def test_work_is_shown_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(console, "PROGRESS_SECONDS", 0.2)
    text = io.StringIO()
    with Display(Console(file=text, width=200), "loading") as display:
        time.sleep(0.3)
        for done in (100, 200, 300):
            display.show("scoring tasks", done, 1000)
            time.sleep(0.3)
        lines = text.getvalue().splitlines()
        assert lines[0] == "loading (0 s)"
        assert re.fullmatch(r"scoring tasks 300/1,000 \(1 s, [1-3] s left\)", lines[-1])


@pytest.mark.slow
def test_seeds_are_trained_side_by_side_and_resumed(tmp_path, command):
    folder, train = tmp_path / "runs", f"train regression2d/maml {TINY} --run"
    command(train, tmp_path / "one", "--seed 1")
    said, _ = command(train, folder, "--seeds 2 --workers 1")
    for words in ("training 2 of 2 seeds, 1 at a time", "seed-1: mean squared", "2 seeds: mean "):
        assert words in said
    alone, first, second = (
        read_metrics(run / "metrics.jsonl")
        for run in (tmp_path / "one", folder / "seed-0", folder / "seed-1")
    )
    for one, other in zip(alone, second, strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    assert first != second
    before = (folder / "seed-0" / "metrics.jsonl").stat().st_mtime_ns
    assert "of 2 seeds" not in command(train, folder, "--seeds 2")[0]
    assert (folder / "seed-0" / "metrics.jsonl").stat().st_mtime_ns == before
    _, said = command(train, folder, "--seeds 2 --shots 3", code=2)
    assert "seed-0 holds another run" in said


@pytest.mark.parametrize(("backend", "workers"), [("cpu", 3), ("gpu", 1)])
def test_an_accelerator_trains_one_seed_at_a_time(backend, workers, tmp_path, monkeypatch):
    asked = []

    def began(*_, workers, **__):
        asked.append(workers)
        return dict.fromkeys(range(3), "not trained")

    monkeypatch.setattr("arml.cli.train.train_seeds", began)
    monkeypatch.setattr("arml.cli.train.cores", lambda: 8)
    monkeypatch.setattr("jax.default_backend", lambda: backend)
    command = ["train", "regression2d/maml", "--run", str(tmp_path), *TINY.split(), "--seeds", "3"]
    assert main(command) == main([*command, "--workers", "2"]) == 1
    assert asked == [workers, 2]
