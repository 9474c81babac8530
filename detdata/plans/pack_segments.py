"""Segments: which tokens of which documents a packed sequence is made of, in reading order.

A batch has one array of them for all its rows, sorted by row: documents are as many as they are, rows are not.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array

Segments: TypeAlias = npt.NDArray[Any]
SEGMENT = np.dtype([("row", np.int64), ("document", np.int64), ("start", np.int64), ("stop", np.int64)])


def segments_of(row: Int64Array, document: Int64Array, start: Int64Array, stop: Int64Array) -> Segments:
    """Return segments, one for each element of four int64[k]: tokens start … stop - 1 of a document stand in a row.

    >>> segments_of(np.array([0]), np.array([7]), np.array([2]), np.array([5])).tolist()
    [(0, 7, 2, 5)]
    """
    segments = np.empty(row.size, dtype=SEGMENT)
    segments["row"], segments["document"], segments["start"], segments["stop"] = row, document, start, stop
    return segments


def rows_of(segments: Segments, rows: Int64Array) -> Segments:
    """Return the segments of some rows, numbered anew: what stood in rows[i] stands in row i. Sorted by row.

    >>> column = np.array([0, 1, 1, 2])
    >>> rows_of(segments_of(column, column + 5, column, column + 9), np.array([1, 0])).tolist()
    [(0, 6, 1, 10), (0, 6, 1, 10), (1, 5, 0, 9)]
    """
    begin = np.searchsorted(segments["row"], rows, side="left")
    counts = np.searchsorted(segments["row"], rows, side="right") - begin
    kept = segments[runs(begin, counts)]
    kept["row"] = np.repeat(np.arange(rows.size, dtype=np.int64), counts)
    return kept


def runs(begin: Int64Array, counts: Int64Array) -> Int64Array:
    """Return begin[0], begin[0] + 1, … (counts[0] of them), then the same of begin[1], and so on.

    >>> runs(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(counts) - counts
    return np.repeat(begin - before, counts) + np.arange(int(counts.sum()), dtype=np.int64)
