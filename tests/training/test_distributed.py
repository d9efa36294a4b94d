"""One run of several processes, joined over loopback: the same numbers, one end, one writer."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from arml.cli import main
from arml.results.files import read_metrics, write_json
from arml.results.folder import read_config
from arml.training import checkpoint
from arml.training.distributed import Processes

PACE = "--interval 10 --checkpoint-every 20 --validate-every 30 --validation-tasks 10"
LINES = f"regression2d/maml {PACE} --batch 8 --chunk 2 --hidden 8 --inner-steps 1".split()


pytestmark = pytest.mark.usefixtures("optax_promotes")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def begun(words, folder, processes=2):
    """The processes of a run; each writes what it prints to a file."""
    place, said = f"127.0.0.1:{free_port()}", []
    joined = ["--coordinator", place, "--processes", str(processes), "--process"]
    command = [sys.executable, "-m", "arml", "train", *words, "--run", str(folder), *joined]
    folder.parent.mkdir(parents=True, exist_ok=True)
    for i in range(processes):
        out = folder.parent / f"{folder.name}-{i}.txt"
        environment = os.environ | {"JAX_NUM_CPU_DEVICES": "2"}
        with out.open("w") as file:
            one = subprocess.Popen(
                [*command, str(i)], stdout=file, stderr=subprocess.STDOUT, env=environment
            )
        said.append((one, out))
    return said


def ended(said, seconds=120):
    """The exit statuses, and the output."""
    try:
        return [one.wait(seconds) for one, _ in said], [out.read_text() for _, out in said]
    finally:
        for one, _ in said:
            one.kill()


def wait_for(condition, said):
    while not condition():
        assert any(one.poll() is None for one, _ in said), [out.read_text() for _, out in said]
        time.sleep(0.05)


def same(one, other):
    first, second = (read_metrics(folder / "metrics.jsonl") for folder in (one, other))
    assert [row.keys() for row in first] == [row.keys() for row in second]
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose([*a.values()], [*b.values()], rtol=1e-3)


@pytest.mark.slow
def test_a_signal_to_one_stops_both_and_one_process_goes_on(tmp_path):
    two, one = tmp_path / "two", tmp_path / "one"
    said = begun([*LINES, "--steps", "100000"], two)
    wait_for(lambda: (two / "metrics.jsonl").exists(), said)
    said[1][0].send_signal(signal.SIGTERM)
    statuses, (first, second) = ended(said)
    assert statuses == [130, 130], (first, second)
    step = checkpoint.latest(two / "checkpoints")
    assert f"stopped and saved at step {step:,}; to resume" in first
    assert "compiling" in first
    assert "compiling" not in second
    # The same tasks as one process draws: a run may go on with another number of processes.
    more = ["--steps", str(step + 20)]
    for folder in (two, one):
        config = folder / "config.json"
        if config.exists():
            kept = read_config(folder)
            kept["experiment"]["steps"] = step + 20
            write_json(config, kept)
        assert main(["train", *LINES, *more, "--run", str(folder)]) == 0
    same(one, two)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_process_that_dies_ends_the_other_and_the_run_goes_on(killed, tmp_path):
    two, one = tmp_path / "two", tmp_path / "one"
    words = [*LINES, "--steps", "1000"]
    assert main(["train", *words, "--run", str(one)]) == 0
    said = begun(words, two)
    wait_for(lambda: checkpoint.latest(two / "checkpoints") is not None, said)
    said[killed][0].kill()
    since = time.monotonic()
    statuses, texts = ended(said)
    assert time.monotonic() - since < 60
    assert statuses[1 - killed] == 2
    last = texts[1 - killed].splitlines()[-1]
    assert last.startswith("arml: error: another process of the run has ended; the same command")
    assert checkpoint.latest(two / "checkpoints") < 1000  # in the middle of the training
    statuses, texts = ended(begun(words, two))
    assert statuses == [0, 0], texts
    assert "resuming at step" in texts[0]
    assert "resuming at step" not in texts[1]
    same(one, two)


@pytest.mark.parametrize(
    ("given", "shape", "said"),
    [
        (("h:1", 3, 0), (4, 0), "batch must be a multiple of the 3 devices of the 3 processes"),
        (("h:1", 2, 0), (4, 4), "batch must be a multiple of the 8 devices of the 2 processes"),
        (("h:1", 2, 2), (4, 0), "process must be from 0 to 1, got 2"),
        (("h:1", 0, 0), (4, 0), "processes must be at least 1, got 0"),
        (("h", 2, 0), (4, 0), "coordinator must be HOST:PORT, got 'h'"),
        (("", 2, 0), (4, 0), "coordinator must be HOST:PORT, got ''"),
    ],
)
def test_what_cannot_work_is_refused_before_any_process_waits(given, shape, said):
    with pytest.raises(ValueError, match=said):
        Processes(True, *given).check(*shape)


def test_the_processes_of_a_job_are_counted_before_they_are_joined(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "3")
    with pytest.raises(ValueError, match="of the 3 processes, got 4"):
        Processes(True).check(4, 0)
    Processes(True).check(6, 2)


@pytest.mark.parametrize("words", ["--seeds 2", "--minutes 1"])
def test_options_of_one_process_are_refused_with_several(words, tmp_path, command):
    train = "train regression2d/maml --distributed --run", tmp_path / "run"
    assert "--distributed trains one run" in command(*train, words, code=2)[1]
    assert not (tmp_path / "run").exists()


SCALING = Path(__file__).parents[2] / "docs" / "scaling.md"
SCRIPTS = re.findall(r"^```bash\n(.*?)^```$", SCALING.read_text(encoding="utf-8"), re.M | re.S)
SRUN = """#!/bin/bash
for ((i = 0; i < SLURM_NTASKS; i++)); do
  SLURM_PROCID=$i SLURM_LOCALID=$i "$@" & started+=($!)
done
for one in "${started[@]}"; do wait "$one" || status=$?; done
exit ${status:-0}
"""
"""What `srun` does on one machine."""
RAY = """#!/bin/bash
until [ $# -eq 0 ] || [ "$1" = -- ]; do shift; done
shift
unset RAY_ADDRESS RAY_AUTH_MODE
exec "$@"
"""
"""What `ray symmetric-run` does there, but for its end: it stops every cluster of the machine."""


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_of_the_docs_are_bash(script):
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "#SBATCH" in script
    assert "\nsrun " in script


@pytest.mark.slow
@pytest.mark.parametrize(("words", "tasks"), [("--distributed", 2), ("symmetric-run", 1)])
def test_scripts_of_the_docs_run_where_srun_starts_processes(words, tasks, tmp_path):
    """JAX finds the processes by the variables of SLURM."""
    (script,) = [one for one in SCRIPTS if words in one]
    script = script.replace("plain-multi/arml", "regression2d/maml")
    small = f"--steps 60 {' '.join(LINES[1:])}"
    for name, text in (("srun", SRUN), ("ray", RAY), ("scontrol", "#!/bin/bash\necho host\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = [str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]]
    job = free_port() - 61440
    slurm = {"NTASKS": tasks, "NNODES": 1, "STEP_NODELIST": "127.0.0.1", "JOB_NODELIST": "node"}
    environment = os.environ | {f"SLURM_{name}": str(value) for name, value in slurm.items()}
    environment |= {"SLURM_JOB_ID": str(job % 4096), "PATH": os.pathsep.join(path)}
    command = ["bash", "-c", script.replace("--steps 50000", small)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "next: arml evaluate runs/arml" in done.stdout
