"""The tutorial's code runs, and a page shows how a learner grew."""

import json
import re
from pathlib import Path

import jax
import pytest

from arml.grow.comparisons import WAYS
from arml.report.growth import decisions, reading_figure, write_growth
from arml.report.measures import tasks_to_bound
from arml.report.table import markdown
from arml.results.files import RunError
from arml.results.growth import read_growing
from growing_tables import OF_ALL, growing_table

PAGE = Path(__file__).parents[2] / "docs" / "growing.md"
STUDY = PAGE.parents[1] / "benchmarks" / "results" / "growing.json"


@pytest.mark.slow
def test_the_tutorial_runs_and_is_drawn(tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    for budget, small in (("2_000", "10"), ("tasks=200", "tasks=10, batch=2"), ("n=200", "n=10")):
        assert budget in code
        code = code.replace(budget, small)
    code = code.replace("vertices=1", "vertices=1, hidden=(4,), width=4, inner_steps=1")
    names = {}
    with jax.numpy_dtype_promotion("standard"):
        exec(compile(code, "growing.md", "exec"), names)
    records = names["growth"].records
    assert names["growth"].known == ("line", "ripple")
    assert len(names["scores"]) == 10
    drawn = reading_figure(records)
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["stage 1", "stage 2"]
    told = [line.cells[0].text for line in decisions(records).lines]
    assert told.count("trained") == 2
    page = tmp_path / "growth.html"
    write_growth(records, page, title="Grown", lead="Two stages.")
    assert "The graph through time" in page.read_text(encoding="utf-8")


def test_the_table_is_that_of_the_file():
    study = read_growing(STUDY)
    assert markdown(growing_table(study)) in PAGE.read_text(encoding="utf-8")


def test_the_ways_that_train_on_all_families_are_known():
    assert {way.name for way in WAYS.values() if way.tasks == "all"} == {*OF_ALL}


def test_a_damaged_study_is_refused_in_one_line(tmp_path):
    study = json.loads(STUDY.read_text(encoding="utf-8"))
    row = study["rows"]["A-B-A/0/growing"]
    for damage in ({"seed": "0"}, {"stages": []}, {"stages": [{**row["stages"][0], "scores": {}}]}):
        study["rows"] = {"one": {**row, **damage}}
        (tmp_path / "growing.json").write_text(json.dumps(study))
        with pytest.raises(RunError, match=r"growing\.json"):
            read_growing(tmp_path / "growing.json")


def test_tasks_count_only_if_the_whole_learner_reaches_the_bound():
    curve = [{"tasks": 10, "score": 2.0}, {"tasks": 20, "score": 1.0}, {"tasks": 30, "score": 0.9}]
    # The loser of a trial took five tasks.
    stage = {"stage": {"a": 1.0}, "scores": {"a": 1.1}, "curve": curve, "tasks": 35}
    bound = [{"scores": {"a": 1.0}}]
    assert tasks_to_bound([stage], bound, "mse") == [25]
    assert tasks_to_bound([{**stage, "scores": {"a": 1.2}}], bound, "mse") == [None]
