"""JSON lines: rows as json reads them, blank lines nowhere, and a broken line named with file, block and row."""

import json
import math
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import open_corpus
from detdata.corpora import CorpusError
from detdata.testing import CorpusSuite

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)
BLANKS = st.sampled_from(["", "", " ", "\t", " \t "])


class TestJsonLinesAsPeopleWriteThem(CorpusSuite):
    """CRLF, blank lines, blanks around rows, a byte order mark, no last line end."""

    format = "jsonl"
    options: ClassVar = {"rows_per_block": 8}

    def write(self, folder, rows):
        path = folder / "a.ndjson"
        lines = [f" {json.dumps(row, ensure_ascii=False)}\t\r\n" + "\r\n \n" * (row["id"] % 2) for row in rows]
        path.write_bytes(b"\xef\xbb\xbf\r\n" + "".join(lines).encode().rstrip())
        return path


def opened(folder, content, **how):
    path = folder / "a.jsonl"
    path.write_bytes(content)
    return open_corpus(path, index="no", **how)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(OBJECTS, BLANKS, BLANKS, st.lists(BLANKS, max_size=2)), min_size=1, max_size=12),
    plain=st.booleans(),
    line_end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
    ended=st.booleans(),
    each=st.integers(1, 5),
)
def test_rows_are_those_that_json_wrote(tmp_path_factory, rows, plain, line_end, mark, ended, each):
    lines = []
    for value, before, after, blanks in rows:
        lines += [before + json.dumps(value, ensure_ascii=plain) + after, *blanks]
    text = line_end.join(lines) + line_end * ended
    content = b"\xef\xbb\xbf" * mark + text.encode("utf-8", "surrogatepass" if plain else "strict")
    corpus = opened(tmp_path_factory.mktemp("jsonl"), content, rows_per_block=each)
    expected = [value for value, *_ in rows]

    assert list(corpus) == expected
    assert [corpus[row] for row in range(len(corpus))] == expected
    assert corpus.block_sizes.tolist() == [each] * (len(rows) // each) + [len(rows) % each] * (len(rows) % each > 0)


def test_what_json_takes_is_taken_as_json_takes_it(tmp_path):
    line = b'{"a": 1, "a": 2, "n": NaN, "i": -Infinity, "big": 123456789012345678901234567890, "s": "\\ud800\\u0000"}\n'
    row = opened(tmp_path, line)[0]

    assert math.isnan(row.pop("n"))
    assert row == {"a": 2, "i": -math.inf, "big": 123456789012345678901234567890, "s": "\ud800\0"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[1]", "is a list, and a row must be a JSON object"),
        (b"null", "is a NoneType, and"),
        (b'"{}"', "is a str, and"),
        (b"{} {}", "is no JSON: Extra data"),
        (b'{"a": 1},', "is no JSON: Extra data"),
        (b'{"a": tru}', "is no JSON: Expecting value"),
        (b"\xef\xbb\xbf{}", "is no JSON: .*a byte order mark"),
        (b'{"a": "\0"}', "is no JSON: Invalid control character"),
        (b"\0" * 600, "is no JSON"),
        (b"\x0b", "is no JSON"),
        (b'{"a": "\xff"}', "is no UTF-8"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is no JSON: Exceeds the limit"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "is nested too deep"),
        (b'{"a":' * 200_000, "is nested too deep"),
    ],
)
def test_a_broken_line_is_named_when_it_is_read_and_others_are_read(tmp_path, line, reason):
    corpus = opened(tmp_path, b'{"x": 0}\n{"x": 1}\n\n{"x": 2}\n' + line + b'\n\n{"x": 4}\n', rows_per_block=2)

    assert len(corpus) == 5
    for read in (lambda: corpus[3], lambda: list(corpus), lambda: corpus.take_columns([0, 3])):
        with pytest.raises(CorpusError, match=reason) as caught:
            read()
        error = caught.value
        assert (error.file, error.block, error.row) == (str(tmp_path / "a.jsonl"), 1, 1)
        assert len(str(error)) < 1000
    assert corpus.take([4, 2]) == [{"x": 4}, {"x": 2}]


def test_two_lines_that_are_one_object_together_are_two_broken_rows(tmp_path):
    corpus = opened(tmp_path, b'{"x": [{}\n,{}]}\n{"y": 1}\n')

    assert len(corpus) == 3
    assert corpus[2] == {"y": 1}
    for row in (0, 1):
        with pytest.raises(CorpusError, match=f"row {row} of the block: is no JSON"):
            corpus[row]


@pytest.mark.parametrize("length", range(1, 15))
def test_a_last_line_that_was_cut_short_is_a_row_that_says_so(tmp_path, length):
    corpus = opened(tmp_path, b'{"x": 1}\n' + b'{"x": "\xc3\xa9abc"}'[:length])

    assert corpus[0] == {"x": 1}
    assert len(corpus) == 2
    if length == 14:
        assert corpus[1] == {"x": "éabc"}
    else:
        with pytest.raises(CorpusError, match=r"block 0, row 1 of the block: is no (JSON|UTF-8).*was it cut short"):
            corpus[1]


def test_columns_are_chosen_and_a_row_without_one_is_named(tmp_path):
    corpus = opened(tmp_path, b'{"a": 1, "b": 2, "c": 3}\n{"c": 6, "a": 4}\n{}\n', columns=["c", "a"])

    assert [list(row.items()) for row in corpus.take([1, 0])] == [[("c", 6), ("a", 4)], [("c", 3), ("a", 1)]]
    with pytest.raises(CorpusError, match="row 2 of the block: has no 'c', only nothing"):
        corpus[2]
    with pytest.raises(CorpusError, match="row 1 of the block: has no 'b', only 'c', 'a'"):
        open_corpus(tmp_path, index="no", columns=["a", "b"])[1]


def test_every_take_gives_fresh_rows(tmp_path):
    corpus = opened(tmp_path, b'{"x": [1]}\n')
    corpus[0]["x"].append(2)
    first, second = corpus.take([0, 0])
    first["x"].append(3)

    assert second == corpus[0] == {"x": [1]}


def test_a_file_of_blank_lines_has_no_rows(tmp_path):
    (tmp_path / "b.jsonl").write_bytes(b"\r\n \t\n\n")
    (tmp_path / "c.jsonl").write_bytes(b"")

    assert opened(tmp_path, b"{}").take([0]) == [{}]
    assert len(open_corpus(tmp_path, index="no")) == 1
