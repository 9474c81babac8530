"""Tables of flatbuffers, many at a time: the same field of each, every position checked before it is read.

The metadata of Arrow files are such tables. A table says by how many bytes its vtable lies before it; the vtable says
how far behind the start of the table each field lies, or 0 for one that has its default value.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array


class Malformed(Exception):
    """A position that lies outside of its bytes. number: of the table."""

    def __init__(self, number: int) -> None:
        super().__init__(f"table {number} leads outside of its bytes")
        self.number = number


@final
class Tables:
    """Tables at `at`, int64[n], of bytes `data`; table i may only speak of bytes low[i] … high[i] - 1."""

    __slots__ = ("_at", "_data", "_high", "_low")

    def __init__(self, data: npt.NDArray[np.uint8], at: Int64Array, low: Int64Array, high: Int64Array) -> None:
        self._data, self._at, self._low, self._high = data, at, low, high

    @staticmethod
    def roots(parts: list[bytes]) -> Tables:
        """Return the root tables of these buffers, one of each. Raises Malformed.

        >>> Tables.roots([bytes.fromhex("0c000000 0000 0600 0800 0400 06000000 0700 0000")]).field(0, "<u2", 0).tolist()
        [7]
        """
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        low = ends - np.array([len(part) for part in parts], np.int64)
        data = np.frombuffer(b"".join(parts), np.uint8)
        start = Tables(data, low, low, ends)
        return Tables(data, low + start._read(low, "<u4"), low, ends)

    def field(self, number: int, dtype: str, default: int) -> Int64Array:
        """Return a field that is a number, int64[n]."""
        at = self._find(number)
        there = at >= 0
        if not there.any():
            return np.full(at.size, default, np.int64)
        return np.where(there, self._read(np.where(there, at, self._low), dtype), default)

    def has(self, number: int) -> npt.NDArray[np.bool_]:
        """Return whether a field is there, bool[n]."""
        return self._find(number) >= 0

    def table(self, number: int) -> Tables:
        """Return the tables that a field leads to. Raises Malformed for one that is not there."""
        at = self._find(number)
        self._must(at >= 0)
        return Tables(self._data, at + self._read(at, "<u4"), self._low, self._high)

    def vector(self, number: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the elements that a field of the only table leads to. Raises Malformed."""
        at = self._find(number)
        if int(at[0]) < 0:
            return np.empty(0, dtype)
        at = at + self._read(at, "<u4")
        count, first = int(self._read(at, "<u4")[0]), int(at[0]) + 4
        self._must(np.array([first + count * dtype.itemsize <= int(self._high[0])]))
        return np.frombuffer(self._data, dtype, count, first)

    def _find(self, number: int) -> Int64Array:
        """Return where a field lies, or -1."""
        vtable = self._at - self._read(self._at, "<i4")
        size = self._read(vtable, "<u2")
        entry = vtable + 4 + 2 * number
        there = 6 + 2 * number <= size
        offset = np.where(there, self._read(np.where(there, entry, vtable), "<u2"), 0)
        return np.where(offset > 0, self._at + offset, -1)

    def _read(self, at: Int64Array, dtype: str) -> Int64Array:
        kind = np.dtype(dtype)
        self._must((at >= self._low) & (at + kind.itemsize <= self._high))
        found: Int64Array = self._data[at[:, None] + np.arange(kind.itemsize)].view(kind).reshape(-1).astype(np.int64)
        return found

    def _must(self, holds: npt.NDArray[np.bool_]) -> None:
        if not holds.all():
            raise Malformed(int(holds.argmin()))
