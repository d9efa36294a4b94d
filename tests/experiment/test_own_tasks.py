"""A task family of a user's script in a run folder, and in the commands on it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml
from arml.core.own_tasks import as_tasks, own_of
from arml.nn.networks import MLPOptions
from arml.plugins.sources import source_of
from arml.results.files import RunError, sealed, write_json
from arml.results.folder import read_config
from arml.tasks.functions import functions_2d
from arml.tasks.own import OwnOptions
from small import one_line

SCRIPT = Path(__file__).parent / "waves.py"
SMALL = {"steps": 10, "interval": 5, "checkpoint_every": 5, "validate_every": 10}
SMALL |= {"validation_tasks": 8, "batch": 4, "network": MLPOptions(hidden=(4,))}

pytestmark = pytest.mark.usefixtures("optax_promotes")


@pytest.fixture
def waves(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import waves

    yield waves
    sys.modules.pop("waves", None)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder that a script trained, in a process of its own."""
    folder = tmp_path_factory.mktemp("runs") / "waves"
    script = tmp_path_factory.mktemp("script") / "waves.py"
    script.write_text(
        SCRIPT.read_text(encoding="utf-8")
        + f"""

if __name__ == "__main__":
    from arml.nn.networks import MLPOptions

    arml.run("maml", {str(folder)!r}, tasks=Waves(highest=2.0), **{SMALL!r})
    scores = arml.evaluate(arml.Run({str(folder)!r}), Waves(highest=2.0), 20)
    print(scores.mean, scores.identity)
"""
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.split(maxsplit=1)


def test_without_the_class_the_plug_in_is_asked_for(run, command):
    sys.modules.pop("waves", None)
    _, said = command("evaluate", run[0], "--tasks 4", code=2)
    assert "Waves of waves.py, which is not loaded: give --plugin waves.py" in said


def test_the_run_evaluates_explains_and_reports(run, waves, tmp_path, command):
    folder, (mean, identity) = run
    # The script had more lines than the file that is imported here.
    with pytest.warns(UserWarning, match=r"waves\.py is not the version that this was made with"):
        assert len(arml.Run(folder).splits.test.families) == 2
    whole = read_config(folder)
    config = whole["experiment"]["tasks"]
    assert (config["file"], len(config["version"])) == ("waves.py", 12)
    # From here on it is the same.
    config["version"] = source_of(waves.Waves).version
    write_json(folder / "config.json", sealed(whole))
    assert arml.Run(folder).tasks("test").identity() == identity.strip()
    result = json.loads(command("evaluate", folder, "--tasks 20 --json")[0])
    assert result["score"]["mean"] == pytest.approx(float(mean), rel=1e-5)
    assert result["recipe"] == "Waves/maml"
    assert result["protocol"] == "4-shot, 6 queries, tasks of the training distribution"
    assert list(result["families"]) == ["slow", "fast"]
    scores = arml.Run(folder).scores
    assert len(scores) == 20
    assert scores.mean == pytest.approx(float(mean), rel=1e-5)
    command("report", folder, "--out", tmp_path / "page.html")
    assert "Waves/maml" in (tmp_path / "page.html").read_text(encoding="utf-8")
    # What was scored is read, not scored again: that would need the class.
    sys.modules.pop("waves")
    again = shutil.copytree(folder, tmp_path / "again")
    compared = "evaluate", folder, "--against", again, "--json"
    found = json.loads(command(*compared, "--tasks 15")[0])
    assert found["score"]["mean"] == pytest.approx(scores.first(15).mean)
    assert (found["against"]["difference"]["mean"], found["score"]["n"]) == (0, 15)
    for more in ("--tasks 21", "--steps 1", "--split validation"):
        command(*compared, more, code=2)


class Held:
    """A plain object with attributes of each kind that a folder can hold."""

    families = ("only",)

    def __init__(self):
        self.problem = arml.Problem("regression", (2,), 1, shots=2, queries=2)
        self.centres = jnp.arange(4.0).reshape(2, 2)
        self.scale = np.asarray([1, 2])
        self.more = {"a": (1, 2.5), "b": [None, "text"]}

    def sample(self, key):
        x = self.centres + jax.random.normal(key, (2, 2))
        examples = arml.Examples(x, x[:, :1] * self.scale[0].astype(np.float32))
        return arml.Task(examples, examples, 0)


def test_attributes_come_back_from_the_folder(waves):
    for tasks in (waves.Waves(highest=1.5), Held()):
        again = OwnOptions.of(tasks).build(Path("none")).test
        assert again.identity() == as_tasks(tasks).identity()
        assert vars(own_of(again)).keys() == vars(tasks).keys()
        drawn = [one.sample(jax.random.key(1)) for one in (again, tasks)]
        for one, other in zip(*map(jax.tree.leaves, drawn), strict=True):
            np.testing.assert_array_equal(one, other)
    assert type(own_of(again)) is Held


def test_what_a_folder_cannot_hold_is_refused_in_one_line(waves):
    class Inner(waves.Waves):
        pass

    with pytest.raises(ValueError, match=r"a class at the top of a file, got .*Inner: move it"):
        OwnOptions.of(Inner())
    odd = Held()
    odd.more = object()
    with pytest.raises(ValueError, match=r"Held.more: expected a value that .* got object"):
        OwnOptions.of(odd)
    with pytest.raises(RunError, match="give --plugin FILE"):
        OwnOptions("nowhere", "Nothing").build(Path("none"))
    with pytest.raises(ValueError, match=r"unknown option 'step': expected one of .*steps"):
        arml.run("maml", "none", tasks=waves.Waves(), step=4)


def test_a_configuration_imports_no_module_of_a_strangers(tmp_path, monkeypatch):
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "tasks.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RunError, match=r"import strange.tasks first, or give --plugin FILE"):
        OwnOptions("strange.tasks", "Tasks").build(Path("none"))
    with pytest.raises(RunError, match=r"class Popen of subprocess, which is not loaded"):
        OwnOptions("subprocess", "Popen").build(Path("none"))
    made = OwnOptions.of(functions_2d(shots=3))
    monkeypatch.delitem(sys.modules, "arml.tasks.functions")
    assert made.build(Path("none")).test.problem.shots == 3


@pytest.mark.parametrize("state", ["x", "5", '{"a": {"jax": [1, [2]], "dtype": "float32"}}'])
def test_attributes_that_mean_nothing_are_refused_in_one_line(state):
    with pytest.raises(ValueError, match=one_line("expected the attributes of tasks as JSON")):
        OwnOptions("module", "Name", state).check()
