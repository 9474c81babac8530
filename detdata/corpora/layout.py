"""Row numbers of a whole corpus as arithmetic: file, block of the file, row of the block, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from detdata.arrays import Int64Array
from detdata.corpora.errors import CorpusError

MOST_ROWS = 2**62


class Place(NamedTuple):
    """Where a row lies. file: its name; block: of the file, from 0; row: of the block, from 0."""

    file: str
    block: int
    row: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Blocks of all files in order. block_edges: int64[blocks + 1], first row of each block, and the end.

    file_edges: int64[files + 1], first block of each file, and the end.

    >>> layout = Layout.of([np.array([2, 3]), np.array([4])])
    >>> layout.find(5), layout.rows
    ((1, 0, 0), 9)
    """

    block_edges: Int64Array
    file_edges: Int64Array

    @staticmethod
    def of(block_sizes: Sequence[Int64Array], names: Sequence[str] = ()) -> Layout:
        """Return the layout of files with these block sizes. Raises CorpusError for more rows than can be counted.

        names: of the files, for its message.
        """
        counts = np.array([sizes.size for sizes in block_sizes], dtype=np.int64)
        every = np.concatenate([np.zeros(1, np.int64), *block_sizes])
        if float(every.sum(dtype=float)) > MOST_ROWS:
            rows = [float(sizes.sum(dtype=float)) for sizes in block_sizes]
            most = rows.index(max(rows))
            name = names[most] if names else None
            raise CorpusError(name, f"claims to have some {rows[most]:.0e} rows, more than can be; it is damaged")
        return Layout(np.cumsum(every, dtype=np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    @property
    def rows(self) -> int:
        """Rows of the corpus."""
        return int(self.block_edges[-1])

    @property
    def block_sizes(self) -> Int64Array:
        """Rows of each block, int64[blocks]."""
        return np.diff(self.block_edges)

    def find(self, row: int) -> tuple[int, int, int]:
        """Return (file, block of the file, row of the block) of a row of the corpus."""
        block = int(self.block_edges.searchsorted(row, side="right")) - 1
        file = int(self.file_edges.searchsorted(block, side="right")) - 1
        return file, block - int(self.file_edges[file]), row - int(self.block_edges[block])

    def blocks_of(self, rows: Int64Array) -> Int64Array:
        """Return the block, counted over all files, of each row."""
        return self.block_edges.searchsorted(rows, side="right") - 1

    def files_of(self, blocks: Int64Array) -> Int64Array:
        """Return the file of each block."""
        return self.file_edges.searchsorted(blocks, side="right") - 1

    def in_file(self, block: int) -> tuple[int, int]:
        """Return (file, block of the file) of a block that is counted over all files."""
        file = int(self.file_edges.searchsorted(block, side="right")) - 1
        return file, block - int(self.file_edges[file])
