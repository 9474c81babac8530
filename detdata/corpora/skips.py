"""Rows that are known to be broken, by a recorded list, and which row stands in for each. Fixed in docs/spec.md.

The place of a skipped row is taken by the next row after it, in the order of the corpus and from its end on to its
beginning, that is not on the list. So the number of rows and every order over them stay as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from detdata.arrays import Int64Array, as_int64
from detdata.errors import ArgumentValueError


@dataclass(frozen=True, slots=True, eq=False)
class Skips:
    """ids: int64[n], ascending, the rows that are skipped. fills: int64[n], the row in place of each.

    >>> Skips.of([2, 3, 9], rows=10).fill(np.array([1, 2, 3, 9])).tolist()
    [1, 4, 4, 0]
    """

    ids: Int64Array
    fills: Int64Array

    @staticmethod
    def of(ids: Any, rows: int) -> Skips:
        """Return the skips of these rows of a corpus. Raises IndexError; ValueError if no row is left.

        Cost O(n log n), however many there are in a row.
        """
        skipped = np.unique(as_int64(ids, "skip", below=rows, what="row"))
        if skipped.size == rows:
            raise ArgumentValueError(f"all {rows} rows are on the list of those to skip: none is left to fill in")
        if not skipped.size:
            return Skips(skipped, skipped)
        lasts = np.flatnonzero(np.diff(skipped, append=-1) != 1)  # of each run of skipped rows
        behind = skipped[lasts] + 1
        if behind[-1] == rows:  # on from the beginning, where the first run may lie
            behind[-1] = behind[0] if skipped[0] == 0 else 0
        return Skips(skipped, behind[lasts.searchsorted(np.arange(skipped.size))])

    def fill(self, rows: Int64Array) -> Int64Array:
        """Return `rows` with each skipped one replaced by the row in its place. O(n log skips)."""
        if not self.ids.size:
            return rows
        at = np.minimum(self.ids.searchsorted(rows), self.ids.size - 1)
        return np.where(self.ids[at] == rows, self.fills[at], rows)
