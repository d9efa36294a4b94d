"""The tab of tables: what it answers and refuses, and how it is used in a browser."""

import base64
import csv
import io

import numpy as np
import openpyxl
import pytest

import arml
import chromium
from arml.app import server, table_tab
from arml.app.picture_tab import Limits
from serving import serving

LIMITS = Limits(rows=40, columns=6)


@pytest.fixture(scope="module")
def learners():
    return {"classes": arml.load("tables"), "numbers": arml.load("tables-regression")}


def asked(**changes):
    return {**table_tab.example_table(0), "target": "tree", "kind": "classes", **changes}


def test_rows_without_a_value_are_predicted_from_the_others(learners):
    answer = table_tab.predicted(learners, asked(), LIMITS)
    rows = list(csv.reader(io.StringIO(answer["csv"])))
    assert rows == [answer["header"], *answer["rows"]]
    assert answer["header"] == ["tree", "probability", "height", "leaf", "bark"]
    cells = list(csv.reader(io.StringIO(asked()["csv"])))[1:]
    examples, queries = cells[:15], cells[15:]
    assert [row[2:] for row in answer["rows"]] == [row[:3] for row in queries]
    names = ("height", "leaf", "bark")
    x, more = ({n: [row[i] for row in p] for i, n in enumerate(names)} for p in (examples, queries))
    predictor = learners["classes"].adapt(x, [row[3] for row in examples])
    chances = predictor.predict_proba(more)
    assert [row[0] for row in answer["rows"]] == predictor.predict(more).tolist()
    found = [float(row[1]) for row in answer["rows"]]
    np.testing.assert_allclose(found, chances.max(axis=1), atol=1e-4)
    # A spreadsheet copies tabs; the order of rows is free, and a title is named.
    first, *others = asked()["csv"].splitlines()
    pasted = "\r\n".join(["My trees", first, *others[15:], *others[:15]]).replace(",", "\t")
    found = table_tab.predicted(learners, asked(csv=pasted), LIMITS)
    assert found["rows"] == answer["rows"]
    assert "left out row 1, which seems to be a title" in found["remark"]


def test_numbers_have_quantiles_and_columns_matter(learners):
    a = [3, 9, 1, 12, 7, 0, 15, 4, 11, 2, 14, 6, 13, 8, 5, 10]
    lines = [f"{a[i]},{(i * 7) % 5},{2 * a[i] if i < 14 else ''}" for i in range(16)]
    content = asked(csv="\n".join(["a,b,y", *lines]), target="y", kind="numbers")
    found = table_tab.columns(content, LIMITS)
    assert [column["kind"] for column in found["columns"]] == ["numbers", "classes", "numbers"]
    assert [column["empty"] for column in found["columns"]] == [0, 0, 2]
    answer = table_tab.predicted(learners, content, LIMITS)
    assert answer["header"] == ["y", "low 90%", "high 90%", "a", "b"]
    for row in answer["rows"]:
        middle, low, high = map(float, row[:3])
        assert low < middle < high
    drops = {
        c["name"]: c["factor"] for c in table_tab.checked(learners, content, LIMITS)["columns"]
    }
    assert drops["a"] > drops["b"]


def test_the_target_is_the_column_whose_last_cells_are_empty():
    for table in ("a,b,c\n1,x,5\n,y,6\n3,,7\n4,,8\n", "a,b\n1,2\n3,4\n"):
        assert table_tab.columns({"csv": table}, LIMITS)["target"] == "b"


def test_a_file_is_read_as_the_command_reads_it():
    data = base64.b64encode("größe;b\n1,5;x\n;y\n".encode("cp1252")).decode()
    found = table_tab.read_table({"name": "t.csv", "data": data}, Limits())
    assert found["csv"] == "größe,b\n1.5,x\n,y\n"
    assert (found["header"], found["rows"]) == (["größe", "b"], [["1.5", "x"], ["", "y"]])
    assert found["remark"].startswith("t.csv: read as Windows-1252")


def test_the_limits_end_the_reading_of_a_file():
    book, file = openpyxl.Workbook(), io.BytesIO()
    for _ in range(41):
        book.active.append([1, 2, 3, 4, 5, 6])
    book.save(file)
    for name, data, said in (
        ("t.csv", b"a,b\n" + b"1,2\n" * 41, "t.csv: at most 40 rows are read, got more"),
        ("t.csv", b"a,b,c,d,e,f,g\n1", "at most 6 columns are read"),
        ("t.xlsx", file.getvalue(), "t.xlsx: at most 240 cells of a spreadsheet are read"),
    ):
        with pytest.raises(ValueError, match=said):
            table_tab.read_table({"name": name, "data": base64.b64encode(data).decode()}, LIMITS)


def test_refusals_are_one_line(learners):
    for content, said in (
        (asked(csv=" "), "no table: paste one with a header"),
        (asked(csv="a,b\n1"), "row 2 has 1 cells, the header 2"),
        (asked(csv="a,b\n" + "1,2\n" * 41), "at most 40 rows are read, got more"),
        (asked(csv="a,b,c,d,e,f,g\n1,2,3,4,5,6,7"), "at most 6 columns are read, got more"),
        (asked(target="trees"), "no column 'trees' to predict"),
        (asked(kind="words"), "expected classes or numbers"),
        (asked(kind="numbers"), "'oak' in column 'tree' of row 2 .* is not a number to predict"),
        (asked(target="height"), "too many for classes"),
        (asked(csv="a,tree\n1,\n2,oak"), "two or more rows with a value"),
        (asked(csv="a,tree\n" + "1,oak\n2,elm\n" * 3), "no row has an empty cell in 'tree'"),
    ):
        with pytest.raises(ValueError, match=said) as refused:
            table_tab.predicted(learners, content, LIMITS)
        assert "\n" not in str(refused.value)


def test_what_the_check_says_is_shown(learners):
    rows = [f"{i},{'ab'[i % 2]},{'xy'[i % 2]}" for i in range(24)]
    found = table_tab.checked(learners, asked(csv="\n".join(["n,copy,tree", *rows])), LIMITS)
    assert "'copy' says the same as the answer" in found["summary"]


@pytest.mark.site
def test_the_tab_in_a_browser(learners):
    """With the keyboard alone, in a narrow window."""
    served = server.Served(None, learners, LIMITS)
    with (
        serving(served) as site,
        chromium.opened(site.address, width=390, complaint="400 (Bad Request)") as page,
    ):
        use(page, learners)


def use(page, learners):
    page.wait_for_selector("body[data-ready]")
    assert page.locator("[role=tab]:visible").all_inner_texts() == ["A table"]
    # A broken table is refused; then cells of a spreadsheet, and a prediction.
    page.focus("#table-text")
    page.keyboard.insert_text("a,a\n1,2")
    page.wait_for_selector("#tables-status.bad >> text=two columns are named 'a'")
    assert page.is_disabled("#table-predict")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(table_tab.example_table(0)["csv"].replace(",", "\t"))
    page.wait_for_selector("#table-count >> text=15 examples, 9 to predict")
    assert page.input_value("#table-target") == "tree"
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "table-kind"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tables-status >> text=Answered in")
    answer = table_tab.predicted(learners, asked(), LIMITS)
    shown = page.locator("#table-rows td").all_inner_texts()
    assert shown == [cell for row in answer["rows"] for cell in row]
    with page.expect_download() as download:
        page.click("#table-save")
    assert download.value.path().read_text() == answer["csv"]
    page.click("#table-check")
    page.wait_for_selector("#tables-status >> text=Checked in")
    drops = table_tab.checked(learners, asked(), LIMITS)
    assert page.inner_text("#table-trust") == drops["summary"]
    assert page.locator("#table-columns .bar span").all_inner_texts() == [
        column["name"] for column in drops["columns"]
    ]
    # Another column makes the old answers go; a file that is dropped replaces the table.
    page.select_option("#table-target", "bark")
    assert page.locator("#table-answer").is_hidden()
    file = {"name": "own.csv", "mimeType": "text/csv", "buffer": b"b;c\n1;2\n3;\n5;9\n"}
    page.set_input_files("#table-file", file)
    page.wait_for_selector("#table-count >> text=2 examples, 1 to predict")
    assert page.input_value("#table-target") == "c"
