"""Files of a checkpoint: written, hashed and synced in one pass; read back within bounds; no torch.

The digest is computed from the bytes on their way to the disk, so that a save reads nothing back. That happens a piece
at a time, hashed and copied while it is in the processor's cache, with the disk at work on the pieces before it: a
thread for the hashing costs more, as it has to fetch every piece from memory again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import xxhash

from detdata.checkpoint.remote_file import RemoteFile
from detdata.checkpoint.remote_path import AnyPath, RemotePath

CHUNK = 1 << 19  # bytes hashed, and written or read, at a time
DIGEST = "xxh3-128:"
STRETCH = 1 << 24  # bytes after which the disk is told to begin


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size in bytes and `xxh3-128:<32 hex digits>` of one file."""

    size: int
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Return both as plain JSON."""
        return {"size": self.size, "digest": self.digest}


class HashingFile:
    """A file to write to that hashes what passes through, and lets the disk begin at once.

    file: unbuffered. Small pieces are gathered, large ones go to the system as they are: nothing is copied. Each
    stretch that is written starts on its way to the disk, so that `finish` finds little left to sync; the page cache
    may forget it, and keeps what training needs.

    An error, Ctrl-C too, is kept and raised by `finish`, not by `write`: torch's zip writer calls `write` from C++ and
    its destructor would write again while the error is on its way.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = xxhash.xxh3_128()
        self._gathered = bytearray()
        self._size = 0
        self._written = self._begun = 0  # bytes given to the system; bytes of them told to go to the disk
        self._error: BaseException | None = None

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Hash and write `data`; return its size in bytes."""
        view = memoryview(data).cast("B")
        if self._error is None:
            try:
                if len(view) < CHUNK:
                    self._gathered += view
                    if len(self._gathered) >= CHUNK:
                        self._put_gathered()
                else:
                    self._put_gathered()
                    self._put(view)
            except BaseException as error:  # noqa: BLE001 - raised by finish
                self._error = error
        self._size += len(view)
        return len(view)

    def _put_gathered(self) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        if gathered:
            self._put(memoryview(gathered))

    def _put(self, view: memoryview) -> None:
        for start in range(0, len(view), CHUNK):
            piece = view[start : start + CHUNK]
            self._hash.update(piece)
            self._written += len(piece)
            while piece:
                piece = piece[self._file.write(piece) :]
            if self._written - self._begun >= STRETCH:
                _begin_writing(self._file, self._begun, self._written - self._begun)
                self._begun = self._written

    def flush(self) -> None:
        """Do nothing: `finish` flushes and syncs."""

    def finish(self, *, sync: bool = True) -> FileRecord:
        """Write what is left, sync to disk, and return what was written. Raises the first error of a write.

        sync: False where there is no disk, and the file is made to stay by closing it.
        """
        if self._error is None:
            self._put_gathered()
        if self._error is not None:
            raise self._error
        if sync:
            os.fsync(self._file.fileno())
        return FileRecord(self._size, DIGEST + self._hash.hexdigest())


def _begin_writing(file: BinaryIO, start: int, size: int) -> None:
    advise = getattr(os, "posix_fadvise", None)  # not on macOS and Windows
    if advise is not None:
        with contextlib.suppress(OSError):  # advice: what is wrong with the disk, fsync says
            advise(file.fileno(), start, size, os.POSIX_FADV_DONTNEED)


def write_file(path: AnyPath, write: Callable[[BinaryIO], object]) -> FileRecord:
    """Create `path`, let `write` fill it, sync it, and return its record. An object is there when this returns."""
    if isinstance(path, RemotePath):
        return _upload(path, write)
    with path.open("xb", buffering=0) as raw:
        file = HashingFile(cast("BinaryIO", raw))
        write(cast("BinaryIO", file))
        return file.finish()


def _upload(path: RemotePath, write: Callable[[BinaryIO], object]) -> FileRecord:
    def fill(raw: BinaryIO) -> FileRecord:
        file = HashingFile(raw)
        write(cast("BinaryIO", file))
        return file.finish(sync=False)

    record = path.upload(fill)
    size = path.size()
    if size != record.size:
        raise OSError(f"{path} has {size} bytes after {record.size} were sent")
    return record


def open_regular(path: AnyPath) -> BinaryIO:
    """Open `path` for reading if it is a regular file itself: no link, pipe or device. Raises OSError."""
    if isinstance(path, RemotePath):
        return cast("BinaryIO", RemoteFile(path))
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "no regular file"
        raise OSError(f"is {kind}")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags), "rb", buffering=0)


def open_note(path: Path, access: int) -> int:
    """Return the descriptor of a small file of ours to write to, made where it is missing. Raises OSError.

    access: os.O_WRONLY or os.O_RDWR. Never another file, which a link in a shared folder may point to, nor a pipe.
    """
    more = os.O_CREAT
    for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):
        more |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, access | more, 0o644)
    except OSError as error:
        if path.is_symlink():
            raise OSError(f"{path} is a symbolic link, and no file of detdata's: remove it") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file, and none of detdata's: remove it")
    return descriptor


def read_bounded(path: AnyPath, limit: int) -> bytes:
    """Return the content of the regular file `path`. Raises OSError if it is larger than `limit` bytes."""
    with open_regular(path) as file:
        size = size_of(file)
        if size > limit:
            raise OSError(f"has {size} bytes, more than the {limit} that are read")
        data = bytearray()
        while chunk := file.read(CHUNK):
            data += chunk
            if len(data) > limit:
                raise OSError(f"grew beyond the {limit} bytes that are read")
        return bytes(data)


def is_of_this_process(error: OSError) -> bool:
    """Whether it is this process that may or can not read a file, not the file that is damaged."""
    return error.errno in {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


def size_of(file: BinaryIO) -> int:
    """Return the size in bytes of an open file that is to be read from its start."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def hash_file(path: AnyPath) -> FileRecord:
    """Return size and digest of the regular file `path`, read once in pieces. Raises OSError."""
    hasher = xxhash.xxh3_128()
    size = 0
    with open_regular(path) as file:
        buffer = memoryview(bytearray(CHUNK))
        while count := read_hashed(file, buffer, hasher):
            size += count
    return FileRecord(size, DIGEST + hasher.hexdigest())


class Hasher(Protocol):
    """What takes the pieces of a file."""

    def update(self, piece: memoryview, /) -> object:
        """Take the next piece."""


def read_hashed(file: BinaryIO, target: memoryview, hasher: Hasher, piece: int = CHUNK) -> int:
    """Fill `target` from an unbuffered file and hash what came; return the bytes, fewer only at the file's end.

    piece: bytes read, and then hashed, at a time.
    """
    done = 0
    while count := file.readinto(target[done : done + piece]):  # type: ignore[attr-defined]  # a FileIO
        hasher.update(target[done : done + count])
        done += count
    return done


def remove_tree(path: Path) -> None:
    """Remove a folder with all in it, or a file or link. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
