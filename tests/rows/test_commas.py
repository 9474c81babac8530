"""CSV: a row for every line, and an error where a quote is open at the end."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.rows import RowsError, commas, hash_rows
from tests.rows.test_text import put, rows_of


@pytest.mark.parametrize(
    ("data", "values"),
    [
        ("a\nx\n\ny\n", ["x", "", "y"]),
        ("a\n\n\n", ["", ""]),
        ("a\nx\n\n", ["x", ""]),
        ("a\r\n\r\nx\r\n", ["", "x"]),
        ("a\rx\r\ry", ["x", "", "y"]),
        ('a\n""\n\n"x"', ["", "", "x"]),
        ("a\nx", ["x"]),
        ("a\n", []),
        ("a", []),
    ],
)
def test_an_empty_line_is_a_row_where_there_is_one_column(tmp_path, data, values):
    assert rows_of(put(tmp_path / "a.csv", data)) == ((("a", "string"),), [[value] for value in values])


def test_a_row_that_is_an_empty_line_counts(tmp_path):
    with_it, without = (hash_rows([put(tmp_path / "a.csv", data)]) for data in ("a\nx\n\ny\n", "a\nx\ny\n"))

    assert [with_it.rows, without.rows] == [3, 2]
    assert with_it.digest != without.digest


def test_an_empty_line_before_the_only_column_s_name_is_refused(tmp_path):
    with pytest.raises(RowsError, match=r"a\.csv: begins with an empty line"):
        hash_rows([put(tmp_path / "a.csv", "\na\nx\n")])


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("data", ['a\n"x', 'a\n"', 'a\nx\n"y""', 'a,b\n1,"x', 'a,b\n1,2\n3,"', 'a,b\n"1,2', 'a,b\n"'])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_quote_that_is_never_closed_is_refused(tmp_path, name, data, end):
    with pytest.raises(RowsError, match=rf"{name}: (ends inside a quoted value|cannot be read)"):
        hash_rows([put(tmp_path / name, data + end)])


@pytest.mark.parametrize("value", ['5" pipe', 'a"', '"a"b', '"a""b"'])
def test_quotes_elsewhere_are_as_they_were(tmp_path, value):
    expected = {'"a"b': "ab", '"a""b"': 'a"b'}.get(value, value)

    assert rows_of(put(tmp_path / "a.csv", f"a,b\n1,{value}"))[1] == [["1", expected]]


def test_a_last_row_like_the_mark_is_a_row(tmp_path):
    mark = commas._MARK  # what must not be taken for the end

    assert rows_of(put(tmp_path / "a.csv", f"a,b\n{mark},{mark}\n{mark},{mark}"))[1] == [[mark, mark]] * 2


@pytest.mark.parametrize("length", range(25, 45))
def test_a_line_end_in_quotes_is_kept_wherever_a_block_ends(tmp_path, monkeypatch, length):
    monkeypatch.setattr(commas, "_BLOCKS", (40,))
    value = "x" * length + "\r\n\r"

    assert rows_of(put(tmp_path / "a.csv", f'a\n"{value}"\r\n\r\ny\r\n'))[1] == [[value], [""], ["y"]]


@pytest.mark.parametrize("name", ["a", "a" * 500])
def test_rows_longer_than_a_block_are_read_by_larger_ones_and_none_twice(tmp_path, monkeypatch, name):
    monkeypatch.setattr(commas, "_BLOCKS", (40, 4000))
    values = [f"{i}" for i in range(100)] + ["x" * 1000] + [f"{i}" for i in range(100)]

    assert rows_of(put(tmp_path / "a.csv", "\n".join([name, *values])))[1] == [[value] for value in values]


@given(
    st.lists(st.lists(st.text('ab,"\n\r 0é', max_size=5), min_size=1, max_size=1), max_size=30),
    st.integers(40, 200),
    st.sampled_from(["\n", "\r\n"]),
)
def test_no_row_of_one_column_is_lost_wherever_blocks_fall(tmp_path_factory, rows, size, end):
    sink = io.StringIO()
    csv.writer(sink, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([["a"], *rows])
    empty = sink.getvalue().replace('""' + end, end) if not any('"' in row[0] for row in rows) else sink.getvalue()
    for data in (sink.getvalue(), empty, empty.removesuffix(end)):
        if data == empty.removesuffix(end) and rows and not rows[-1][0]:
            continue  # the end of the last line is what makes an empty row of it
        file = put(tmp_path_factory.mktemp("csv") / "a.csv", data)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commas, "_BLOCKS", (size,))
            assert rows == rows_of(file)[1]
