"""CSV: no row or field is split or joined, types lose nothing, and what is broken is named."""

import csv
import io
import math
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import detdata.corpora.csv_scan as scanning
from detdata import open_corpus
from detdata.corpora import CorpusError
from detdata.corpora.csv import Csv
from detdata.corpora.csv_grid import _follow, find_toggles
from detdata.corpora.csv_types import ARROW_TYPES
from detdata.corpora.files import LocalFile
from detdata.corpora.protocol import Options
from detdata.testing import CorpusSuite


def opened(folder, content, name="a.csv", **how):
    path = folder / name
    path.write_bytes(content)
    return open_corpus(path, index="no", **how)


def written(names, rows, **how):
    out = io.StringIO(newline="")
    csv.writer(out, **how).writerows([names, *rows])
    return out.getvalue().encode()


class TestCsv(CorpusSuite):
    format = "csv"
    sees_cuts = False  # the last value of a file may be cut short
    options: ClassVar = {"rows_per_block": 8, "column_types": {"text": "string", "value": "float64"}}

    def rows(self, count, seed):
        kept = [{name: row[name] for name in ("id", "text")} for row in super().rows(count, seed)]
        return [{**row, "value": number / 7} for number, row in enumerate(kept)]

    def write(self, folder, rows):
        path = folder / "a.csv"
        path.write_bytes(written(["id", "text", "value"], [row.values() for row in rows]))
        return path


class TestCsvWithBareQuotes(TestCsv):
    """Quotes inside bare values, so that they are followed one by one."""

    options: ClassVar = {"rows_per_block": 7, "delimiter": ";"}

    def rows(self, count, seed):
        return [{**row, "text": '";\n"' if row["id"] % 3 else '5" pipe'} for row in super().rows(count, seed)]

    def write(self, folder, rows):
        path = folder / "a.csv"
        raw = {'";\n"': '""";\n"""', '5" pipe': '5" pipe'}
        lines = [f"{row['id']};{raw[row['text']]};{row['value']}" for row in rows]
        path.write_bytes("\r\n".join(["id;text;value", *lines]).encode())
        return path


FIELDS = st.text(st.sampled_from('a,"\n\r;é ') | st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    table=st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(FIELDS, min_size=n, max_size=n), min_size=1)),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    delimiter=st.sampled_from(",;|\t^]"),
    size=st.integers(1, 5),
    read=st.integers(1, 40),
)
def test_what_the_csv_module_writes_is_read_back(tmp_path_factory, table, quoting, line_end, delimiter, size, read):
    names = [f"c{number}" for number in range(len(table[0]))]
    content = written(names, table, quoting=quoting, lineterminator=line_end, delimiter=delimiter)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_READ", read)
        patch.setattr(scanning, "_READ_COLUMN", 1)
        corpus = opened(
            tmp_path_factory.mktemp("csv"),
            content,
            delimiter=delimiter,
            rows_per_block=size,
            column_types=dict.fromkeys(names, "string"),
        )
    expected = [dict(zip(names, row, strict=True)) for row in table]

    assert list(corpus) == expected
    assert [corpus[row] for row in range(len(corpus))] == expected
    assert corpus.take_columns(range(len(table))).to_pylist() == expected
    assert corpus.block_sizes.tolist() == [size] * (len(table) // size) + [len(table) % size][: len(table) % size]


def rows_by_the_csv_module(text):
    """Rows, as the csv module reads them; None where it and we do not agree on what a broken text means."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        return None
    return [row for row in rows if row]


@settings(max_examples=300, deadline=None)
@given(text=st.text('ab,"\n', max_size=30), read=st.integers(1, 12), size=st.integers(1, 3))
def test_any_text_has_the_rows_that_the_csv_module_finds(tmp_path_factory, text, read, size):
    expected = rows_by_the_csv_module("x,y\n" + text)
    if expected is None or not expected[1:]:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_READ", read)
        patch.setattr(scanning, "_READ_COLUMN", 1)
        corpus = opened(
            tmp_path_factory.mktemp("csv"),
            b"x,y\n" + text.encode(),
            rows_per_block=size,
            column_types={"x": "string", "y": "string"},
        )

    assert len(corpus) == len(expected) - 1
    for number, row in enumerate(expected[1:]):
        if len(row) == 2:
            assert corpus[number] == dict(zip("xy", row, strict=True))
        else:
            with pytest.raises(CorpusError, match=f"row {number % size} of the block: has {len(row)} fields"):
                corpus[number]


@settings(max_examples=300, deadline=None)
@given(text=st.text('ab,"\n', max_size=40))
def test_quotes_are_followed_alike_all_at_once_and_one_by_one(text):
    data = text.encode()
    assert find_toggles(np.frombuffer(data, np.uint8), ord(",")).tolist() == _follow(data, b",").tolist()


TYPES = [
    ("int64", ["0", "-5", "9223372036854775807", ""], [0, -5, 2**63 - 1, None]),
    ("float64", ["0", "1.5", "-2e3", ".5", "3.", ""], [0.0, 1.5, -2000.0, 0.5, 3.0, None]),
    ("float64", ["nan", "-inf", "1"], [math.nan, -math.inf, 1.0]),
    ("float64", ["-0", "7"], [-0.0, 7.0]),
    ("bool", ["true", "False", "TRUE", ""], [True, False, True, None]),
    ("string", ["", ""], ["", ""]),
    ("string", ["007", "8"], ["007", "8"]),
    ("string", ["+1", "2"], ["+1", "2"]),
    ("string", ["0x10", "2"], ["0x10", "2"]),
    ("string", [" 1", "2"], [" 1", "2"]),
    ("string", ["1_0", "2"], ["1_0", "2"]),
    ("string", ["9223372036854775808", "1"], ["9223372036854775808", "1"]),
    ("string", ["9007199254740993", "0.5"], ["9007199254740993", "0.5"]),
    ("string", ["true", "1"], ["true", "1"]),
    ("string", ["1", "x", ""], ["1", "x", ""]),
    ("string", ["١", "2"], ["١", "2"]),
    ("string", ["0." + "1" * 70, "2"], ["0." + "1" * 70, "2"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "texts", "values"), TYPES)
@pytest.mark.parametrize("read", [3, 1 << 18])
@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_column_has_the_narrowest_type_that_loses_nothing(
    tmp_path, monkeypatch, kind, texts, values, read, quoted, backwards
):
    monkeypatch.setattr(scanning, "_READ", read)
    monkeypatch.setattr(scanning, "_READ_COLUMN", 1)
    if backwards:
        texts, values = texts[::-1], values[::-1]
    rows = [["k", text] for text in texts]
    content = written(["k", "v"], rows, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)

    corpus = opened(tmp_path, content)

    assert repr([row["v"] for row in corpus]) == repr(values)  # repr: nan, -0.0
    table = corpus.take_columns(range(len(corpus)))
    assert table.schema == pa.schema({"k": pa.string(), "v": ARROW_TYPES[kind]})
    assert repr(table["v"].to_pylist()) == repr(values)


def test_one_row_anywhere_decides_the_type_for_all_blocks(tmp_path):
    rows = [[number, number] for number in range(40_000)]
    rows[-1][1] = "n/a"
    corpus = opened(tmp_path, written(["a", "b"], rows))

    assert corpus.block_sizes.size > 3
    assert corpus[0] == {"a": 0, "b": "0"}
    assert corpus[39_999] == {"a": 39_999, "b": "n/a"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no line that names the columns"),
        (b"\xef\xbb\xbf", "no line that names the columns"),
        (b"\r\n\n", "no line that names the columns"),
        (b"a,b,a\n1,2,3\n", "names 'a' twice"),
        (b"a,,c\n1,2,3\n", "leaves a name empty"),
        (b"a,\n1,2\n", "leaves a name empty"),
        (b'a,"b\n1,2\n', "ends inside a quoted name"),
        (b"\na\n1\n", "begins with an empty line"),
        (b"a\rb\r1\r2\r", "has a CR that no LF follows"),
        (b"a,\xff\n1,2\n", "is no UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16"),
        (b'a,b\n1,"2\n3,4\n', "row 0: ends inside a quoted value, which byte 6 begins"),
        (b'a,b\n1,2\n3,"4""\n', "row 1: ends inside a quoted value"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_table_is_an_error_when_it_is_opened(tmp_path, content, reason):
    with pytest.raises(CorpusError, match=reason) as caught:
        opened(tmp_path, content)
    assert caught.value.file == str(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"1", "has 1 fields, and 2 columns are named"),
        (b"1,2,3", "has 3 fields, and 2 columns are named"),
        (b'1,"a"b', "has text after a quoted value"),
        (b'1,"a""b"c"', "has text after a quoted value"),
        (b"1,a\rb", "has a CR that no LF follows"),
        (b"1,\xff", "is no UTF-8"),
        (b'"1",\xff', "is no UTF-8"),
    ],
)
def test_a_broken_row_is_named_when_it_is_read_and_others_are_read(tmp_path, row, reason):
    corpus = opened(tmp_path, b"a,b\n1,x\n2,y\n3,z\n" + row + b"\n5,w\n", rows_per_block=3)

    for read in (lambda: corpus[3], lambda: corpus.take([0, 3]), lambda: corpus.take_columns([3])):
        with pytest.raises(CorpusError, match=reason) as caught:
            read()
        assert (caught.value.block, caught.value.row) == (1, 0)
    assert corpus.take([4, 2]) == [{"a": 5, "b": "w"}, {"a": 3, "b": "z"}]


def test_empty_lines_are_rows_of_one_column_only(tmp_path):
    assert list(opened(tmp_path, b"a,b\n\n1,2\r\n\r\n\n3,4\n\n")) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert list(opened(tmp_path, b"a\n\n1\r\n\r\n\n3")) == [{"a": value} for value in (None, 1, None, None, 3)]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    assert list(opened(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n")) == [{"a": 1, "b": 2}]
    assert list(opened(tmp_path, b'\xef\xbb\xbf"a",b\n1,2\n')) == [{"a": 1, "b": 2}]


def test_columns_are_chosen_and_given_other_types(tmp_path):
    content = b"a,b,c\n1,x,2\n3,y,4\n"
    corpus = opened(tmp_path, content, columns=["c", "a"], column_types={"a": "string", "c": "float64"})

    assert list(corpus) == [{"c": 2.0, "a": "1"}, {"c": 4.0, "a": "3"}]
    assert corpus.take_columns([1]).to_pydict() == {"c": [4.0], "a": ["3"]}
    with pytest.raises(CorpusError, match="has no column 'd', only"):
        opened(tmp_path, content, columns=["d"])
    with pytest.raises(CorpusError, match="has no column 'd', only"):
        opened(tmp_path, content, column_types={"d": "string"})
    with pytest.raises(ValueError, match="must be one of 'bool', 'int64', 'float64', 'string'; got 'int'"):
        opened(tmp_path, content, column_types={"a": "int"})
    with pytest.raises(TypeError, match="column_types must be a dict"):
        opened(tmp_path, content, column_types="string")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("int64", {"+007": 7, "": None}, ["1.0", "1_0", " 1", "9223372036854775808", "١", "x", "1" * 5000]),
        ("float64", {"+007": 7.0, "12345678901234567": 12345678901234568.0, "": None}, ["1_0", " 1", "0x1", "x"]),
        ("bool", {"tRUE": True, "": None}, ["1", "yes"]),
    ],
)
def test_a_type_that_was_asked_for_is_kept_to_row_by_row(tmp_path, kind, good, bad):
    values = [*good, *bad, "text"]
    corpus = opened(tmp_path, written(["n", "v"], [["k", value] for value in values]), column_types={"v": kind})

    assert [corpus[row]["v"] for row in range(len(good))] == list(good.values())
    for row in range(len(good), len(values)):
        with pytest.raises(CorpusError, match=f"column 'v' holds .*, no {kind}") as caught:
            corpus[row]
        assert caught.value.row == row


def test_files_of_other_types_are_opened_together_only_when_told_how(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n")
    (tmp_path / "b.csv").write_bytes(b"a,b\nx,2\n")
    (tmp_path / "c.csv").write_bytes(b"a,b\n")  # no rows: no types

    with pytest.raises(CorpusError, match="its columns differ"):
        open_corpus(tmp_path, index="no")
    assert len(open_corpus(tmp_path, index="no", columns=["b"])) == 2
    assert open_corpus(tmp_path, index="no", column_types={"a": "string"})[0] == {"a": "1", "b": 2}


def test_the_delimiter_is_that_of_the_ending_or_the_one_that_is_named(tmp_path):
    assert opened(tmp_path, b"a\tb\n1\t2,5\n", name="a.tsv")[0] == {"a": 1, "b": "2,5"}
    assert opened(tmp_path, b"a;b\n1;2,5\n", delimiter=";")[0] == {"a": 1, "b": "2,5"}
    for wrong in ("", ",,", '"', "\n", "é", 5):
        with pytest.raises(ValueError, match="delimiter must be one ASCII character"):
            opened(tmp_path, b"a\n1\n", delimiter=wrong)


def test_another_delimiter_is_another_index(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a;b,c\n1;2,3\n")

    assert open_corpus(path)[0] == {"a;b": "1;2", "c": 3}
    assert open_corpus(path, delimiter=";")[0] == {"a": 1, "b,c": "2,3"}
    assert open_corpus(path, column_types={"c": "string"})[0] == {"a;b": "1;2", "c": "3"}


def test_a_row_beyond_the_limit_is_an_error_and_one_below_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(scanning, "LONGEST_ROW", 1000)
    monkeypatch.setattr(scanning, "_READ", 100)
    monkeypatch.setattr(scanning, "_READ_COLUMN", 1)
    assert len(opened(tmp_path, b"a,b\n1," + b"x" * 998 + b"\n")) == 1
    for content in (b"1," + b"x" * 999 + b"\n", b'1,"' + b"2,3\n" * 500):
        with pytest.raises(CorpusError, match=r"a row of more than .* is a quote never closed"):
            opened(tmp_path, b"a,b\n" + content)


def test_an_outline_depends_on_the_text_and_not_on_how_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_bytes(written(["a", "b"], [[number, 'x"\n,' * (number % 7)] for number in range(80_000)]))
    form, file, outlines = Csv(), LocalFile(str(path)), []
    for read in (1 << 14, 1 << 18, 1 << 23):
        monkeypatch.setattr(scanning, "_READ", read)
        monkeypatch.setattr(scanning, "_READ_COLUMN", 1)
        done = []
        outlines.append(form.outline(file, Options(), done.append))
        assert sum(done) == path.stat().st_size

    assert outlines[0].rows == 80_000
    assert outlines[0].block_sizes[0] in {1 << power for power in range(13)}
    for outline in outlines[1:]:
        assert outline.meta == outlines[0].meta
        assert np.array_equal(outline.block_sizes, outlines[0].block_sizes)
        assert np.array_equal(outline.arrays["starts"], outlines[0].arrays["starts"])
