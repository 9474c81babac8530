"""Where the rows and fields of a CSV text are: quotes are followed, and no quoted line end or delimiter splits one.

A quote opens a value only where a field begins, as RFC 4180 has it; elsewhere in a bare field it is a character like
others. In a quoted value two quotes stand for one. Lines end with LF or CR LF.
"""

from __future__ import annotations

import re
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array

Bytes = npt.NDArray[np.uint8]
QUOTE = 34
_LF, _CR = 10, 13


class RowBounds(NamedTuple):
    """Rows of a text. begins, ends: int64[rows], their bytes without the line end. toggles: see `find_toggles`.

    rest: where the row begins that the text breaks off in; its length if there is none.
    """

    begins: Int64Array
    ends: Int64Array
    toggles: Int64Array
    rest: int


def find_rows(text: Bytes, delimiter: int, *, columns: int, final: bool) -> RowBounds:
    """Return the rows of a text that begins where a row does. final: whether its end ends a row too.

    An empty line is a row where there is one column, and none where there are more.
    """
    toggles = find_toggles(text, delimiter)
    stops = np.flatnonzero(text == _LF)
    stops = stops[outside(stops, toggles)]
    begins = np.concatenate([[0], stops + 1])
    rest = int(begins[-1])
    if final and rest < text.size:
        stops, rest = np.append(stops, text.size), text.size
    else:
        begins = begins[:-1]
    ends = stops - ((stops > begins) & (text[np.maximum(stops - 1, 0)] == _CR))
    if columns > 1:
        full = ends > begins
        if not full.all():
            begins, ends = begins[full], ends[full]
    return RowBounds(begins, ends, toggles, rest)


def find_toggles(text: Bytes, delimiter: int) -> Int64Array:
    """Return the places of the quotes that open and close values, in turn; a quote in a value closes it and opens it.

    In all but odd files that is every quote, which is checked at once; else they are followed one by one.
    """
    quotes = np.flatnonzero(text == QUOTE)
    opening = quotes[::2]
    before = text[opening - 1]  # of the first byte that is the last one, and does not count
    fit = (before == delimiter) | (before == _LF) | (before == QUOTE) | (opening == 0)
    return quotes if fit.all() else _follow(text.tobytes(), bytes([delimiter]))


def _follow(text: bytes, delimiter: bytes) -> Int64Array:
    opening = re.compile(b"[" + re.escape(delimiter) + b'\\n]"')
    found: list[int] = []
    place = 0
    if text.startswith(b'"'):
        found.append(0)
        place = 1
    while True:
        if len(found) % 2:  # in a value
            place = text.find(b'"', place) + 1
            if not place:
                break
            found.append(place - 1)
        elif found and text.startswith(b'"', place):  # the second of two
            found.append(place)
            place += 1
        else:
            match = opening.search(text, place)
            if match is None:
                break
            place = match.end()
            found.append(place - 1)
    return np.array(found, np.int64)


def outside(places: Int64Array, toggles: Int64Array) -> npt.NDArray[np.bool_]:
    """Return which places, none a quote, lie outside of quoted values."""
    if not toggles.size:
        return np.ones(places.size, bool)
    inside: npt.NDArray[np.bool_] = (toggles.searchsorted(places) & 1).astype(bool)
    return ~inside


@final
class Grid:
    """Rows of a text, as `find_rows` gives them, with their fields.

    counts: int64[rows], fields of each. lone_cr: bool[rows], which have a CR outside of quotes that no LF follows.
    """

    __slots__ = ("_delimiters", "_firsts", "begins", "counts", "ends", "lone_cr", "quoted", "text")

    def __init__(self, text: Bytes, bounds: RowBounds, delimiter: int) -> None:
        self.text = text
        self.begins, self.ends = bounds.begins, bounds.ends
        self.quoted = bounds.toggles.size > 0
        places = np.flatnonzero(text == delimiter)
        self._delimiters = places[outside(places, bounds.toggles)].astype(np.int32)
        self._firsts = self._delimiters.searchsorted(self.begins)
        self.counts = self._delimiters.searchsorted(self.ends) - self._firsts + 1
        self.lone_cr = np.zeros(self.begins.size, bool)
        returns = np.flatnonzero(text[:-1] == _CR)
        lone = returns[text[returns + 1] != _LF]
        if lone.size:
            lone = lone[outside(lone, bounds.toggles)]
            self.lone_cr[self.begins.searchsorted(lone, side="right") - 1] = True

    def cuts(self, row: int) -> list[int]:
        """Return the places of the delimiters of a row."""
        first = int(self._firsts[row])
        places: list[int] = self._delimiters[first : first + int(self.counts[row]) - 1].tolist()
        return places

    def column(self, rows: Int64Array, number: int, columns: int) -> tuple[Int64Array, Int64Array]:
        """Return where the fields of a column begin and end, of rows that all have `columns` fields."""
        firsts = self._firsts[rows] + number
        begins = self.begins[rows] if number == 0 else self._delimiters[firsts - 1].astype(np.int64) + 1
        ends = self.ends[rows] if number == columns - 1 else self._delimiters[firsts].astype(np.int64)
        return begins, ends
