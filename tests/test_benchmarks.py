"""The benchmarks' tables are those of their files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import arml

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_the_tables_are_those_of_the_files():
    command = [sys.executable, str(BENCHMARKS / "table.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def drawn():
    """The files of figures that pages draw."""
    import table

    return sorted(
        n for n in {"fair", *table.BLOCKS} if (BENCHMARKS / "results" / f"{n}.json").is_file()
    )


@pytest.mark.parametrize("name", drawn())
def test_no_page_draws_a_figure_that_is_older_than_its_code(name):
    """The rule is in benchmarks/README.md: it holds figures of earlier releases to their code."""
    from common import is_older

    value = json.loads((BENCHMARKS / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert not is_older(value), f"measure {name}.json again, or remove it and what quotes it"


def test_a_figure_of_an_earlier_release_is_held_to_its_code(tmp_path, monkeypatch):
    import common

    monkeypatch.setattr(common, "PACKAGE", tmp_path)
    file = tmp_path / "a.py"
    file.write_text("x = 1  # one\n")
    sources = {"a.py": common.digest(file)}
    value = {"machine": {"versions": {"arml": "0.0.1"}}, "sources": sources}
    file.write_text('"""What it is."""\nx = 1\n"""One."""\n')
    assert not common.is_older(value)
    file.write_text("x = 2\n")
    assert common.is_older(value)
    assert not common.is_older({**value, "machine": {"versions": {"arml": arml.__version__}}})
    file.unlink()
    assert common.is_older(value)
    assert common.is_older({**value, "sources": {}})


@pytest.mark.usefixtures("alone")
def test_every_training_of_the_comparison_is_an_experiment():
    import conflict
    from fair import GROUPS, METHODS, Training

    conflict.register()

    for method in METHODS:
        for group in ("starter", "all"):
            Training(method, GROUPS[group], 5, 10, 0.003, 0).experiment().check()


@pytest.mark.usefixtures("alone")
def test_the_share_of_the_specialists_gain_by_hand():
    from fair import GROUPS, Setting, table

    families, found = GROUPS["glyphs"], {}

    def add(method, group, *accuracies, **other):
        names = families if group == "glyphs" else [group]
        of = dict(zip(names, accuracies, strict=True))
        test = {k: " ".join(f"{v + 0.01 * (i % 2):.2f}" for i in range(10)) for k, v in of.items()}
        about = {"method": method, "group": group, "shots": 5, "rate": 0.003, "ways": 5}
        about |= {"steps": 200 * len(of), "validation": sum(accuracies), "test": test, **other}
        found.update({f"{len(found)}-{seed}": {**about, "seed": seed} for seed in range(3)})

    add("protonet", "glyphs", 0.5, 0.7)
    add("arml-2", "glyphs", 0.55, 0.8)
    # Training tasks of more classes and averaged weights are other tables.
    add("arml-2", "glyphs", 0.5, 0.5, ways=20)
    add("arml-2", "glyphs", 0.5, 0.5, averaged=True)
    # The search did not keep this rate.
    add("arml-2", "glyphs", 0.9, 0.1, rate=0.01)
    for family, accuracy in zip(families, (0.6, 0.9), strict=True):
        add("protonet", family, accuracy)
    lines = {line.name: line for line in table(found, {"": Setting("glyphs", 5, 400)}).lines}
    ours = "`arml`, 2 vertices"
    assert [*lines] == ["a ProtoNet for each family", ours, "ProtoNet, one for all families"]
    accuracy, difference = (cell.text for cell in lines[ours].cells)
    assert accuracy == "68.0% (SD 0.0)"
    assert difference.startswith("+7.5 ± ")
    assert difference.endswith(" (50%)")


def test_the_tables_of_the_results_are_those_of_the_file():
    from fair import page, results

    text = (Path(__file__).parents[1] / "study" / "searched.md").read_text(encoding="utf-8")
    assert page(text, results()) == text, "run python benchmarks/fair.py --page study/searched.md"
