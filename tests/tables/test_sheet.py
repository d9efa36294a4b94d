"""Tables in files."""

import gzip
import struct
import zipfile

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arml.tables.kinds import Declared
from arml.tables.sheet import read_sheet, sheet_of


def cells(text):
    return sheet_of(text, "t").cells


def test_a_comma_is_a_decimal_sign_where_it_cannot_separate_thousands():
    semicolons = cells("size;kind\n1,250;a\n-3,5e2;b,c\n1,250 €;4\n")
    assert semicolons == {"size": ["1.250", "-3.5e2", "1.250 €"], "kind": ["a", "b,c", "4"]}
    assert cells("size\tcost\n1,5\t12\n1,250\t999\n")["size"] == ["1.5", "1.250"]
    # In a file without decimal commas they separate thousands.
    assert cells("cost\tx\n1,250\t12\n999\t3.5\n")["cost"] == ["1,250", "999"]
    assert cells("size;share\n1.087;0.5\n") == {"size": ["1.087"], "share": ["0.5"]}
    assert cells("size;share\n1.087;0,5\n1.1;0,1\n")["size"] == ["1.087", "1.1"]
    with pytest.raises(ValueError, match=r"the comma of '1,250' in column 'cost' may separate"):
        cells("size\tcost\n1,5\t1,250\n1,250\t999\n")
    prices = cells("cost;kind\n2.150;a\n2.240,50 €;b\n12;c\n")
    assert prices == {"cost": ["2150", "2240.50 €", "12"], "kind": ["a", "b", "c"]}
    with pytest.raises(ValueError, match=r"point of '2\.150' in column 'cost' may separate"):
        cells("cost;kind\n2.150;a\n2.240,50;b\n1.5;c\n")
    for text in ("cost;share\n1.087;0,5\n867;0,1\n", "cost;x\n0,5;1\n1.050;1\n"):
        with pytest.raises(ValueError, match=r"point of '1\.0(87|50)' in column 'cost' may"):
            cells(text)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("0.72,a\n0.5,b\n", "0.72, a; if the first row is data, add a header above it"),
        ("a y\n1 b\n", "a y; if that is more than one column, separate its cells by commas"),
        ("a,b\n1,2\n", "name one with --target: a, b"),
    ],
)
def test_a_target_that_is_not_there(text, advice):
    with pytest.raises(ValueError, match=f"no column 'y' to predict; .*{advice}$"):
        sheet_of(text, "t").answered("y", numbers=False)


def test_empty_rows_between_others_are_named():
    sheet = sheet_of("a,b\n1,x\n,\n\n2,y\n,\n,\n", "t")
    assert sheet == ("t", {"a": ["1", "2"], "b": ["x", "y"]}, [2, 5], "t: left out empty rows: 3")


def test_columns_without_a_name():
    """Spreadsheets add empty columns; data frames add one that numbers the rows, which a learner
    must not read."""
    assert cells("a,b,,\n1,x,,\n2,y, ,\n") == {"a": ["1", "2"], "b": ["x", "y"]}
    with pytest.raises(ValueError, match="column 1 has no name, and '0' in its first row: name it"):
        cells(",a\n0,x\n1,y\n")
    with pytest.raises(ValueError, match="two columns are named 'a'"):
        cells("a,b,a\n1,2,3\n")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('sep=;\nsize;"sort, kind"\n1,5;a\n2;b\n', [3, 4]),
        ('\n\nsize;"sort, kind"\n1,5;a\n\n2;b\n', [4, 6]),
        ('\ufeffsize,"sort, kind"\r\n1.5,a\r\n2,b\r\n', [2, 3]),
        ("size\tsort, kind\n1.5\ta\n2\tb\n", [2, 3]),
    ],
)
def test_what_spreadsheets_write(text, lines):
    want = {"size": ["1.5", "2"], "sort, kind": ["a", "b"]}
    assert sheet_of(text, "t") == ("t", want, lines, "")


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_letters_of_a_file(tmp_path, code):
    """Windows-1252 with semicolons and decimal commas is what German Excel writes."""
    path = tmp_path / "t.csv"
    path.write_bytes("Größe;Preis\r\n1,5;1.250,50 €\r\n2;3,00 €\r\n".encode(code))
    sheet = read_sheet(path)
    assert sheet.cells == {"Größe": ["1.5", "2"], "Preis": ["1250.50 €", "3.00 €"]}
    guess = f"{path}: read as Windows-1252, because it is not UTF-8: check 'Größe'"
    assert sheet.remark == (guess if code == "cp1252" else "")


@pytest.mark.parametrize("data", [b"a\n\x81\n", b"a\n\xe9\x00\n", b"a\n1\0\n", b"\xff\xfea"])
def test_bytes_that_are_no_text_are_refused(tmp_path, data):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="no text in UTF-8, UTF-16 or Windows-1252: save it"):
        read_sheet(path)


def test_an_excel_file(tmp_path):
    path, book = tmp_path / "t.xlsx", openpyxl.Workbook()
    for row in (["size", "kind", None], [1.5, "a", None], [None, None, None], [2, "b", None]):
        book.active.append(row)
    book.save(path)
    assert read_sheet(path)[1:3] == ({"size": [1.5, 2], "kind": ["a", "b"]}, [2, 4])
    book.active.append([3, None])
    book.save(path)
    answers, known, unknown = read_sheet(path).answered("kind", numbers=False)
    assert (answers, known.cells, unknown.lines) == (["a", "b"], {"size": [1.5, 2]}, [5])


def test_a_spreadsheet_is_read_as_it_looks(tmp_path):
    """Merged cells have one value, a hidden sheet is not read, and no formula is an empty cell."""
    path, book = tmp_path / "t.xlsx", openpyxl.Workbook()
    for row in (["Trees of 2024"], ["kind", "size"], ["oak", 1], [None, 2], ["elm", 3], [None, 4]):
        book.active.append(row)
    for cells in ("A1:B1", "A3:A4", "A5:A6"):
        book.active.merge_cells(cells)
    hidden = book.create_sheet("notes", 0)
    hidden.append(["a"])
    hidden.append([1])
    hidden.sheet_state = "hidden"
    book["Sheet"].row_dimensions[4].hidden = True
    book.save(path)
    sheet = read_sheet(path)
    assert sheet.cells == {"kind": ["oak", "oak", "elm", "elm"], "size": [1, 2, 3, 4]}
    assert sheet.lines == [3, 4, 5, 6]
    said = "read the sheet 'Sheet', and not notes: choose with --sheet"
    assert all(line in sheet.remark for line in (said, "merged", "'Trees of 2024'", "others: 1"))
    assert read_sheet(path, "notes").cells == {"a": [1]}
    other = path.rename(tmp_path / "t.ods")  # which another library reads, by its content
    assert read_sheet(other)._replace(where="") == sheet._replace(
        where="", remark=sheet.remark.replace(str(path), str(other))
    )
    path = other.rename(path)
    with pytest.raises(ValueError, match="no sheet 'x': choose one of notes, Sheet with --sheet"):
        read_sheet(path, "x")
    book["Sheet"]["B4"] = "=B3*2"
    book.save(path)
    with pytest.raises(ValueError, match="the formula in B4 of sheet 'Sheet' was never calculated"):
        read_sheet(path)


def test_cells_far_apart_are_refused_before_they_are_read(tmp_path):
    """Of the sheet that is read; a reader would take memory for all cells between."""
    path, book = tmp_path / "t.xlsx", openpyxl.Workbook()
    book.active["A1"], book.active["XFD1048576"] = "a", 1
    book.create_sheet("small").append(["a", "b"])
    book["small"].append([1, 2])
    book.save(path)
    with pytest.raises(ValueError, match="at most 5,000,000 cells of a spreadsheet"):
        read_sheet(path)
    assert [*read_sheet(path, "small").cells] == ["a", "b"]


def test_cells_far_apart_in_other_spreadsheets(tmp_path):
    """The parts alone that tell the area: a sheet of records, and cells that stand for many."""

    def binary(row: int, column: int) -> bytes:
        far = struct.pack("<BBI", 0, 4, row) + struct.pack("<BBI", 6, 4, column)
        return struct.pack("<BBI", 0, 4, 0) + b"\x81\x01\x00" + far

    def opened(rows: int, columns: int) -> bytes:
        many = '<table:table-row table:number-rows-repeated="{}"><table:table-cell {}/>'
        cells = f'table:number-columns-repeated="{columns}"'
        full = many.format(rows, f'{cells} office:value-type="float"')
        return f"<table:table>{full}{many.format(10**6, cells)}".encode()

    for name, part in (("t.xlsb", "xl/worksheets/sheet1.bin"), ("t.ods", "content.xml")):
        for size, said in ((900, "cannot be read as"), (9000, "at most 5,000,000 cells of a spr")):
            with zipfile.ZipFile(tmp_path / name, "w") as book:
                book.writestr(part, (binary if name == "t.xlsb" else opened)(size, size))
            with pytest.raises(ValueError, match=said):
                read_sheet(tmp_path / name)


def test_files_of_other_programs(tmp_path):
    want = {"size": [1.5, 2.0], "kind": ["a", None]}
    table = pa.table({"size": [1.5, 2.0], "kind": pa.array(["a", None]).dictionary_encode()})
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text('{"size": 1.5, "kind": "a"}\n{"size": 2.0}\n')
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"size,kind\n1.5,a\n2.0,\n"))
    for name in ("t.parquet", "t.jsonl"):
        found = read_sheet(tmp_path / name)
        assert {k: [*cells] for k, cells in found.cells.items()} == want
        assert found.lines == [1, 2]
    kept = read_sheet(tmp_path / "t.parquet").rows([0]).cells["kind"]
    assert isinstance(kept, Declared)
    assert read_sheet(tmp_path / "t.csv.gz").cells == {"size": ["1.5", "2.0"], "kind": ["a", ""]}
    for name in ("u.parquet", "u.jsonl", "u.csv.gz", "u.xlsx", "u.ods"):
        (tmp_path / name).write_bytes(b"nothing")
        with pytest.raises(ValueError, match=f"{name}: cannot be read as"):
            read_sheet(tmp_path / name)
    with pytest.raises(ValueError, match="has no sheets: leave --sheet out"):
        read_sheet(tmp_path / "t.csv.gz", "x")


def test_formulas_with_an_empty_text_and_years_as_names_are_read(tmp_path):
    book = openpyxl.Workbook()
    for row in (["kind", 2020], ["a", '=IF(1>4,"big","")'], ["b", "big"]):
        book.active.append(row)
    book.save(plain := tmp_path / "plain.xlsx")
    cell = b'<c r="B2"><f>IF(1&gt;4,"big","")</f><v'
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(tmp_path / "t.xlsx", "w") as new:
        for name in old.namelist():  # as Excel stores a calculated text
            new.writestr(name, old.read(name).replace(cell, cell.replace(b'"B2"', b'"B2" t="str"')))
    with pytest.raises(ValueError, match="the formula in B2 of sheet 'Sheet' was never calculated"):
        read_sheet(plain)
    assert read_sheet(tmp_path / "t.xlsx").cells == {"kind": ["a", "b"], "2020": ["", "big"]}


@pytest.mark.parametrize(
    ("text", "lines", "said"),
    [
        ("Trees, 2024\n\nkind;size;age\na;1,5;2\nb;2;3\n", [4, 5], ["a title above the header"]),
        (
            "kind,size,age\n,cm,years\na,1,2\nb,2,3\n",
            [3, 4],
            ["row 2, which seems to be the units"],
        ),
        ("kind,size,age\n-,[kg/m²],%\na,1,2\nb,2,3\n", [3, 4], ["the units: -, [kg/m²], %"]),
        (
            "kind,size,age\na,1,2\nb,2,3\na,2,5\nMean,1.5,2.5\nSD,1,1\n* read twice\n",
            [2, 3, 4],
            ["row 7, which seems to be a note", "made of other rows: 'SD'", "'Mean'"],
        ),
        (
            "# one\n# two\nkind,size\na,1\nTotal:,1\nkind,size\nb,2.5\nc,3\nSumme,6.5\n",
            [4, 7, 8],
            [
                "'# one'",
                "'# two'",
                "row 5, which seems to be made of",
                "row 6, which seems to be the h",
            ],
        ),
        (
            "kind|size|age\na|1|2\nb|2.5|3\nc|3|4\n|6.5|9\n",
            [2, 3, 4],
            ["row 5, which seems to be made of other rows: ''"],
        ),
        # These are data.
        ("kind,size\na,1\nb,2\nc,2\n,5\n", [2, 3, 4, 5], []),
        ("kind,size\na,low\na,5\nb,6\n", [2, 3, 4], []),
        ("kind,size\na b,\nb,5\nc,6\nMean,\n", [2, 3, 4, 5], []),
        ("part,size,age\nsum,1,2\nmean,2,3\nsum,2,5\n", [2, 3, 4], []),
        ("a\nx y\nx z\nx u\n", [2, 3, 4], []),
        ("name,age,cm\nAda,31,170\nBen,40,181\nCleo,25,165\nMax,29,178\n", [2, 3, 4, 5], []),
        ("name,lap\nAda,1:02\nBen,1:03\nCleo,1:01\nMax,1:07\n", [2, 3, 4, 5], []),
        ("brand,price\nShell,1.8\nTotal,1.7\nAral,1.9\nEsso,1.6\n", [2, 3, 4, 5], []),
        ("name,age\nAda,31\nBen,40\nCleo,25\nMax,40\n", [2, 3, 4], ["made of other rows: 'Max'"]),
        # Punctuation in a single column of texts does not divide it.
        ("body\nwhere is it; my parcel\nthanks\n", [2, 3], []),
        ("body\nhello\nthanks | bye\n", [2, 3], []),
        ("body\nwhere; is\nlost; again\nthanks\n", [2, 3, 4], []),
    ],
)
def test_rows_that_are_no_data_are_named(text, lines, said):
    sheet = sheet_of(text, "t")
    assert sheet.lines == lines
    assert sheet.remark.count("left out") == sheet.remark.count("seems to be")
    assert all(one in sheet.remark for one in said)
    assert bool(said) == bool(sheet.remark)


def test_points_with_two_readings_are_refused():
    with pytest.raises(ValueError, match=r"point of '1\.250' in column 'a' may .* semicolons"):
        cells("a;b\n850;x\n1.250;y\n")
    for text in ("a;b\n850;x\n1.25;y\n", "a;b\n850;0.5\n1.250;2\n", "a,b\n850,x\n1.250,y\n"):
        assert cells(text)
