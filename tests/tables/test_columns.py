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
    LEVELS,
    WIDTHS,
    Schema,
    as_table,
    missing,
    reader,
    schema_of,
    width_of,
)

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
    assert schema.unknown(other) == {"colour": ["pink"], "sex": ["x"]}
    assert schema.unknown(TABLE) == {}


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
        **dict.fromkeys(("nullable bool", "month"), "category"),
        **dict.fromkeys(("zone", "date"), "date"),
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
    for infinite in ({"a": [1, np.inf]}, np.array([[1], [np.inf]]), {"a": [1, 10**400]}):
        with pytest.raises(ValueError, match=r"in column '.' of row 2 is not finite, or too large"):
            schema_of(as_table(infinite))
    with pytest.raises(ValueError, match="one value in each"):
        as_table(pl.DataFrame({"a": [[1], [2]]}))
    with pytest.raises(ValueError, match="expected a table"):
        as_table(np.zeros(3))
    with pytest.raises(ValueError, match="all of one length, got the lengths"):
        as_table({"a": [1], "b": [1, 2]})


def test_large_numbers_of_a_category_stay_apart_and_letters_have_one_form():
    schema = schema_of({"a": [1234567.0, 1234568.0, "x", "x"], "b": ["Größe", "Größe", "c", "c"]})
    assert schema.columns[0].texts == ("1234567", "1234568", "x")
    assert schema.columns[1].texts == ("Größe", "c")


def test_columns_that_count_the_rows_are_left_out():
    x = RNG.normal(size=20).tolist()
    counted = {"x": x, "Nr": range(1, 21), "sorted": np.arange(20) ** 2 + 100}
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=3 * i) for i in range(20)]
    schema = schema_of(as_table({**counted, "day": days}))
    assert [column.name for column in schema.columns] == ["x"]
    assert schema.left_out == dict.fromkeys(("Nr", "sorted", "day"), "counts the rows")
    # A function is often sampled in order: then only steps of one count.
    found = kinds(as_table({**counted, "day": days}), y=np.arange(20.0))
    assert found == {"x": "number", "sorted": "number", "day": "date"}
    shuffled = {"x": x, "customer id": RNG.permutation(20)}
    assert kinds(shuffled) == {"x": "number"}
    assert kinds(as_table(counted), keep=["Nr"]) == {"x": "number", "Nr": "number"}
    assert kinds({"time": range(20)}) == {"time": "number"}, "nothing else is there"


def test_free_texts_are_left_out_by_name():
    texts = ["free money now", "hi mum", "see you at noon"]
    schema = schema_of({"said": texts, "n": [1, 2, 4]})
    assert schema.left_out == {"said": "texts that differ in every row"}
    names = [f"passenger {i}" for i in range(6)]
    assert "name" in schema_of({**TABLE, "name": names}).left_out
    with pytest.raises(ValueError, match="no column can be used: 'name' texts that differ"):
        schema_of({"name": names})


def test_dates_in_other_forms():
    for cells in (
        ["05/31/2024", "04/01/2024"],
        ["31/05/2024", "01/04/2024"],
        ["5/31/24", "4/1/24"],
        ["31 May 2024", "1 April 2024"],
        ["May 31, 2024", "Apr 1, 2024"],
        ["31-May-2024", "01.04.2024"],
        ["2024-05-31T02:00+02:00", "2024-04-01"],
    ):
        schema = schema_of({"d": cells})
        assert schema.columns[0].kind == "date"
        np.testing.assert_array_equal(schema.read({"d": cells})[:, 0], [19874, 19814])
    noon = schema_of({"d": (cells := ["5/31/2024 12:00", "4/30/2024 6:00"])})
    np.testing.assert_array_equal(noon.read({"d": cells})[:, 0], [19874.5, 19843.25])


def test_dates_that_can_be_read_in_two_orders():
    cells = ["05/04/2024", "04/01/2024"]
    with pytest.raises(ValueError, match=r"'d', such as '05/04/2024'.* dmy and mdy: choose one"):
        schema_of({"d": cells})
    for dates, days in (("dmy", [19818, 19726]), ("mdy", [19847, 19814])):
        schema = schema_of({"d": cells}, dates=dates)
        np.testing.assert_array_equal(schema.read({"d": cells})[:, 0], days)
    with pytest.raises(ValueError, match="orders dmy and ymd"):
        schema_of({"d": ["20/03/04", "21/03/05"]})


def test_refusals_name_the_column():
    cells = ["5.1", "5.2", "<0.1", "5.4", "5.5", "5.6"]
    with pytest.raises(ValueError, match=r"'<0\.1' in column 'name' of row 3 is no number"):
        schema_of({**TABLE, "name": cells})
    cells = ["5.1", "5.2", "", "5.4", "1e400", "5.6", "7"]
    with pytest.raises(ValueError, match=r"'1e400' in column 'a' of row 6 is no number"):
        schema_of({"a": cells}, lines=range(2, 9))
    schema = schema_of(TABLE)
    long = {**TABLE, "length": [*TABLE["length"][:2], "long", *TABLE["length"][3:]]}
    with pytest.raises(ValueError, match="t: 'long' in column 'length' of row 4 is no number, un"):
        schema.read(long, "t", range(2, 8))
    with pytest.raises(ValueError, match="no column 'sex', which the examples have"):
        schema.read({name: cells for name, cells in TABLE.items() if name != "sex"})
    with pytest.raises(ValueError, match="no column can be used: 'a' has one value"):
        schema_of({"a": ["1", "1"]})
    with pytest.raises(ValueError, match="expected two or more examples, got 1: add rows"):
        schema_of({"a": ["1"]})
    for text in ("1,250", "1.250,5", "1,250,000.5"):
        with pytest.raises(ValueError, match=r"'1.* in column 'cost' may have a decimal comma"):
            schema_of({"cost": [text, "7", "8"]})


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


@pytest.mark.parametrize(
    "cell", ["", " NA ", "?", "NaN", None, float("nan"), "null", pd.NA, pd.NaT]
)
def test_missing_cells(cell):
    assert missing(cell)
    assert not missing("none")
    assert not missing(0)
