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

from arml.tables.columns import (
    WIDTHS,
    Schema,
    as_table,
    label_hints,
    reader,
    schema_of,
    width_of,
)
from arml.tables.kinds import KEEP, LEVELS, AnyColumn, Origin, column_of, missing, targets_in

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


def test_numbers_dates_categories_and_gaps():
    schema = schema_of(TABLE)
    assert [column.kind for column in schema.columns] == ["number", "date", "category", "category"]
    assert schema.left_out == {"country": "has one value in all rows"}
    values = schema.read(TABLE)
    read = reader(schema, values, Y)
    np.testing.assert_array_equal(read.owners, [0, 1, 2, 2, 2, 3])
    x = read(values)
    assert x.shape == (6, 6, 3)
    assert x.dtype == np.float32
    value, there, kind = np.moveaxis(x, 2, 0)
    # Differences of one in a million survive 32 bits.
    np.testing.assert_allclose(np.diff(value[:2, 0]), 1 / np.std([1, 2, 4, 0, 6]), rtol=1e-3)
    np.testing.assert_array_equal(there[:, 0], [1, 1, 0, 1, 1, 1])
    days = value[[0, 1, 2, 4, 5], 1] * read.unit[1]
    np.testing.assert_allclose(np.diff(days), [1, 1, 1, 1.5], rtol=1e-4)
    np.testing.assert_array_equal(value[:, 2:5][[0, 1, 2]], [[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    assert not there[4, 2:5].any()
    np.testing.assert_array_equal(value[:, 5], [1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(kind[0], [0, 0, 1, 1, 1, 1])
    assert msgspec.convert(msgspec.to_builtins(schema), Schema) == schema


def test_a_value_that_no_example_has_is_no_category_of_theirs():
    schema = schema_of(TABLE)
    read = reader(schema, schema.read(TABLE), Y)
    other = {**{name: cells[:1] for name, cells in TABLE.items()}, "colour": ["pink"], "sex": ["x"]}
    x = read(schema.read(other))
    np.testing.assert_array_equal(x[0, 2:5, :2], [[0, 1], [0, 1], [0, 1]])
    assert x[0, 5, 1] == 0
    said: list[str] = []
    schema.read(other, "t", tell=said.append)
    unseen = "is a value that no example has, so the other columns decide"
    assert said == [
        f"t: 'pink' in column 'colour' of row 1 {unseen}",
        f"t: 'x' in column 'sex' of row 1 {unseen}",
    ]


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
    values = schema.read(as_table(FRAME))
    gaps = dict(zip((c.name for c in schema.columns), np.isnan(values).sum(axis=0), strict=True))
    assert {name for name, n in gaps.items() if not n} == {"bool", "large", "month", "7"}


def test_frames_of_other_libraries_and_a_series():
    for frame in (pl.DataFrame({"a": [1, None, 4], "b": ["x", "y", None]}),):
        assert kinds(frame) == kinds(frame.to_arrow()) == {"a": "number", "b": "category"}
        assert kinds(frame.lazy()) == kinds(narwhals.from_native(frame)) == kinds(frame)
    for series in (pd.Series([1.0, 2, 5], name="q"), pl.Series("q", [1, None, 4])):
        assert kinds(series) == {"q": "number"}
    assert kinds(pa.table({"when": pa.array([0, 90_000], pa.timestamp("s"))})) == {"when": "date"}
    assert kinds({"a": pd.array([1, None, 3], dtype="Int64")}) == {"a": "number"}


def test_refusals_of_frames():
    for table in ({1: [1, 2], "1": [3, 4]}, pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])):
        with pytest.raises(ValueError, match="several columns"):
            as_table(table)
    for infinite in ({"a": [1, np.inf]}, np.array([[-np.inf], [np.inf]]), {"a": [1, 10**400]}):
        with pytest.raises(
            ValueError, match=r"in column '.' of row . .*is not finite, or too large"
        ):
            schema_of(as_table(infinite))
    with pytest.raises(ValueError, match="one value in each"):
        as_table(pl.DataFrame({"a": [[1], [2]]}))
    with pytest.raises(ValueError, match="expected a table"):
        as_table(np.zeros(3))
    with pytest.raises(ValueError, match="all of one length, got the lengths"):
        as_table({"a": [1], "b": [1, 2]})


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
        np.testing.assert_array_equal(schema.read(as_table(table))[:, -1], [0, 2, np.nan, 0])
    schema = schema_of(as_table(frame))
    np.testing.assert_array_equal(schema.read(as_table(frame))[:, 0], [1, 0, np.nan, 0])
    # Of a category with an order the places are numbers, and an unknown value is missing.
    assert reader(schema, schema.read(as_table(frame)), Y[:4]).level.tolist() == [1, -1]
    other = schema.read({"code": [1, 7], "level": ["middle", "huge"]})
    np.testing.assert_array_equal(other, [[0, 1], [-1, np.nan]])


def test_large_numbers_of_a_category_stay_apart_and_letters_have_one_form():
    mixed = [1234567.0, 1234568.0, "x"] * 2
    schema = schema_of({"a": mixed, "b": ["Größe", "Größe", "c"] * 2})
    assert schema.columns[0].texts == ("1234567", "1234568", "x")
    assert schema.columns[1].texts == ("Größe", "c")


N = 20
X = RNG.normal(size=N).tolist()
ORDER = RNG.permutation(N)
HALVES = np.arange(N) // 10
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=3 * i) for i in range(N)]


@pytest.mark.parametrize(
    ("name", "cells", "sorted_reason", "shuffled_reason"),
    [
        ("age", [21 + i + i // 3 for i in range(N)], "rises or falls", None),
        ("year", list(range(2001, 2021)), "rises or falls", None),
        ("day", DAYS, "rises or falls", None),
        ("dose", [2.5 * i for i in range(N)], "rises or falls", None),
        ("time", ["" if i == 3 else i * i for i in range(N)], "rises or falls", None),
        ("n", [float(i) for i in range(N)], "counts the rows", None),
        ("n", [str(i + 1) for i in range(N)], "counts the rows", None),
        ("Unnamed: 0", [7 * i for i in range(N)], "by its name", "by its name"),
        ("customer id", [7 * i for i in range(N)], "by its name", "by its name"),
        ("children_no", [7 * i % 20 for i in range(N)], None, None),
        ("casino", [7 * i % 20 for i in range(N)], None, None),
        ("id", [i / 2 for i in range(N)], "rises or falls", None),
        ("id", [i % 4 for i in range(N)], None, None),
    ],
)
def test_row_numbers_in_sorted_and_in_shuffled_tables(name, cells, sorted_reason, shuffled_reason):
    """In the order of the classes, in any order with the same rows, and in turns."""
    turns = np.arange(N) % 2
    for order, y, reason in (
        (range(N), HALVES, sorted_reason),
        (ORDER, HALVES[ORDER], shuffled_reason),
        (range(N), turns, sorted_reason if sorted_reason != "rises or falls" else None),
        (range(N), np.arange(20.0), sorted_reason if sorted_reason != "rises or falls" else None),
    ):
        table = {"x": X, name: [cells[i] for i in order]}
        schema = schema_of(table, y)
        if reason is None:
            assert [column.name for column in schema.columns] == ["x", name]
            continue
        assert reason in schema.left_out[name]
        assert schema.left_out[name].endswith("--keep or keep= uses it")
        kept = schema_of(table, y, keep=[name])
        assert [column.name for column in kept.columns] == ["x", name]
        alone = schema_of({name: table[name]}, y)
        assert [column.name for column in alone.columns] == [name], "nothing else is there"


def test_row_numbers_of_a_file_some_of_whose_rows_are_no_examples():
    lines = [2, 3, 5, 8, 9, 10, 13, 14, 15]
    table = {"x": X[:9], "n": [line - 2 for line in lines]}
    assert "counts the rows" in schema_of(table, lines=lines).left_out["n"]


def how(cells, **options):
    """How a column is read, and its values; or why it is not."""
    source = Origin(**options)
    fit = column_of("c", cells, source)
    if fit is None:
        return "; ".join([*source.left_out.values(), *source.errors]).removesuffix(KEEP)
    return fit.column.about(), *np.round(fit.values, 6).tolist()


@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        ("1", "-2", (1, -2)),
        ("+1", " 2 ", (1, 2)),
        (".5", "5.", (0.5, 5)),
        ("1e5", "2E-3", (1e5, 0.002)),
        ("5%", "6.5 %", (5, 6.5)),
        ("5 percent", "6 percent", (5, 6)),
        ("5‰", "6‰", (5, 6)),
        ("$5", "$6.50", (5, 6.5)),
        ("-$5", "$-6", (-5, -6)),
        ("€5", "€ 6", (5, 6)),
        ("5 €", "6,50€", (5, 6.5)),
        ("£1,250.50", "£3", (1250.5, 3)),
        ("USD 5", "USD 6", (5, 6)),
        ("5 EUR", "6 EUR", (5, 6)),
        ("US$5", "US$6", (5, 6)),
        ("R$ 1.250,50", "R$ 7", (1250.5, 7)),
        ("$1.2M", "$3M", (1.2, 3)),
        ("1,234", "950", (1234, 950)),
        ("1,234,567.5", "8", (1234567.5, 8)),
        ("12,34,567", "5", (1234567, 5)),
        ("1 234 567", "5", (1234567, 5)),
        ("1\u202f234,5", "5,5", (1234.5, 5.5)),
        ("1'234.5", "1’000", (1234.5, 1000)),
        ("1_000", "5", (1000, 5)),
        ("1.234,5", "1.234", (1234.5, 1234)),
        ("1.234.567", "1.234", (1234567, 1234)),
        ("1,5", "1,250", (1.5, 1.25)),
        ("0,125", "1,250", (0.125, 1.25)),
        ("−5", "–6", (-5, -6)),
        ("(5)", "($1,250.00)", "has numbers with different units or marks"),
        ("(5)", "(1,250.00)", (-5, -1250)),
        ("５", "６", (5, 6)),
        ("1.5×10^3", "2 × 10^-2", (1500, 0.02)),
        ("5 kg", "6kg", (5, 6)),
        ("20 °C", "-5°C", (20, -5)),
        ("3 m/s", "4.5 m/s", (3, 4.5)),
        ("5 m²", "6 m²", (5, 6)),
        ("2 kg/m2", "3 kg/m2", (2, 3)),
        ("1 day", "2 days", (1, 2)),
        ("14:30", "9:06", (14.5, 9.1)),
        ("14:30:36", "00:00:00", (14.51, 0)),
        ("2:30 PM", "12:30 a.m.", (14.5, 0.5)),
        ("8am", "3 p.m.", (8, 15)),
        ("1:30:00", "-25:00:00", (1.5, -25)),
        ("1:3", "2:75", "has ranges or ratios, such as '1:3'"),
        ("3:36.0", "7:12.0", (0.06, 0.12)),
        ("1h 30m", "45 min", (1.5, 0.75)),
        ("PT1H30M", "P1DT2H", (1.5, 26)),
        ("1 day 03:00:00", "2 days, 4:00:00", (27, 52)),
        ("2 wks", "36 hours", (336, 36)),
        ("3 years", "6 months", "has numbers with different units or marks, such as '3 years'"),
        ("2024/1/5", "2024-1-6", (19727, 19728)),
        ("2024.01.05", "2024.1.6", (19727, 19728)),
        ("2024-01", "02/2024", (19723, 19754)),
        ("Jan 2024", "February 2024", (19723, 19754)),
        ("Fri, 5 Jan 2024", "Sat, 13 Jan 2024", (19727, 19735)),
        ("1/13/2024 6:00 PM", "1/14/2024 12:00 AM", (19735.75, 19736)),
        ("Fri Jan  5 18:00:00 2024", "Sat Jan 13 06:00:00 2024", (19727.75, 19735.25)),
        ("January 5, 2024", "6th Jan 2024", (19727, 19728)),
        ("5-Jan-24", "6-Jan-24", (19727, 19728)),
        ("5/31/24", "4/1/24", (19874, 19814)),
        ("31/05/2024", "01.04.2024", (19874, 19814)),
        ("2024-05-31T02:00+02:00", "2024-04-01", (19874, 19814)),
        ("<5", "7", "has bounds, such as '<5'"),
        ("> 5", "6+", "has bounds, such as '> 5'"),
        ("3-5", "6–8", "has ranges or ratios, such as '3-5'"),
        ("3 to 5", "5±1", "has ranges or ratios, such as '3 to 5'"),
        ("1/2", "3/4", "has ranges or ratios, such as '1/2'"),
        ("$5", "€6", "has numbers with different units or marks, such as '$5'"),
        ("5%", "0.06", "has numbers with different units or marks, such as '5%'"),
        ("5 kg", "300 g", "has numbers with different units or marks, such as '5 kg'"),
        ("007", "012", "has codes with a leading zero, such as '007'"),
        ("7", "seven", "has texts among its numbers, such as 'seven'"),
        ("free money now", "hi mum", "texts that differ in every row"),
    ],
)
def test_ways_to_write_numbers_times_and_dates(one, other, values):
    found = how([one, other, ""])
    if isinstance(values, str):
        assert values in found
        repeated = [one, other, one, other]
        assert how(repeated)[0].startswith("category of 2 values")
        return
    np.testing.assert_allclose(found[1:3], values, rtol=1e-6)
    assert np.isnan(found[3])
    # Alone, in a new table, a cell has the same value.
    (column,) = schema_of({"c": [one, other]}).columns
    np.testing.assert_allclose([column.read([cell])[0][0] for cell in (one, other)], values)
    assert msgspec.convert(msgspec.to_builtins(column), AnyColumn) == column


@pytest.mark.parametrize("word", ["", " NA ", "?", "NaN", "#N/A", "None", None, pd.NA, pd.NaT])
def test_missing_cells(word):
    assert missing(word)
    for some in (["1.5", "2.5"], ["2024-01-05", "2024-01-06"], ["red", "blue"]):
        source = Origin()
        fit = column_of("c", [*some, word, some[0]], source)
        assert np.isnan(fit.values).tolist() == [False, False, True, False]
    assert not missing("none")
    assert not missing(0)


@pytest.mark.parametrize(
    "word", ["-", "--", "none", "unknown", "n.a.", "not available", "#DIV/0!", "0000-00-00"]
)
def test_words_that_are_missing_among_numbers_and_dates_alone(word):
    for some in (["1.5", "2.5"], ["5 kg", "6 kg"], ["2024-01-05", "2024-01-06"]):
        source = Origin()
        fit = column_of("c", [*some, word, word], source)
        assert np.isnan(fit.values).tolist() == [False, False, True, True]
        assert source.hints == [f"column 'c': {word!r} counts as missing"]
    assert how(["red", word, "red", word])[0].startswith("category of 2 values")


@pytest.mark.parametrize("n", [4, 6, 40])
def test_texts_among_numbers_or_dates_are_named_at_every_size(n):
    cells = [str(k) for k in range(n)]
    cells[2] = "<2"
    lines = range(2, n + 2)
    assert how(cells, lines=lines) == "'<2' in column 'c' of row 4 is no number"
    found = how([*cells, "long", "7"], lines=range(2, n + 4))
    assert found == f"'<2' in column 'c' of row 4 (also 'long' of row {n + 2}) is no number"
    days = [f"2024-01-{1 + k % 28:02}" for k in range(n)]
    assert how([*days, "soon"]) == f"'soon' in column 'c' of row {n + 1} is no date"
    with pytest.raises(ValueError, match=r"t: '<2' in .*; 'soon' in .* leave the column out"):
        schema_of({"a": [*cells, "7"], "b": [*days, "soon"]}, where="t")
    assert how(cells, keep=["c"])[0].startswith(f"category of {n} values")
    # Few values that all repeat are a category, and the user is told.
    source = Origin()
    fit = column_of("doors", ["2", "3", "4", "5more"] * n, source)
    assert fit.column.texts == ("2", "3", "4", "5more")
    assert "column 'doors' is a category: it has" in source.hints[0]


def test_values_and_rows_that_may_be_mistakes():
    schema = schema_of({"a": ["Y", "y", "n", "n"], "b": ["None", "mild", "mild", "bad"]})
    assert schema.hints == (
        "column 'a': 'Y' and 'y' count as different values",
        "column 'b': 'None' counts as missing",
    )
    schema = schema_of({"part": ["a", "b", "a", "Total"], "n": [1, 2, 3, 6]}, lines=[2, 3, 4, 7])
    assert schema.hints == (
        "'Total' in column 'part' of row 7 seems to sum up other rows: remove it if so",
    )
    assert "read as numbers: " not in schema.remarks()
    assert label_hints(["a", "A ", "b", "Sum"]) == [
        "labels: 'A ' and 'a' count as different values",
        "'Sum' in column 'the label' of row 4 seems to sum up other rows: remove it if so",
    ]


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
        "n: number",
        "note: not used: texts that differ in every row; --keep or keep= uses it",
        "same: not used: has one value in all rows",
    ]
    assert schema.remarks() == [
        "not used: note (texts that differ in every row; --keep or keep= uses it)",
        "not used: same (has one value in all rows)",
        "read as numbers: price (number, '$1,250' is 1250), at (time, '14:30' is 14.5 hours)",
        "column 'price': '-' counts as missing",
    ]
    assert "note" in [c.name for c in schema_of(table, keep=["note", "same"]).columns]
    codes = schema_of({"zip": ["02139", "10115", "20095"]}, keep=["zip"])
    assert codes.columns[0].kind == "number"
    assert "leading zero" in how(["02139", "unknown", "10115", "20095"])


def test_targets_with_marks():
    values, remark = targets_in("price", ["$1,250", "$7"], "t", [2, 3])
    assert values.tolist() == [1250, 7]
    assert remark == "read as numbers: price (number, '$1,250' is 1250)"
    assert targets_in("code", ["007", "8"], "t", [2, 3])[0].tolist() == [7, 8]
    for cells in (["1", "", "3"], ["1", "-", "3"], ["$5", "six", "$7"]):
        with pytest.raises(
            ValueError, match=r"t: .* in column 'y' of row 3 is no number to predict"
        ):
            targets_in("y", cells, "t", [2, 3, 4])


def test_columns_of_a_predictor_that_an_earlier_version_saved():
    """Its categories keep `None`, and its dates their order."""
    old = [
        {"name": "n", "kind": "number", "order": "", "texts": []},
        {"name": "d", "kind": "date", "order": "mdy", "texts": []},
        {"name": "c", "kind": "category", "order": "", "texts": ["None", "x"]},
    ]
    schema = msgspec.convert({"columns": old, "left_out": {"k": "counts the rows"}}, Schema)
    read = schema.read({"n": ["1.5", "5 kg"], "d": ["1/6/2024", "?"], "c": ["None", "NA"]})
    np.testing.assert_array_equal(read, [[1.5, 19728, 0], [np.nan] * 3])


def test_one_row_and_odd_cells():
    row = {"length": 5.0, "colour": "red", "day": datetime.date(2024, 1, 5), "gap": None}
    assert {name: len(cells) for name, cells in as_table(row).items()} == dict.fromkeys(row, 1)
    assert as_table({"a": np.float32(2), "b": np.array(3)}) == {"a": [2.0], "b": [3]}
    for cell in ([1, 2], (1, 2), {"x": 1}, {1}, np.zeros(2), b"x"):
        with pytest.raises(ValueError, match=r"'a' has a \w+ in row 2: give one value in each"):
            as_table({"a": ["x", cell]})
    with pytest.raises(ValueError, match="'a' has a dict in row 1"):
        as_table({"a": {"x": 1}})
    when = np.array(["2024-01-05T06", "NaT"], "datetime64[ns]")
    np.testing.assert_array_equal(
        column_of("t", as_table({"t": when})["t"] * 2, Origin(keep=["t"])).values,
        [19727.25, np.nan] * 2,
    )


def test_dates_that_can_be_read_in_two_orders():
    cells = ["05/05/2024", "05/04/2024", "04/01/2024"]
    with pytest.raises(ValueError, match=r"'d', such as '05/04/2024'.*\(dmy\) or a date \(mdy\)"):
        schema_of({"d": cells})
    for dates, days in (("dmy", [19848, 19818, 19726]), ("mdy", [19848, 19847, 19814])):
        schema = schema_of({"d": cells}, dates=dates)
        np.testing.assert_array_equal(schema.read({"d": cells})[:, 0], days)
    with pytest.raises(ValueError, match=r"\(dmy\) or a date \(ymd\)"):
        schema_of({"d": ["20/03/04", "21/03/05"]})


def test_a_query_cell_that_cannot_be_read_is_missing_and_named():
    schema, said = schema_of(TABLE), []
    more = {**TABLE, "length": ["5more", "7", "-", "5more", "9 kg", ""], "seen": ["soon"] * 6}
    values = schema.read(more, "t", range(2, 8), said.append)
    np.testing.assert_array_equal(values[:, 0], [np.nan, 7, *[np.nan] * 4])
    assert said == [
        "t: '5more' in column 'length' of row 2 (also '-' of row 4, '9 kg' of row 6) is no number, "
        "so the other columns decide",
        "t: 'soon' in column 'seen' of row 2 is no date, so the other columns decide",
    ]


def test_refusals_name_the_column():
    schema = schema_of(TABLE)
    with pytest.raises(ValueError, match="no column 'sex', which the examples have"):
        schema.read({name: cells for name, cells in TABLE.items() if name != "sex"})
    for table, said in (
        ({"a": ["5.1", "5.2", "1e400"]}, "'1e400' in column 'a' of row 3 is no number"),
        ({"a": ["5 %", "6 %", "7"]}, "'7' in column 'a' of row 3 is no number with the unit '%'"),
        ({"a": ["1", "1"]}, "no column can be used: 'a' has one value"),
        ({"a": ["0.0"] * 30}, "no column can be used: 'a' has one value"),
        (
            {"name": [f"passenger {i}" for i in range(6)]},
            "'name' texts that differ in nearly every",
        ),
        ({"a": ["1"]}, "expected two or more examples, got 1: add rows"),
    ):
        with pytest.raises(ValueError, match=said):
            schema_of(table)


def test_of_too_many_columns_those_stay_that_tell_the_classes_apart():
    table = {str(i): RNG.normal(size=40).tolist() for i in range(WIDTHS[-1] + 10)}
    y = np.arange(40) % 2
    table["told"] = (y + 0.1 * RNG.normal(size=40)).tolist()
    schema = schema_of(table)
    values, place = schema.read(table), [*table].index("told")
    read = reader(schema, values, y)
    assert len(read.owners) == width_of(len(read.owners)) == WIDTHS[-1] < read.total
    assert place in read.owners
    assert 7 in reader(schema, values, np.asarray(table["7"]) * 3).owners
    # Without labels that speak for it, it is one of many.
    others = reader(schema, values, np.roll(y, 1) * (np.arange(40) % 3))
    assert set(others.owners) != set(read.owners)


def test_the_rarest_of_many_categories_have_no_column():
    cells = [f"level {i}" for i in range(LEVELS + 3) for _ in range(2 + (i < LEVELS))]
    schema = schema_of({"many": cells})
    read = reader(schema, schema.read({"many": cells}), np.zeros(len(cells), int))
    assert read.total == LEVELS
    kept = [schema.columns[0].texts[level] for level in read.level]
    assert kept == sorted(f"level {i}" for i in range(LEVELS))
