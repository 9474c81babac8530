"""Texts of lines: where each block of lines begins, found by one pass over the bytes, whatever they come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.marks import LONGEST_ROW, Marks
from detdata.corpora.protocol import Buffer, Outline, Progress

BOM = b"\xef\xbb\xbf"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_READ = 1 << 20  # bytes read at a time
_PIECE = 1 << 17  # bytes searched at a time: they and what is made of them stay in the cache of a core
LINE_END = 10
_IS_BLANK = np.zeros(256, bool)
_IS_BLANK[list(b" \t\r\n")] = True  # all that is blank in JSON


def file_chunks(file: DataFile, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the bytes of a file from its start to its end. Raises CorpusUnreadable."""
    size = file.identity().size
    for place in range(0, size, _READ):
        yield file.read(place, min(_READ, size - place))
        if progress is not None:
            progress(min(_READ, size - place))


def outline_of_chunks(
    chunks: Iterable[Buffer], rows_per_block: int | None = None, *, name: str, blank_rows: bool = False
) -> Outline:
    """Return where the rows of a text of lines are, as `Marks.outline` gives it. The text comes in parts of any size.

    A byte order mark before the text belongs to no row. The last line needs no line end. blank_rows: whether lines
    that are blank (of spaces, tabs, CR) are rows; if not, they lie in the block of the row before them.
    name: of the file, for errors. Raises CorpusError for a line of more than 128 MiB, and for UTF-16.
    Memory: one part and the index. Cost: 2 GB/s or so.

    >>> found = outline_of_chunks([b'{"x":', b'1}\\n\\n{}'], 1, name="a")
    >>> found.block_sizes.tolist(), found.arrays["starts"].tolist()
    ([1, 1], [0, 9, 11])
    """
    base, found = row_starts(chunks, name, blank_rows=blank_rows)
    marks, end = Marks(base, rows_per_block), base
    for starts, end in found:
        marks.add(starts, end)
    return marks.outline(end, name)


def row_starts(
    chunks: Iterable[Buffer], name: str, *, blank_rows: bool
) -> tuple[int, Iterator[tuple[Int64Array, int]]]:
    """Return (byte at which the text begins, its rows). Arguments and errors are those of `outline_of_chunks`.

    The rows come as (int64[n], bytes at which the next ones begin; byte before which no further one begins). A row
    comes when its line ends. At last comes the end of the text.
    """
    base, pieces = text_pieces(chunks, name)
    return base, _row_starts(pieces, base, name, blank_rows)


def text_pieces(chunks: Iterable[Buffer], name: str) -> tuple[int, Iterator[Buffer]]:
    """Return (byte at which the text begins, the text in pieces of at most 128 KiB). Raises CorpusError for UTF-16."""
    parts, head = iter(chunks), b""
    for part in parts:
        head += bytes(part)
        if len(head) >= len(BOM):
            break
    if head.startswith(UTF_16):
        raise CorpusError(name, "is UTF-16, and UTF-8 is expected; convert it, for example by iconv")
    base = len(BOM) if head.startswith(BOM) else 0
    return base, _cut(chain((memoryview(head)[base:],), parts))


def _cut(chunks: Iterable[Buffer]) -> Iterator[Buffer]:
    for chunk in chunks:
        view = memoryview(chunk)
        for place in range(0, len(view), _PIECE):
            yield view[place : place + _PIECE]


def _row_starts(pieces: Iterable[Buffer], base: int, name: str, blank_rows: bool) -> Iterator[tuple[Int64Array, int]]:
    place = line = base  # where the piece and the line that is open begin
    row = False  # whether the line that is open is known to be a row
    for piece in pieces:
        data = np.frombuffer(piece, np.uint8)
        ends = np.flatnonzero(data == LINE_END)
        if place + int(ends[0] if ends.size else data.size) - line > LONGEST_ROW:
            raise CorpusError(name, f"the line from byte {line} on has more than {LONGEST_ROW >> 20} MiB")
        starts = np.concatenate([[line], ends + (place + 1)])
        if blank_rows:
            found = starts[:-1]
        else:
            rows = _not_blank(data, ends, row)
            found, row = starts[:-1][rows[:-1]], bool(rows[-1])
        line = int(starts[-1])
        place += data.size
        yield found, line
    yield np.array([line] if line < place and (row or blank_rows) else [], np.int64), place


def _not_blank(data: npt.NDArray[np.uint8], ends: Int64Array, row: bool) -> npt.NDArray[np.bool_]:
    """Return of each line in `data`, the open one at the end too, whether it is a row.

    row: whether what came before of the first line makes it one.
    """
    begins = np.concatenate([[0], ends + 1])
    open_line = begins[-1] < data.size
    rows = not_blank(data, begins if open_line else begins[:-1], row)
    return rows if open_line else np.append(rows, False)


def not_blank(data: npt.NDArray[np.uint8], begins: Int64Array, first: bool = False) -> npt.NDArray[np.bool_]:
    """Return of each line whether there is more in it than spaces, tabs, CR and LF; `first` says so of the first.

    data: uint8[n]; begins: int64[lines], the first byte of each, from 0 on. Cost: one byte a line, mostly.

    >>> not_blank(np.frombuffer(b"a\\n\\n b", np.uint8), np.array([0, 2, 3])).tolist()
    [True, False, True]
    """
    rows = ~_IS_BLANK[data[begins]]
    rows[:1] |= first
    if not rows.all():  # some line begins with a blank: look at every byte
        rows = np.logical_or.reduceat(~_IS_BLANK[data], begins)
        rows[:1] |= first
    return rows
