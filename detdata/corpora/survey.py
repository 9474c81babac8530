"""One pass over the text of a compressed file: its points and pages, and where blocks of rows are best cut."""

from __future__ import annotations

import zlib
from typing import final

import numpy as np
import xxhash

from detdata.corpora.points import PAGE, Points


@final
class Survey:
    """Takes a text in pieces. `mark` makes the place that it has come to a point.

    spacing: bytes of text. size: bytes of text so far. since: those since the last point.
    edges: bytes of the text at which a block may well begin: every point, and pages where points are far between, so
    that no two are much more than 2 · spacing apart.

    >>> survey = Survey(1 << 20)
    >>> survey.mark(0)
    >>> survey.add(b"hello")
    >>> survey.points().page_starts.tolist(), survey.edges
    ([0, 5], [0])
    """

    def __init__(self, spacing: int) -> None:
        self.size = 0
        self.since = 0
        self.edges: list[int] = []
        self._spacing = spacing
        self._hasher = xxhash.xxh3_64()
        self._page = 0  # bytes of the page that is open
        self._starts: list[int] = []
        self._digests: list[int] = []
        self._places: list[int] = []
        self._pages: list[int] = []
        self._windows: list[bytes] = []

    def mark(self, place: int, window: bytes = b"") -> None:
        """Note a point. place: its bit in the packed file. window: the text before it that is copied behind it."""
        self._close()
        self._places.append(place)
        self._pages.append(len(self._starts))
        self._windows.append(zlib.compress(window) if window else b"")
        self.edges.append(self.size)
        self.since = 0

    def add(self, text: bytes) -> None:
        """Take the next piece of the text."""
        view = memoryview(text)
        while view:
            if not self._page:
                self._starts.append(self.size)
                if self.size - self.edges[-1] >= 2 * self._spacing:
                    self.edges.append(self.size)
            part = view[: PAGE - self._page]
            self._hasher.update(part)
            self._page += len(part)
            self.size += len(part)
            view = view[len(part) :]
            if self._page == PAGE:
                self._close()
        self.since += len(text)

    def points(self) -> Points:
        """Return what was found, at the end of the text."""
        self._close()
        return Points(
            places=np.array(self._places, np.int64),
            pages=np.array(self._pages, np.int64),
            page_starts=np.array([*self._starts, self.size], np.int64),
            page_digests=np.array(self._digests, np.uint64).view(np.int64),
            windows=np.frombuffer(b"".join(self._windows), np.uint8),
            window_ends=np.cumsum([len(window) for window in self._windows], dtype=np.int64),
        )

    def _close(self) -> None:
        if self._page:
            self._digests.append(self._hasher.intdigest())
            self._hasher = xxhash.xxh3_64()
            self._page = 0
