"""The digests of a huge file's first pieces, so that hashing it goes on where it was when the process was killed.

A journal for each file that is hashed in pieces, beside the digests' cache and under the same rules: it holds for one
device, inode, size, mtime and ctime, and nothing is written of a file whose times lie within the clock's grain of the
moment from which it is read. Each digest stands at a place of its own with a checksum that covers all before it: of a
journal that is torn or edited only the sound beginning counts, and two processes that write one do no harm.
"""

# ruff: noqa: PTH105, PTH108

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import xxhash

from detdata.algorithms import digest_size
from detdata.versions.cache import is_settled
from detdata.versions.files import FileStat
from detdata.versions.own_files import open_own, temporary_beside

_MAGIC = b"detdata.unfinished/1\n"
_CHECK = 8  # bytes of the checksum that follows each digest
_AT_ONCE = 4096  # digests read at once


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The journals in a cache's folder, for one way of hashing. quick: use what a run before this one has written."""

    folder: Path
    algorithm: str
    piece_size: int
    quick: bool
    done: list[Path] = field(default_factory=list)

    def journal(self, path: str, found: FileStat) -> Journal | None:
        """Return the journal of a file that is about to be read; None where none can be kept.

        found: what the file is now.
        """
        if not is_settled(found, time.time_ns()):
            return None
        key = "\0".join((os.path.realpath(path), self.algorithm, str(self.piece_size), sys.platform))
        file = self.folder / f"{xxhash.xxh3_128_hexdigest(key.encode('utf-8', 'surrogateescape'))}.pieces"
        head = _MAGIC + xxhash.xxh3_128_digest("\0".join((key, *map(str, found))).encode("utf-8", "surrogateescape"))
        handle = _opened(file, head) if self.quick else None
        try:
            handle = handle or _begun(file, head)
        except OSError:
            return None
        return Journal(file, handle, head, digest_size(self.algorithm))

    def finish(self, journal: Journal) -> None:
        """Note that the whole file has a digest."""
        journal.close()
        self.done.append(journal.file)

    def sweep(self) -> None:
        """Remove the journals of finished files: their digests are in the cache by now."""
        while self.done:
            with suppress(OSError):
                self.done.pop().unlink()


class Journal:
    """The digests of one file's pieces, from the first on without a gap. `known` comes before `add`."""

    def __init__(self, file: Path, handle: BinaryIO, head: bytes, width: int) -> None:
        self.file = file
        self._handle, self._width = handle, width
        self._place, self._check = len(head), head[-_CHECK:]

    def known(self, count: int) -> Iterator[bytes]:
        """Yield the digests written before, many at a time and `count` at most."""
        step = self._width + _CHECK
        while count:
            try:
                self._handle.seek(self._place)
                data = self._handle.read(step * min(count, _AT_ONCE))
            except OSError:
                return
            found = []
            for start in range(0, len(data) - step + 1, step):
                digest, check = data[start : start + self._width], data[start + self._width : start + step]
                if xxhash.xxh3_64_digest(self._check + digest) != check:
                    break
                found.append(digest)
                self._check = check
            if not found:
                return
            self._place += step * len(found)
            count -= len(found)
            yield b"".join(found)

    def add(self, digests: bytes) -> None:
        """Write the digests of the next pieces, one after another. They survive this process, not a loss of power."""
        data = bytearray()
        for start in range(0, len(digests), self._width):
            digest = digests[start : start + self._width]
            self._check = xxhash.xxh3_64_digest(self._check + digest)
            data += digest + self._check
        with suppress(OSError, ValueError):  # a full disk leaves a gap, and what lies behind one doesn't count
            self._handle.seek(self._place)
            self._handle.write(data)
        self._place += len(data)

    def close(self) -> None:
        """Close the file, which stays."""
        with suppress(OSError):
            self._handle.close()


def _opened(file: Path, head: bytes) -> BinaryIO | None:
    handle = open_own(file, to_write=True)
    if handle is None:
        return None
    with suppress(OSError):
        if handle.read(len(head)) == head:
            return handle
    handle.close()
    return None


def _begun(file: Path, head: bytes) -> BinaryIO:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(str(file.parent), ".pieces")
    try:
        with open(temporary, "xb", buffering=0) as handle:  # noqa: PTH123
            handle.write(head)
        os.replace(temporary, file)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return file.open("r+b", buffering=0)
