"""Compressed files as if they were plain: read at any byte of the text, from the access point before it.

A survey unpacks a file once. It notes access points (a place in the packed file, the byte of the text that comes out
there, and what the decoder must know of the text before) and the xxh3-64 of every page of the text: 64 KiB, or what is
left before the next point. `InflatedFile` then reads page by page and gives no page whose digest is another one. That
is what notices damage behind a point, where a codec's own checksum, which is over a whole stream, cannot be checked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, TypeAlias, final

import xxhash

from detdata.corpora.errors import CorpusError, CorpusUnreadable
from detdata.corpora.files import DataFile, Identity
from detdata.corpora.points import Points


class Unpacking(Protocol):
    """The text of a compressed file from a point on."""

    def read(self, length: int) -> bytes:
        """Return the next `length` bytes of the text; fewer only where it ends. Raises CorpusError."""
        ...


# (file, bit at which a point is, text before it that is copied behind it, packed bytes that will be needed or 0 where
# nobody knows) -> the text from there on
OpenAt: TypeAlias = Callable[[DataFile, int, bytes, int], Unpacking]


@final
class InflatedFile:
    """The text of a compressed file, as a file: `read` counts in bytes of the text. Threads may share it.

    points: what a survey of the file found. open_at: begins to unpack at one of them.
    Reading on where the last read ended unpacks nothing twice. Reading anywhere else unpacks from the point before.
    """

    def __init__(self, file: DataFile, points: Points, open_at: OpenAt) -> None:
        self._file = file
        self._points = points
        self._open_at = open_at
        self._lock = threading.Lock()
        self._held: _Walk | None = None  # where the last read ended

    @property
    def name(self) -> str:
        """The name of the packed file."""
        return self._file.name

    @property
    def path(self) -> None:
        """None: the text lies nowhere."""
        return

    def identity(self) -> Identity:
        """Return how long the text is, and the tag of the packed file as it is now."""
        return Identity(self._points.size, self._file.identity().tag)

    def read(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes of the text from `start` on. Raises CorpusError for damage."""
        points = self._points
        if start < 0 or length < 0 or start + length > points.size:
            raise CorpusUnreadable(
                self.name,
                f"its text ends at byte {points.size}, and bytes {start} … {start + length} were asked for",
            )
        if not length:
            return b""
        first, last = points.page_of(start), points.page_of(start + length - 1)
        walk = self._walk(first, last)
        pieces: list[Any] = [walk.page(page) for page in range(first, last + 1)]
        with self._lock:
            self._held = walk
        begin = start - int(points.page_starts[first])
        end = start + length - int(points.page_starts[last])
        if first == last:
            return bytes(pieces[0][begin:end])
        pieces[0], pieces[-1] = memoryview(pieces[0])[begin:], memoryview(pieces[-1])[:end]
        return b"".join(pieces)

    def map(self) -> NoReturn:
        """Raise CorpusUnreadable."""
        raise CorpusUnreadable(self.name, "is compressed and cannot be mapped")

    def fresh(self) -> InflatedFile:
        """Return the same file, not open yet."""
        return InflatedFile(self._file.fresh(), self._points, self._open_at)

    def _walk(self, page: int, last: int) -> _Walk:
        points = self._points
        point = points.before(page)
        with self._lock:
            held = self._held
            if held is not None and (held.next == page + 1 or int(points.pages[point]) <= held.next <= page):
                self._held = None  # another thread that comes now begins at a point
                return held
        window = points.window(point, self.name)
        unpacking = self._open_at(self._file, int(points.places[point]), window, points.needed(point, last))
        return _Walk(self.name, points, unpacking, int(points.pages[point]))


@final
class _Walk:
    """Pages one after the other. next: the page that `unpacking` stands at the beginning of."""

    def __init__(self, name: str, points: Points, unpacking: Unpacking, page: int) -> None:
        self.next = page
        self._name, self._points, self._unpacking = name, points, unpacking
        self._last = b""  # the page before `next`, of which the next read may want the rest

    def page(self, page: int) -> bytes:
        """Return a page: the last one again, or one further on. Raises CorpusError if its digest is not the known one.

        Pages between are not checked: nobody sees them, and what follows from damage in them is checked.
        """
        starts = self._points.page_starts
        while self.next <= page:
            self._last = self._unpacking.read(int(starts[self.next + 1] - starts[self.next]))
            self.next += 1
        if xxhash.xxh3_64_intdigest(self._last) != int(self._points.page_digests[page]) % 2**64:
            raise CorpusError(
                self._name,
                f"is damaged: unpacked, bytes {starts[page]} … {starts[page + 1]} are not those that were indexed",
            )
        return self._last
