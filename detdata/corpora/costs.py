"""The note about formats in which single rows are dear: given once, when rows are really asked for that way."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from detdata.corpora.errors import CorpusWarning
from detdata.corpora.layout import Layout
from detdata.corpora.protocol import Format, Outline

_ROWS = 64  # asked for, before anything is said
_FEW = 8  # the same, where not even local reads help


class Cost(NamedTuple):
    """What reading single rows anywhere costs, as half a sentence. local: whether an order that stays local helps.

    >>> Cost("a row costs its whole row group").local
    True
    """

    text: str
    local: bool = True


def cost_of(form: Format, outlines: Sequence[Outline]) -> Cost | None:
    """Return what single rows of these files cost: what `form.random_cost` says, if there is that, else `form.random`.

    >>> from detdata.corpora.formats import format_named
    >>> cost_of(format_named("jsonl"), []) is None
    True
    """
    ask = getattr(form, "random_cost", None)
    if ask is None:
        return None if form.random is None else Cost(form.random)
    found: Cost | None = ask(outlines)
    return found


class CostNote:
    """Counts rows that are asked for singly against blocks that were loaded for them. text: None when all is said."""

    __slots__ = ("_asked", "_cost", "_from", "_rows", "_used", "text")

    def __init__(self, cost: Cost | None, layout: Layout) -> None:
        self.text = None if cost is None else cost.text
        self._cost = cost
        self._from = _ROWS if cost is None or cost.local else _FEW
        self._rows = layout.rows / max(1, layout.block_edges.size - 1)
        self._asked = self._used = 0

    def count(self, loaded: int) -> None:
        """Note that rows of one more block are asked for, and how many blocks have been loaded up to now; warn once."""
        self._asked += 1
        if self._asked >= self._from and loaded * 2 > self._asked and self._rows > 2:
            self._warn()

    def count_used(self, rows: int, blocks: int) -> None:
        """Note that so many more rows were used, and how many blocks have come and gone up to now; warn once.

        For blocks that are announced: they are loaded long before their rows are asked for.
        """
        self._used += rows
        if blocks >= self._from and self._used * 2 < blocks * min(self._rows, 8):
            self._warn()

    def _warn(self) -> None:
        text, cost = self.text, self._cost
        if text is None or cost is None:
            return
        self.text = None
        ways = (
            "`detdata convert`, which rewrites the data as memory-mapped Arrow files, where any row is read by itself"
        )
        if cost.local:
            ways = f"an order that keeps reads local, BlockShuffle(corpus.block_sizes, seed, window=…), or {ways}"
        warnings.warn(
            f"rows are read in random order, and {text} (here {self._rows:.0f} rows a block). Ways out: {ways}",
            CorpusWarning,
            stacklevel=6,
        )
