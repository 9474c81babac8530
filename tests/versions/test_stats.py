"""The table of stat values, against plain lists of tuples."""

import sys
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.versions.files import FileStat
from detdata.versions.stats import Stats

INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
ROWS = st.lists(st.tuples(*[INT64] * 5).map(FileStat._make), max_size=30)


def table(rows):
    return Stats([value for row in rows for value in row])


@given(ROWS)
def test_it_holds_what_went_in(rows):
    stats = table(rows)
    assert list(stats) == rows == [stats[i] for i in range(len(stats))]
    assert stats.sizes() == [row.size for row in rows]
    assert stats.latest() == [max(row.mtime_ns, row.ctime_ns) for row in rows]
    assert stats == table(rows) != table([*rows, FileStat(0, 0, 0, 0, 0)])
    with pytest.raises(IndexError):
        stats[len(rows)]


@given(ROWS.filter(bool), st.data())
def test_rows_are_taken_in_the_order_asked_for(rows, data):
    places = data.draw(st.lists(st.integers(0, len(rows) - 1)))
    assert list(table(rows).take(places)) == [rows[i] for i in places]
    assert [tuple(row) for row in table(rows).rows(places)] == [rows[i] for i in places]
    assert list(table(rows).take(range(0, len(rows), 2))) == rows[::2]


@given(ROWS, st.data())
def test_same_tells_each_row_in_which_any_value_differs(rows, data):
    change = st.tuples(st.integers(0, 4), INT64)
    other = [list(row) for row in rows]
    for row in other:
        for column, value in data.draw(st.lists(change, max_size=1)):
            row[column] = value
    assert table(rows).same(table(other)) == [list(row) == its for row, its in zip(rows, other, strict=True)]


@given(ROWS)
def test_bytes_are_little_endian_on_every_machine(rows):
    data = b"".join(value.to_bytes(8, "little", signed=True) for row in rows for value in row)
    assert table(rows).to_bytes() == data
    assert Stats.from_bytes(memoryview(data)) == table(rows)


def test_on_a_big_endian_machine_the_values_are_turned_round(monkeypatch):
    monkeypatch.setattr(sys, "byteorder", "big" if sys.byteorder == "little" else "little")
    values = array("q", range(5))
    assert Stats(values).to_bytes() == b"".join(i.to_bytes(8, "big") for i in range(5))
    assert list(values) == [0, 1, 2, 3, 4]
