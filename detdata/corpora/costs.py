"""The note about formats in which single rows are dear: given once, when rows are really asked for that way."""

from __future__ import annotations

import warnings

from detdata.corpora.errors import CorpusWarning
from detdata.corpora.layout import Layout

_ROWS = 64  # asked for, before anything is said


class CostNote:
    """Counts rows that are asked for singly against blocks that were loaded for them."""

    __slots__ = ("_asked", "_rows", "text")

    def __init__(self, random: str | None, layout: Layout) -> None:
        self.text = random
        self._rows = layout.rows / max(1, layout.block_edges.size - 1)
        self._asked = 0

    def count(self, loaded: int) -> None:
        """Note that rows of one more block are asked for, and how many blocks have been loaded up to now; warn once."""
        self._asked += 1
        if self._asked >= _ROWS and loaded * 2 > self._asked and self._rows > 2:
            text, self.text = self.text, None
            warnings.warn(
                f"rows are read in random order, and {text} (here {self._rows:.0f} rows a block). Ways out: an order "
                "that keeps reads local, BlockShuffle(corpus.block_sizes, seed, window=…), or `detdata convert`, which "
                "rewrites the data as memory-mapped Arrow files, where any row is read by itself",
                CorpusWarning,
                stacklevel=5,
            )
