"""CSV as the page says, read a second time one character after the other."""

import random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.rows import RowsError, commas, hash_rows
from tests.rows.test_text import put, rows_of


def lines_of(text):
    """[(values, whether the line has anything)], or None where a quote is not closed."""
    found, row, value, at, anything = [], [], "", 0, False
    begins = True  # of a value
    text += "" if text.endswith(("\n", "\r")) else "\n"
    while at < len(text):
        one = text[at]
        at += 1
        if one == '"' and begins:
            while text[at : at + 1] != '"' or text[at : at + 2] == '""':
                if at >= len(text):
                    return None
                value += text[at]
                at += 2 if text[at] == '"' else 1
            at += 1
            begins, anything = False, True
        elif one == ",":
            row.append(value)
            value, begins, anything = "", True, True
        elif one in "\r\n":
            at += one == "\r" and text[at : at + 1] == "\n"
            found.append(([*row, value], anything))
            row, value, begins, anything = [], "", True, False
        else:
            value += one
            begins, anything = False, True
    return found


def table_of(text):
    """(names, rows), or None where it is no table."""
    lines = lines_of(text.removeprefix("\ufeff"))
    first = next((i for i, (_, anything) in enumerate(lines or []) if anything), None)
    if first is None:
        return None
    names = lines[first][0]
    if len(names) == 1 and first:
        return None
    rows = [values for values, anything in lines[first + 1 :] if anything or len(names) == 1]
    return (names, rows) if all(len(values) == len(names) for values in rows) else None


TABLES = st.lists(
    st.lists(st.sampled_from(["", "a", '"b"', '"x,\n"', '"\r\n"', '""', 'c"', '"d"e', '"""']), max_size=3)
)
TEXTS = st.text('ab,"\n\r', max_size=30) | TABLES.map(lambda rows: "\n".join(map(",".join, rows)))


@given(TEXTS, st.sampled_from(["", "\ufeff"]), st.integers(3, 40))
def test_a_csv_is_read_as_on_the_page_wherever_blocks_fall(tmp_path_factory, text, mark, size):
    file = put(tmp_path_factory.mktemp("csv") / "a.csv", mark + text)
    expected = table_of(text)
    for blocks in (commas._BLOCKS, (size, 1 << 16)):
        with mock.patch.object(commas, "_BLOCKS", blocks):
            if expected is None:
                with pytest.raises(RowsError, match=r"^a\.csv: "):
                    rows_of(file)
            else:
                schema, rows = rows_of(file)
                assert expected == ([name for name, _ in schema], rows)


@pytest.mark.parametrize("head", ["a,b\n", "a\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_quote_left_open_early_in_a_large_file_is_what_is_told(tmp_path, monkeypatch, head, name):
    monkeypatch.setattr(commas, "_BLOCKS", (1 << 10, 1 << 16))
    text = "".join(random.Random(0).choices("0123456789,\n", k=200_000))

    with pytest.raises(RowsError, match=r"a row of more than 0\.0625 MiB, or ends inside a quoted value; close"):
        hash_rows([put(tmp_path / name, head + '"' + text)])


def test_a_row_longer_than_the_largest_block_is_refused_by_its_length(tmp_path):
    with pytest.raises(RowsError, match=r"a\.csv\.zst: has a row of more than 8 MiB, or ends inside"):
        hash_rows([put(tmp_path / "a.csv.zst", "a,b\n1," + "x" * (20 << 20) + "\n")])


@pytest.mark.parametrize("data", ["", "\n\n", "\ufeff", '"a,b\n1,2\n', '"a'])
def test_a_file_without_names_is_refused(tmp_path, data):
    with pytest.raises(RowsError, match=r"a\.csv: has no line that names the columns, or a quote in it"):
        hash_rows([put(tmp_path / "a.csv", data)])
