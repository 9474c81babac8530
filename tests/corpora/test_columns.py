"""Rows as columns: the values of the rows, in the order that was asked for, and nothing rounded or left out."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import CorpusError, open_corpus
from detdata.corpora.columns import Columns, columns_of
from tests.corpora.rows_of_lines import write_lines


class Plain:
    """Rows without columns of their own."""

    def __init__(self, rows):
        self.rows = rows

    def take(self, rows):
        return [dict(self.rows[row]) for row in rows]

    def arrow(self, rows):
        return None


class Table(Plain):
    def arrow(self, rows):
        return pa.Table.from_pylist(self.take(rows.tolist()))


def groups(blocks, ids):
    """What a corpus gives: (rows of a block, places, rows of the block), by the simplest loop."""
    edge = 0
    for block in blocks:
        places = [place for place, row in enumerate(ids) if edge <= row < edge + len(block.rows)]
        if places:
            yield block, np.array(places), np.array([ids[place] - edge for place in places])
        edge += len(block.rows)


@settings(deadline=None, max_examples=60)
@given(
    kinds=st.lists(st.sampled_from([Plain, Table]), min_size=1, max_size=4),
    ids=st.lists(st.integers(0, 10**6), min_size=1, max_size=20),
)
def test_values_are_those_of_the_rows(kinds, ids):
    rows = [
        [{"a": 10 * block + row, "b": f"{block}-{row}", "c": [block, row]} for row in range(3)]
        for block in range(len(kinds))
    ]
    ids = [number % (3 * len(kinds)) for number in ids]
    blocks = [kind(part) for kind, part in zip(kinds, rows, strict=True)]
    expected = [[row for part in rows for row in part][number] for number in ids]

    table = columns_of(Columns("arrow", len(ids)), groups(blocks, ids), "file")
    arrays = columns_of(Columns("numpy", len(ids)), groups(blocks, ids), "file")

    assert table.to_pylist() == expected
    assert {name: array.tolist() for name, array in arrays.items()} == {
        name: [row[name] for row in expected] for name in "abc"
    }
    assert (arrays["a"].dtype, arrays["c"].shape) == (np.int64, (len(ids), 2))


def test_whole_numbers_beside_missing_ones_stay_whole(tmp_path):
    values = [2**62 + 1, None, 3]
    corpus = open_corpus(write_lines(tmp_path / "a.jsonl", [{"n": value, "l": [value]} for value in values]))
    arrays = corpus.take_columns(range(3), "numpy")
    assert arrays["n"].tolist() == values
    assert [list(item) for item in arrays["l"]] == [[value] for value in values]
    with pytest.raises(CorpusError, match="'n'"):
        corpus.take_columns(range(3), "torch")
    assert corpus.take_columns([2], "torch")["n"].tolist() == [3]


def test_rows_of_no_one_type_are_an_error(tmp_path):
    corpus = open_corpus(write_lines(tmp_path / "a.jsonl", [{"n": 1}, {"n": "x"}, {"n": 2**70}, {"n": [1]}]))
    for ids in ([0, 1], [0, 2], [0, 3]):
        with pytest.raises(CorpusError, match="one type"):
            corpus.take_columns(ids)


def test_blocks_of_no_one_schema_are_an_error():
    blocks = [Table([{"a": 1}]), Table([{"a": "x"}])]
    with pytest.raises(CorpusError, match="file"):
        columns_of(Columns("arrow", 2), groups(blocks, [0, 1]), "file")


@pytest.mark.parametrize("kind", ["pandas", None, ["arrow"]])
def test_another_kind_is_refused(tmp_path, kind):
    corpus = open_corpus(write_lines(tmp_path / "a.jsonl", [{"n": 1}]))
    with pytest.raises(ValueError, match="kind must be one of"):
        corpus.take_columns([0], kind)


def test_what_is_changed_in_columns_changes_no_row(tmp_path):
    corpus = open_corpus(write_lines(tmp_path / "a.jsonl", [{"n": 1, "l": [1, 2]}] * 2))
    for kind in ("numpy", "torch"):
        for column in corpus.take_columns([0, 1], kind).values():
            if kind == "torch" or column.flags.writeable:
                column[:] = 0
    assert corpus.take([0, 1]) == [{"n": 1, "l": [1, 2]}] * 2
