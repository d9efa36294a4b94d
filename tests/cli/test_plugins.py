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
from arml.cli import main
from arml.core import registry as plugins
from arml.core.registry import announce, as_options
from arml.experiment.options import TASKS, Experiment, from_json, metric_of, to_json
from arml.results.files import RunError

OWN = Path(__file__).parents[2] / "docs" / "own.py"
SMALL = (
    *("--steps", "4", "--interval", "2", "--batch", "2", "--chunk", "2", "--validate-every", "4"),
    *("--checkpoint-every", "4", "--validation-tasks", "4", "--inner-steps", "1", "--width", "4"),
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
    tmp_path, alone, capsys
):
    run = tmp_path / "run"
    assert main(["train", "waves/rescale", "--run", str(run), *SMALL, f"--plugin={OWN}"]) == 0
    alone()
    config = json.loads((run / "config.json").read_text())["experiment"]
    assert [config[part]["kind"] for part in ("algorithm", "tasks", "network")] == [
        *("rescale", "waves", "residual")
    ]
    assert config["plugins"]["tasks"] == config["plugins"]["network"]
    assert config["plugins"]["algorithm"]["name"] == "own.py"
    assert len(config["plugins"]["algorithm"]["version"]) == 12

    capsys.readouterr()
    assert main(["evaluate", str(run), "--tasks", "4"]) == 2
    assert as_options() == []
    said = capsys.readouterr().err
    error = said.splitlines()[-1]  # its progress may stand before it
    assert (
        "its algorithm 'rescale' must come from the plug-in own.py: give --plugin own.py" in error
    )
    with pytest.raises(RunError, match=r"come from the plug-in own\.py"):
        arml.load(run)

    announce(OWN)
    assert as_options() == ["--plugin", os.path.relpath(OWN)]  # in the commands that are printed
    # In front of the command, in its middle and at its end.
    own = ["--plugin", str(OWN)]
    assert main([*own, "evaluate", str(run), "--tasks", "4"]) == 0
    assert main(["report", *own, str(run), "--out", str(tmp_path / "report.html")]) == 0
    assert main(["export", str(run), "--out", str(tmp_path / "learner"), *own]) == 0
    assert "rescale" in (tmp_path / "report.html").read_text()
    capsys.readouterr()
    assert main(["explain", str(run), "--out", str(tmp_path / "explained"), *own]) == 2
    assert "waves/rescale has nothing inside to show" in capsys.readouterr().err
    # With a function that looks inside, it has figures, in the folder and in the report.
    look = tmp_path / "look.py"
    look.write_text(INSIDE)
    own += ["--plugin", str(look)]
    assert main(["explain", str(run), "--out", str(run / "explain"), "--tasks", "8", *own]) == 0
    found = json.loads((run / "explain" / "explain.json").read_text())
    assert (found["kind"], len(found["scales"]["slow"])) == ("own", 4)
    assert main(["report", *own, str(run), "--out", str(tmp_path / "report.html")]) == 0
    assert "meta-knowledge" not in (tmp_path / "report.html").read_text()
    # The same command again finds the run complete, and a sweep compares errors.
    assert main(["train", "waves/rescale", "--run", str(run), *SMALL, *own]) == 0
    assert metric_of(arml.Run(run).experiment.tasks) == "mse"
    # Another version of the file is told.
    stated = json.loads((run / "config.json").read_text())["experiment"]
    stated["plugins"]["network"]["version"] = "000000000000"
    with pytest.warns(UserWarning, match=r"own\.py is not the version that this was made with"):
        from_json(stated, "config.json")


@pytest.mark.usefixtures("alone")
def test_lists_and_recipes_have_what_a_plugin_brings(capsys):
    own = ["--plugin", str(OWN)]
    assert main(["list", *own]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^ waves +", said, re.MULTILINE)
    assert re.search(r"^ rescale +", said, re.MULTILINE)
    assert re.search(r"^Networks \(--network NAME\): mlp, conv4, .*residual$", said, re.MULTILINE)
    assert main(["list", "waves", *own]) == 0
    said = capsys.readouterr().out
    assert {"waves/rescale", "waves/maml"} <= {*said.split()}
    assert "waves/protonet" not in said  # it compares classes
    assert f"--run runs/waves/maml --plugin {os.path.relpath(OWN)}" in said
    assert main(["list", "rescale", *own]) == 0
    assert {"regression2d/rescale", "starter/rescale"} <= {*capsys.readouterr().out.split()}


@pytest.mark.usefixtures("alone")
def test_a_network_is_chosen_by_name(tmp_path, capsys):
    folder = tmp_path / "run"
    command = ["train", "regression2d/maml", "--run", str(folder), *SMALL, "--plugin", str(OWN)]
    assert main([*command, "--network", "residual"]) == 0
    config = json.loads((folder / "config.json").read_text())["experiment"]
    assert config["network"] == {"kind": "residual", "width": 4}
    assert {*config["plugins"]} == {"network"}
    capsys.readouterr()
    assert main([*command, "--network", "residul"]) == 2
    assert "unknown network 'residul'; did you mean 'residual'?" in capsys.readouterr().err


def test_what_is_no_plugin_is_refused(tmp_path, capsys):
    assert main(["list", "--plugin"]) == 2
    assert "no file after --plugin" in capsys.readouterr().err
    assert main(["list", "--plugin", str(tmp_path / "none.py")]) == 2
    assert "none.py, found none: check the path" in capsys.readouterr().err


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
def test_an_error_in_a_plugin_names_its_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])
    problem = "import arml\nPROBLEM = arml.Problem('regression', (1,), 1, 2, 2)\n"
    (tmp_path / "beside_the_plugin.py").write_text(problem)
    (tmp_path / "broken.py").write_text(BROKEN)
    words = ["train", "broken/maml", "--run", str(tmp_path / "run"), *SMALL[:-2]]
    assert main([*words, "--plugin", str(tmp_path / "broken.py")]) == 1
    said = capsys.readouterr().err
    assert "broken.py, line 10: AttributeError: 'Broken' object has no attribute 'noth" in said
    assert main([*words, "--plugin", str(tmp_path / "broken.py"), "--inner-stps", "1"]) == 2
    assert "Unrecognized options: --inner-stps" in capsys.readouterr().err


@dataclass(frozen=True)
class NeedyOptions(arml.Options):
    """Tasks that need data."""

    data: tuple[str, ...] = ()

    def build(self, split, *, progress=None):
        raise ValueError("give --data FOLDER")


def test_tasks_that_need_data_say_their_usual_problem():
    problem = arml.Problem("classification", (4,), 5, 1, 15)
    try:
        arml.register("tasks", "needy", NeedyOptions)
        assert "needy/maml" not in list(arml.RECIPES)  # and the others are listed
        with pytest.raises(ValueError, match=r"got: give --data FOLDER; or give arml\.register"):
            arml.recipe("needy/maml")
        arml.register("tasks", "needy", NeedyOptions, usual=problem)
        assert arml.recipe("needy/protonet").network.hidden == (64,)
    finally:
        del TASKS.others["needy"]


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
    findings = list(arml.check("method", "rescale"))
    assert len(findings) >= 10
    assert all(finding.passed and not finding.message for finding in findings)
