"""A plug-in file on the command line: every command takes it, and a run remembers it."""

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import arml
from arml.algorithms import ALGORITHMS
from arml.experiment.options import Experiment, from_json, metric_of, to_json
from arml.plugins import loading as plugins
from arml.plugins.loading import announce, as_options
from arml.predict.contract import check
from arml.results.files import RunError

OWN = Path(__file__).parents[2] / "docs" / "own.py"
SMALL = (
    "--steps 4 --interval 2 --batch 2 --chunk 2 --validate-every 4 --checkpoint-every 4 "
    "--validation-tasks 4 --inner-steps 1"
)
pytestmark = pytest.mark.usefixtures("optax_promotes")
INSIDE = """
import jax
import arml

def inside(learner, tasks, *, n, chunk):
    keys = jax.random.split(jax.random.key(0), n)
    weights = jax.vmap(lambda key: tasks.sample(key).support.y.std())(keys)
    return {"scales": {name: weights[:4] for name in tasks.families}, "note": "of the targets"}

known = arml.ALGORITHMS["rescale"]
arml.register("method", "rescale", known.options_class, inside=inside)
"""


def test_a_run_of_a_plugin_is_trained_scored_reported_exported_and_says_what_it_lacks(
    tmp_path, alone, command
):
    run, page = tmp_path / "run", tmp_path / "report.html"
    train = f"train waves/rescale --run {run} {SMALL} --width 4"
    command(train, f"--plugin={OWN}")
    alone()
    config = json.loads((run / "config.json").read_text())["experiment"]
    kinds = [config[part]["kind"] for part in ("algorithm", "tasks", "network")]
    assert kinds == ["rescale", "waves", "residual"]
    assert config["plugins"]["tasks"] == config["plugins"]["network"]
    assert config["plugins"]["algorithm"]["name"] == "own.py"
    assert len(config["plugins"]["algorithm"]["version"]) == 12

    _, said = command("evaluate", run, "--tasks 4", code=2)
    assert "its algorithm 'rescale' must come from the plug-in own.py: give --plugin own.py" in said
    assert as_options() == []
    with pytest.raises(RunError, match=r"come from the plug-in own\.py"):
        arml.load(run)

    announce(OWN)
    assert as_options() == ["--plugin", os.path.relpath(OWN)]  # in the commands that are printed
    # In front of the command, in its middle and at its end.
    own = f"--plugin {OWN}"
    command(own, "evaluate", run, "--tasks 4")
    command("report", own, run, "--out", page)
    command("export", run, "--out", tmp_path / "learner", own)
    assert "rescale" in page.read_text()
    _, said = command("explain", run, "--out", tmp_path / "explained", own, code=2)
    assert "waves/rescale has no explanation to show" in said
    # With a function that looks inside, it has figures, in the folder and in the report.
    (tmp_path / "look.py").write_text(INSIDE)
    own += f" --plugin {tmp_path}/look.py"
    command(f"explain {run} --out {run}/explain --tasks 8", own)
    found = json.loads((run / "explain" / "explain.json").read_text())
    assert (found["kind"], len(found["scales"]["slow"])) == ("own", 4)
    command("report", own, run, "--out", page)
    assert "meta-knowledge" not in page.read_text()
    # The same command again finds the run complete, and a sweep compares errors.
    command(train, own)
    assert metric_of(arml.Run(run).experiment.tasks) == "mse"
    # Another version of the file is told.
    stated = json.loads((run / "config.json").read_text())["experiment"]
    stated["plugins"]["network"]["version"] = "000000000000"
    with pytest.warns(UserWarning, match=r"own\.py is not the version that this was made with"):
        from_json(stated, "config.json")


@pytest.mark.usefixtures("alone")
def test_lists_and_recipes_have_what_a_plugin_brings(command):
    own = f"--plugin {OWN}"
    said, _ = command("list", own)
    for line in ("^ waves +", "^ rescale +", r"^Networks \(--network NAME\): mlp, .*residual$"):
        assert re.search(line, said, re.MULTILINE)
    said, _ = command("list waves", own)
    assert {"waves/rescale", "waves/maml"} <= {*said.split()}
    assert "waves/protonet" not in said  # it compares classes
    assert f"--run runs/waves/maml --plugin {os.path.relpath(OWN)}" in said
    said, _ = command("list rescale", own)
    assert {"regression2d/rescale", "starter/rescale"} <= {*said.split()}


@pytest.mark.usefixtures("alone")
def test_a_network_is_chosen_by_name(tmp_path, command):
    words = f"train regression2d/maml --run {tmp_path} {SMALL} --width 4 --plugin {OWN} --network"
    command(words, "residual")
    config = json.loads((tmp_path / "config.json").read_text())["experiment"]
    assert config["network"] == {"kind": "residual", "width": 4}
    assert {*config["plugins"]} == {"network"}
    _, said = command(words, "residul", code=2)
    assert "unknown network 'residul'; did you mean 'residual'?" in said


def test_what_is_no_plugin_is_refused(tmp_path, command):
    assert "no file after --plugin" in command("list --plugin", code=2)[1]
    _, said = command("list --plugin", tmp_path / "none.py", code=2)
    assert "none.py, found none: check the path" in said


BROKEN = """
import arml
from beside_the_plugin import PROBLEM

class Broken(arml.TaskDistribution):
    problem = PROBLEM
    families = ("one",)

    def sample(self, key):
        return self.nothing

arml.register("tasks", "broken", Broken, usual=PROBLEM)
"""


@pytest.mark.usefixtures("alone")
def test_an_error_in_a_plugin_names_its_line(tmp_path, monkeypatch, command):
    monkeypatch.setattr(sys, "path", [*sys.path])
    problem = "import arml\nPROBLEM = arml.Problem('regression', (1,), 1, 2, 2)\n"
    (tmp_path / "beside_the_plugin.py").write_text(problem)
    (tmp_path / "broken.py").write_text(BROKEN)
    words = f"train broken/maml --run {tmp_path}/run {SMALL} --plugin {tmp_path}/broken.py"
    _, said = command(words, code=1)
    assert "broken.py, line 10: AttributeError: 'Broken' object has no attribute 'noth" in said
    _, said = command(words, "--inner-stps 1", code=2)
    assert "Unrecognized options: --inner-stps" in said


@dataclass(frozen=True)
class NeedyOptions(arml.Options):
    """Tasks that need data."""

    data: tuple[str, ...] = ()

    def build(self, split, *, progress=None):
        raise ValueError("give --data FOLDER")


@pytest.mark.usefixtures("alone")
def test_tasks_that_need_data_say_their_usual_problem():
    problem = arml.Problem("classification", (4,), 5, 1, 15)
    arml.register("tasks", "needy", NeedyOptions)
    assert "needy/maml" not in list(arml.RECIPES)  # and the others are listed
    with pytest.raises(ValueError, match=r"got: give --data FOLDER; or give arml\.register"):
        arml.recipe("needy/maml")
    arml.register("tasks", "needy", NeedyOptions, usual=problem)
    assert arml.recipe("needy/protonet").network.hidden == (64,)


@pytest.mark.usefixtures("alone")
def test_options_that_are_not_registered_are_named():
    plugins.load_plugin(OWN)
    experiment = Experiment("mine", algorithm=ALGORITHMS["rescale"].options_class())
    del ALGORITHMS.others["rescale"]
    with pytest.raises(ValueError, match=r"got RescaleOptions: call arml\.register\('method'"):
        to_json(experiment)


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_the_method_of_the_guide_keeps_the_contract():
    """Adding a method takes its file: the contract tests need no edit to test it."""
    announce(OWN)
    findings = list(check("method", "rescale"))
    assert len(findings) >= 10
    assert all(finding.passed and not finding.message for finding in findings)
