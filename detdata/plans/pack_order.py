"""The order of documents that are joined to one stream: a shuffle in which counting tokens stays cheap.

To find the document at a token, one must know how many tokens come before it. In a full shuffle that is a sum over all
documents, anew each epoch. So the shuffle has two levels: a fixed one puts the documents into cells of 256, and each
epoch permutes the cells, takes 16 of them at a time as a window, and shuffles the documents of each window. Then sums
over cells, made once, and over one window are all that is needed.

Weaker than `Shuffle`: documents of one cell, chosen by the seed, come within 4,096 documents of each other in every
epoch. Fixed in docs/spec.md, section 15.
"""

from __future__ import annotations

from typing import final

import numpy as np

from detdata.arrays import Int64Array
from detdata.checks import as_seed
from detdata.keys import fold
from detdata.orders.base import Order
from detdata.orders.shuffle import as_size
from detdata.orders.windows import within_windows
from detdata.permutation import permute, unpermute
from detdata.records import Spec, register_format

CELL = 256  # documents
CELLS = 16  # in a window
WINDOW = CELL * CELLS

_FORMAT = "detdata.document_shuffle/1"


@final
class DocumentShuffle(Order):
    """Cells of 256 documents in a new order each epoch; documents shuffled within windows of 16 cells.

    n: documents, 1 … 2**62; seed: 0 … 2**63 - 1. Which documents share a cell is random, but the same in every epoch.
    Memory O(1), for n <= 2**24 O(n / 256). `take` costs some 0.3 ms for each window that it touches.
    Raises ValueError, TypeError.

    >>> order = DocumentShuffle(5, seed=1)
    >>> [order.take(range(5), epoch).tolist() for epoch in range(2)]
    [[4, 0, 2, 1, 3], [2, 1, 3, 0, 4]]
    """

    __slots__ = ("_known", "_n", "_seed")

    def __init__(self, n: int, seed: int = 0) -> None:
        self._n = as_size(n)
        self._seed = as_seed(seed)
        self._known: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> int:
        """Documents in an epoch."""
        return self._n

    @property
    def id_bound(self) -> int:
        """Documents in all."""
        return self._n

    @property
    def cells(self) -> int:
        """How many cells there are; the last one holds what is left over."""
        return -(-self._n // CELL)

    def spec(self) -> Spec:
        """Return the spec: format, n and seed."""
        return {"format": _FORMAT, "n": self._n, "seed": self._seed}

    def cells_of(self, documents: Int64Array) -> Int64Array:
        """Return the cell of each document, int64 in the shape of `documents`: the same in every epoch."""
        return unpermute(documents, self._n, self._key("documents")) // CELL

    def cells_at(self, places: Int64Array, epoch: int) -> Int64Array:
        """Return which cell comes in each place of an epoch's sequence of cells."""
        return permute(places, self.cells, self._key("cells", epoch))

    def window(self, number: int, epoch: int) -> tuple[int, int]:
        """Return (first position, position after the last one) of an epoch's window."""
        begin, end = self._starts(np.array([number, number + 1], dtype=np.int64), epoch).tolist()
        return begin, end

    def window_of(self, positions: Int64Array, epoch: int) -> Int64Array:
        """Return the window in which each position lies."""
        return self._stretched(positions, epoch) // WINDOW

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        places = self._within(positions, self.window_of(positions, epoch), epoch, inverse=False)
        stretched = self._stretched(places, epoch)
        within = self.cells_at(stretched // CELL, epoch) * CELL + stretched % CELL
        return permute(within, self._n, self._key("documents"))

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        within = unpermute(ids, self._n, self._key("documents"))
        cell = unpermute(within // CELL, self.cells, self._key("cells", epoch))
        places = cell * CELL + within % CELL - np.where(cell > self._short(epoch), self._missing, 0)
        return self._within(places, cell // CELLS, epoch, inverse=True)

    def _within(self, values: Int64Array, window: Int64Array, epoch: int, *, inverse: bool) -> Int64Array:
        """Shuffle (or unshuffle) each value within its own window."""

        def at(number: int) -> tuple[int, int, int]:
            return *self.window(number, epoch), self._key("window", epoch, number)

        return within_windows(values, window, at, inverse=inverse)

    def _stretched(self, positions: Int64Array, epoch: int) -> Int64Array:
        """Positions as they would be if the last cell were full: then each cell has 256 of them."""
        end = self._short(epoch) * CELL + CELL - self._missing
        return positions + np.where(positions >= end, self._missing, 0)

    def _starts(self, windows: Int64Array, epoch: int) -> Int64Array:
        """The first position of each window; of the one after the last, the end."""
        places = np.minimum(windows * CELLS, self.cells)
        return places * CELL - np.where(places > self._short(epoch), self._missing, 0)

    @property
    def _missing(self) -> int:
        """Documents that the last cell has less than the others."""
        return -self._n % CELL

    def _short(self, epoch: int) -> int:
        """The place in which the last cell comes; of the last two epochs asked for it is kept."""
        for known, place in self._known:
            if known == epoch:
                return place
        last = np.array([self.cells - 1], dtype=np.int64)
        place = int(unpermute(last, self.cells, self._key("cells", epoch))[0])
        self._known = ((epoch, place), *self._known[:1])  # replaced whole, so threads see no half
        return place

    def _key(self, use: str, *path: int) -> int:
        return fold(_FORMAT, use, self._seed, *path)


def _build(spec: Spec) -> DocumentShuffle:
    return DocumentShuffle(spec["n"], spec["seed"])


register_format(_FORMAT, ("n", "seed"), _build)
