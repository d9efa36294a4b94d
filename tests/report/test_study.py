"""What is drawn from a study: comparisons, verdicts on the paper's claims, and the page, which a
real browser opens."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chromium
from arml.report import verdicts
from arml.report.claims import CANNOT, CONFIRMED, NOT, NOT_YET, Claim, counted, judge
from arml.report.explained import strongest
from arml.report.paper import overall, reported_by_family
from arml.report.statistics import Comparison, compare, difference_of, holm
from arml.report.study import export, load_study, write_study
from arml.results.files import plain
from arml.results.folder import (
    RunError,
    TaskScores,
    read_json,
    read_scores,
    write_json,
    write_scores,
)
from studies import FAMILIES, explanation, row, table, write_run, write_study_of

TASKS = 200
NOISE = np.random.default_rng(0)
BASE = NOISE.gamma(2.0, 0.5, TASKS)


def scores(values, tasks="same"):
    return TaskScores(np.asarray(values, np.float32), np.zeros(len(values), np.uint8), tasks)


def worse(by: float, seed: int = 0) -> np.ndarray:
    """Scores that are worse by about `by` on every task."""
    return BASE + by + 0.05 * np.random.default_rng(seed).standard_normal(TASKS)


def test_a_comparison_is_paired_by_task_and_keeps_seeds_apart() -> None:
    a = {0: scores(BASE + 1.0), 1: scores(BASE + 3.0), 7: scores(BASE)}
    b = {0: scores(BASE), 1: scores(BASE)}
    found = compare(a, b)
    assert found.mean == pytest.approx(2.0, abs=1e-5)
    assert found.by_seed == pytest.approx((1.0, 3.0), abs=1e-5)
    # The tasks differ by a lot, their differences by nothing.
    assert found.ci95 == pytest.approx(0.0, abs=1e-5)
    assert found.tasks == TASKS
    apart = compare({0: scores(BASE + 1)}, {5: scores(BASE)})
    assert apart.by_seed == pytest.approx((1.0,), abs=1e-5)


def test_the_p_value_is_that_of_the_normal_distribution() -> None:
    values = np.random.default_rng(1).standard_normal(400) + 0.1
    found = difference_of(values)
    z = values.mean() / (values.std(ddof=1) / 20)
    assert found.p == pytest.approx(2 * (1 - 0.5 * (1 + math.erf(abs(z) / math.sqrt(2)))))
    assert found.ci95 == pytest.approx(1.96 * values.std(ddof=1) / 20)
    assert difference_of(np.zeros(5)).p == 1.0
    assert difference_of(np.ones(5)).p == 0.0
    assert difference_of(np.array([1.0, np.nan])).mean is None


def test_other_tasks_are_not_compared() -> None:
    with pytest.raises(RunError, match="expected scores on the same tasks"):
        compare({0: scores(BASE)}, {0: scores(BASE, "others")})


def test_holm_is_the_textbook_example() -> None:
    ps = (0.01, 0.04, 0.03, 0.005)
    found = holm([Comparison(1.0, 0.1, p, p, 9, ()) for p in ps])
    assert [c.adjusted for c in found] == pytest.approx([0.03, 0.06, 0.06, 0.02])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_only_raises_and_keeps_the_order(ps: list[float]) -> None:
    found = [c.adjusted for c in holm([Comparison(1.0, 0.1, p, p, 9, ()) for p in ps])]
    assert all(p <= q <= 1 for p, q in zip(ps, found, strict=True))
    order = np.argsort(ps, kind="stable")
    assert all(np.diff(np.array(found)[order]) >= 0)


def test_the_papers_tables_are_there() -> None:
    assert overall("regression2d", "arml") == (0.44, 0.03)
    assert reported_by_family("plain-multi-5shot", "arml")["bird"] == (73.34, 0.70)
    assert len(reported_by_family("art-multi-1shot", "hsml")) == 12 + 3
    assert overall("art-multi-5shot", "arml") == (58.59, None)
    assert overall("mini-imagenet", "arml") == (50.42, 1.73)
    assert reported_by_family("ablations-plain-multi", "VIII")["bird"] == (73.45, 0.71)
    assert overall("no", "arml") is None


def test_scores_are_read_as_written_and_damage_is_refused(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.npz", BASE, np.arange(TASKS) % 3, "abc")
    found = read_scores(tmp_path / "s.npz")
    np.testing.assert_array_equal(found.values, BASE.astype(np.float32))
    assert (found.tasks, found.families[5]) == ("abc", 2)
    (tmp_path / "s.npz").write_bytes((tmp_path / "s.npz").read_bytes()[:90])
    for name in ("s.npz", "none.npz"):
        with pytest.raises(RunError, match="score the run again"):
            read_scores(tmp_path / name)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ARML beats A; B differs by nothing; the seeds of C disagree; D failed; E is to come."""
    tmp_path = tmp_path_factory.mktemp("study")
    rows = [row(name, name, 2) for name in ("ARML", "A", "B", "C", "D", "E")]
    rows[0] |= {"paper": "arml"}
    write_study_of(tmp_path, {"regression2d": table("ARML", rows, paper="regression2d")})
    for seed in (0, 1):
        write_run(tmp_path, "ARML", seed, BASE)
        write_run(tmp_path, "A", seed, worse(0.3, seed))
        write_run(tmp_path, "B", seed, worse(0.0, 5 + seed))
        write_run(tmp_path, "C", seed, worse((0.5, -0.2)[seed], seed))
    (tmp_path / "runs/D/seed-0").mkdir(parents=True)
    write_json(tmp_path / "runs/D/seed-0/failure.json", {"error": "the loss was not finite"})
    return tmp_path


def claim(other: str, *, equal: bool = False, better: str = "ARML", place: str = "regression2d"):
    return Claim("g", f"{better} over {other}", (place,), better, other, equal)


def test_verdicts_are_computed_from_the_differences(study: Path) -> None:
    claims = [
        claim("A"),
        claim("B"),
        claim("C"),
        claim("D"),
        claim("E"),
        claim("ARML", better="A"),
        claim("B", equal=True),
        claim("ARML", better="A", equal=True),
        claim("A", place="plain-multi-1shot"),
        claim("A", place="starter-1shot"),
    ]
    found = judge(load_study(study), claims)
    assert [v.verdict for v in found] == [
        *(CONFIRMED, NOT, NOT, NOT, NOT_YET, NOT, CONFIRMED, NOT, CANNOT, NOT_YET)
    ]
    for verdict, said in zip(
        found,
        ("better", "no difference", "seeds disagree", "not finite", "", "worse"),
        strict=False,
    ):
        assert said in verdict.said
    assert "A worse" in found[7].said
    assert counted(found) == "2 confirmed, 5 not confirmed, 2 not yet run, 1 cannot be tested here."
    single = [replace(v, comparison=replace(v.comparison, by_seed=(0.1,))) for v in found[:1]]
    assert counted(single) == "1 confirmed (1 of them by one seed)."
    assert "-0.3" in found[0].said
    assert "p < 0.001, 200 tasks, by seed" in found[0].said


def test_one_more_claim_makes_it_harder_for_all(study: Path) -> None:
    (alone,) = judge(load_study(study), [claim("B")])
    first, *_ = judge(load_study(study), [claim("B"), claim("A")])
    assert alone.comparison is not None
    assert first.comparison is not None
    assert first.comparison.adjusted >= alone.comparison.adjusted


def test_a_learner_that_reads_all_tasks_alike_is_said_to() -> None:
    explain = explanation()
    assert "line V" in strongest(explain)
    weights = explain["average"]["line"]["mean"]
    same = {name: {"mean": weights, "sd": [[0.0] * 4] * 2} for name in FAMILIES}
    assert strongest({**explain, "average": same}).startswith("All tasks read the vertices alike")


@pytest.fixture(scope="module")
def page(study: Path) -> Path:
    folder = study / "runs/ARML/seed-0"
    write_json(folder / "explain" / "explain.json", explanation())
    return write_study(study)[0]


def test_the_page_has_all_rows_the_verdicts_and_its_figures_beside_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("the loss was not finite") >= 1
    assert "not yet run" in text
    assert "▼ worse" in text
    assert "≈ no difference" in text
    assert "0.44 ± 0.03" in text
    assert "ripple &lt;b&gt;" in text
    assert "ripple <b>" not in text
    assert "https://" not in text
    beside = {path.name for path in (page.parent / "figures").iterdir()}
    assert {"regression2d.json", "regression2d-curves.svg", "arml-effects.svg"} <= beside
    rows = read_json(page.parent / "figures" / "regression2d.json")["rows"]
    assert [r["label"] for r in rows] == ["ARML", "A", "B", "C"]
    assert rows[1]["difference"]["mean"] == pytest.approx(0.3, abs=0.02)
    claims = read_json(page.parent / "claims.json")["claims"]
    assert {c["verdict"] for c in claims} <= {CONFIRMED, NOT, CANNOT, NOT_YET}
    again = page.read_bytes()
    assert write_study(page.parent)[0].read_bytes() == again


def test_what_is_exported_draws_the_same_tables(page: Path, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    (page.parent / "runs/ARML/seed-0/checkpoints/100").mkdir(parents=True)
    (page.parent / "runs/A/seed-0/metrics.jsonl").unlink()  # as of what trains nothing
    export(page.parent, out)
    assert not list(out.rglob("checkpoints"))
    assert (out / "runs/A/seed-0/result.json").exists()
    assert '"loss"' not in (out / "runs/ARML/seed-0/metrics.jsonl").read_text()
    found = [verdict.plain() for verdict in judge(load_study(out))]
    assert plain(found) == read_json(page.parent / "claims.json")["claims"]


def test_the_documents_claims_are_those_of_the_files(study: Path, tmp_path: Path, capsys) -> None:
    root = Path(__file__).parents[2]
    kept = [str(root / "docs" / "reproduce.md"), str(root / "results" / "laptop")]
    assert verdicts.main([*kept, "--check"]) == 0
    document = tmp_path / "claims.md"
    document.write_text(f"before {' old '.join(verdicts.CLAIMS)} {' old '.join(verdicts.TABLES)}")
    assert verdicts.main([str(document), str(study), "--check"]) == 1
    assert "are stale; run" in capsys.readouterr().err
    assert verdicts.main([str(document), str(study)]) == 0
    text = document.read_text()
    assert text.startswith("before")
    assert "| ARML, paper's text, is better than HSML | `starter-1shot` | not yet run |" in text
    assert "Cannot be tested here: `plain-multi-1shot`" in text
    assert re.search(r"^\| ARML \| [01]\.\d+ .* \| 0.44 ± 0.03 \| reference \|", text, re.MULTILINE)
    assert re.search(
        r"^\| A \| .* \| \+0\.\d+ ± 0\.00\d \| ▼ worse \| < 0.001 \|", text, re.MULTILINE
    )
    assert re.search(r"^\| C \| .* \| ≈ the seeds disagree \| < 0.001 \|", text, re.MULTILINE)
    assert "| D | the loss was not finite |" in text
    assert "### Starter set" not in text  # has no row yet
    document.write_text("no markers")
    assert verdicts.main([str(document), str(study)]) == 1


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"expected a study with a study\.json"):
        load_study(tmp_path)


SHOWN = "[...document.querySelectorAll('.panel')].filter(p => !p.hidden).map(p => p.querySelector('h4').textContent).join()"  # noqa: E501


def test_a_browser_opens_it_without_complaint_and_the_graph_answers(page: Path) -> None:
    with chromium.opened(page.resolve().as_uri(), width=1200) as tab:
        shown = tab.page
        ask = shown.evaluate
        assert ask("document.documentElement.dataset.ready") == "yes"
        # The graph: one panel at a time, by pointer and by keyboard.
        assert ask(SHOWN) == "Vertex V0"
        shown.hover("g.vertex:nth-of-type(3) circle")
        assert ask(SHOWN) == "Vertex V2"
        shown.click("g.vertex:nth-of-type(2) circle")
        shown.keyboard.press("ArrowRight")
        shown.keyboard.press("ArrowRight")
        assert ask(SHOWN) == "Vertex V3"
        assert ask("document.activeElement.getAttribute('aria-label')").startswith("V3")
        links = "[...document.querySelectorAll('.explorer line')]"
        visible = f"{links}.filter(l => l.style.display === '').length"
        assert ask(visible) == 3
        ask("(s => { s.value = s.min; s.dispatchEvent(new Event('input')); })"
            "(document.querySelector('input[type=range]'))")  # fmt: skip
        assert ask(visible) == 6
        # The table: sorted by its score, missing rows last, and back.
        labels = "[...document.querySelectorAll('#regression2d tbody th')].map(c => c.dataset.value).join()"  # noqa: E501
        shown.click("#regression2d thead th:nth-child(2) button")
        first = ask(labels).split(",")
        assert first[0] == "Bayes"
        assert set(first[-2:]) == {"D", "E"}
        shown.click("#regression2d thead th:nth-child(2) button")
        assert ask(labels).split(",")[0] == "A"
        assert ask("document.querySelector('#regression2d th[aria-sort]').ariaSort") == "descending"
        # Narrow: nothing is wider than the window but what scrolls by itself.
        shown.set_viewport_size({"width": 360, "height": 700})
        assert ask("document.documentElement.scrollWidth") <= 360
        assert shown.pdf().startswith(b"%PDF")
    assert tab.complaints == []
    assert [url for url in tab.asked if not url.startswith(("file:", "data:"))] == []
    assert len(FAMILIES) == 2
