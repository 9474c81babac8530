"""The members of a tar archive, by one walk over its headers: ustar, GNU's long names and large sizes, pax.

`tarfile` makes an object of some 40 fields of every member, and this reads only what tells a file's name, place and
size; checksums are verified many at a time. Nothing is believed that a header says before it fits the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.protocol import Progress

_BLOCK = 512
_READ = 1 << 22  # bytes read at a time; a multiple of a block, so no header lies in two parts
_LARGEST = 1 << 20  # bytes of an extended header at most
_ZEROS = bytes(_BLOCK)
_OCTAL = 8 ** np.arange(5, -1, -1)
_END_OF_SUM = np.frombuffer(b"\0 ", np.uint8)  # what nearly all write behind the six digits of a checksum
_FILES = frozenset(b"0\x007")
_BARE = frozenset(b"123456")  # links, devices, folders: no data follow, whatever size they give
_SPARSE = "is stored sparse, so its bytes are not in the archive as they are; pack it without --sparse"


# One regular file of an archive: its name as it is stored, its first byte in the archive, its size in bytes.
Member: TypeAlias = tuple[bytes, int, int]


class _Fault(Exception):
    """What is wrong with the header at hand."""


def split_name(name: str) -> tuple[str, str] | None:
    """Return (key of the sample, extension) of a member's name; None for one that belongs to no sample.

    The last part of the path is cut at its first dot; extensions are lower case. No sample's are names without a dot,
    hidden files, and what is called or lies in `__…__`.

    >>> split_name("train/0001.seg.PNG"), split_name("train/README"), split_name("__meta__/a.json")
    (('train/0001', 'seg.png'), None, None)
    """
    base = name.rfind("/") + 1
    dot = name.find(".", base)
    if dot <= base:
        return None
    if name.startswith("__"):
        first = name.partition("/")[0]
        if len(first) >= 4 and first.endswith("__"):
            return None
    return name[:dot], name[dot + 1 :].lower()


def text_of(name: bytes) -> str:
    """Return a stored name as text; bytes that are no UTF-8 as in file names of Python (surrogates)."""
    return name.decode("utf-8", "surrogateescape")


def members(file: DataFile, progress: Progress | None = None, *, unfinished: bool = False) -> Iterator[list[Member]]:
    """Yield the regular files of an archive in order, some at a time, reading it once from its start to its end.

    unfinished: whether an archive may lack the block of zeros that ends it, and what pads its last member.
    Raises CorpusError for what is no archive, is cut off or damaged, and for data behind its end.
    """
    walk = _Walk(file)
    for first in range(0, walk.size, _READ):
        chunk = file.read(first, min(_READ, walk.size - first))
        yield walk.chunk(first, chunk)
        if progress is not None:
            progress(len(chunk))
    walk.end(unfinished=unfinished)


class _Walk:
    """Where a walk is. place: of the next header. end_at: of the zeros that end the archive, once they are met."""

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self.size = file.identity().size
        self._place = 0
        self._end_at: int | None = None
        self._everywhere: dict[bytes, bytes] = {}  # what pax headers say of all members that follow
        self._next: dict[bytes, bytes] | None = None  # what extended headers say of the next member

    def chunk(self, first: int, chunk: bytes) -> list[Member]:
        """Return the members whose headers lie in the bytes from `first` on."""
        found: list[Member] = []
        places: list[int] = []
        fault: tuple[int, str] | None = None
        last = first + len(chunk) - _BLOCK
        while self._end_at is None and self._place <= last:
            at = self._place - first
            if not chunk[at] and chunk[at : at + _BLOCK] == _ZEROS:
                self._end_at = self._place
                break
            places.append(at)
            try:
                self._header(first, chunk, at, found)
            except _Fault as error:
                fault = self._place, str(error)
                break
        self._check_sums(first, chunk, places)
        if fault is not None:
            raise CorpusError(self._file.name, f"the member at byte {fault[0]} {fault[1]}")
        self._check_rest(first, chunk)
        return found

    def end(self, *, unfinished: bool) -> None:
        """Raise if the archive ends where it cannot."""
        if self._end_at is not None:
            return
        if self._next is not None:
            raise CorpusError(
                self._file.name, f"is cut off at byte {self.size}: the member of a long header is missing"
            )
        if not unfinished:
            raise CorpusError(
                self._file.name,
                f"ends at byte {self.size} without the zeros that end an archive: it is cut off, or whoever wrote it "
                "did not close it. If all of its members are there, go on with unfinished=True",
            )

    def _header(self, first: int, chunk: bytes, at: int, found: list[Member]) -> None:
        kind = chunk[at + 156]
        size = _number(chunk, at + 124, 12)
        start = self._place + _BLOCK
        if kind in _FILES:
            name = chunk[at : at + 100].partition(b"\0")[0]
            if not kind and name.endswith(b"/"):  # how folders were stored before there were kinds
                size = 0
            elif chunk[at + 345] and chunk[at + 257 : at + 263] == b"ustar\0":
                name = chunk[at + 345 : at + 500].partition(b"\0")[0] + b"/" + name
            if self._next is not None or self._everywhere:
                name, size = self._extended(name, size)
                self._next = None
            if start + size > self.size:
                self._fits(name, start, size)
            if kind or not name.endswith(b"/"):
                found.append((name, start, size))
        elif kind in b"LKxXg":
            if size > _LARGEST:
                raise _Fault(
                    f"is an extended header of {size} bytes, and {_LARGEST >> 20} MiB are the most that is read"
                )
            self._fits(b"", start, size)
            at = start - first
            inside = at + size <= len(chunk)
            self._extend(kind, chunk[at : at + size] if inside else self._file.read(start, size))
        elif kind == b"S"[0]:
            raise _Fault(_SPARSE)
        else:
            if kind in _BARE:
                size = 0
            elif self._next is not None or self._everywhere:
                size = self._extended(b"", size)[1]
            self._fits(b"", start, size)
        if kind not in b"LKxXg":
            self._next = None
        self._place = start + size + -size % _BLOCK

    def _fits(self, name: bytes, start: int, size: int) -> None:
        if start + size > self.size:
            key = split_name(text_of(name))
            whose = f"({text_of(name)!r} of sample {key[0]!r}) " if key else f"({text_of(name)!r}) " if name else ""
            raise _Fault(
                f"{whose}says that it has {size} bytes from byte {start} on, and the file ends at {self.size}: it is "
                "cut off, or damaged"
            )

    def _extend(self, kind: int, payload: bytes) -> None:
        if kind == b"g"[0]:
            self._everywhere.update(_records(payload))
            return
        said = {} if kind == b"K"[0] else _records(payload) if kind in b"xX" else {b"path": payload.partition(b"\0")[0]}
        self._next = said if self._next is None else said | self._next  # the outermost one counts

    def _extended(self, name: bytes, size: int) -> tuple[bytes, int]:
        said = self._everywhere | (self._next or {})
        if any(key.startswith(b"GNU.sparse.") for key in said):
            raise _Fault(_SPARSE)
        if said.get(b"size"):
            digits = said[b"size"]
            if not digits.isdigit() or len(digits) > 20:
                raise _Fault(f"has a size that is no number: {digits[:40]!r}")
            size = int(digits)
        return said.get(b"path") or name, size

    def _check_sums(self, first: int, chunk: bytes, places: list[int]) -> None:
        if not places:
            return
        heads: Any = np.frombuffer(chunk, np.uint8, len(chunk) // _BLOCK * _BLOCK).reshape(-1, _BLOCK)
        heads = heads[np.array(places) // _BLOCK]
        field = heads[:, 148:156]
        found = heads.sum(axis=1, dtype=np.uint32) - field.sum(axis=1, dtype=np.uint32) + 8 * ord(" ")
        digits = field[:, :6] - np.uint8(ord("0"))  # wraps where it is no digit
        given = digits.astype(np.int64) @ _OCTAL
        for odd in np.flatnonzero((digits > 7).any(axis=1) | (field[:, 6:] != _END_OF_SUM).any(axis=1)).tolist():
            try:
                given[odd] = min(_number(field[odd].tobytes(), 0, 8), 1 << 62)
            except _Fault:
                given[odd] = -1
        for bad in np.flatnonzero(found != given).tolist():
            high = int((heads[bad] > 127).sum() - (heads[bad, 148:156] > 127).sum())
            if int(found[bad]) - 256 * high == given[bad]:  # as some old programs summed: with a sign
                continue
            place = first + places[bad]
            if place == 0:
                what = _packed(chunk) or ": it does not begin with the header of a member"
                raise CorpusError(self._file.name, f"is no tar archive{what}")
            raise CorpusError(
                self._file.name,
                f"is damaged at byte {place}: a member's header should be there, and its checksum is wrong",
            )

    def _check_rest(self, first: int, chunk: bytes) -> None:
        begin = self._place if self._end_at is None else self._end_at
        rest = (
            chunk[max(0, begin - first) :] if self._end_at is not None or begin > first + len(chunk) - _BLOCK else b""
        )
        if rest.count(0) == len(rest):
            return
        if self._end_at is None and begin == 0 and _packed(chunk):
            raise CorpusError(self._file.name, f"is no tar archive{_packed(chunk)}")
        if self._end_at is None:
            raise CorpusError(self._file.name, f"is cut off at byte {self.size}, in the header that begins at {begin}")
        behind = max(first, begin) + len(rest) - len(rest.lstrip(b"\0"))
        raise CorpusError(
            self._file.name,
            f"the archive ends at byte {begin}, and there are more data from byte {behind} on, which readers of tar "
            "leave out. If archives were written one behind the other, keep each as a file of its own, or join them "
            "by `tar --concatenate`",
        )


def _number(chunk: bytes, at: int, length: int) -> int:
    digits = chunk[at : at + length - 1]
    try:
        if digits.isdigit() and chunk[at + length - 1] in b"\0 ":  # as nearly all are
            return int(digits, 8)
    except ValueError:
        pass
    field = chunk[at : at + length]
    if field[0] & 0x80:  # of GNU, for what octal digits cannot say: the bytes are the number
        if field[0] == 0xFF:
            raise _Fault("has a negative number in its header")
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    digits = field.partition(b"\0")[0].strip(b" ")
    if not digits:
        return 0
    try:
        if digits.isdigit():
            return int(digits, 8)
    except ValueError:
        pass
    raise _Fault(f"has no octal number where one should be: {digits!r}")


def _records(payload: bytes) -> dict[bytes, bytes]:
    """Return the keywords of a pax header."""
    said: dict[bytes, bytes] = {}
    place = 0
    while place < len(payload) and payload[place]:
        digits, space, _ = payload[place : place + 10].partition(b" ")
        length = int(digits) if digits.isdigit() and space else 0
        record = payload[place + len(digits) + 1 : place + length]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n") or place + length > len(payload):
            raise _Fault(f"is an extended header that is broken at its byte {place}")
        said[key] = value[:-1]
        place += length
    return said


def _packed(head: bytes) -> str:
    for magic, name, way in (
        (b"\x1f\x8b", "gzip", "gunzip"),
        (b"\x28\xb5\x2f\xfd", "Zstandard", "zstd -d"),
        (b"BZh", "bzip2", "bunzip2"),
        (b"\xfd7zXZ", "xz", "unxz"),
    ):
        if head.startswith(magic):
            return (
                f", but one packed by {name}, in which no sample can be found without unpacking all before it. Unpack "
                f"it once by `{way}`; images and sound are compressed already, so it will hardly be larger"
            )
    return ""
