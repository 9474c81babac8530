"""Where unpacking of a compressed file can begin, and digests of its text: what an index of such a file holds."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array
from detdata.corpora.errors import CorpusError
from detdata.corpora.protocol import Outline

PAGE = 1 << 16  # bytes of text of a page, at most
_SLACK = 1 << 13  # packed bytes
WINDOW = 1 << 15  # bytes of text before a point that a decoder may need, at most

_INT64 = ("point_places", "point_pages", "page_starts", "page_digests", "window_ends")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """places: int64[points], the bit of the packed file at which each point is. pages: int64[points], its page.

    page_starts: int64[pages + 1], byte of the text at which each page begins, and the end of the text.
    page_digests: int64[pages], the xxh3-64 of each page, its bits as a signed number.
    windows, window_ends: uint8[n], int64[points]: what the decoder must know of the text before each point, packed by
    zlib, one behind the other; nothing for a point that needs nothing.

    >>> Points.of(Outline(block_sizes=np.zeros(0, np.int64)), "a.gz")
    Traceback (most recent call last):
    detdata.corpora.errors.CorpusError: a.gz: its index holds no 'point_places'; delete the index
    """

    places: Int64Array
    pages: Int64Array
    page_starts: Int64Array
    page_digests: Int64Array
    windows: npt.NDArray[np.uint8]
    window_ends: Int64Array

    @staticmethod
    def of(outline: Outline, name: str) -> Points:
        """Return what `arrays` put into an outline. name: of the file. Raises CorpusError if it makes no sense."""
        found: list[npt.NDArray[Any]] = []
        for key in (*_INT64, "windows"):
            array = outline.arrays.get(key)
            if array is None or array.dtype != (np.uint8 if key == "windows" else np.int64):
                raise CorpusError(name, f"its index holds no {key!r}; delete the index")
            found.append(array)
        places, pages, starts, digests, ends, windows = found
        lengths = np.diff(starts)
        good = (
            (places.size == pages.size == ends.size)
            and starts.size == digests.size + 1
            and int(starts[0]) == 0
            and (lengths.size == 0 or (places.size > 0 and int(lengths.min()) > 0 and int(lengths.max()) <= PAGE))
            and (places.size == 0 or (int(pages[0]) == 0 and int(pages[-1]) <= digests.size and int(places.min()) >= 0))
            and bool((np.diff(pages) >= 0).all() and (np.diff(ends, prepend=0) >= 0).all())
            and (ends.size == 0 or int(ends[-1]) <= windows.size)
        )
        if not good:
            raise CorpusError(name, "its index contradicts itself; delete the index")
        return Points(
            places=places, pages=pages, page_starts=starts, page_digests=digests, windows=windows, window_ends=ends
        )

    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return the arrays of an outline."""
        return {
            "point_places": self.places,
            "point_pages": self.pages,
            "page_starts": self.page_starts,
            "page_digests": self.page_digests,
            "window_ends": self.window_ends,
            "windows": self.windows,
        }

    @property
    def size(self) -> int:
        """Bytes of the text."""
        return int(self.page_starts[-1])

    @property
    def longest(self) -> int:
        """Bytes of text between two points, at most: what must be unpacked to come to a byte."""
        edges = self.page_starts[np.append(self.pages, self.page_digests.size)]
        return int(np.diff(edges).max(initial=0))

    def page_of(self, byte: int) -> int:
        """Return the page that holds a byte of the text."""
        return int(self.page_starts.searchsorted(byte, side="right")) - 1

    def before(self, page: int) -> int:
        """Return the last point that is not behind the beginning of a page."""
        return int(self.pages.searchsorted(page, side="right")) - 1

    def needed(self, point: int, page: int) -> int:
        """Return about how many packed bytes unpack to the text from a point to the end of a page, a few too many."""
        near = self.before(page)
        if near + 1 >= self.places.size:
            return 0  # who knows: as far as the file goes
        begin, edge, beyond = (int(self.places[at]) for at in (point, near, near + 1))
        first, last = (int(self.page_starts[self.pages[at]]) for at in (near, near + 1))
        text = int(self.page_starts[page]) + 2 * PAGE - first  # Zstandard unpacks 128 KiB at a time
        # Between two points text and packed bytes are about in proportion.
        return max(0, edge - begin + (beyond - edge) * min(text, last - first) // max(1, last - first)) // 8 + _SLACK

    def window(self, point: int, name: str) -> bytes:
        """Return what a decoder must know of the text before a point. name: of the file. Raises CorpusError."""
        begin = int(self.window_ends[point - 1]) if point else 0
        packed = self.windows[begin : int(self.window_ends[point])].tobytes()
        if not packed:
            return b""
        unpacking = zlib.decompressobj()
        try:
            window = unpacking.decompress(packed, WINDOW)
            window += b"" if unpacking.eof else unpacking.decompress(unpacking.unconsumed_tail, 1)  # its checksum
        except zlib.error as error:
            raise CorpusError(name, f"its index is damaged: {error}; delete the index") from error
        if not unpacking.eof or len(window) > WINDOW:
            raise CorpusError(name, "its index is damaged: the text before a point is too long; delete the index")
        return window
