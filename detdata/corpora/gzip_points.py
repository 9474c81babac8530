"""Text of gzip files from their start or from an access point, with zlib alone.

The beginning of each member is a point. Inside a member a point is where a block of deflate with codes of its own
begins; it needs the 32 KiB of text before. zlib does not say where blocks begin, but it shows: while it reads the
description of the codes, some 60 bytes, no text comes out. So from time to time the survey goes on by 16 bytes at a
time until that happens, and tries the bits around as the beginning of a block. One that unpacks to the same text as the
stream itself is a point.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NoReturn, final

from detdata.corpora.deflate_start import inflate_from, needed_of
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.points import WINDOW
from detdata.corpora.protocol import Progress
from detdata.corpora.source import Source
from detdata.corpora.survey import Survey

_FEED = 1 << 15  # packed bytes at a time
_TEXT = 1 << 17  # bytes of text at a time
_FREE = 1 << 16  # bytes of text between points that need no window
_STEP = 16  # packed bytes at a time where the beginning of a block is looked for
_STEPS, _SOUGHT = 1 << 14, 6 << 20  # after so many steps or bytes of text in vain, three times as many are let pass
_CHECK = 1 << 14  # packed bytes that must unpack to the same text
_AHEAD = 1 << 18  # bytes of text of them that are looked at, at most
_MAGIC = b"\x1f\x8b"
_END = 8  # bytes behind a member's deflate stream: CRC and size


def gzip_text(file: DataFile, survey: Survey, spacing: int, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the text of a file in pieces and note points, `spacing` bytes of text apart or some more.

    Checks what `gzip -t` checks. Zeros behind the last member are nothing; anything else is an error. Memory: some
    MB, mostly 0.5. Raises CorpusError naming the byte for a file that is damaged, cut short or no gzip.
    """
    text = GzipText(Source(file, progress=progress))
    window, rest = b"", 0  # text before; bytes of text from the point on in which no block is looked for
    while text.inside or text.begin():
        if text.fresh:
            window, rest = b"", spacing
            if not survey.edges or survey.since >= min(spacing, _FREE):
                survey.mark(text.member * 8)
        if survey.since < rest:
            piece, found = text.inflate(_FEED, _TEXT), None
        else:
            piece, found = _to_block(text, window)
            rest = spacing if found else survey.since + 4 * len(piece)
        window = (window + piece)[-WINDOW:]
        survey.add(piece)
        if found is not None:
            survey.mark(*found)
        if piece:
            yield piece


def open_gzip(file: DataFile, place: int, window: bytes, needed: int = 0) -> GzipText:
    """Return the text of a file from a point on. Arguments are those of `OpenAt`. Raises CorpusError."""
    text = GzipText(Source(file, place // 8, needed))
    if window:
        text.enter(place % 8, window)
    return text


@final
class GzipText:
    """inside: whether `source` stands in a member. member: where that begins. fresh: whether nothing was read of it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.inside = False
        self.fresh = False
        self.member = -1
        self._unpacking: Any = None
        self._raw = False  # entered behind its header

    def begin(self) -> bool:
        """Begin the next member, and say whether there is one."""
        if self.member >= 0:
            while zeros := _leading_zeros(self.source.peek(_FEED)):
                self.source.skip(zeros)
        head = self.source.peek(2)
        if head != _MAGIC and (head or self.member < 0):
            self._foreign(head)
        if not head:
            return False
        self.member, self.inside, self.fresh, self._raw = self.source.place, True, True, False
        self._unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
        return True

    def enter(self, shift: int, window: bytes) -> None:
        """Begin inside a member, at bit `shift` of the next byte."""
        self.member, self.inside, self.fresh, self._raw = self.source.place, True, False, True
        first = self.source.take(1)[0] if shift and self.source.peek(1) else 0
        try:
            self._unpacking = inflate_from(shift, first, window)
        except zlib.error as error:
            self._damaged(error)

    def inflate(self, feed: int, limit: int = 0) -> bytes:
        """Return the text of the next packed bytes of the member, `feed` at most; no more than `limit` bytes of it."""
        self.fresh = False
        data = self.source.some(feed)
        unpacking = self._unpacking
        try:
            text: bytes = unpacking.decompress(data, limit)
        except zlib.error as error:
            self._damaged(error)
        # At the end both may hold the same bytes: those behind the stream.
        self.source.skip(len(data) - len(unpacking.unused_data if unpacking.eof else unpacking.unconsumed_tail))
        if unpacking.eof:
            self.inside = False
            if self._raw and len(self.source.take(_END)) < _END:
                self._cut()
        elif not data and not text:
            self._cut()
        return text

    def read(self, length: int) -> bytes:
        """Return the next `length` bytes of the text; fewer only at its end."""
        pieces = []
        while length and (self.inside or self.begin()):
            pieces.append(self.inflate(_FEED, length))
            length -= len(pieces[-1])
        return b"".join(pieces)

    def ahead(self, packed: bytes) -> bytes | None:
        """Return the text of the packed bytes that come next, or 256 KiB of it, and stay; None for damage."""
        try:
            text: bytes = self._unpacking.copy().decompress(packed, _AHEAD)
        except zlib.error:
            return None
        return text

    def _foreign(self, head: bytes) -> NoReturn:
        if self.member < 0:
            what = f"begins with {head!r}" if head else "has no bytes"
            raise CorpusError(self.source.name, f"is no gzip file: it {what}; was it cut short, or is it not packed?")
        raise CorpusError(
            self.source.name,
            f"is damaged: from byte {self.source.place} on, behind what gzip packed, comes something else",
        )

    def _damaged(self, error: zlib.error) -> NoReturn:
        raise CorpusError(
            self.source.name,
            f"is damaged at byte {self.source.place} or before, in what begins at byte {self.member}: {error}",
        ) from error

    def _cut(self) -> NoReturn:
        raise CorpusError(
            self.source.name,
            f"is cut short: it ends at byte {self.source.place}, inside the member that begins at byte {self.member}",
        )


def _leading_zeros(data: bytes) -> int:
    return len(data) - len(data.lstrip(b"\0"))


def _to_block(text: GzipText, window: bytes) -> tuple[bytes, tuple[int, bytes] | None]:
    """Inflate on to where a block begins. Return the text up to there, and the block's bit and the window it needs.

    None instead of these if no block was found.
    """
    pieces: list[bytes] = []
    size = 0
    before = b""  # the packed bytes of the last step, if text came out
    for _ in range(_STEPS):
        place, data = text.source.place, text.source.peek(_STEP)
        piece = text.inflate(_STEP)
        size += len(piece)
        if not text.inside:
            pieces.append(piece)
            break
        if piece:
            pieces.append(piece)
            before = data
            if size > _SOUGHT:
                break
        elif before:
            done = b"".join(pieces)
            known = (window + done)[-WINDOW:]
            packed = before + data + text.source.peek(_CHECK)
            bit = _block_in(text, packed, len(before + data), known)
            if bit is not None:
                return done, ((place - len(before)) * 8 + bit, needed_of(known, packed, bit))
            pieces, before = [done], b""
    return b"".join(pieces), None


def _block_in(text: GzipText, packed: bytes, passed: int, window: bytes) -> int | None:
    """Return the bit of `packed` at which a block begins; None if none can be proven.

    packed: what `text` took last, `passed` bytes, and what comes next.
    """
    bits = int.from_bytes(packed[: passed + 2], "little")
    expected: bytes | None = b""
    for bit in range(passed * 8):
        head = bits >> bit
        # Not the last block, with codes of its own, for at most 286 literals and 30 distances.
        if head & 7 != 4 or head >> 3 & 31 > 29 or head >> 8 & 31 > 29:
            continue
        expected = expected or text.ahead(packed[passed:])
        if not expected:
            return None
        byte, shift = divmod(bit, 8)
        try:
            unpacking = inflate_from(shift, packed[byte], window)
            found = unpacking.decompress(packed[byte + (shift > 0) :], _AHEAD)
        except zlib.error:
            continue
        if found == expected:
            return bit
    return None
