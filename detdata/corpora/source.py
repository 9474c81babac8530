"""The bytes of a file from one place on: read in large pieces, looked at and taken in small ones."""

from __future__ import annotations

from typing import final

from detdata.corpora.files import DataFile
from detdata.corpora.protocol import Progress

_READ = 1 << 18


@final
class Source:
    """place: of the next byte in the file. progress: called with bytes read.

    >>> import pathlib, tempfile
    >>> from detdata.corpora.files import LocalFile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a"
    >>> _ = path.write_bytes(b"hello")
    >>> source = Source(LocalFile(str(path)), 1)
    >>> source.peek(2), source.take(3), source.place, source.take(9)
    (b'el', b'ell', 4, b'o')
    """

    __slots__ = ("_at", "_file", "_held", "_progress", "_size", "name", "place")

    def __init__(self, file: DataFile, place: int = 0, progress: Progress | None = None) -> None:
        self.name = file.name
        self.place = place
        self._file = file
        self._size = file.identity().size
        self._progress = progress
        self._held = b""
        self._at = 0  # of `place` in what is held

    def peek(self, length: int) -> bytes:
        """Return the next `length` bytes, fewer at the end of the file, and stay. Raises CorpusUnreadable."""
        have = len(self._held) - self._at
        if have < length:
            end = self.place + have
            more = min(max(length - have, _READ), self._size - end)
            if more > 0:
                self._held = self._held[self._at :] + self._file.read(end, more)
                self._at = 0
                if self._progress is not None:
                    self._progress(more)
        return self._held[self._at : self._at + length]

    def skip(self, length: int) -> None:
        """Go on by so many bytes, of those that were looked at."""
        self._at += length
        self.place += length

    def take(self, length: int) -> bytes:
        """Return the next `length` bytes, fewer at the end of the file, and go behind them."""
        data = self.peek(length)
        self.skip(len(data))
        return data
