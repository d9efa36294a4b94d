"""The tutorial's code runs, and a page shows how a learner grew."""

import json
import re
from pathlib import Path

import jax
import pytest

from arml.report.growth import decisions, reading_figure, write_growth

PAGE = Path(__file__).parents[2] / "docs" / "growing.md"
BENCHMARKS = PAGE.parents[1] / "benchmarks"


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


def test_the_table_is_that_of_the_file(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import growing

    rows = json.loads(growing.RESULTS.read_text(encoding="utf-8"))["rows"]
    assert growing.table(rows) in PAGE.read_text(encoding="utf-8")
