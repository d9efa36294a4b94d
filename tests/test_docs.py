"""The documentation's code runs, its commands are understood, and its site can be built."""

import contextlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import dropwhile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import jax
import numpy as np
import pytest

import arml
from arml.cli import COMMANDS, dispatch, main
from arml.experiment.recipes import recipe
from small_pictures import pictures

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
        *(ROOT / folder / "README.md" for folder in ("benchmarks", "starter", "study")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
LOGGERS = ("tensorboardX", "wandb", "mlflow")
"""Packages that are not installed; a guide logs to them."""
SMALL = [
    *("--steps", "4", "--interval", "2", "--batch", "2", "--chunk", "2", "--validate-every", "4"),
    *("--checkpoint-every", "4", "--validation-tasks", "4", "--inner-steps", "1"),
]
LONG = (
    *("folders/", "runs/mine", "my-learner", "starter/", "arml app", "arml data prepare"),
    *("export my-predictor --html", "arml evaluate", "arml explain", "arml report", "runs/maml"),
    *("arml grow", "arml tune", "arml check", "train regression2d/arml"),
)
"""Parts of commands that compile for long, wait for somebody or need archives. They are understood,
here, and carried out by the tests of the command line, of reports, data and the page."""


def blocks(page: Path, kind: str) -> list[str]:
    """The blocks of code of a kind."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """The commands of a page's blocks of shell, as words."""
    joined = [block.replace("\\\n", " ") for block in blocks(page, "sh")]
    lines = [line for block in joined for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


class Understood(Exception):
    """A command line was understood; it is not carried out."""


@pytest.fixture
def _only_parsed(monkeypatch):
    from arml.cli.console import parse

    def stop(*args: Any, **kwargs: Any) -> None:
        parse(*args, **kwargs)
        raise Understood

    for name in {"options", *(module for module, _ in COMMANDS.values())}:
        monkeypatch.setattr(import_module(f"arml.cli.{name}"), "parse", stop, raising=False)
    # Without a recipe the data are looked at, and a page's are not there.
    own = recipe("folders/arml"), list[str]()
    monkeypatch.setattr(import_module("arml.cli.options"), "choose", lambda data, **how: own)


@pytest.mark.usefixtures("_only_parsed", "alone")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_is_understood(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for words in commands(page):
        # Variables of the environment may stand before the program.
        program, *rest = dropwhile(re.compile(r"[A-Z_]+=").match, words)
        match Path(program).name, rest:
            case "srun", _:
                with pytest.raises(Understood):
                    dispatch(rest[rest.index("arml") + 1 :])
            case "arml", _:
                with pytest.raises(Understood):
                    dispatch(rest)
            case "make", [target, *_]:
                assert target in targets
            case "pip", ["install", *_, source]:
                named = re.findall(r"\[(.*)\]", source)
                assert {*named} <= {*extras["project"]["optional-dependencies"]}
                base = source.partition("[")[0]
                assert base == "arml" or (ROOT / base).exists(), f"{page}: no {source}"
            case "python", ["-m", module, *_]:
                assert find_spec(module) is not None
            case "python", [file, *_]:
                assert (ROOT / file).exists(), f"{page}: no {file}"
            case (("pytest" | "ruff"), _) if program.startswith(".venv/bin/"):
                pass
            case _:
                raise AssertionError(f"{page}: expected a command that can be checked: {program}")


def carried_out(page: Path, less: dict[str, str] | None = None, **given: Any) -> dict[str, Any]:
    """Run a page's commands and its Python in their order, here, with small budgets.

    **Returns** the names that the Python left; `given` are those that it starts with, and `less`
    replaces budgets of the Python.
    """
    text = page.read_text(encoding="utf-8")
    for budget, small in (less or {}).items():
        assert budget in text, f"{page}: no {budget}"
        text = text.replace(budget, small)
    names: dict[str, Any] = {"__name__": page.stem, **given}
    for kind, block in re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if kind == "python":
            exec(compile(block, page.name, "exec"), names)
            continue
        for line in block.splitlines():
            words = shlex.split(re.sub(r"--steps \d+", "", line), comments=True)
            if words[:1] != ["arml"] or any(name in line for name in LONG):
                continue
            small = [] if words[1] != "train" else SMALL
            if small and "own.py" not in line:  # it has a network of its own
                small = [*small, "--network.hidden", "8"]
            assert main([*words[1:], *small]) == 0, line
    return names


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder; Optax's bias correction adds a float to an integer count."""
    with contextlib.chdir(folder), jax.numpy_dtype_promotion("standard"):
        yield


FEW = {
    "steps=200": "steps=10",
    "n=100": "n=10",
    "n=50": "n=10",
    "steps=100, seed": "steps=10, seed",
    "steps=100, outer": "steps=10, outer",
    "splits, steps=100": "splits, steps=10",
    "steps=100, validate_every=100": "steps=4, interval=2, validate_every=4, validation_tasks=4, "
    "checkpoint_every=4, batch=2",
}
"""Budgets of the researcher's page, and smaller ones: nothing is compiled otherwise."""


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_the_guide_of_research_runs(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "own.py", tmp_path / "docs")
    loggers = {name: MagicMock() for name in LOGGERS}
    for name, logger in loggers.items():
        monkeypatch.setitem(sys.modules, name, logger)
    with inside(tmp_path):
        carried_out(ROOT / "docs" / "research.md", FEW)
    for log in (
        loggers["tensorboardX"].SummaryWriter.return_value.__enter__.return_value.add_scalar,
        loggers["wandb"].init.return_value.__enter__.return_value.log,
        loggers["mlflow"].log_metrics,
    ):
        assert log.call_count > 1
    assert (tmp_path / "runs" / "short" / "config.json").exists()


def own_examples(folder: Path) -> None:
    """Labelled pictures and tables, and more to predict, as the guides name them."""
    for name in ("my-classes", "photos", "more-photos", "labelled"):
        pictures(folder / name, 0, classes=2, size=32)
    rng = np.random.default_rng(0)
    rows = [f"{x:.2f},{'ab'[int(x > 2.5)]},{x * 2:.2f}" for x in rng.uniform(0, 5, 8)]
    (folder / "my.csv").write_text("\n".join(["length,species,height", *rows]) + "\n")
    (folder / "more.csv").write_text("length,species,height\n1.2,a,2.5\n3.4,b,7\n")
    mails = [f"{what} {how}" for what in ("my parcel", "the lamp") for how in ("is late", "broke")]
    lines = [f"{text},{text.split()[-1]}" for text in [*mails, *map("well {}".format, mails)]]
    (folder / "mails.csv").write_text("\n".join(["mail,label", *lines, "a book is late,"]) + "\n")
    (folder / "new-mails.csv").write_text("mail\nmy bed broke\n")


@pytest.mark.parametrize("page", ["README.md", "docs/photographs-and-tables.md"])
def test_the_guides_of_your_own_examples_run(page, tmp_path):
    own_examples(tmp_path)
    with inside(tmp_path):
        left = carried_out(ROOT / page)
    assert (tmp_path / "answers.csv").read_text().startswith("file,label,probability")
    assert {"class0", "class1"} <= {*left["predictor"].classes}


def test_every_page_with_python_is_run():
    run = {"README.md", "docs/photographs-and-tables.md", "docs/research.md"}
    run.add("docs/scaling.md")  # by tests/predict/test_batches.py
    found = {str(page.relative_to(ROOT)) for page in PAGES if blocks(page, "python")}
    assert found == run


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_the_script_of_your_own_runs(tmp_path):
    """With small budgets: 4 steps in the place of 400, and 20 test tasks."""
    script = (ROOT / "docs" / "own.py").read_text(encoding="utf-8")
    assert len(script.splitlines()) <= 62
    assert re.findall(r"^(?:import|from) (arml\.\S+)", script, re.M) == [
        "arml.core.losses",
        "arml.nn",
    ]
    small = (("steps=400, check", "interval=4, steps=4, check"), ("=400", "=4"), ("n=500", "n=20"))
    for budget, less in small:
        assert budget in script
        script = script.replace(budget, less)
    names = {"__name__": "__main__"}
    with inside(tmp_path):
        exec(compile(script, "own.py", "exec"), names)
    assert [len(scores) for scores in names["scores"]] == [20, 20]
    assert (tmp_path / "runs" / "waves" / "rescale" / "config.json").exists()


@pytest.mark.slow
def test_the_notebook_follows_one_task_through_the_equations():
    """Its cells hold the comparisons with the library."""
    notebook = json.loads((ROOT / "docs" / "arml.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    with jax.numpy_dtype_promotion("standard"):
        exec(compile("\n".join(cells).replace("steps=300", "steps=20"), "arml.ipynb", "exec"), {})


EXAMPLES = (
    *("Problem", "Examples", "Task", "loss_of", "linear", "Linear", "network", "GradientDescent"),
    *("InnerOptions", "OuterOptions", "MetaLearner", "Adapted", "TaskDistribution", "Options"),
    *("unbatched", "Inputs", "StringInputs"),
    *("register", "check", "build", "MAML", "ProtoNet", "ARML", "with_steps", "fit", "Fitted"),
    *("Splits", "evaluate", "Scores", "compare", "Verdicts"),
    *("Comparison", "run", "Run", "recipe", "Experiment"),
    *("adapt", "load", "TaskLearner", "FewShotLearner", "Predictor", "load_predictor"),
    *("FewShotClassifier", "FewShotRegressor"),
)
"""The public names and those of modules whose docstrings have an example, which may use those
before it. `docs/make_api.py` has the examples of the other names."""


def example(name: str) -> str:
    """The indented code of a public name's docstring."""
    room = import_module(arml.MOVED_NAMES.get(name, "arml"))
    lines = (inspect.getdoc(getattr(room, name)) or "").splitlines()
    return "\n".join(line[4:] for line in lines if line.startswith("    "))


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_the_examples_of_the_reference_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    values = import_module("make_api").VALUE_EXAMPLES
    public = {*arml.__all__, *arml.MOVED_NAMES}
    assert public ^ set(EXAMPLES) == {*values, "nn", "__version__"}
    assert not [name for name in EXAMPLES if not example(name)]
    code = "import dataclasses\n\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
    code += "\n".join(["import arml\n", *map(example, EXAMPLES), *values.values()])
    # A quarter of the steps, and less: nothing is compiled otherwise.
    for budget, less in (("=400", "=100"), ("=800", "=200"), ("=1_000", "=100")):
        assert budget in code
        code = code.replace(budget, less)
    (tmp_path / "reference.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with inside(tmp_path):
        reference = import_module("reference")
    assert reference.fitted.history
    assert reference.comparison.mean < 0


def test_moved_names_warn_and_name_their_module():
    for name, module in arml.MOVED_NAMES.items():
        with pytest.warns(DeprecationWarning, match=rf"use {module}\.{name}"):
            assert getattr(arml, name) is getattr(import_module(module), name)


def made(*arguments: str) -> None:
    """Run one of the programs in docs/."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, check=True, timeout=600)


def test_the_pages_of_the_methods_are_those_of_their_docstrings():
    made("docs/make_pages.py", "--check")


@pytest.mark.site
def test_the_site_is_built_and_asks_nothing_of_other_machines(tmp_path):
    made("docs/make_site.py", str(tmp_path / "site"))
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(PAGES)
    asks = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//|<link\b[^>]*"
        r"\brel=\"(?:stylesheet|preconnect|preload|icon)\"[^>]*href=\"(?:https?:)?//"
    )
    for path in pages:
        assert not asks.search(path.read_text(encoding="utf-8")), path
    for path in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", path.read_text(encoding="utf-8")), path
