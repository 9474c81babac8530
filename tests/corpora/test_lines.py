"""The scan of lines: rows are where plain Python finds them, however the text comes in."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import detdata.corpora.lines as scanning
import detdata.corpora.marks as marking
from detdata.corpora import CorpusError
from detdata.corpora.files import LocalFile
from detdata.corpora.line_rows import Lines
from detdata.corpora.lines import file_chunks, outline_of_chunks

TEXTS = st.lists(
    st.sampled_from([b"{}", b"a", b"\n", b"\n", b"\r\n", b" ", b"\t", b"\r", "é".encode(), b"\0", b"\x0b"])
)


def starts_by_python(text, blank_rows):
    starts, place = [], 3 if text.startswith(b"\xef\xbb\xbf") else 0
    for line in text[place:].splitlines(keepends=True) if b"\r" not in text else _lines(text[place:]):
        if blank_rows or line.strip(b" \t\r\n"):
            starts.append(place)
        place += len(line)
    return starts


def _lines(text):
    parts = [part + b"\n" for part in text.split(b"\n")]
    parts[-1] = parts[-1][:-1]
    return parts if parts[-1] else parts[:-1]


def cut(text, lengths):
    """The text in parts of these lengths, over and over."""
    parts, place = [], 0
    while place < len(text):
        length = lengths[len(parts) % len(lengths)]
        parts.append(text[place : place + length])
        place += length
    return parts


@settings(max_examples=400, deadline=None)
@given(
    parts=TEXTS,
    mark=st.booleans(),
    blank_rows=st.booleans(),
    lengths=st.lists(st.integers(1, 9), min_size=1),
    piece=st.integers(1, 9),
    each=st.integers(1, 5),
)
def test_rows_begin_where_plain_python_finds_them(parts, mark, blank_rows, lengths, piece, each):
    text = b"\xef\xbb\xbf" * mark + b"".join(parts).replace(b"\x0b", b"")
    expected = starts_by_python(text, blank_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_PIECE", piece)
        outline = outline_of_chunks(cut(text, lengths), each, name="a", blank_rows=blank_rows)

    assert outline.arrays["starts"].tolist() == [*expected[::each], len(text)]
    assert outline.rows == len(expected)
    assert set(outline.block_sizes[:-1].tolist()) <= {each}
    for block, size in enumerate(outline.block_sizes.tolist()):
        start, stop = outline.arrays["starts"][block : block + 2]
        lines = Lines("a", block, size, text[start:stop], blank_rows=blank_rows)
        mine = range(block * each, block * each + size)
        wanted = [_lines(text[expected[row] :])[0] for row in mine]
        wanted = [line[: -2 if line.endswith(b"\r\n") else -1] if line.endswith(b"\n") else line for line in wanted]
        assert lines.texts(range(size)) == [str(line, "utf-8") for line in wanted]
        assert [lines.texts([row])[0] for row in range(size)] == lines.texts(range(size))


@pytest.mark.parametrize(
    ("line", "each"),
    [(3, 4096), (16, 4096), (17, 2048), (32, 2048), (500, 128), (512, 128), (513, 64), (65_536, 1), (3_000_000, 1)],
)
def test_a_block_is_the_power_of_two_of_rows_that_have_64_kib_in_the_first_mib(line, each):
    text = (b"x" * (line - 1) + b"\n") * (3_000_000 // line)

    sizes = outline_of_chunks([text], name="a").block_sizes

    assert sizes[0] == min(each, 3_000_000 // line)
    assert set(sizes[:-1].tolist()) <= {each}


@pytest.mark.parametrize("seed", range(3))
def test_blocks_hang_on_the_text_and_not_on_how_it_is_read(tmp_path, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    text = b"".join(
        b"x" * length + b"\n" for length in rng.integers(0, 10 ** (seed + 1), 3_000_000 // 10 ** (seed + 1))
    )
    path = tmp_path / "a"
    path.write_bytes(text)
    expected = outline_of_chunks([text], name="a")
    for read in (1000, 1 << 16, 1 << 24):
        monkeypatch.setattr(scanning, "_READ", max(read, 1 << 16))
        monkeypatch.setattr(scanning, "_PIECE", read)
        done = []
        found = outline_of_chunks(file_chunks(LocalFile(str(path)), done.append), name="a")
        assert np.array_equal(found.block_sizes, expected.block_sizes)
        assert np.array_equal(found.arrays["starts"], expected.arrays["starts"])
        assert sum(done) == len(text)


def test_only_the_starts_of_blocks_are_held(monkeypatch):
    held = []
    add = marking.Marks.add

    def adding(self, starts, upto):
        add(self, starts, upto)
        held.append(sum(part.base.nbytes if part.base is not None else part.nbytes for part in self._kept))

    monkeypatch.setattr(marking.Marks, "add", adding)
    text = b"0123456789abcde\n" * (1 << 16)  # 1 MiB, blocks of 4096 rows
    outline = outline_of_chunks([text] * 32, name="a")

    assert outline.rows == 32 << 16
    assert max(held[16:]) <= 8 * outline.arrays["starts"].size


def test_a_line_or_block_beyond_its_limit_is_an_error(monkeypatch):
    monkeypatch.setattr(scanning, "LONGEST_ROW", 100)
    monkeypatch.setattr(scanning, "_PIECE", 16)
    for end in (b"", b"\n", b"\nx"):
        assert outline_of_chunks([b"x\n" + b"y" * 100 + end], name="a").rows > 1
        with pytest.raises(CorpusError, match="a: the line from byte 2 on has more than"):
            outline_of_chunks([b"x\n" + b"y" * 101 + end], name="a")
    monkeypatch.setattr(marking, "_LARGEST_BLOCK", 150)
    text = b"a\n" * 4 + b"b\n" + b"y" * 90 + b"\n" + b"z" * 90 + b"\n"
    assert outline_of_chunks([text], 2, name="a").block_sizes.tolist() == [2, 2, 2, 1]
    with pytest.raises(CorpusError, match=r"a, block 1: its 4 rows have more than .* rows_per_block=1"):
        outline_of_chunks([text], 4, name="a")


def test_utf_16_is_told():
    with pytest.raises(CorpusError, match="is UTF-16"):
        outline_of_chunks([b"\xff", b"\xfe{\0}\0\n\0"], name="a")


def test_nothing_has_no_rows():
    for text in ([], [b""], [b"\xef\xbb\xbf"], [b"\n \r\n"]):
        outline = outline_of_chunks(text, name="a")
        assert outline.rows == 0
        assert outline.block_sizes.size == 0


def test_another_number_of_rows_than_the_index_has_is_an_error():
    with pytest.raises(CorpusError, match="block 3: has 2 rows where its index knows of 4"):
        Lines("a", 3, 4, b"a\n\nb\n", blank_rows=False)
    with pytest.raises(CorpusError, match="has 3 rows where its index knows of 2"):
        Lines("a", 3, 2, b"a\n\nb\n", blank_rows=True)
