"""How the columns of a table become numbers."""

import numpy as np
import pytest

from arml.datasets.columns import LEVELS, WIDTHS, Reader, missing, reader, reader_of
from arml.datasets.own import cells_of

Y = np.array([0, 1, 0, 1, 0, 1])
TABLE = {
    "length": ["1000001", "1000002", "?", "1000004", "1e6", "1000006"],
    "seen": ["2024-01-31", "01.02.2024", "2024/02/02", "", "2024-02-03", "2024-02-04T12:00"],
    "colour": ["red", "blue", "green", "red", "NA", "blue"],
    "sex": ["m", "f", "m", "f", "m", "f"],
    "country": ["no", "no", "no", "no", "no", "no"],
}


def test_numbers_dates_categories_and_gaps():
    read = reader(TABLE, Y)
    assert [column.kind for column in read.columns] == ["number", "date", "category", "category"]
    assert read.left_out == ("country",)
    assert read.owners == ("length", "seen", "colour", "colour", "colour", "sex")
    x = read(TABLE)
    assert x.shape == (6, 8, 3)
    assert x.dtype == np.float32
    value, there, kind = np.moveaxis(x, 2, 0)
    # Differences of one in a million survive 32 bits.
    np.testing.assert_allclose(np.diff(value[:2, 0]), 1 / np.std([1, 2, 4, 0, 6]), rtol=1e-3)
    np.testing.assert_array_equal(there[:, 0], [1, 1, 0, 1, 1, 1])
    days = value[[0, 1, 2, 4, 5], 1] * read.columns[1].unit
    np.testing.assert_allclose(np.diff(days), [1, 1, 1, 1.5], rtol=1e-4)
    np.testing.assert_array_equal(value[:, 2:5][[0, 1, 2]], [[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    assert not there[4, 2:5].any()
    np.testing.assert_array_equal(value[:, 5], [1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(kind[0], [0, 0, 1, 1, 1, 1, 0, 0])
    assert not there[:, 6:].any()
    again = reader_of(read.as_json())
    assert again == read


def test_a_value_that_no_example_has_is_no_category_of_theirs():
    read = reader(TABLE, Y)
    other = {**{name: cells[:1] for name, cells in TABLE.items()}, "colour": ["pink"], "sex": ["x"]}
    x = read(other)
    np.testing.assert_array_equal(x[0, 2:5, :2], [[0, 1], [0, 1], [0, 1]])
    assert x[0, 5, 1] == 0
    assert read.unknown(other) == {"colour": ["pink"], "sex": ["x"]}
    assert read.unknown(TABLE) == {}


def test_refusals_name_the_column():
    names = [f"passenger {i}" for i in range(6)]
    with pytest.raises(ValueError, match="categories in column 'name', got 6 different texts"):
        reader({**TABLE, "name": names}, Y)
    cells = ["5.1", "5.2", "<0.1", "5.4", "5.5", "5.6"]
    with pytest.raises(ValueError, match=r"in each cell of column 'name', got .<0\.1."):
        reader({**TABLE, "name": cells}, Y)
    cells = ["5.1", "5.2", "", "5.4", "1e400", "5.6", "7"]
    with pytest.raises(ValueError, match=r"in each cell of column 'a', got .1e400. in row 6"):
        reader({"a": cells}, np.arange(7), lines=range(2, 9))
    read = reader(TABLE, Y)
    with pytest.raises(ValueError, match=r"expected a number in column 'length'.*got 'long'"):
        read({**TABLE, "length": ["long"] * 6})
    with pytest.raises(ValueError, match="in column 'length' of row 4, as in the examples"):
        read(
            {**TABLE, "length": [*TABLE["length"][:2], "long", *TABLE["length"][3:]]},
            "t",
            range(2, 8),
        )
    with pytest.raises(ValueError, match="expected a column 'sex'"):
        read({name: cells for name, cells in TABLE.items() if name != "sex"})
    with pytest.raises(ValueError, match="a column whose values differ"):
        reader({"a": ["1", "1"]}, Y[:2])
    with pytest.raises(ValueError, match="expected two or more examples, got 1: add rows"):
        reader({"a": ["1"]}, Y[:1])


def test_a_comma_is_a_decimal_sign_where_it_cannot_separate_thousands():
    semicolons, _ = cells_of("size;kind\n1,250;a\n-3,5e2;b,c\n;4\n", "t")
    assert semicolons == {"size": ["1.250", "-3.5e2", ""], "kind": ["a", "b,c", "4"]}
    tabs, _ = cells_of("size\tcost\n1,5\t1,250\n1,250\t999\n", "t")
    assert tabs == {"size": ["1.5", "1.250"], "cost": ["1,250", "999"]}
    for text in ("1,250", "1.250,5", "1,250,000.5"):
        with pytest.raises(ValueError, match=r"such as 1234\.5 in column 'cost', got '1"):
            reader({"cost": [text, "7", "8"]}, Y[:3])


def test_a_point_that_may_separate_thousands_is_refused_beside_decimal_commas():
    for text in ("cost;share\n1.087;0,5\n867;0,1\n", "cost;x\n0,5;1\n1.050;1\n"):
        with pytest.raises(ValueError, match=r"decimal commas in column 'cost'.*got '1\.0(87|50)'"):
            cells_of(text, "t")
    kept, _ = cells_of("size;when;share\n1.087;31.05.2024;0,5\n1.1;01.06.2024;0,1\n", "t")
    assert kept["size"] == ["1.087", "1.1"]
    assert cells_of("size;share\n1.087;0.5\n", "t")[0] == {"size": ["1.087"], "share": ["0.5"]}


def test_columns_without_a_name():
    """Spreadsheets add empty columns; data frames add one that numbers the rows, which a learner
    must not read."""
    assert cells_of("a,b,,\n1,x,,\n2,y, ,\n", "t")[0] == {"a": ["1", "2"], "b": ["x", "y"]}
    with pytest.raises(ValueError, match="got none for column 1, with '0' in its first row: name"):
        cells_of(",a\n0,x\n1,y\n", "t")
    with pytest.raises(ValueError, match="a name of its own for each column, got 'a' twice"):
        cells_of("a,b,a\n1,2,3\n", "t")


def test_of_too_many_columns_those_stay_that_tell_the_classes_apart():
    rng = np.random.default_rng(0)
    table = {str(i): rng.normal(size=40).tolist() for i in range(WIDTHS[-1] + 10)}
    y = np.arange(40) % 2
    table["told"] = (y + 0.1 * rng.normal(size=40)).tolist()
    read = reader(table, y)
    assert len(read.kept) == read.width == WIDTHS[-1] < read.total
    assert "told" in read.owners
    numbers = reader(table, np.asarray(table["7"]) * 3)
    assert "7" in numbers.owners


def test_the_rarest_of_many_categories_have_no_column():
    cells = [f"level {i}" for i in range(LEVELS + 3) for _ in range(2 + (i < LEVELS))]
    read = reader({"many": cells}, np.zeros(len(cells), int))
    assert isinstance(read, Reader)
    assert read.width == 16
    assert read.total == LEVELS
    assert read.columns[0].levels == tuple(sorted(f"level {i}" for i in range(LEVELS)))


@pytest.mark.parametrize("cell", ["", " NA ", "?", "NaN", None, float("nan"), "null"])
def test_missing_cells(cell):
    assert missing(cell)
    assert not missing("none")
    assert not missing(0)
