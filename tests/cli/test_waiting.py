"""Waiting: Ctrl-C is answered at once, and progress shows from the first second."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest
from rich.console import Console

import arml.cli as cli
from arml.cli import main, progress, train
from arml.cli.progress import Display, Quality, scoring
from arml.cli.stopping import Stop
from arml.experiment.recipes import recipe

TINY = "--steps 20 --interval 10 --checkpoint-every 10 --validate-every 10 --validation-tasks 10"
TINY += " --batch 4 --network.hidden 8 --inner-steps 1 --chunk 10"
BUSY = """
import hashlib, sys
from arml.cli.stopping import Stop
from arml.cli.options import read
stop = Stop("stopping soon")
with stop.listening():
    print("ready", flush=True)
    # Minutes within one call of C, as compilation is: no handler of Python's runs.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000_000)
"""


pytestmark = pytest.mark.usefixtures("optax_promotes")


def test_ctrl_c_is_answered_within_a_call_of_c_and_the_second_ends_the_program():
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "\n"
    assert process.stderr.readline() == (
        "arml: stopping soon; press Ctrl-C again to stop at once\n"
    )
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "\narml: stopped\n"
    assert process.returncode == 130


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(0.02, marks=pytest.mark.slow), 0.3, pytest.param(0.8, marks=pytest.mark.slow)],
)
def test_ctrl_c_while_a_command_is_imported_is_one_line(seconds):
    # A mistake, so that nothing is trained where the machine is quicker than this.
    program = """
import sys
sys.argv[1:] = ["train", "regression2d/maml", "--run", ""]
from arml.__main__ import program
print("ready", flush=True)
sys.exit(program())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1].replace("arml: loading ...\n", "").strip()
    assert (process.returncode, said) == (130, "arml: interrupted") or (
        process.returncode == 2 and said.startswith("arml: error: expected a folder")
    )


def test_a_command_that_loads_slowly_says_so(monkeypatch, capfd):
    def slowly(module):
        time.sleep(1.5)
        return import_module(module)

    monkeypatch.setattr(cli, "import_module", slowly)
    assert main(["train", "regression2d/maml", "--run", ""]) == 2
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "arml: loading ..."
    assert len(said) == 2


def test_the_first_signal_asks_and_the_handlers_are_restored(capfd):
    for number in (signal.SIGINT, signal.SIGTERM):
        before, stop = signal.getsignal(number), Stop("stopping soon")
        with stop.listening():
            assert not stop()
            os.kill(os.getpid(), number)
            assert stop()
        assert signal.getsignal(number) is before
        assert "stopping soon; press Ctrl-C again" in capfd.readouterr().err


def test_progress_shows_compilation_and_names_the_score(monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    text = io.StringIO()
    display = Display(Console(file=text, width=200), 20, quality=Quality("accuracy", 5))
    assert display.phase == "loading"
    with display:
        display.watch(0, {})
        time.sleep(1.2)
        display.watch(10, {"loss": 1.5})
        time.sleep(0.05)
        display.watch(20, {"loss": 1.25, "validation": 0.66})
    lines = text.getvalue().splitlines()
    assert re.match("compiling and making the first steps: [01] s", lines[0])
    assert lines[-2].startswith("step 10 of 20: loss 1.5")
    assert "loss 1.25, accuracy 0.66 on validation tasks (chance 0.20), 0 s left" in lines[-1]
    assert Quality("mse").said(1.25, 0.5) == "mean squared error 1.25 ± 0.5 on " + (
        "validation tasks"
    )
    assert "accuracy not finite" in Quality("accuracy", 2).said(None)
    for name, said in (("regression2d/maml", "mean squared"), ("starter/maml", "accuracy")):
        assert train._quality(recipe(name)).said(0.5).startswith(said)


def test_scoring_reports_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    with scoring() as watch:
        time.sleep(0.7)
        watch(300, 1000)
        time.sleep(0.7)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("loading and compiling (1 s)\n")
    assert re.search(r"scored 300 of 1,000 tasks \(1 s, [2-4] s left\)\n", said.err)


def test_a_validation_that_takes_long_is_shown(monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    text = io.StringIO()
    display = Display(Console(file=text, width=200), 40, interval=10, validate_every=30)
    with display:
        display.watch(0, {})
        for step in (10, 20):
            time.sleep(0.01)
            display.watch(step, {"loss": 1.5})
        time.sleep(1.8)
    assert "step 30 of 40: validating: 1 s" in text.getvalue()


def test_minutes_that_are_too_few_are_refused(tmp_path, capsys):
    given = ["train", "regression2d/maml", "--run", str(tmp_path / "run")]
    assert main([*given, "--minutes", "0.01"]) == 2
    assert "minutes must be at least" in capsys.readouterr().err
    assert main([*given, "--minutes", "1", "--steps", "7"]) == 2
    assert "--minutes and --steps exclude each other" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_seeds_are_trained_side_by_side_and_resumed(tmp_path, capsys):
    folder = tmp_path / "runs"
    command = ["train", "regression2d/maml", "--run", str(folder), *TINY.split()]
    assert main([*command[:3], str(tmp_path / "one"), *TINY.split(), "--seed", "1"]) == 0
    capsys.readouterr()
    status, (said, errors) = main([*command, "--seeds", "2", "--workers", "1"]), capsys.readouterr()
    logs = [path.read_text() for path in folder.glob("worker-*.log")]
    assert status == 0, (said, errors, logs)
    assert "training 2 of 2 seeds, 1 at a time" in said
    assert "seed-1: mean squared error" in said
    assert "2 seeds: mean " in said

    def metrics(run):
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

    for one, other in zip(metrics(tmp_path / "one"), metrics(folder / "seed-1"), strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    assert metrics(folder / "seed-0") != metrics(folder / "seed-1")
    before = (folder / "seed-0" / "metrics.jsonl").stat().st_mtime_ns
    assert main([*command, "--seeds", "2"]) == 0
    assert "of 2 seeds" not in capsys.readouterr().out
    assert (folder / "seed-0" / "metrics.jsonl").stat().st_mtime_ns == before
    assert main([*command, "--seeds", "2", "--shots", "3"]) == 2
    assert "seed-0 holds another run" in capsys.readouterr().err
    for words in (
        ["--seeds", "0"],
        ["--seeds", "2", "--devices", "2"],
        ["--seeds", "2", "--workers", "0"],
        ["--workers", "2"],
    ):
        assert main([*command, *words]) == 2


@pytest.mark.parametrize(("backend", "workers"), [("cpu", 3), ("gpu", 1)])
def test_an_accelerator_trains_one_seed_at_a_time(backend, workers, tmp_path, monkeypatch):
    asked = []

    def began(*_, workers, **__):
        asked.append(workers)
        return dict.fromkeys(range(3), "not trained")

    monkeypatch.setattr("arml.cli.seeds.train_seeds", began)
    monkeypatch.setattr("arml.cli.seeds.cores", lambda: 8)
    monkeypatch.setattr("jax.default_backend", lambda: backend)
    command = ["train", "regression2d/maml", "--run", str(tmp_path), *TINY.split(), "--seeds", "3"]
    assert main(command) == main([*command, "--workers", "2"]) == 1
    assert asked == [workers, 2]
