"""Text of Zstandard files: frames are found by their headers (RFC 8878), and each can be unpacked by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn, final

import pyarrow as pa

from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.protocol import Progress
from detdata.corpora.source import Source
from detdata.corpora.survey import Survey

_TEXT = 1 << 17  # bytes of text at a time
_GROUP = 1 << 14  # packed bytes of frames that are unpacked together: small ones are many
_FREE = 1 << 16  # bytes of text between points
_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPED = b"\x2a\x4d\x18"  # behind a byte 0x50 … 0x5f
_LARGEST_BLOCK = 1 << 17
_READ = 1 << 16


def zst_text(file: DataFile, survey: Survey, spacing: int, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the text of a file in pieces and note points: frames, 64 KiB of text apart or more.

    Checks what `zstd -t` checks. Memory: the window that a frame asks for, up to 128 MiB; larger ones are refused.
    Raises CorpusError naming the byte for a file that is damaged, cut short or no Zstandard.
    """
    source = Source(file, progress=progress)
    if not source.peek(1):
        raise CorpusError(file.name, "is no Zstandard file: it has no bytes; was it cut short?")
    while _to_frame(source):
        if not survey.edges or survey.since >= min(spacing, _FREE):
            survey.mark(source.place * 8)
        text = _Unpacking(source.name, _Frames(source))
        while piece := text.read(_TEXT):
            survey.add(piece)
            yield piece


def open_zst(file: DataFile, place: int, window: bytes, needed: int = 0) -> _Unpacking:
    """Return the text of a file from a point on. Arguments are those of `OpenAt`. Raises CorpusError."""
    if window or place % 8:
        raise CorpusError(
            file.name, "its index is damaged: a frame begins at a byte and needs no text; delete the index"
        )
    return _Unpacking(file.name, _Bytes(Source(file, place // 8, needed)))


@final
class _Unpacking:
    """The text of packed bytes, unpacked by pyarrow."""

    def __init__(self, name: str, packed: _Frames | _Bytes) -> None:
        self._name, self._packed = name, packed
        self._stream = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")

    def read(self, length: int) -> bytes:
        try:
            text: bytes = self._stream.read(length)
        except CorpusError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise CorpusError(
                self._name,
                f"is damaged at byte {self._packed.place} or before, in a frame that begins at byte "
                f"{self._packed.frame} or behind it: {error}",
            ) from error
        return text


@final
class _Bytes:
    """All bytes of a file from a point on, as pyarrow reads them."""

    closed = False

    def __init__(self, source: Source) -> None:
        self._source = source
        self.frame = source.place

    @property
    def place(self) -> int:
        return self._source.place

    def read(self, length: int) -> bytes:
        return self._source.take(len(self._source.some(length)))

    def close(self) -> None:
        """Nothing is open."""


@final
class _Frames:
    """The bytes of one frame, or of some small ones together, as pyarrow reads them. Raises CorpusError."""

    closed = False

    def __init__(self, source: Source) -> None:
        self.frame = source.place
        self._source = source
        self._parts = _group(source)
        self._held = b""

    @property
    def place(self) -> int:
        return self._source.place

    def read(self, length: int) -> bytes:
        while len(self._held) < length:
            part = next(self._parts, b"")
            if not part:
                break
            self._held += part
        data, self._held = self._held[:length], self._held[length:]
        return data

    def close(self) -> None:
        """Nothing is open."""


def _group(source: Source) -> Iterator[bytes]:
    begin, told = source.place, 0
    while source.place - begin < _GROUP and told < _FREE and _to_frame(source):
        told += _told_size(source.peek(18))
        yield from _frame(source)


def _told_size(head: bytes) -> int:
    """Return the size of a frame's text as its header has it, a large number if it has none. Nothing hangs on it."""
    if len(head) < 18:  # the last one
        return 0
    flags = head[4]
    single = flags >> 5 & 1
    length = (single, 2, 4, 8)[flags >> 6]
    begin = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
    return int.from_bytes(head[begin : begin + length], "little") + 256 * (length == 2) if length else _FREE


def _to_frame(source: Source) -> bool:
    """Go to the next frame that holds text, and say whether there is one."""
    while head := source.peek(8):
        if head.startswith(_MAGIC):
            return True
        if len(head) < 4 and _MAGIC.startswith(head):
            _cut(source, source.place)
        if head[:1] and head[0] >> 4 == 5 and _SKIPPED.startswith(head[1:4]):
            _skip(source)
            continue
        what = "is damaged" if source.place else "is no Zstandard file"
        raise CorpusError(
            source.name, f"{what}: a frame should begin at byte {source.place}, and {head[:4]!r} stands there"
        )
    return False


def _skip(source: Source) -> None:
    begin, head = source.place, source.take(8)
    left = int.from_bytes(head[4:], "little")
    if len(head) < 8:
        _cut(source, begin)
    while left:
        passed = len(source.take(min(left, _READ)))
        if not passed:
            _cut(source, begin)
        left -= passed


def _frame(source: Source) -> Iterator[bytes]:
    """Yield the bytes of one frame: its header, its blocks, its checksum."""
    begin = source.place
    flags = source.peek(5)[-1] if len(source.peek(5)) == 5 else 0
    single = flags >> 5 & 1
    yield _take(source, 5 + (1 - single) + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6], begin)
    last = False
    while not last:
        head = int.from_bytes(_take(source, 3, begin, stay=True), "little")
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        if kind == 3 or size > _LARGEST_BLOCK:
            raise CorpusError(
                source.name,
                f"is damaged: at byte {source.place}, in the frame that begins at byte {begin}, a block should begin",
            )
        yield _take(source, 3 + (1 if kind == 1 else size), begin)
    if flags & 4:
        yield _take(source, 4, begin)


def _take(source: Source, length: int, begin: int, *, stay: bool = False) -> bytes:
    data = source.peek(length) if stay else source.take(length)
    if len(data) < length:
        source.take(length)
        _cut(source, begin)
    return data


def _cut(source: Source, begin: int) -> NoReturn:
    source.take(8)
    raise CorpusError(
        source.name, f"is cut short: it ends at byte {source.place}, inside the frame that begins at byte {begin}"
    )
