"""Files of a checkpoint: written, hashed and synced in one pass; read back within bounds; no torch.

The digest is computed from the bytes on their way to the disk, so that a save reads nothing back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import xxhash

CHUNK = 1 << 20
DIGEST = "xxh3-128:"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size in bytes and `xxh3-128:<32 hex digits>` of one file."""

    size: int
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Return both as plain JSON."""
        return {"size": self.size, "digest": self.digest}


class HashingFile:
    """A binary file to write to that hashes what passes through.

    An error, Ctrl-C too, is kept and raised by `finish`, not by `write`: torch's zip writer calls `write` from C++ and
    its destructor would write again while the error is on its way.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = xxhash.xxh3_128()
        self._size = 0
        self._error: BaseException | None = None

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Hash and write `data`; return its size in bytes."""
        size = memoryview(data).nbytes
        if self._error is None:
            try:
                self._file.write(data)
            except BaseException as error:  # noqa: BLE001 - raised by finish
                self._error = error
            self._hash.update(data)
            self._size += size
        return size

    def flush(self) -> None:
        """Do nothing: `finish` flushes and syncs."""

    def finish(self) -> FileRecord:
        """Flush and sync to disk, and return what was written. Raises the first error of a write."""
        if self._error is not None:
            raise self._error
        self._file.flush()
        os.fsync(self._file.fileno())
        return FileRecord(self._size, DIGEST + self._hash.hexdigest())


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> FileRecord:
    """Create `path`, let `write` fill it, sync it, and return its record."""
    raw = path.open("xb", buffering=CHUNK)
    try:
        file = HashingFile(raw)
        write(cast("BinaryIO", file))
        record = file.finish()
    except BaseException:
        with contextlib.suppress(OSError):  # a second failure, to flush, is no news
            raw.close()
        raise
    raw.close()
    return record


def open_regular(path: Path) -> BinaryIO:
    """Open `path` for reading if it is a regular file itself: no link, pipe or device. Raises OSError."""
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "no regular file"
        raise OSError(f"is {kind}")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags), "rb", buffering=0)


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the content of the regular file `path`. Raises OSError if it is larger than `limit` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(f"has {size} bytes, more than the {limit} that are read")
        data = bytearray()
        while chunk := file.read(CHUNK):
            data += chunk
            if len(data) > limit:
                raise OSError(f"grew beyond the {limit} bytes that are read")
        return bytes(data)


def hash_file(path: Path) -> FileRecord:
    """Return size and digest of the regular file `path`, read once in pieces. Raises OSError."""
    hasher = xxhash.xxh3_128()
    size = 0
    buffer = memoryview(bytearray(CHUNK))
    with open_regular(path) as file:
        while count := file.readinto(buffer):  # type: ignore[attr-defined]  # a FileIO: buffering=0
            hasher.update(buffer[:count])
            size += count
    return FileRecord(size, DIGEST + hasher.hexdigest())


def remove_tree(path: Path) -> None:
    """Remove a folder with all in it, or a file or link. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
