"""Tables in files."""

import importlib.util

import pytest

from arml.tables.sheet import cells_of, read_cells, read_numbers


def test_a_comma_is_a_decimal_sign_where_it_cannot_separate_thousands():
    semicolons, _ = cells_of("size;kind\n1,250;a\n-3,5e2;b,c\n1,250 €;4\n", "t")
    assert semicolons == {"size": ["1.250", "-3.5e2", "1.250 €"], "kind": ["a", "b,c", "4"]}
    tabs, _ = cells_of("size\tcost\n1,5\t12\n1,250\t999\n", "t")
    assert tabs == {"size": ["1.5", "1.250"], "cost": ["12", "999"]}
    tabs, _ = cells_of("cost\tx\n1,250\t12\n999\t3.5\n", "t")
    assert tabs["cost"] == ["1,250", "999"], "in a file without decimal commas they are thousands"
    with pytest.raises(ValueError, match=r"the comma of '1,250' in column 'cost' may separate"):
        cells_of("size\tcost\n1,5\t1,250\n1,250\t999\n", "t")


def test_a_point_that_may_separate_thousands_is_refused_beside_decimal_commas():
    for text in ("cost;share\n1.087;0,5\n867;0,1\n", "cost;x\n0,5;1\n1.050;1\n"):
        with pytest.raises(ValueError, match=r"point of '1\.0(87|50)' in column 'cost' may"):
            cells_of(text, "t")
    kept, _ = cells_of("size;when;share\n1.087;31.05.2024;0,5\n1.1;01.06.2024;0,1\n", "t")
    assert kept["size"] == ["1.087", "1.1"]
    assert cells_of("size;share\n1.087;0.5\n", "t")[0] == {"size": ["1.087"], "share": ["0.5"]}


def test_columns_without_a_name():
    """Spreadsheets add empty columns; data frames add one that numbers the rows, which a learner
    must not read."""
    assert cells_of("a,b,,\n1,x,,\n2,y, ,\n", "t")[0] == {"a": ["1", "2"], "b": ["x", "y"]}
    with pytest.raises(ValueError, match="column 1 has no name, and '0' in its first row: name it"):
        cells_of(",a\n0,x\n1,y\n", "t")
    with pytest.raises(ValueError, match="two columns are named 'a'"):
        cells_of("a,b,a\n1,2,3\n", "t")


def test_what_spreadsheets_write():
    want = {"size": ["1.5", "2"], "sort, kind": ["a", "b"]}
    for text, lines in (
        ('sep=;\nsize;"sort, kind"\n1,5;a\n2;b\n', [3, 4]),
        ('\n\nsize;"sort, kind"\n1,5;a\n\n2;b\n', [4, 6]),
        ('\ufeffsize,"sort, kind"\r\n1.5,a\r\n2,b\r\n', [2, 3]),
        ("size\tsort, kind\n1.5\ta\n2\tb\n", [2, 3]),
    ):
        assert cells_of(text, "t") == (want, lines)


def test_bytes_of_a_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("größe\n1\n2\n".encode("utf-16"))
    assert read_cells(path)[0] == {"größe": ["1", "2"]}
    path.write_bytes("größe\n1\n2\n".encode("cp1252"))
    with pytest.raises(ValueError, match="byte 2 is not UTF-8: save it as CSV in UTF-8"):
        read_cells(path)


@pytest.mark.skipif(importlib.util.find_spec("openpyxl") is not None, reason="openpyxl is there")
def test_excel_without_its_extra(tmp_path):
    (tmp_path / "t.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"pip install 'arml\[excel\]'"):
        read_cells(tmp_path / "t.xlsx")


def test_an_excel_file(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["size", "kind", None], [1.5, "a", None], [None, None, None], [2, "b", None]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    assert read_cells(tmp_path / "t.xlsx") == ({"size": [1.5, 2], "kind": ["a", "b"]}, [2, 4])
    book.active.append([3, None])
    book.save(tmp_path / "t.xlsx")
    assert read_numbers(tmp_path / "t.xlsx", target="kind")[2] == ["a", "b", ""]
