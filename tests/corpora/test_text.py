"""Plain text: each line is a row, just as it stands there."""

from typing import ClassVar

import pytest

from detdata import open_corpus
from detdata.corpora import CorpusError
from detdata.testing import CorpusSuite


class TestText(CorpusSuite):
    format = "text"
    options: ClassVar = {"rows_per_block": 8}
    columns = ("text",)
    sees_cuts = False

    def rows(self, count, seed):
        return [
            {"text": " é\t日本\u2028"[: number % 7] * (number % 5) + f"{seed}" * (number % 3)}
            for number in range(count)
        ]

    def write(self, folder, rows):
        path = folder / "a.txt"
        path.write_bytes(b"".join(row["text"].encode() + b"\n" for row in rows))
        return path


class TestTextWithCrlf(TestText):
    options: ClassVar = {"rows_per_block": 5, "text_column": "line"}
    columns = ("line",)

    def rows(self, count, seed):
        return [{"line": row["text"]} for row in super().rows(count, seed)]

    def write(self, folder, rows):
        path = folder / "a.text"
        path.write_bytes(b"\xef\xbb\xbf" + b"".join(row["line"].encode() + b"\r\n" for row in rows))
        return path


def opened(folder, content, **how):
    path = folder / "a.txt"
    path.write_bytes(content)
    return open_corpus(path, index="no", **how)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\n\n b \nc", ["a", "", " b ", "c"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\rb\n\r\r\nc\r", ["a\rb", "\r", "c\r"]),
        (b"\n", [""]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        ("a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\0h\n".encode(), ["a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\0h"]),
    ],
)
def test_a_line_ends_with_lf_or_crlf_and_nothing_else(tmp_path, content, lines):
    corpus = opened(tmp_path, content)

    assert list(corpus) == [{"text": line} for line in lines]
    assert [corpus[row]["text"] for row in range(len(lines))] == lines
    assert corpus.take_columns(range(len(lines))).to_pydict() == {"text": lines}


def test_a_line_that_is_no_utf_8_is_named_and_others_are_read(tmp_path):
    corpus = opened(tmp_path, b"a\nb\nc\n\xff\nd\n", rows_per_block=2)

    for read in (lambda: corpus[3], lambda: list(corpus), lambda: corpus.take_columns([3])):
        with pytest.raises(CorpusError, match=r"a.txt, block 1, row 1 of the block: is no UTF-8: .*0xff in position 0"):
            read()
    assert corpus.take([4, 2]) == [{"text": "d"}, {"text": "c"}]


def test_the_one_column_may_be_named(tmp_path):
    assert opened(tmp_path, b"a\n", text_column="line", columns=["line"])[0] == {"line": "a"}
    with pytest.raises(CorpusError, match="has one column, 'line'"):
        opened(tmp_path, b"a\n", text_column="line", columns=["text"])
    with pytest.raises(TypeError, match="text_column must be a name, got 3"):
        opened(tmp_path, b"a\n", text_column=3)


def test_a_file_without_lines_has_no_rows(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"")
    (tmp_path / "c.txt").write_bytes(b"\xef\xbb\xbf")

    assert opened(tmp_path, b"x").take([0]) == [{"text": "x"}]
    assert len(open_corpus(tmp_path, index="no")) == 1
