"""Documents joined to one stream of tokens an epoch, cut into sequences wherever they end ("concat").

Which documents lie between two tokens is found in two steps: the window by a table of the tokens before each window of
an epoch, made on the epoch's first touch from the cells' sums; the documents in it by adding up their lengths.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array
from detdata.plans.lengths import chunks
from detdata.plans.pack_order import CELLS, DocumentShuffle
from detdata.plans.pack_segments import Segments, runs, segments_of

_HELD = 16  # windows whose documents are kept: some 64 KiB each


class _Window(NamedTuple):
    """The documents of a window in their order, and the tokens of the epoch before each of them and after the last."""

    documents: Int64Array  # int64[m]
    edges: Int64Array  # int64[m + 1]


@final
class TokenStream:
    """The tokens of all documents, one after another, in another order each epoch.

    lengths: checked by `as_lengths`, held as they are. Memory: 8 bytes for 256 documents, and 0.5 for those of each of
    the last two epochs.
    """

    __slots__ = ("_cells", "_edges", "_lengths", "_order", "_windows")

    def __init__(self, lengths: npt.NDArray[Any], seed: int) -> None:
        self._lengths = lengths
        self._order = DocumentShuffle(lengths.size, seed)
        self._cells = np.zeros(self._order.cells, dtype=np.int64)
        for first, part in chunks(lengths):  # by document, so that a mapped file is read from one end to the other
            cells = self._order.cells_of(np.arange(first, first + part.size, dtype=np.int64))
            np.add.at(self._cells, cells, part.astype(np.int64, copy=False))
        self._edges: tuple[tuple[int, Int64Array], ...] = ()
        self._windows: tuple[tuple[tuple[int, int], _Window], ...] = ()

    @property
    def order(self) -> DocumentShuffle:
        """The order of the documents, those without a token too."""
        return self._order

    def segments(self, starts: Int64Array, stops: Int64Array, epoch: int) -> Segments:
        """Return what tokens starts[i] … stops[i] - 1 of an epoch are, as row i. Each must be at least one token."""
        if not starts.size:
            return segments_of(starts, starts, starts, starts)
        edges = self._window_edges(epoch)
        first = np.searchsorted(edges, starts, side="right") - 1
        counts = np.searchsorted(edges, stops, side="left") - first
        windows = [self._window(number, epoch) for number in np.unique(runs(first, counts)).tolist()]
        documents = np.concatenate([window.documents for window in windows])
        begin = np.concatenate([window.edges[:-1] for window in windows])
        end = np.concatenate([window.edges[1:] for window in windows])
        documents, begin, end = (values[begin < end] for values in (documents, begin, end))
        at = np.searchsorted(end, starts, side="right")  # the first document that goes on past the start
        counts = np.searchsorted(begin, stops, side="left") - at
        row, found = np.repeat(np.arange(starts.size, dtype=np.int64), counts), runs(at, counts)
        begin, end = begin[found], end[found]
        start = np.maximum(starts[row], begin) - begin
        return segments_of(row, documents[found], start, np.minimum(stops[row], end) - begin)

    def span(self, document: int, epoch: int) -> tuple[int, int]:
        """Return (first token, token after the last one) of a document in an epoch's stream."""
        position = int(self._order.find(document, epoch))
        number = int(self._order.window_of(np.array([position], dtype=np.int64), epoch)[0])
        window = self._window(number, epoch)
        at = position - self._order.window(number, epoch)[0]
        return int(window.edges[at]), int(window.edges[at + 1])

    def _window_edges(self, epoch: int) -> Int64Array:
        """The tokens of an epoch before each window, and all. O(documents / 256) the first time."""
        for known, edges in self._edges:
            if known == epoch:
                return edges
        cells = self._order.cells_at(np.arange(self._cells.size, dtype=np.int64), epoch)
        sums = np.add.reduceat(self._cells[cells], np.arange(0, cells.size, CELLS))
        edges = np.concatenate([[0], np.cumsum(sums)]).astype(np.int64)
        self._edges = ((epoch, edges), *self._edges[:1])  # replaced whole, so threads see no half
        return edges

    def _window(self, number: int, epoch: int) -> _Window:
        for known, window in self._windows:
            if known == (epoch, number):
                return window
        begin, end = self._order.window(number, epoch)
        documents = self._order._take_run(begin, end - begin, epoch)
        lengths = self._lengths[documents].astype(np.int64, copy=False)
        edges = np.concatenate([[0], np.cumsum(lengths)]) + self._window_edges(epoch)[number]
        window = _Window(documents, edges.astype(np.int64, copy=False))
        self._windows = (((epoch, number), window), *self._windows[: _HELD - 1])
        return window
