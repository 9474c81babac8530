"""Plain files of lines: where each block of lines begins, found by one pass over the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from detdata.arrays import Int64Array
from detdata.corpora.files import DataFile
from detdata.corpora.protocol import Outline, Progress

_BLOCK_BYTES = 64 << 10  # about so much text makes a block
_MOST_ROWS = 4096
_SCAN = 4 << 20
_BOM = b"\xef\xbb\xbf"


def outline_lines(file: DataFile, rows_per_block: int | None, progress: Progress | None) -> Outline:
    """Return the outline of a file of lines: arrays "starts", int64[blocks + 1], the byte at which each block begins.

    Blank lines between are no rows; they lie in the block of the row before them.
    """
    size = file.identity().size
    start = len(_BOM) if size >= 3 and file.read(0, 3) == _BOM else 0
    firsts = np.concatenate([np.empty(0, np.int64), *_row_starts(file, start, size, progress)])
    each = rows_per_block or _fitting(size - start, firsts.size)
    starts = np.append(firsts[::each], size)
    sizes = np.full(starts.size - 1, each, np.int64)
    if sizes.size:
        sizes[-1] = firsts.size - each * (sizes.size - 1)
    return Outline(block_sizes=sizes, arrays={"starts": starts})


def _fitting(size: int, rows: int) -> int:
    """Return the power of two nearest to the number of rows that make a block."""
    each = max(1, min(_MOST_ROWS, int(_BLOCK_BYTES * rows / max(1, size))))
    return 1 << (each.bit_length() - 1)


def _row_starts(file: DataFile, start: int, size: int, progress: Progress | None) -> Iterator[Int64Array]:
    begins = np.array([start], dtype=np.int64)  # of lines, whose bytes are not known to be blank yet
    for place in range(start, size, _SCAN):
        data = file.read(place, min(_SCAN, size - place))
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + place
        lines = np.concatenate([begins, ends + 1])
        yield lines[:-1]
        begins = lines[-1:]
        if progress is not None:
            progress(len(data))
    if int(begins[0]) < size:
        yield begins


def split_rows(text: bytes) -> Sequence[bytes]:
    """Return the lines of a block that are not blank."""
    return [line for line in text.split(b"\n") if line.strip()]
