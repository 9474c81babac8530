"""The bytes of a file from one place on: read in large pieces, looked at and taken in small ones."""

from __future__ import annotations

from typing import final

from detdata.corpora.files import DataFile
from detdata.corpora.protocol import Progress

_LEAST, _MOST = 1 << 16, 1 << 20  # bytes read at a time: at first, and when it goes on and on


@final
class Source:
    """place: of the next byte in the file. first: bytes to read at once, as they will be needed.

    progress: called with bytes read.

    >>> import pathlib, tempfile
    >>> from detdata.corpora.files import LocalFile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a"
    >>> _ = path.write_bytes(b"hello")
    >>> source = Source(LocalFile(str(path)), 1)
    >>> source.peek(2), source.take(3), source.place, source.take(9)
    (b'el', b'ell', 4, b'o')
    """

    __slots__ = ("_at", "_file", "_held", "_progress", "_size", "_step", "_then", "name", "place")

    def __init__(self, file: DataFile, place: int = 0, first: int = 0, progress: Progress | None = None) -> None:
        self.name = file.name
        self.place = place
        self._file = file
        self._size = file.identity().size
        self._step = min(first, 4 * _MOST) or _LEAST
        self._then = _LEAST
        self._progress = progress
        self._held = b""
        self._at = 0  # of `place` in what is held

    def peek(self, length: int) -> bytes:
        """Return the next `length` bytes, fewer at the end of the file, and stay. Raises CorpusUnreadable."""
        have = len(self._held) - self._at
        if have < length:
            end = self.place + have
            more = min(max(length - have, self._step), self._size - end)
            if more > 0:
                self._step, self._then = self._then, min(2 * self._then, _MOST)
                self._held = self._held[self._at :] + self._file.read(end, more)
                self._at = 0
                if self._progress is not None:
                    self._progress(more)
        return self._held[self._at : self._at + length]

    def some(self, length: int) -> bytes:
        """Return what is at hand of the next `length` bytes, at least one but at the end of the file, and stay."""
        return self.peek(min(length, max(1, len(self._held) - self._at)))

    def skip(self, length: int) -> None:
        """Go on by so many bytes, of those that were looked at."""
        self._at += length
        self.place += length

    def take(self, length: int) -> bytes:
        """Return the next `length` bytes, fewer at the end of the file, and go behind them."""
        data = self.peek(length)
        self.skip(len(data))
        return data
