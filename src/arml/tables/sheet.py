"""A table in a file: CSV with a header (commas, semicolons or tabs between cells), a spreadsheet,
Parquet, or JSON lines.

Rows without data are left out, and `Sheet.remark` names each: titles above the header, units
below it, and at the end sums of other rows and notes.
"""

import contextlib
import csv
import gzip
import io
import itertools
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from arml.results.files import brief
from arml.results.machine import extra
from arml.tables.columns import as_table
from arml.tables.kinds import (
    NUMBER_CELL,
    TOTAL_NAME,
    AnyCell,
    Number,
    is_number,
    missing,
    named_cells,
    normal,
    some_of,
    split_number,
    strange,
    text_of,
)

CSV_DELIMITERS = ",;\t|"
"""The characters between cells: spreadsheets copy cells with tabs, and save them with semicolons
where the decimal sign is a comma."""
DECIMAL_COMMA = re.compile(r"\d+,\d+([eE][+-]?\d+)?", re.ASCII)
"""Digits with a decimal comma."""
COMMA_THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+", re.ASCII)
"""Digits whose comma may also separate thousands: 1,234."""
POINT_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+", re.ASCII)
"""A number whose point may also separate its thousands, where decimal signs are commas: 1.234."""
BOTH_SIGNS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+,\d+", re.ASCII)
"""Digits with points between thousands, and a decimal comma: 1.234,50."""
WITH_THOUSANDS = re.compile(r"[^.]+(\.\d{3})+(,\d+)?", re.ASCII)
"""The same, or without a decimal comma."""
UNIT_TEXT = re.compile(
    r"(?!\d)(?:[]%‰°²³/·*^ ()[\d-]|(?<![^\W\d_])(?:[^\W\d_]{1,3}|mmhg|years?)(?![^\W\d_])){1,12}",
    re.IGNORECASE,
)
"""A unit in a separate cell: cm, [kg/m²], °C."""
BOOK_ENDINGS = ("xlsx", "xlsm", "xls", "xlsb", "ods")
"""Endings of spreadsheets."""
MAX_BYTES = 2**29
"""The most bytes of a compressed file that is read."""

_Cells = dict[str, list[AnyCell]]


EXCEL_CELL = re.compile(rb"<(?:\w+:)?c[ >/]")
"""The start of a cell in a sheet of an Excel file."""
HIDDEN = re.compile(rb'<(?:\w+:)?(?:row|col)\b[^>]*\bhidden="(?:1|true)"')
"""A hidden row, or hidden columns, of a sheet in an Excel file."""
ODS_ELEMENT = re.compile(rb"<table:(table-row|(?:covered-)?table-cell|table)\b([^>]*)")
ODS_REPEAT = re.compile(rb'number-(?:rows|columns)-repeated="(\d{1,9})"')
"""Parts of an OpenDocument file."""


class Most(NamedTuple):
    """The largest table that is read; beyond it the reading ends with an error."""

    rows: int = 2**40
    columns: int = 2**40
    cells: int = 20_000_000
    """A cell of a CSV file takes a hundred bytes."""
    book: int = 5_000_000
    """Cells of an Excel file with a content or a format; one takes half a kilobyte."""

    def check(self, where: str, **counts: int) -> None:
        """Raise `ValueError` in one line if there are more rows, columns or cells."""
        for name, n in counts.items():
            if n > (most := getattr(self, name)):
                what = "cells of a spreadsheet" if name == "book" else name
                raise ValueError(
                    f"{where}: at most {most:,} {what} are read, got more: leave some out, or "
                    "predict Parquet files with --on ray"
                )


class Sheet(NamedTuple):
    """The table of a file."""

    where: str
    """Its name in errors."""
    cells: _Cells
    """The cells of each column: texts of a CSV file, or values of an Excel file."""
    lines: list[int]
    """The line of the file at which each row begins; the header is on line 1."""
    remark: str = ""
    """Lines on how it was read, if the file does not say it, and on rows that are left out."""

    def rows(self, places: Sequence[int]) -> "Sheet":
        """Some of the rows."""
        cells = {name: some_of(column, places) for name, column in self.cells.items()}
        return self._replace(cells=cells, lines=[self.lines[i] for i in places])

    def without(self, column: str | None) -> "Sheet":
        """The other columns."""
        return self._replace(cells={k: cells for k, cells in self.cells.items() if k != column})

    def answered(self, target: str | None, numbers: bool) -> tuple[list[Any], "Sheet", "Sheet"]:
        """The values in the column `target`, the other columns of their rows, and those of the rows
        whose cell there is empty. Classes are texts, and one may be named NA; no number may.

        **Raises** `ValueError` in one line if that column is missing.
        """
        if (name := normal(target or "")) not in self.cells:
            wrong = "to predict was named" if target is None else f"{target!r} to predict"
            advice = f"name one with --target: {', '.join(self.cells)}"
            if any(map(split_number, self.cells)):
                advice += "; if the first row is data, add a header above it"
            elif len(self.cells) == 1 and len(next(iter(self.cells)).split()) > 1:
                advice += "; if that is more than one column, separate its cells by commas"
            raise ValueError(f"{self.where}: no column {wrong}; {advice}")
        cells = self.cells[name]
        texts = ["" if cell is None or cell != cell else text_of(cell) for cell in cells]
        empty = [missing(text) if numbers else not text for text in texts]
        known, unknown = ([i for i, gap in enumerate(empty) if gap == e] for e in (False, True))
        answers, inputs = cells if numbers else texts, self.without(name)
        return [answers[i] for i in known], inputs.rows(known), inputs.rows(unknown)


def read_sheet(path: Path, sheet: str | None = None) -> Sheet:
    """The table of a file; `sheet` names one of a spreadsheet, the first visible one if not given.
    **Raises** `ValueError` in one line for a file that is not a table."""
    try:
        if path.stat().st_size > 2**30:
            raise ValueError(f"{path}: it has more than 1 GiB: take fewer rows or columns")
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}: check the path") from error
    return sheet_of_file(data, str(path), sheet)


def sheet_of_file(
    data: bytes,
    name: str,
    sheet: str | None = None,
    most: Most = Most(),  # noqa: B008
) -> Sheet:
    """`read_sheet` of the bytes of a file of this name. A CSV file is in UTF-8, in UTF-16 with its
    mark, or, as spreadsheet programs write it in some countries, in Windows-1252."""
    ending = name.lower().removesuffix(".gz").rpartition(".")[2]
    if sheet is not None and ending not in BOOK_ENDINGS:
        raise ValueError(f"{name} has no sheets: leave --sheet out")
    parquet = ending == "parquet" and extra("pyarrow.parquet", "parquet", "Parquet files")
    with _reading(name, ending):
        if name.lower().endswith(".gz"):
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise ValueError("it is too large: cut it into several")
        if parquet:
            table = parquet.ParquetFile(io.BytesIO(data))
            most.check(name, rows=table.metadata.num_rows, columns=table.metadata.num_columns)
            return _records(table.read(), name)
        if ending in ("jsonl", "ndjson"):
            rows = msgspec.json.Decoder(dict[str, Any]).decode_lines(data)
            keys = dict.fromkeys(key for row in rows for key in row)
            return _records({key: [row.get(key) for row in rows] for key in keys}, name)
    if ending in BOOK_ENDINGS:
        _check_book(data, name, most)
        return _book(data, name, sheet, ending, most)
    text, remark = decoded(data, name, "save it as CSV in UTF-8")
    return _remarked(sheet_of(text, name, most), remark)


def decoded(data: bytes, name: str, advice: str) -> tuple[str, str]:
    """The text in a file of this name, and how its letters were read, if that is a guess.

    **Raises** `ValueError` with the advice for a file that is not text."""
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    for code in ["utf-16"] if wide else ["utf-8-sig", "cp1252"]:
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode(code)
            if "\0" in text:
                continue
            if code != "cp1252":
                return text, ""
            odd = re.findall(r"\w*[^\x00-\x7f]\w*", text)[0]
            return text, f"{name}: read as Windows-1252, because it is not UTF-8: check {odd!r}"
    raise ValueError(f"{name}: no text in UTF-8, UTF-16 or Windows-1252: {advice}")


def sheet_of(text: str, where: str, most: Most = Most()) -> Sheet:  # noqa: B008
    """`read_sheet` of a text, which errors call `where`. The delimiter is that which a first line
    `sep=;` names, or `_delimiter` finds."""
    text = text.removeprefix("\ufeff")
    stated = re.match(r"\s*\"?sep=(.)\"?\r?\n", text)
    start = text[stated.end() :] if stated else text
    delimiter = stated[1] if stated else _delimiter(start)
    line = 1 + text.count("\n", 0, len(text) - len(start))
    lines, rows, blank = _rows(start, where, delimiter, line, most)
    sheet = _columns(lines, rows, where)
    sheet = sheet._replace(cells=_with_points(sheet.cells, where, sure=delimiter == ";"))
    return _remarked(sheet, _blank_rows(blank, sheet))


def numbers_of(
    sheet: Sheet, columns: Sequence[str] | None = None
) -> tuple[Float[np.ndarray, "n columns"], tuple[str, ...]]:
    """A table of numbers, its columns in the order of `columns` if that is given; and their names.

    **Raises** `ValueError` in one line for other columns, and for cells that are not numbers.
    """
    if columns is not None and sorted(sheet.cells) != sorted(columns):
        raise ValueError(
            f"{sheet.where}: its columns {', '.join(sheet.cells)} are not those of the support "
            f"table, {', '.join(columns)}: rename or remove some"
        )
    names = tuple(columns or sheet.cells)
    x = np.empty((len(sheet.lines), len(names)), np.float32)
    for place, name in enumerate(names):
        x[:, place], _ = Number(name).parse(cells := sheet.cells[name])
        if odd := np.flatnonzero(np.isnan(x[:, place])).tolist():
            raise ValueError(
                f"{sheet.where}: {named_cells(name, cells, odd, sheet.lines)} is not a finite "
                "number: remove the column or correct it"
            )
    return x, names


def _check_book(data: bytes, where: str, most: Most) -> None:
    """Count the cells of a spreadsheet, which takes a small part of the time that it takes to read
    them: a megabyte can hold thirty million. Of OpenDocument and binary Excel files, the area that
    they span. **Raises** as `Most.check`."""
    damaged = zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, IndexError
    with contextlib.suppress(*damaged), zipfile.ZipFile(io.BytesIO(data)) as book:
        if sum(one.file_size for one in book.infolist()) > MAX_BYTES:
            raise ValueError(f"{where}: it is too large: save the sheet as CSV")
        cells = 0
        for name in book.namelist():
            if name == "content.xml":
                _check_opened(book.read(name), where, most)
            elif name.startswith("xl/worksheets/") and name.endswith(".bin"):
                _check_binary(book.read(name), where, most)
            elif name.startswith("xl/worksheets/"):
                with book.open(name) as file:
                    while part := file.read(2**20):
                        cells += len(EXCEL_CELL.findall(part))
                        most.check(where, book=cells)


def _check_opened(text: bytes, where: str, most: Most) -> None:
    """The areas of the sheets of an OpenDocument file, where a cell can stand for many."""
    row = column = wide = 0
    for kind, rest in ODS_ELEMENT.findall(text):
        again = ODS_REPEAT.search(rest)
        times = int(again[1]) if again else 1
        if kind == b"table":
            row = wide = 0
        elif kind == b"table-row":
            row, column = row + times, 0
        elif b":value-type" in rest:
            column, wide = column + times, max(wide, column + times)
            most.check(where, book=row * wide)
        else:
            column += times


def _check_binary(data: bytes, where: str, most: Most) -> None:
    """The area of a sheet of a binary Excel file, which consists of records: the kind, the length,
    and the content, which begins with the number of a row (kind 0), or of a cell's column (2 to
    11)."""
    at = row = wide = 0
    while at < len(data):
        kind, at, size, shift, byte = data[at], at + 1 + (data[at] > 127), 0, 0, 128
        while byte > 127:
            byte, at = data[at], at + 1
            size, shift = size | (byte & 127) << shift, shift + 7
        place = int.from_bytes(data[at : at + 4], "little") + 1
        row = place if kind == 0 else row
        if 1 < kind < 12:
            wide = max(wide, place)
            most.check(where, book=row * wide)
        at += size


def _records(x: Any, where: str) -> Sheet:
    """A table without a header line."""
    cells = {k: c if isinstance(c, list) else [*c] for k, c in as_table(x).items()}
    return Sheet(where, cells, [*range(1, 1 + len(next(iter(cells.values()))))])


def _remarked(sheet: Sheet, *lines: str) -> Sheet:
    return sheet._replace(remark="\n".join(filter(None, [*lines, sheet.remark])))


@contextlib.contextmanager
def _reading(name: str, ending: str) -> Iterator[None]:
    """Turn any error of a reader into one line."""
    try:
        yield
    except Exception as error:
        said = brief(error, 120)
        raise ValueError(f"{name}: cannot be read as .{ending}: {said}") from error


def _book(data: bytes, name: str, wanted: str | None, ending: str, most: Most) -> Sheet:
    """A sheet of a spreadsheet: the `wanted` one, or the first that is visible.

    **Raises** `ValueError` in one line for another name, and for formulas without a value.
    """
    calamine = extra("python_calamine", "excel", f".{ending} files")
    openpyxl = extra("openpyxl", "excel", "formulas")
    file, area = io.BytesIO(data), 0
    with _reading(name, ending):
        names = zipfile.ZipFile(file).namelist() if zipfile.is_zipfile(file) else ()
        plain = "xl/workbook.xml" in names  # of .xlsx, whatever the ending is
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        visible, cells = calamine.SheetVisibleEnum.Visible, calamine.SheetTypeEnum.WorkSheet
        shown = {s.name: s.visible == visible for s in book.sheets_metadata if s.typ == cells}
        title = wanted or next((one for one in shown if shown[one]), None)
        if title not in shown:
            raise ValueError(f"no sheet {title!r}: choose one of {', '.join(shown)} with --sheet")
        formulas: Any = openpyxl.load_workbook(file, read_only=True)[title] if plain else ()
        if plain:
            formulas.reset_dimensions()  # the file may state others
            with contextlib.suppress(UnboundLocalError):  # openpyxl's error if there are no cells
                formulas.calculate_dimension(force=True)
            area = (formulas.max_row or 0) * (formulas.max_column or 0)
    most.check(name, book=area)  # two cells that are far apart abort the process of calamine
    with _reading(name, ending):
        sheet = book.get_sheet_by_name(title)
    most.check(name, book=sheet.height * sheet.width)
    with _reading(name, ending):
        rows = sheet.to_python(skip_empty_area=False)
        merged = [(*low, high[0] + 1, high[1] + 1) for low, high in sheet.merged_cell_ranges or ()]
        pairs = itertools.chain.from_iterable(map(zip, rows, formulas))
        empty = {cell.coordinate for value, cell in pairs if value == "" and cell.data_type == "f"}
        if empty:  # never calculated, or calculated as an empty text
            values: Any = openpyxl.load_workbook(file, read_only=True, data_only=True)[title]
            values.reset_dimensions()
            for cell in itertools.chain.from_iterable(values):
                if getattr(cell, "coordinate", "") in empty and cell.data_type != "str":
                    raise ValueError(
                        f"the formula in {cell.coordinate} of sheet {title!r} was never "
                        "calculated: open the file in a spreadsheet program, and save it"
                    )
    for top, left, bottom, right in merged:
        for cells in rows[top:bottom]:
            cells[left:right] = [rows[top][left]] * (right - left)
    kept = [i for i, row in enumerate(rows) if any(cell != "" for cell in row)]
    blank = [*{*range(1, len(rows) + 1)}.difference(i + 1 for i in kept)]
    others = [one for one in shown if one != title]
    if not kept:
        raise ValueError(f"{name}: the sheet {title!r} is empty: choose another with --sheet")
    hidden = len(HIDDEN.findall(formulas._get_source().read())) if plain else 0
    read = _columns([i + 1 for i in kept], [rows[i] for i in kept], name)
    return _remarked(
        read,
        _blank_rows(blank, read),
        f"{name}: read the sheet {title!r}, and not {', '.join(others)}: choose with --sheet"
        * bool(others and wanted is None),
        f"{name}: hidden rows and columns are used like the others: {hidden}" * bool(hidden),
        f"{name}: merged cells have the value of their first: {len(merged)}" * bool(merged),
    )


def _blank_rows(blank: list[int], sheet: Sheet) -> str:
    """A line for the empty rows between the others, because they get no answer."""
    between = [str(row) for row in sorted(blank) if sheet.lines[0] < row < sheet.lines[-1]]
    more = f" and {len(between) - 5} more" * (len(between) > 5)
    return f"{sheet.where}: left out empty rows: {', '.join(between[:5])}{more}" * bool(between)


def _columns(lines: list[int], rows: list[list[Any]], where: str) -> Sheet:
    """The cells below the header by column."""
    lines, rows, said = _data(lines, rows, where)
    if len(rows) < 2:
        found = "has only a header: add" if rows else "is empty: add a header and"
        raise ValueError(f"{where} {found} one or more rows")
    header = ["" if name is None else normal(text_of(name)) for name in rows[0]]
    for line, row in zip(lines[1:], rows[1:], strict=True):
        if len(row) != len(header):
            raise ValueError(
                f"{where}: row {line} has {len(row)} cells, the header {len(header)}: correct it"
            )
    columns: _Cells = {}
    for place, name in enumerate(header):
        cells = [row[place] for row in rows[1:]]
        if not name and not _texts(cells):
            continue  # spreadsheets add empty columns
        if not name:
            raise ValueError(
                f"{where}: column {place + 1} has no name, and {cells[0]!r} in its first row: name "
                "it, or remove it if it numbers the rows"
            )
        if name in columns:
            raise ValueError(f"{where}: two columns are named {name!r}: rename or remove one")
        columns[name] = cells
    return Sheet(where, columns, lines[1:], "\n".join(said))


def _data(
    lines: list[int], rows: list[list[AnyCell]], where: str
) -> tuple[list[int], list[list[AnyCell]], list[str]]:
    """The header and the rows of data, and a line for each other row: titles, units, sums and
    notes."""
    lines, rows, said = [*lines], [*rows], list[str]()

    def drop(place: int, what: str) -> None:
        said.append(f"{where}: left out row {lines.pop(place)}, which seems to be {what}")
        rows.pop(place)

    top = next((i for i, row in enumerate(rows[:6]) if len(_texts(row)) > 1), 0)
    if top and all(row[0] for row in rows[:top]) and not any(map(split_number, _texts(rows[top]))):
        for _ in range(top):
            drop(0, f"a title above the header: {_texts(rows[0])[0]!r}")
    names = [str(row[0]).strip() for row in rows]
    for i in reversed(range(1, len(rows))):
        total = TOTAL_NAME.fullmatch(names[i]) and re.search("(?i)total|summe", names[i])
        is_sum = total and names.count(names[i]) == 1 and _is_sum(rows[i], rows[1:i])
        if rows[i] == rows[0] or (is_sum and i < len(rows) - 1):
            drop(i, f"made of other rows: {names[i]!r}" if is_sum else "the header again")
    width = len(_texts(rows[0])) if rows else 0
    while len(rows) > 3:
        last = _texts(rows[-1])
        column = {str(row[0]).strip() for row in rows[:-1] if row}
        first, mark = str(rows[-1][0]).strip(), re.match(r"[*†‡]|\w+:|\w.* ", last[0])
        note = width > 2 and last == [first] and mark
        summary = len(last) > 1 and first not in column and TOTAL_NAME.fullmatch(first)
        made = summary and _is_extreme(rows[1:])
        if not (note and first not in column) and not made and not _adds_up(rows[1:]):
            break
        drop(-1, f"{'a note' if note else 'made of other rows'}: {first!r}")
    if len(rows) > 2 and _is_units(*rows[1:]):
        drop(1, f"the units: {', '.join(_texts(rows[1]))}")
    return lines, rows, said


def _texts(row: Sequence[AnyCell]) -> list[str]:
    """The different cells of a row that are not empty, as texts."""
    texts = (str(cell).strip() for cell in row if cell is not None)
    return [*dict.fromkeys(filter(None, texts))]


def _is_sum(row: list[AnyCell], above: list[list[AnyCell]]) -> bool:
    """Whether the numbers of a row are the sums of the rows just above it, from one row on."""
    number = Number("").one
    own = {place: value for place, cell in enumerate(row) if (value := number(cell)) is not None}
    sums = dict.fromkeys(own, 0.0)
    for other in reversed(above):
        sums = {
            at: total + (number(other[at] if at < len(other) else None) or 0.0)
            for at, total in sums.items()
        }
        if own and all(math.isclose(own[at], sums[at], rel_tol=1e-9) for at in own):
            return True
    return False


def _is_extreme(rows: list[list[AnyCell]]) -> bool:
    """Whether the numbers of a last row that is named Min or Max, as people also are, are those of
    the columns; True for other names."""
    extreme, number = str(rows[-1][0]).strip().lower()[:3], Number("").one
    best = {"min": min, "max": max}.get(extreme)
    above = [row for row in rows[:-1] if not TOTAL_NAME.fullmatch(str(row[0]))]
    agrees = best is None
    for place, cell in enumerate(rows[-1]):
        values = [number(row[place]) for row in above if place < len(row)]
        known = [value for value in values if value is not None]
        if best and known and (own := number(cell)) is not None:
            agrees = own == best(known)
            if not agrees:
                break
    return agrees


def _adds_up(rows: list[list[AnyCell]]) -> bool:
    """Whether the last row has sums of the rows above, and otherwise no more than a name. Of fewer
    than eight rows one column may do so by chance."""
    more, number = 0, Number("").one
    for place, cell in enumerate(rows[-1]):
        if (value := number(cell)) is None and (missing(cell) or not place):
            continue
        above = [number(row[place]) or 0.0 for row in rows[:-1] if place < len(row)]
        if value is None or not math.isclose(value, sum(above), rel_tol=1e-9):
            return False
        more += abs(value) > 2 * max(map(abs, above), default=0.0)
    return more > (len(rows) < 8)


def _is_units(first: list[AnyCell], *others: list[AnyCell]) -> bool:
    """Whether each cell of a row is empty or may be a unit, and numbers are below one or more."""
    found = False
    for place, cell in enumerate(first):
        below = [row[place] for row in others if place < len(row) and not missing(row[place])]
        text = "" if cell is None else str(cell).strip()
        if text and (not UNIT_TEXT.fullmatch(text) or text in map(str, below)):
            return False
        numbers = bool(below) and all(is_number(c) or split_number(c) for c in below)
        found = found or bool(text and numbers and strange([text], [0]))
    return found


def _with_points(columns: _Cells, where: str, *, sure: bool) -> _Cells:
    """The cells with points instead of decimal commas, and without points between thousands where
    a cell of the column has both. Unless commas are `sure` to be decimal ones, a column stays as it
    is if all of its commas may separate thousands.

    **Raises** `ValueError` if there are decimal commas, and the points of a column may separate
    thousands: all of them, or any beside decimal commas. And where commas are `sure` to be decimal
    ones, but there is no fraction of either kind.
    """
    columns, commas = {name: _without_points(cells) for name, cells in columns.items()}, {}
    for name, cells in columns.items():
        parts = (split_number(cell) for cell in cells if "," in cell)
        digits = [part[1] for part in parts if part]
        if any(map(BOTH_SIGNS.fullmatch, digits)):
            commas[name] = True
        elif some := [one for one in digits if DECIMAL_COMMA.fullmatch(one)]:
            commas[name] = sure or not all(map(COMMA_THOUSANDS.fullmatch, some))
    pointed = {
        name: [c for c in map(str.strip, cells) if "." in c] for name, cells in columns.items()
    }
    if not any(commas.values()):
        every = itertools.chain.from_iterable(pointed.values())
        fractions = (NUMBER_CELL.fullmatch(c) and not POINT_THOUSANDS.fullmatch(c) for c in every)
        if not sure or any(fractions):
            return columns
    why = "the file has decimal commas" if commas else "semicolons separate the cells"
    for name, cells in columns.items():
        points = pointed[name]
        grouped = [cell for cell in points if POINT_THOUSANDS.fullmatch(cell)]
        unclear = [cell for cell in cells if "," in cell] if not commas.get(name, True) else []
        if unclear or (grouped and (name in commas or len(grouped) == len(points))):
            raise ValueError(
                f"{where}: the {'comma' if unclear else 'point'} of {[*unclear, *grouped][0]!r} in "
                f"column {name!r} may separate thousands, because {why}: "
                "write it without, or another way if it is a fraction"
            )

    def pointed_cell(cell: str) -> str:
        part = split_number(cell)
        return cell.replace(",", ".") if part and DECIMAL_COMMA.fullmatch(part[1]) else cell

    return columns | {name: [*map(pointed_cell, columns[name])] for name in commas}


def _without_points(cells: list[str]) -> list[str]:
    """The cells of a column without the points between thousands, if one also has a decimal comma
    and no other cell has a point elsewhere."""
    parts = {cell: part[1] for cell in cells if "." in cell and (part := split_number(cell))}
    both = any(map(BOTH_SIGNS.fullmatch, parts.values()))
    if not both or not all(map(WITH_THOUSANDS.fullmatch, parts.values())):
        return cells
    return [cell.replace(".", "") if cell in parts else cell for cell in cells]


def _delimiter(text: str) -> str:
    """The delimiter that is as frequent in a line as in the next, for most of the first lines; the
    most frequent one, if several are."""
    # Commas inside quotes divide nothing.
    lines = [line for line in re.sub('"[^"]*"', "", text[:50_000]).splitlines() if line.strip()]

    def score(delimiter: str) -> tuple[int, int]:
        counts = [line.count(delimiter) for line in lines[:10]]
        return sum(0 < a == b for a, b in itertools.pairwise(counts)), max(counts, default=0)

    best = max(CSV_DELIMITERS, key=score)
    if lines and not any(delimiter in lines[0] for delimiter in CSV_DELIMITERS):
        # Below a title most lines agree, but not the punctuation in a single column of texts.
        below = list(itertools.dropwhile(lambda line: best not in line, lines[:10]))
        return best if 2 * score(best)[0] > len(below) - 1 else ","
    return best


def _rows(
    text: str, where: str, delimiter: str, line: int, most: Most
) -> tuple[list[int], list[list[str]], list[int]]:
    """The rows that are not blank, and the lines at which they begin, from `line`; and those of
    rows whose cells are all empty. **Raises** as `Most.check`."""
    lines, rows, blank, first, cells = list[int](), list[list[str]](), list[int](), line, 0
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                cells += len(row)
                most.check(where, rows=len(rows), columns=len(row), cells=cells)
                lines.append(line)
                rows.append(row)
            elif len(row) > 1:
                blank.append(line)
            line = reader.line_num + first
    except csv.Error as error:
        raise ValueError(f"{where}: line {line}: {error}: check the quotes there") from error
    return lines, rows, blank
