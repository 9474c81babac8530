"""Rows of a text into blocks of equally many: how many that are, and where each block begins."""

from __future__ import annotations

from typing import final

import numpy as np

from detdata.arrays import Int64Array
from detdata.corpora.errors import CorpusError
from detdata.corpora.protocol import Outline

LONGEST_ROW = 1 << 27  # bytes
_LARGEST_BLOCK = 1 << 30  # bytes
_BLOCK = 64 << 10  # bytes of text that a block has on average, at most
_MOST_ROWS = 4096  # of a block
_FIRST = 1 << 20  # bytes at the start of the text, by which the rows of a block are chosen


@final
class Marks:
    """Takes the place of every row, in order, and keeps that of every k-th: memory is that of the index.

    base: byte at which the text begins. rows_per_block: k. None chooses it: the largest power of two, up to 4096, of
    rows that have 64 KiB on average in the first MiB of the text. So it hangs on the text alone, and not on how it is
    read or packed.
    """

    def __init__(self, base: int, rows_per_block: int | None) -> None:
        self.rows = 0
        self._base = base
        self._each = rows_per_block or 0
        self._kept: list[Int64Array] = []

    def add(self, starts: Int64Array, upto: int) -> None:
        """Take the bytes at which the next rows begin, int64[n]. upto: none after these begins before this byte."""
        if self._each:
            self._kept.append(starts[-self.rows % self._each :: self._each].copy())
            self.rows += starts.size
            return
        self._kept.append(starts)
        self.rows += starts.size
        if upto - self._base >= _FIRST:
            self._choose(_FIRST)

    def outline(self, end: int, name: str) -> Outline:
        """Return the outline of the text, which ends at byte `end`: array "starts", int64[blocks + 1].

        Block b is the bytes starts[b] … starts[b + 1]. Raises CorpusError for a block of more than 1 GiB.
        """
        if not self._each:
            self._choose(end - self._base)
        starts = np.concatenate([*self._kept, [end]]).astype(np.int64)
        sizes = np.full(starts.size - 1, self._each, np.int64)
        if sizes.size:
            sizes[-1] = self.rows - self._each * (sizes.size - 1)
            longest = int(np.diff(starts).argmax())
            if int(starts[longest + 1] - starts[longest]) > _LARGEST_BLOCK:
                raise CorpusError(
                    name,
                    f"its {self._each} rows have more than {_LARGEST_BLOCK >> 30} GiB together; choose fewer: "
                    f"rows_per_block={max(1, self._each // 64)}",
                    block=longest,
                )
        return Outline(block_sizes=sizes, arrays={"starts": starts})

    def _choose(self, size: int) -> None:
        starts = np.concatenate([np.empty(0, np.int64), *self._kept])
        rows = int(np.searchsorted(starts, self._base + size))
        fitting = max(1, min(_MOST_ROWS, _BLOCK * rows // max(1, size)))
        self._each = 1 << (fitting.bit_length() - 1)
        self._kept = [starts[:: self._each].copy()]
