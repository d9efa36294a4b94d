"""How the columns of a table become numbers."""

import datetime
import decimal

import msgspec
import narwhals
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from arml.predict.inputs import missing
from arml.tables.columns import TABLE_WIDTHS, Schema, as_table, encoder, schema_of, width_of
from arml.tables.kinds import KEEP_HINT, MAX_LEVELS, AnyColumn, targets_in

Y = np.array([0, 1, 0, 1, 0, 1])
TABLE = {
    "length": ["1000001", "1000002", "?", "1000004", "1e6", "1000006"],
    "seen": ["2024-01-31", "01.02.2024", "2024/02/02", "", "2024-02-03", "2024-02-04T12:00"],
    "colour": ["red", "blue", "green", "red", "NA", "blue"],
    "sex": ["m", "f", "m", "f", "m", "f"],
    "country": ["no", "no", "no", "no", "no", "no"],
}
RNG = np.random.default_rng(0)


def kinds(table, **options) -> dict[str, str]:
    """The kind of each column that is used."""
    return {c.name: c.kind for c in schema_of(as_table(table), **options).columns}


def parsed(cells, **options):
    """How a column is read, its values, and the hints; or why it is not used."""
    table = {"c": cells, "x": [i * i for i in range(len(cells))]}
    schema = schema_of(table, **options)
    if "c" in schema.left_out:
        return schema.left_out["c"].removesuffix(KEEP_HINT)
    return schema.columns[0].about(), schema.parse(table)[:, 0], schema.hints


def test_numbers_dates_categories_and_gaps():
    schema = schema_of(TABLE)
    assert [column.kind for column in schema.columns] == ["number", "date", "category", "category"]
    assert schema.left_out == {"country": "has one value in all rows"}
    values = schema.parse(TABLE)
    encode = encoder(schema, values, Y)
    np.testing.assert_array_equal(encode.owners, [0, 1, 2, 2, 2, 3])
    x = encode(values)
    assert x.shape == (6, 6, 3)
    assert x.dtype == np.float32
    value, there, kind = np.moveaxis(x, 2, 0)
    # Differences of one in a million survive 32 bits.
    np.testing.assert_allclose(np.diff(value[:2, 0]), 1 / np.std([1, 2, 4, 0, 6]), rtol=1e-3)
    np.testing.assert_array_equal(there[:, 0], [1, 1, 0, 1, 1, 1])
    days = value[[0, 1, 2, 4, 5], 1] * encode.unit[1]
    np.testing.assert_allclose(np.diff(days), [1, 1, 1, 1.5], rtol=1e-4)
    np.testing.assert_array_equal(value[:, 2:5][[0, 1, 2]], [[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    assert not there[4, 2:5].any()
    np.testing.assert_array_equal(value[:, 5], [1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(kind[0], [0, 0, 1, 1, 1, 1])
    assert msgspec.convert(msgspec.to_builtins(schema), Schema) == schema


def test_cells_that_are_unlike_the_examples_are_named():
    """Of a category the value is none of theirs; other cells are missing."""
    schema, said = schema_of(TABLE), []
    encode = encoder(schema, schema.parse(TABLE), Y)
    more = {name: ["5more", "7", "9 kg"] for name in TABLE}
    more |= {"seen": ["soon", "", "soon"], "colour": ["pink", "red", ""], "sex": ["x", "m", "m"]}
    values = schema.parse(more, "t", [2, 4, 5], said.append)
    np.testing.assert_array_equal(values[:, 0], [np.nan, 7, np.nan])
    x = encode(values)
    np.testing.assert_array_equal(x[0, 2:5, :2], [[0, 1], [0, 1], [0, 1]])
    assert x[0, 5, 1] == 0
    others, unseen = "so the other columns decide", "is a value that no example has"
    assert said == [
        f"t: '5more' in column 'length' of row 2 (also '9 kg' of row 5) is not a number, {others}",
        f"t: 'soon' in column 'seen' of row 2 is not a date, {others}",
        f"t: 'pink' in column 'colour' of row 2 {unseen}, {others}",
        f"t: 'x' in column 'sex' of row 2 {unseen}, {others}",
    ]
    with pytest.raises(ValueError, match="no column 'sex', which the examples have"):
        schema.parse({name: cells for name, cells in TABLE.items() if name != "sex"})


# Frames, mappings and arrays.

FRAME = pd.DataFrame(
    {
        "a": [1, 2, None],
        "string": pd.array(["x", pd.NA, "y"], dtype="string"),
        "arrow string": pd.array(["a", None, "b"], dtype="string[pyarrow]"),
        "category": pd.Categorical(["u", None, "v"]),
        "zone": pd.to_datetime(["2024-01-01", None, "2024-02-01"]).tz_localize("Europe/Berlin"),
        "delta": pd.to_timedelta([1, 2, None], unit="s"),
        "nullable": pd.array([1, None, 3], dtype="Int64"),
        "bool": [True, False, True],
        "nullable bool": pd.array([True, None, False], dtype="boolean"),
        "large": np.array([10**19, 1, 2], dtype=np.uint64),
        "decimal": [decimal.Decimal("1.5"), None, decimal.Decimal("3")],
        "date": [datetime.date(2024, 1, 1), None, datetime.date(2024, 1, 2)],
        "arrow": pd.array([1.5, None, 2], dtype="double[pyarrow]"),
        "month": pd.period_range("2024-01", periods=3, freq="M"),
        7: [0.5, 1.5, 3.5],
    }
)


def test_every_type_of_a_data_frame():
    assert kinds(FRAME) == {
        **dict.fromkeys(("a", "delta", "nullable", "large", "decimal", "arrow", "7"), "number"),
        **dict.fromkeys(("string", "arrow string", "category", "bool"), "category"),
        "nullable bool": "category",
        **dict.fromkeys(("zone", "date", "month"), "date"),
    }
    schema = schema_of(as_table(FRAME))
    values = schema.parse(as_table(FRAME))
    gaps = dict(zip((c.name for c in schema.columns), np.isnan(values).sum(axis=0), strict=True))
    assert {name for name, n in gaps.items() if not n} == {"bool", "large", "month", "7"}


def test_frames_of_other_libraries_series_and_single_cells():
    frame = pl.DataFrame({"a": [1, None, 4], "b": ["x", "y", None]})
    assert kinds(frame) == {"a": "number", "b": "category"}
    for same in (frame.to_arrow(), frame.lazy(), narwhals.from_native(frame)):
        assert kinds(same) == kinds(frame)
    for series in (pd.Series([1.0, 2, 5], name="q"), pl.Series("q", [1, None, 4])):
        assert kinds(series) == {"q": "number"}
    assert kinds(pa.table({"when": pa.array([0, 90_000], pa.timestamp("s"))})) == {"when": "date"}
    assert kinds({"a": pd.array([1, None, 3], dtype="Int64")}) == {"a": "number"}
    masked = np.ma.masked_equal([[1.0, 2.0], [3.0, 4.0]], 2.0)
    assert as_table(masked)["1"] == as_table({"1": masked[:, 1]})["1"] == [None, 4.0]
    assert as_table({"a": 5.0, "b": None, "c": np.float32(2), "d": np.array(3)}) == {
        "a": [5.0], "b": [None], "c": [2.0], "d": [3],
    }  # fmt: skip
    when = as_table({"t": np.array(["2024-01-05T06", "NaT"], "datetime64[ns]")})
    schema = schema_of(when, keep=["t"])
    np.testing.assert_array_equal(schema.parse(when)[:, 0], [19727.25, np.nan])


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({1: [1, 2], "1": [3, 4]}, "several columns are named '1'"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "several columns"),
        ({"a": [1, np.inf]}, "'a' of row 2 is not finite, or too large"),
        (np.array([[-np.inf], [np.inf]]), "'0' of row 1 .* is not finite, or too large"),
        ({"a": [1, 10**400]}, "'a' of row 2 is not finite, or too large"),
        (pl.DataFrame({"a": [[1], [2]]}), "'a' has a list in row 1: give one value in each"),
        (np.zeros(3), "expected a table"),
        ({"a": pd.DataFrame({"b": [1], "c": [2]})}, "expected one column, got a frame of b, c"),
        ({"a": [1], "b": [1, 2]}, "all of one length, got the lengths"),
        *(
            ({"a": ["x", cell]}, r"'a' has a \w+ in row 2: give one value in each cell")
            for cell in ([1, 2], (1, 2), {"x": 1}, {1}, np.zeros(2), b"x")
        ),
        ({"a": {"x": 1}}, "'a' has a dict in row 1"),
        ({"a": ["5.1", "5.2", "1e400"]}, "'1e400' in column 'a' of row 3 is not a number"),
        (
            {"a": ["5 %", "6 %", "7"]},
            "'7' in column 'a' of row 3 is not a number with the unit '%'",
        ),
        ({"a": ["1", "1"]}, "no column can be used: 'a' has one value"),
        ({"a": [f"person {i}" for i in range(6)]}, "'a' texts that differ in nearly every"),
        ({"a": ["1"]}, "expected two or more examples, got 1: add rows"),
    ],
)
def test_refusals(table, said):
    with pytest.raises(ValueError, match=said):
        schema_of(as_table(table))


def test_categories_that_a_frame_declares():
    frame = pd.DataFrame({"code": pd.Categorical([3, 1, None, 1])})
    levels = ["low", "middle", "high"]
    frame["level"] = pd.Categorical(["low", "high", None, "low"], categories=levels, ordered=True)
    for table in (
        frame,
        {name: frame[name].array for name in frame},
        pl.DataFrame({"level": pl.Series(["low", "high", None, "low"], dtype=pl.Enum(levels))}),
    ):
        schema = schema_of(as_table(table))
        assert schema.columns[-1].about() == "ordered category of 3 values: low, middle, high"
        np.testing.assert_array_equal(schema.parse(as_table(table))[:, -1], [0, 2, np.nan, 0])
    schema = schema_of(as_table(frame))
    np.testing.assert_array_equal(schema.parse(as_table(frame))[:, 0], [1, 0, np.nan, 0])
    # Of a category with an order the places are numbers, and an unknown value is missing.
    assert encoder(schema, schema.parse(as_table(frame)), Y[:4]).level.tolist() == [1, -1]
    other = schema.parse({"code": [1, 7], "level": ["middle", "huge"]})
    np.testing.assert_array_equal(other, [[0, 1], [-1, np.nan]])


# Columns that number the rows.

N = 20
X = RNG.normal(size=N).tolist()
ORDER = RNG.permutation(N)
HALVES = np.arange(N) // 10
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=3 * i) for i in range(N)]


@pytest.mark.parametrize(
    ("name", "cells", "reason", "always"),
    [
        ("age", [21 + i + i // 3 for i in range(N)], "rises or falls", False),
        ("day", DAYS, "rises or falls", False),
        ("time", ["" if i == 3 else i * i for i in range(N)], "rises or falls", False),
        ("id", [i / 2 for i in range(N)], "rises or falls", False),
        ("n", [float(i) for i in range(N)], "counts the rows", True),
        ("n", [str(i + 1) for i in range(N)], "counts the rows", True),
        ("Unnamed: 0", [7 * i for i in range(N)], "by its name", True),
        ("customer id", [7 * i for i in range(N)], "by its name", True),
        ("children_no", [9 * i % 20 for i in range(N)], None, True),
        ("casino", [9 * i % 20 for i in range(N)], None, True),
        ("id", [i % 4 for i in range(N)], None, True),
        ("plate", [f"P{i // 2:02}" for i in range(N)], "rises or falls", False),
        ("day", [i // 2 for i in range(N)], "rises or falls", False),
        ("n", [*range(5, 13), 14, 13, *range(16, 26)], "rises or falls", False),
        ("size", [*RNG.normal(size=10), *RNG.normal(9, 1, 10)], None, True),
        ("age", [*range(10, 20), *range(10, 20)], None, True),
        *(
            (name, [7 * i for i in range(N)], "by its name", True)
            for name in ("PatientID", "PassengerId", "Nr.", "number", "Sample", "No.", "Nummer")
        ),
        *(
            (name, [7 * i for i in range(N)], "by its name", True)
            for name in ("Lfd. Nr.", "S.No", "ID Number", "#", "patient_id", "Kundennummer")
        ),
        *(
            (name, [7 * max(i, 1) for i in range(N)], "by its name", True)  # one row is there twice
            for name in (
                "PatientenNr",
                "case_number",
                "Order",
                "barcode",
                "invoice no",
                "sample_id",
            )
        ),
    ],
)
def test_row_numbers_are_left_out(name, cells, reason, always):
    """`always`: in any order of the rows. A column that rises with them is only left out if they
    are sorted by class."""
    mixed = None if reason == "rises or falls" else reason
    for order, y, why in (
        (range(N), HALVES, reason),
        (ORDER, HALVES[ORDER], reason if always else None),
        (range(N), np.arange(N) % 2, mixed),
        (range(N), np.arange(20.0), mixed),
    ):
        table = {"x": X, name: [cells[i] for i in order]}
        schema = schema_of(table, y)
        assert [c.name for c in schema.columns] == ["x", name][: 1 + (why is None)]
        if why is not None:
            assert why in schema.left_out[name]
            assert schema.left_out[name].endswith("--keep or keep= uses it")
            assert len(schema_of(table, y, keep=[name]).columns) == 2
            assert len(schema_of({name: table[name]}, y).columns) == 1, "nothing else is there"


def test_row_numbers_of_a_file_some_of_whose_rows_are_no_examples():
    lines = [2, 3, 5, 8, 9, 10, 13, 14, 15]
    table = {"x": X[:9], "n": [line - 2 for line in lines]}
    assert "counts the rows" in schema_of(table, lines=lines).left_out["n"]


def test_neighbours_that_are_alike_are_told_if_the_rows_are_sorted_by_class():
    rng, y = np.random.default_rng(3), np.arange(40) // 20
    walk, free = np.cumsum(rng.normal(size=(2, 40)), axis=1), rng.normal(size=40)
    table = {"walk": walk[0], "other": walk[1], "free": free}
    (hint,) = schema_of(table, y, keep=["walk", "other"]).hints
    assert "neighbours are alike in 'walk', 'other': if they were recorded one after" in hint
    assert schema_of(table, y[::-1] * 0 + np.arange(40) % 2).hints == ()
    assert schema_of({"free": free, "size": free + 5 * y}, y).hints == ()


# Ways to write cells.


UNITS = ["{}%", "{} percent", "{}‰", "€{}", "USD {}", "{} EUR", "US${}", "{}kg", "{} m/s", "{} m²"]


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        *((f"{unit}|{unit}".format("5", " 6.5"), [5, 6.5]) for unit in UNITS),
        ("1|-2|+1| 2 |.5|5.|1e5|2E-3|−5|–6|７", [1, -2, 1, 2, 0.5, 5, 1e5, 0.002, -5, -6, 7]),
        ("१२|१५.५|\u0661\u0662\u066b\u0665", [12, 15.5, 12.5]),
        ("$5|$6.50|-$5|$-6", [5, 6.5, -5, -6]),
        ("5 €|6,50€", [5, 6.5]),
        ("£1,250.50|£3", [1250.5, 3]),
        ("R$ 1.250,50|R$ 7", [1250.5, 7]),
        ("$1.2M|$3M", [1.2, 3]),
        ("1,234|950|1,234,567.5|12,34,567", [1234, 950, 1234567.5, 1234567]),
        ("1 234 567|5", [1234567, 5]),
        ("1\u202f234,5|5,5", [1234.5, 5.5]),
        ("1'234.5|1’000", [1234.5, 1000]),
        ("1_000|5", [1000, 5]),
        ("1.234,5|1.234|1.234.567", [1234.5, 1234, 1234567]),
        ("1,5|1,250|0,125", [1.5, 1.25, 0.125]),
        ("(5)|(1,250.00)", [-5, -1250]),
        ("1.5×10^3|2 × 10^-2", [1500, 0.02]),
        ("20 °C|-5°C", [20, -5]),
        ("1 day|2 days", [1, 2]),
        ("14:30|9:06|14:30:36|00:00:00|2:30 PM|12:30 a.m.", [14.5, 9.1, 14.51, 0, 14.5, 0.5]),
        ("8am|9 am", [8, 9]),
        ("1:30:00|-25:00:00|1 day 03:00:00|2 days, 4:00:00", [1.5, -25, 27, 52]),
        ("3:36.0|7:12.0", [0.06, 0.12]),
        ("14h30|9 h 06|0h00", [14.5, 9.1, 0]),
        ("1h 30m|45 min|PT1H30M|P1DT2H|2 wks|36 hours", [1.5, 0.75, 1.5, 26, 336, 36]),
        ("2024/1/5|2024-1-6|2024.01.05|2024.1.6", [19727, 19728, 19727, 19728]),
        ("2024-01|02/2024|Jan 2024|February 2024", [19723, 19754, 19723, 19754]),
        ("Fri, 5 Jan 2024|January 5, 2024|6th Jan 2024|6-Jan-24", [19727, 19727, 19728, 19728]),
        ("1/13/2024 6:00 PM|1/14/2024 12:00 AM", [19735.75, 19736]),
        ("Fri Jan  5 18:00:00 2024|Sat Jan 13 06:00:00 2024", [19727.75, 19735.25]),
        ("5/31/24|4/1/24", [19874, 19814]),
        ("31.5.65|1.4.04", [-1676, 12509]),
        ("5. März 2024|1 de mayo de 2024|3 août 2024", [19787, 19844, 19938]),
        ("14. Okt. 2024|2 mag 2024|1-dez-2024", [20010, 19845, 20058]),
        ("Q1 2020|2020Q2|2020-Q4|q3/2020", [18262, 18353, 18536, 18444]),
        ("31/05/2024|01.04.2024", [19874, 19814]),
        ("2024-05-31T02:00+02:00|2024-04-01", [19874, 19814]),
    ],
)
def test_ways_to_write_numbers_times_and_dates(cells, values):
    cells = cells.split("|")
    _, found, _ = parsed([*cells, ""])
    np.testing.assert_allclose(found, [*values, np.nan], rtol=1e-6)
    # Alone, in a new table, a cell has the same value.
    (column,) = schema_of({"c": cells}).columns
    np.testing.assert_allclose([column.parse([cell])[0][0] for cell in cells], values)
    assert msgspec.convert(msgspec.to_builtins(column), AnyColumn) == column


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("$5|€6", "has numbers with different units or marks, such as '$5'"),
        ("(5)|($1,250.00)", "has numbers with different units or marks, such as "),
        ("5%|0.06", "has numbers with different units or marks, such as '5%'"),
        ("3 years|6 months", "has numbers with different units or marks, such as '3 years'"),
        ("<5|7", "has bounds, such as '<5'"),
        ("> 5|6+", "has bounds, such as '> 5'"),
        ("3-5|6–8", "has ranges or ratios, such as '3-5'"),
        ("3 to 5|5±1", "has ranges or ratios, such as '3 to 5'"),
        ("5 ft 11 in|6'2\"", "has amounts in several units, such as '5 ft 11 in'"),
        ("52.5,13.4|48.1, 11.6", "has pairs of numbers, such as '52.5,13.4'"),
        ("0x1F|0x2a", "has hexadecimal numbers, such as '0x1F'"),
        ("1:3|2:75", "has ranges or ratios, such as '1:3'"),
        ("007|012", "has codes with a leading zero, such as '007'"),
        ("02139|unknown|10115|20095", "has codes with a leading zero, such as '02139'"),
        ("7|seven", "has texts among its numbers, such as 'seven'"),
        ("7|5½", "has texts among its numbers, such as '5½'"),
        ("plate 7|plate 9", "texts that differ in nearly every row"),
    ],
)
def test_cells_that_are_nearly_numbers_are_left_out_unless_they_repeat(cells, reason):
    cells = cells.split("|")
    assert reason in parsed(cells)
    about, _, _ = parsed(cells * 2)
    assert about.startswith(f"category of {len(cells)} values")
    assert parsed(["007", "012"], keep=["c"])[0] == "number"


EVERYWHERE = ["", " NA ", "?", "NaN", "#N/A", "None", None, pd.NA, pd.NaT]
AMONG = ["-", "--", "none", "unknown", "n.a.", "not available", "#DIV/0!", "0000-00-00"]


@pytest.mark.parametrize(
    ("word", "everywhere"), [*((w, True) for w in EVERYWHERE), *((w, False) for w in AMONG)]
)
def test_words_for_missing_cells(word, everywhere):
    """Some are missing in every column, others only among numbers and dates, with a hint."""
    for some in (["1.5", "2.5"], ["5 kg", "6 kg"], ["2024-01-05", "2024-01-06"]):
        _, values, hints = parsed([*some, word, word])
        assert np.isnan(values).tolist() == [False, False, True, True]
        assert everywhere or hints == (f"column 'c': {word!r} counts as missing",)
    _, values, _ = parsed(["red", word, "red", word, "blue", "blue"])
    assert np.isnan(values).any() == missing(word) == everywhere


@pytest.mark.parametrize("n", [4, 6, 40])
def test_texts_among_numbers_or_dates_are_named_at_every_size(n):
    cells = [str(k) for k in range(n)]
    cells[2] = "<2"
    days = [f"2024-01-{1 + k % 28:02}" for k in range(n)]
    with pytest.raises(ValueError, match="unlike most cells") as refused:
        schema_of({"a": [*cells, "long"], "b": [*days, "soon"]}, where="t", lines=range(2, n + 3))
    assert str(refused.value) == (
        f"t: '<2' in column 'a' of row 4 (also 'long' of row {n + 2}) is not a number; 'soon' in "
        f"column 'b' of row {n + 2} is not a date, unlike most cells there: correct or empty them, "
        "leave the column out (--without), or use it as a category (--keep)"
    )
    assert parsed(cells, keep=["c"])[0].startswith(f"category of {n} values")
    # Few values that all repeat are a category, and the user is told.
    about, _, hints = parsed(["2", "3", "4", "5more"] * n)
    assert about == "category of 4 values: 2, 3, 4, 5more"
    assert "column 'c' is a category: it has" in hints[0]


@pytest.mark.parametrize(
    ("cells", "value"), [("x||x||", "x"), ("1||1|1|", "1"), ("5 kg||", "5 kg")]
)
def test_an_empty_cell_beside_one_value_is_the_other_value(cells, value):
    cells = [
        cell or gap for cell, gap in zip(cells.split("|"), ["", None, "", None, ""], strict=False)
    ]
    about, values, hints = parsed(cells)
    assert about == f"category of 2 values: empty, {value}"
    np.testing.assert_array_equal(values, [cell == value for cell in cells])
    assert hints == (f"column 'c': an empty cell counts as another value than {value!r}",)


def test_times_with_two_meanings_are_refused():
    with pytest.raises(ValueError, match="'59:59' in column 'c' may be hours and minutes, or min"):
        parsed(["59:59", "1:02:30"])
    for cells in (["9:30", "14:30:10"], ["59:59", "38:30"], ["1:02:30", "0:59:59"]):
        assert parsed(cells)[0].startswith("time")
    assert parsed(["1.2.65", "2.3.65"], dates="dmy")[0] == "date (dmy), '1.2.65' is 1965-02-01"


def test_values_that_may_be_mistakes_and_forms_of_one_text():
    schema = schema_of(
        {
            "a": ["Y", "y", "n", "n"] * 2,
            "b": ["None", "mild", "mild", "bad"] * 2,
            "c": [1234567.0, 1234568.0, "x", "x"] * 2,
            "d": ["Größe", "Gro\u0308ße", "c", "c"] * 2,
        }
    )
    assert schema.hints[:2] == (
        "column 'a': 'Y' and 'y' count as different values",
        "column 'b': 'None' counts as missing",
    )
    assert schema.columns[2].texts == ("1234567", "1234568", "x")
    assert schema.columns[3].texts == ("Größe", "c")
    schema = schema_of({"part": ["a", "b", "a", "Total"], "n": [1, 2, 3, 6]}, lines=[2, 3, 4, 7])
    hint = "'Total' in column 'part' of row 7 seems to sum up other rows: remove it if so"
    assert schema.hints == (hint,)


def test_how_each_column_is_read():
    table = {
        "price": ["$1,250", "$7", "-"],
        "at": ["14:30", "", "9:00"],
        "seen": ["31/05/2024", "01/06/2024", ""],
        "kind": ["a", "b", "a"],
        "note": ["on a table", "under a tree", "in the sun"],
        "n": [1, 2, 4],
        "same": [1, 1, 1],
    }
    schema = schema_of(table)
    assert str(schema).splitlines() == [
        "price: number, '$1,250' is 1250",
        "at: time, '14:30' is 14.5 hours",
        "seen: date (dmy)",
        "kind: category of 2 values: a, b",
        "note: text",
        "n: number",
        "same: not used: has one value in all rows",
    ]
    assert schema.remarks() == [
        "not used: same (has one value in all rows)",
        "read as numbers: price (number, '$1,250' is 1250), at (time, '14:30' is 14.5 hours)",
        "column 'price': '-' counts as missing",
    ]
    assert len(schema_of(table, keep=["note", "same"]).columns) == len(table)


def test_targets_with_marks():
    values, remarks = targets_in("price", ["$1,250", "$7"], "t", [2, 3])
    assert values.tolist() == [1250, 7]
    assert remarks == ["read as numbers: price (number, '$1,250' is 1250)"]
    assert targets_in("code", ["007", "8"], "t", [2, 3])[0].tolist() == [7, 8]
    for cells in (["1", "", "3"], ["1", "-", "3"], ["$5", "six", "$7"]):
        with pytest.raises(ValueError, match=r"t: .* in column 'y' of row 3 is not a number to"):
            targets_in("y", cells, "t", [2, 3, 4])


def test_columns_of_a_predictor_that_an_earlier_version_saved():
    """Its categories keep `None`, and its dates their order."""
    old = [
        {"name": "n", "kind": "number", "order": "", "texts": []},
        {"name": "d", "kind": "date", "order": "mdy", "texts": []},
        {"name": "c", "kind": "category", "order": "", "texts": ["None", "x"]},
    ]
    schema = msgspec.convert({"columns": old, "left_out": {"k": "counts the rows"}}, Schema)
    read = schema.parse({"n": ["1.5", "5 kg"], "d": ["1/6/2024", "?"], "c": ["None", "NA"]})
    np.testing.assert_array_equal(read, [[1.5, 19728, 0], [np.nan] * 3])


def test_dates_that_can_be_read_in_two_orders():
    cells = ["05/05/2024", "05/04/2024", "04/01/2024"]
    with pytest.raises(ValueError, match=r"'c', such as '05/04/2024'.*\(dmy\) or a date \(mdy\)"):
        parsed(cells)
    for dates, days in (("dmy", [19848, 19818, 19726]), ("mdy", [19848, 19847, 19814])):
        np.testing.assert_array_equal(parsed(cells, dates=dates)[1], days)
    with pytest.raises(ValueError, match=r"\(dmy\) or a date \(ymd\)"):
        parsed(["20/03/04", "21/03/05"])


# The bound of columns.


def test_of_too_many_columns_those_stay_that_tell_the_classes_apart():
    table = {str(i): RNG.normal(size=40).tolist() for i in range(TABLE_WIDTHS[-1] + 10)}
    y = np.arange(40) % 2
    table["told"] = (y + 0.1 * RNG.normal(size=40)).tolist()
    schema = schema_of(table)
    values, place = schema.parse(table), [*table].index("told")
    encode = encoder(schema, values, y)
    assert len(encode.owners) == width_of(len(encode.owners)) == TABLE_WIDTHS[-1] < encode.total
    assert place in encode.owners
    assert 7 in encoder(schema, values, np.asarray(table["7"]) * 3).owners
    # Without labels that speak for it, it is one of many.
    others = encoder(schema, values, np.roll(y, 1) * (np.arange(40) % 3))
    assert set(others.owners) != set(encode.owners)


def test_the_rarest_of_many_categories_have_no_column():
    cells = [f"level {i}" for i in range(MAX_LEVELS + 3) for _ in range(2 + (i < MAX_LEVELS))]
    schema = schema_of({"many": cells})
    encode = encoder(schema, schema.parse({"many": cells}), np.zeros(len(cells), int))
    assert encode.total == MAX_LEVELS
    kept = [schema.columns[0].texts[level] for level in encode.level]
    assert kept == sorted(f"level {i}" for i in range(MAX_LEVELS))


def test_minutes_with_and_without_a_fraction_are_alike():
    said, values, _ = parsed(["1:02.5", "1:03", "0:59.8", "-0:30", "2:00.0", "1:10"])
    assert said.startswith("time")
    np.testing.assert_allclose(values * 3600, [62.5, 63, 59.8, -30, 120, 70])
    # A whole column of them stays hours and minutes.
    np.testing.assert_allclose(parsed(["1:02", "1:03", "0:59", "2:00"])[1][:2] * 60, [62, 63])


def test_negative_durations_are_read_as_python_and_pandas_write_them():
    hours = datetime.timedelta(hours=1)
    cells = [
        str(-hours),
        str(2 * hours),
        str(-30 * hours),
        "-1 days +22:30:00",
        "-2:00:00",
        "3:00:00",
    ]
    np.testing.assert_allclose(parsed(cells)[1], [-1, 2, -30, -1.5, -2, 3])


def test_codes_are_no_amounts_and_whole_numbers_no_other_codes():
    schema = schema_of({"c": ["MAT101", "MAT202"] * 8, "x": [*range(16)]})
    assert schema.columns[0].kind == "category"
    assert parsed(["EUR 5", "EUR12.50", "EUR 7", "EUR 8"])[0].startswith("number")
    declared = schema_of(as_table(pd.DataFrame({"c": pd.Categorical([*"1213"]), "x": range(4)})))
    assert declared.parse({"c": ["1.0", "2.0", "3"], "x": [0, 1, 2]})[:, 0].tolist() == [0, 1, 2]


def test_kept_texts_keep_their_words():
    words = [
        "the",
        "parcel",
        "was",
        "late",
        "and",
        "the",
        "box",
        "was",
        "open",
        "but",
        "the",
        "seller",
        "was",
        "kind",
        "to",
        "me",
    ]
    notes = [" ".join(RNG.permutation(words)[:9]) for _ in range(30)]
    for keep in ((), ("note",)):
        table = {"note": notes, "x": [i * i for i in range(30)]}
        assert schema_of(table, keep=keep).columns[0].kind == "text"
