"""The command line, from outside: what it prints, what it writes, what it refuses."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module

import pytest

from arml.__main__ import write_everything
from arml.cli import main
from arml.results.folder import read_result
from arml.tasks.functions import BAYES_FLOORS
from small_pictures import pictures

# Now: a command that imports it for more than a second says so, and no test expects that.
import_module("arml.cli.train")

PACE = "--steps 20 --interval 10 --checkpoint-every 10 --validate-every 10 --validation-tasks 10"
SMALL = f"{PACE} --batch 4 --network.hidden 8 --inner-steps 1 --chunk 10".split()
ARML = [*SMALL, *["--width", "4", "--vertices", "3", "--summary", "mlp", "--algorithm.hidden"]]


pytestmark = pytest.mark.usefixtures("optax_promotes")


@pytest.fixture(scope="module")
def maml(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "maml"
    assert main(["train", "regression2d/maml", "--run", str(folder), *SMALL]) == 0
    return folder


@pytest.fixture(scope="module")
def relational(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "arml"
    assert main(["train", "regression2d/arml-paper", "--run", str(folder), *ARML]) == 0
    return folder


@pytest.fixture
def evaluated(command):
    return lambda *words: json.loads(command("evaluate", *words, "--json")[0])


def refused(capsys, *arguments):
    """The one line with which a command refuses. A slow machine prints progress before it."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    *before, line = said.err.splitlines(keepends=True)
    assert line.startswith("arml: error: ")
    assert all(re.match(r"(loading|scoring) .* \(\d+ s.*\)$", other) for other in before), said.err
    return line


def test_help_for_people(command):
    assert "usage: arml COMMAND" in command("")[0]
    assert command("train --help")[0].count("\n") < 60
    said, _ = command("train regression2d/arml --help")
    for words in ("--run", "--steps", "Tasks in one outer step.", "Vertices of the graph."):
        assert words in said
    for option in ("inner-rate", "vertices", "hidden"):
        assert f"--algorithm.{option}" in said
    assert "--network.hidden" in said
    assert "--recipe" not in said


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "regression2d-wide"),
        ("", "first-order-maml"),
        # The score of the laptop study, and the setting and method that it belongs to.
        ("starter", r"starter/maml +69\.2% "),
        ("maml", r"starter/maml +69\.2% "),
        ("regression2d/maml", r"regression2d/maml +1\.17 +4 "),
        ("tnp", r"starter/tnp +- "),
        ("folders", r"folders/maml --data FOLDER_OR_ZIP\.\.\. --run runs/folders/maml"),
        ("omniglot", "1,623 handwritten characters"),
        ("texts", "Texts: mails, reviews"),
    ],
)
def test_settings_methods_and_recipes_are_listed_with_their_scores(command, words, line):
    said, _ = command("list", words)
    assert re.search(line, said)
    assert said.count("\n") < 100


def test_a_list_is_kept_and_then_loads_no_jax(tmp_path):
    program = "import sys; from arml.cli import main; main(['list', *sys.argv[1:]]); "
    program += "print('jax' in sys.modules)"
    environment = {**os.environ, "ARML_CACHE": str(tmp_path)}

    def said(*words):
        command = [sys.executable, "-c", program, *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.rpartition("\n")[0].rpartition("\n")[::2]

    first, loaded = said()
    assert loaded == "True"
    assert said() == (first, "False")
    assert re.search(r"starter/maml +69\.2% ", said("starter")[0])
    kept = tmp_path / "list.json"
    kept.write_text(kept.read_text()[:100])
    assert said() == (first, "True")


def test_lists_as_json(command):
    found = json.loads(command("list maml --json")[0])
    assert [*found["methods"]] == ["maml"]
    assert found["recipes"]["starter/maml"]["metric"] == "accuracy"
    assert {name.split("/")[1] for name in found["recipes"]} == {"maml"}


def test_training_a_finished_run_again_changes_nothing(maml, tmp_path, command):
    before = (maml / "metrics.jsonl").read_bytes()
    said, _ = command("train regression2d/maml", *SMALL, "--run", maml)
    assert (maml / "metrics.jsonl").read_bytes() == before
    assert "already trained for 20 steps" in said
    assert said.count("mean squared error") == 1
    assert "next: arml evaluate" in said
    # It may have no validation records.
    folder = shutil.copytree(maml, tmp_path / "copy")
    (folder / "metrics.jsonl").unlink()
    assert "next: arml evaluate" in command("train regression2d/maml --run", folder, *SMALL)[0]


def test_evaluate_writes_what_it_prints(maml, evaluated):
    result = evaluated(maml, "--tasks 25")
    assert read_result(maml / "result.json") == result
    assert result["score"]["n"] == 25
    assert sum(family["n"] for family in result["families"].values()) == 25
    weighted = sum(f["n"] * f["mean"] for f in result["families"].values() if f["n"]) / 25
    assert result["score"]["mean"] == pytest.approx(weighted)
    assert result["score"]["ci95"] > 0
    stated = "10-shot, 10 queries, inputs U[0, 5], noise 0.3, tasks of the training distribution"
    assert result["protocol"] == stated
    assert result["floor"] == BAYES_FLOORS[0.0, 5.0]
    assert result["parameters"] == 2 * 8 + 8 + 8 + 1
    assert (result["steps"], result["inner_steps"], result["metric"]) == (20, 1, "mse")
    assert {"arml", "jax", "jaxlib", "equinox", "optax", "python", "numpy"} == {*result["versions"]}
    assert result["commit"] is None or len(result["commit"].partition("-")[0]) == 40
    assert result["seconds"] > 0
    assert "core" in result["device"]


def test_other_splits_steps_and_shots_leave_the_result_alone(maml, tmp_path, evaluated, command):
    test = evaluated(maml, "--tasks 10")
    before = (maml / "result.json").read_bytes()
    more = evaluated(maml, "--tasks 10 --steps 2 --out", tmp_path / "more.json")
    assert more["inner_steps"] == 2
    assert read_result(tmp_path / "more.json") == more
    fewer = evaluated(maml, "--tasks 10 --shots 3")
    assert fewer["protocol"].startswith("3-shot, ")
    assert "have no option ways" in command("evaluate", maml, "--ways 3", code=2)[1]
    assert "tasks must be at least 1, got 0" in command("evaluate", maml, "--tasks 0", code=2)[1]
    said, _ = command("evaluate", maml, "--tasks 4 --split validation")
    assert "not kept: the folder keeps" in " ".join(said.split())
    assert evaluated(maml, "--tasks 10 --split validation")["score"] != test["score"]
    assert (maml / "result.json").read_bytes() == before


def test_two_runs_are_compared_task_by_task(maml, relational, evaluated):
    result = evaluated(relational, "--tasks 20 --against", maml)
    other = evaluated(maml, "--tasks 20")
    gap = result["against"]["difference"]
    assert gap["mean"] == pytest.approx(result["score"]["mean"] - other["score"]["mean"])
    assert result["against"]["score"] == other["score"]
    assert gap["n"] == sum(family["n"] for family in gap["families"].values()) == 20


def test_from_training_to_the_page(maml, relational, tmp_path, command):
    table = "".join(command("evaluate", folder, "--tasks 30")[0] for folder in (maml, relational))
    for words in ("Mean ± 95% interval over tasks", "30 test tasks", "best possible", "sinusoid"):
        assert words in table
    out, page = relational / "explain", tmp_path / "page.html"
    command("explain", relational, "--out", out, "--tasks 20")
    kinds = {path.suffix for path in out.iterdir() if path.name[0] != "."}
    assert kinds == {".png", ".svg", ".json"}
    command("report", maml, relational, "--out", page)
    said = page.read_text()
    assert "regression2d/arml-paper" in said
    assert "The meta-knowledge graph of 3 vertices" in said
    assert said.count("<img ") == 4


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("tarin", "did you mean 'train'?"),
        ("train --run R", "no recipe and no data"),
        ("train regression2d/armll --run R", "did you mean 'regression2d/arml' or"),
        ("list mamll", "did you mean 'maml'"),
        ("train nosuch --run regression2d/maml", "unknown recipe 'nosuch'"),
        ("train regression2d/tapnet --run R", "'tapnet' is not for the tasks of 'regression2d'"),
        ("train regression2d/arml --run R --hidden 8", "--algorithm.hidden or --network.hidden"),
        ("adapt startr --support . --query .", "did you mean 'starter'?"),
        ("train regression2d/maml --run R --inner-rate -1", "inner_rate must be 0 or more, got -1"),
        ("train regression2d/maml --run R --steps 0", "steps must be at least 1, got 0"),
        ("train regression2d/maml --run R --shots 0", "shots must be 1 or more, got 0"),
        ("train regression2d/maml --run R --minutes 0", "minutes must be above 0"),
        ("train regression2d/maml --run R --minutes 1 --steps 7", "--minutes and --steps exclude"),
        ("train regression2d/maml --run R --seeds 2 --devices 2", "--seeds excludes --devices"),
        ("train regression2d/maml --run R --seeds 2 --workers -1", "workers must be 0 or more"),
        ("train regression2d/maml --run R --workers 2", "--workers and --on are for --seeds"),
        ("train waves/maml --run R", "if a script of yours registers 'waves', give --plugin"),
        ("train folders/maml --run R", "give --data FOLDER_OR_ZIP..."),
        ("train folders/maml --run R --data nowhere", "nowhere"),
        ("evaluate R", "expected a run folder with a config.json"),
        # What tyro would say in a box of many lines.
        ("train regression2d/maml", "Missing from arml train regression2d/maml: --run PATH"),
        (
            "train regression2d/maml --run R --inner-rat 1",
            "Unrecognized options: --inner-rat, 1; Perhaps you meant: --algorithm.inner-rate",
        ),
        ("train regression2d/maml --run R --run S", "--run was given twice: give it once"),
        ("train regression2d/arml --run R --tasks.hidden 8", "--tasks.hidden"),
        ("train regression2d/maml --run R --hidden 8 x", "--network.hidden"),
        ("train regression2d/maml --run R --steps", "Missing value for argument '--steps'"),
        ("train regression2d/maml --run R --steps 1.5", "Error parsing --steps"),
        ("train regression2d/maml --run R --inner-rate fast", "'fast'"),
        ("train regression2d/maml --run R --init odd", "'odd'"),
        ("evaluate R S", "S"),
    ],
)
def test_refusals_are_one_line_that_helps(command, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert says in refused(capsys, *command.split())
    assert not (tmp_path / "R").exists()


@pytest.mark.parametrize("words", ["--debug train nothing", "train nothing --debug"])
def test_debug_shows_the_traceback_wherever_it_stands(words, command):
    _, said = command(words, code=2)
    assert "Traceback" in said
    assert "arml: error: unknown recipe 'nothing'" in said


def test_mistakes_are_named_before_learning(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the repository has a folder `starter`, too
    rows = ["x1,x2,height", *(f"{i / 2},{i % 4},{i % 3}" for i in range(6))]
    for name, text in (
        ("points.csv", "\n".join(rows)),
        ("other.csv", "x1,x3\n1,2\n"),
        ("empty.csv", ""),
        ("class.csv", "class\nx\ny\n"),
        ("taken/file", ""),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").mkdir()
    pictures(tmp_path / "few", 0, classes=2)
    read = "few/class0/0.png"
    for name in ("a", "b"):
        (tmp_path / "same" / name).mkdir(parents=True)
        shutil.copy(read, f"same/{name}")
    points = "adapt regression2d --target height --support points.csv --query"
    photos = f"adapt photos --support few --query few {read}"
    for command, says in (
        (f"{points} other.csv", "x1, x3 are not those of the support table, x1, x2"),
        ("adapt regression2d --support none --save p", "nothing at none"),
        ("adapt starter --support points.csv", "is a table, and starter reads pictures"),
        ("adapt tables --support empty.csv --target class", "is empty: add a header"),
        ("adapt tables --support class.csv --target class", "one or more columns of inputs"),
        ("adapt --support same --save p", "all 2 pictures are identical"),
        (f"{photos} --columns", "--columns is for tables: leave it out"),
        (
            f"{points} points.csv --matter",
            "--matter is for pictures and tables and texts: leave it out",
        ),
        (
            f"{points} points.csv --report a.html",
            "--report is for pictures and texts: leave it out",
        ),
        (f"{points} points.csv --none", "--none is for classes: leave it out"),
        (f"{photos} --save taken", "is not empty: name another"),
        (f"{photos} --save taken/file", "is a file, not a new or empty folder: name another"),
        (f"{photos} --out taken", "is a folder: name a CSV file"),
        (f"{photos} --out taken/file", "would replace a file that is not CSV"),
        (f"{photos} --out {read}", "is a file that the command reads"),
        ("predict few", "no queries after the predictor"),
        (f"predict starter {read}", "has not learned your classes. `arml adapt starter"),
        ("adapt photos --support few --query empty", "expected pictures"),
        ("report --out page.html", "expected one or more run folders"),
    ):
        said = refused(capsys, *command.split())
        assert says in said
        assert "learned from" not in said
    assert main([*photos.split(), "--save", "with spaces"]) == 0
    assert "next: arml predict 'with spaces' FILES" in capsys.readouterr().err
    said = refused(capsys, "export", "with spaces", "--out", "out")
    assert "is a predictor, and --out writes the learner of a run" in said
    said = refused(capsys, "explain", "with spaces", "--out", "figures")
    assert "an arml predictor of photographs: open it" in said


@pytest.mark.parametrize(("terminal", "written"), [(False, "猫\n".encode()), (True, b"?\n")])
def test_any_class_can_be_written_whatever_the_terminals_encoding(monkeypatch, terminal, written):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    write_everything()
    print("猫", flush=True)
    assert stream.buffer.getvalue() == written
