"""Digests of files: effects only, and every function can be sent to another process or machine by its name.

A file that is no regular file, or isn't the same after reading as before, gives no digest but an error. Large files
pass through one page-aligned buffer for each thread: in such a buffer reading runs up to three times as fast as in a
`bytearray`, hashing 256 KiB and more at once frees Python's lock, and a mapped file would end the process if someone
cut it short meanwhile.

With a piece size the digest is that of a tree, so that pieces can be hashed anywhere:
H("detdata.pieces/1" + u64le(piece size) + u64le(size) + H(piece 0) + H(piece 1) + …).
"""

# One path object for each file would cost more than its system call.
# ruff: noqa: PTH114, PTH115, PTH116

from __future__ import annotations

import errno
import mmap
import os
import stat
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from detdata.algorithms import Bytes, hex_function, new_hasher
from detdata.checks import as_int
from detdata.versions.errors import DatasetError
from detdata.versions.ignore import Symlinks
from detdata.versions.names import to_system
from detdata.versions.pieces import Joiner, piece_digests

_BLOCK = 1 << 19  # bytes of the buffer; 256 KiB to 1 MiB read equally fast, and larger ones fall out of the cache
SETTLE_NS = 20_000_000  # two ticks of the slowest clock of a kernel in use (100 Hz), and some writes of 1 MiB
SMALL = 1 << 16  # bytes up to which a file is read in one call
OPEN_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):  # never wait for a pipe, never own a terminal
    OPEN_FLAGS |= getattr(os, _name, 0)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
# By default Python's anonymous memory is shared with forked children: they would overwrite each other's blocks.
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
_own = threading.local()
_HALF, _ALL = 1 << 63, 1 << 64

OnBytes = Callable[[int], None]


class FileStat(NamedTuple):
    """What tells that a file is the same as before, in the order of a listing's columns; each an int64."""

    dev: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class FileDigest(NamedTuple):
    """size: bytes read. hex: their digest. The rest: which file it was, and when it last changed."""

    size: int
    hex: str
    dev: int
    inode: int
    mtime_ns: int
    ctime_ns: int


def wait_ns(latest: int) -> int:
    """Return for how many ns to wait before a file whose times were last moved at `latest` can be read; 0 for none.

    A file's times move when a write begins, by a clock that ticks every few milliseconds, and not again when it ends.
    So of a file that was written to just now nothing tells that a write is still under way, or begins in the same tick:
    it could be read half old and half new, with the same times before and after. Once they are some ticks old, every
    write during the reading moves them. Times ahead of this machine's clock say nothing and are not waited for.

    >>> wait_ns(0)
    0
    """
    now = time.time_ns()
    return max(0, latest + SETTLE_NS - now) if latest <= now else 0


def as_int64(value: int) -> int:
    """Return what a table of stat values keeps of one: its last 64 bits. Dates after 2262 and some inodes have more.

    >>> as_int64(7), as_int64(2**63)
    (7, -9223372036854775808)
    """
    return (value + _HALF) % _ALL - _HALF


class _Trouble(Exception):
    """Why a file has no digest."""


def digest_file(
    path: str | os.PathLike[str],
    algorithm: str,
    piece_size: int = 0,
    symlinks: Symlinks = "follow",
    on_bytes: OnBytes | None = None,
    expect: FileStat | None = None,
) -> FileDigest:
    """Return the digest of one file's bytes, and its stat values at that.

    piece_size: bytes; 0 for the plain digest of all bytes, else that of the tree of pieces. symlinks: "record" digests
    the text of a link, "refuse" refuses one. on_bytes: called with the number of bytes after each block (once for a
    small file); what it raises ends the reading. expect: what it must be before, else it has changed since.
    Raises DatasetError (an OSError). Memory: one buffer of 512 KiB a thread.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a"
    >>> _ = file.write_bytes(b"a")
    >>> digest_file(file, "xxh3-128").hex
    'a96faf705af16834e6c632b61e964e1f'
    """
    name = os.fspath(path)
    try:
        return _digest(name, algorithm, hex_function(algorithm), piece_size, symlinks, on_bytes, expect)
    except (_Trouble, OSError) as error:
        raise DatasetError(name, _reason(error)) from error


def digest_many(
    root: str, paths: Sequence[str], algorithm: str, piece_size: int = 0, symlinks: Symlinks = "follow"
) -> list[FileDigest]:
    """Return the digests of `paths` below `root`, in their order: the quickest way for small files, in one thread.

    Raises DatasetError for the first that has none, counting the others. Cost: some 10 µs a file of 8 KiB.

    >>> digest_many("/", [], "xxh3-128")
    []
    """
    one_shot = hex_function(algorithm)
    digests = []
    troubles: list[tuple[str, str]] = []
    for path in paths:
        try:
            digests.append(_digest(f"{root}/{path}", algorithm, one_shot, piece_size, symlinks, None, None))
        except (_Trouble, OSError) as error:
            troubles.append((f"{root}/{path}", _reason(error)))
    if troubles:
        raise DatasetError(*troubles[0], len(troubles) - 1)
    return digests


def digest_piece(
    path: str | os.PathLike[str],
    algorithm: str,
    start: int,
    stop: int,
    on_bytes: OnBytes | None = None,
    expect: FileStat | None = None,
    symlinks: Symlinks = "follow",
    piece_size: int = 0,
) -> bytes:
    """Return the digest of the bytes `start` … `stop` - 1 of a file. Arguments and errors as for `digest_file`.

    piece_size: bytes; above 0 the digests of as many pieces of that size as there are, one after another.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a"
    >>> _ = file.write_bytes(b"banana")
    >>> digest_piece(file, "xxh3-128", 1, 2).hex()
    'a96faf705af16834e6c632b61e964e1f'
    """
    name = os.fspath(path)
    begin = as_int(start, "start")
    end = as_int(stop, "stop", low=begin)
    try:
        descriptor = _open(name, symlinks)
        try:
            before = _regular(descriptor, expect)
            os.lseek(descriptor, begin, os.SEEK_SET)
            step = as_int(piece_size, "piece_size") or end - begin
            digests = b"".join(piece_digests(_blocks(descriptor, end - begin, on_bytes), algorithm, step))
            _check_same(before, _values(os.fstat(descriptor)))
            if os.lseek(descriptor, 0, os.SEEK_CUR) != end:
                raise _Trouble(f"ends before byte {end}: it was changed, or the piece is of another file")
            return digests or new_hasher(algorithm).digest()
        finally:
            os.close(descriptor)
    except (_Trouble, OSError) as error:
        raise DatasetError(name, _reason(error)) from error


def stat_file(path: str | os.PathLike[str]) -> FileStat:
    """Return what tells that a file is the same as before, links followed. Raises DatasetError.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     stat_file(file.name).size
    0
    """
    name = os.fspath(path)
    try:
        return _values(os.stat(to_system(name)))
    except OSError as error:
        raise DatasetError(name, _reason(error)) from error


def first_difference(a_path: str | os.PathLike[str], b_path: str | os.PathLike[str]) -> int | None:
    """Return the offset of the first byte in which two files differ; where one ends first, its size; None if equal.

    Raises DatasetError.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name, data in (("a", b"banana"), ("b", b"bandana")):
    ...     _ = (folder / name).write_bytes(data)
    >>> first_difference(folder / "a", folder / "b")
    3
    """
    offset = 0
    for one, other in zip(_whole_blocks(a_path), _whole_blocks(b_path), strict=False):
        if one != other:
            length = min(len(one), len(other))
            return offset + _first_difference(one[:length], other[:length])
        offset += len(one)
    return None


def _first_difference(one: bytes, other: bytes) -> int:
    """Return where two blocks of one length begin to differ, their length if they don't."""
    return bisect_left(range(len(one)), x=True, key=lambda at: one[: at + 1] != other[: at + 1])


def _whole_blocks(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield a file in blocks of `_BLOCK` bytes, the last one shorter, and then empty ones for ever."""
    name = os.fspath(path)
    try:
        descriptor = _open(name, "follow")
        try:
            _regular(descriptor, None)
            last = False
            while not last:
                block = b"".join(bytes(part) for part in _blocks(descriptor, _BLOCK, None))
                last = len(block) < _BLOCK
                yield block
        finally:
            os.close(descriptor)
    except (_Trouble, OSError) as error:
        raise DatasetError(name, _reason(error)) from error


def _digest(
    name: str,
    algorithm: str,
    one_shot: Callable[[Bytes], str],
    piece_size: int,
    symlinks: Symlinks,
    on_bytes: OnBytes | None,
    expect: FileStat | None,
) -> FileDigest:
    try:
        descriptor = _open(name, symlinks)
    except OSError as error:
        if symlinks == "record" and error.errno in {errno.ELOOP, errno.EMLINK}:
            return _digest_link(name, one_shot, expect)
        raise
    try:
        before = os.fstat(descriptor)
        size = before.st_size
        if expect is not None or not stat.S_ISREG(before.st_mode):
            _regular(descriptor, expect)
        elif wait := wait_ns(max(before.st_mtime_ns, before.st_ctime_ns)):  # what is as listed was waited for then
            time.sleep(wait / 1e9)
        if size <= SMALL and not piece_size:
            data = os.read(descriptor, size + 1)  # one more: a file that grew is found here
            if 0 < len(data) < size:  # a file system that gives less than was asked for
                data += b"".join(bytes(block) for block in _blocks(descriptor, size + 1 - len(data), None))
            count, hex = len(data), one_shot(data)
            if on_bytes is not None:
                on_bytes(count)
        elif piece_size:
            count, hex = _digest_tree(descriptor, algorithm, piece_size, size, on_bytes)
        else:
            count, hex = _digest_plain(descriptor, algorithm, size, on_bytes)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    dev, inode, mtime_ns, ctime_ns = after.st_dev, after.st_ino, after.st_mtime_ns, after.st_ctime_ns
    if (
        count != size
        or after.st_size != size
        or ctime_ns != before.st_ctime_ns
        or mtime_ns != before.st_mtime_ns
        or inode != before.st_ino
    ):
        _check_same(_values(before), _values(after))
        if count > size:
            raise _Trouble(
                f"gives more bytes than the {size} that it says it has, though nothing changed it: it is no file at "
                "rest, but made as it is read, like those in /proc and /sys; copy it, or exclude it by a pattern"
            )
        raise _Trouble(f"changed while it was read: it has {size} bytes, and {count} came; {_QUIET}")
    return FileDigest(count, hex, dev, inode, mtime_ns, ctime_ns)


def _digest_link(name: str, one_shot: Callable[[Bytes], str], expect: FileStat | None) -> FileDigest:
    system_name = to_system(name)
    before = _values(os.lstat(system_name))
    if expect is not None:
        _check_same(expect, before, "since it was listed")
    text = os.fsencode(os.readlink(system_name))
    _check_same(before, _values(os.lstat(system_name)))
    return FileDigest(len(text), one_shot(text), before.dev, before.inode, before.mtime_ns, before.ctime_ns)


def _digest_plain(descriptor: int, algorithm: str, size: int, on_bytes: OnBytes | None) -> tuple[int, str]:
    hasher = new_hasher(algorithm)
    count = 0
    for block in _blocks(descriptor, size + 1, on_bytes):
        hasher.update(block)
        count += len(block)
    return count, hasher.digest().hex()


def _digest_tree(
    descriptor: int, algorithm: str, piece_size: int, size: int, on_bytes: OnBytes | None
) -> tuple[int, str]:
    joiner = Joiner(algorithm, piece_size, size)
    for digest in piece_digests(_blocks(descriptor, size, on_bytes), algorithm, piece_size):
        joiner.add(digest)
    for _ in _blocks(descriptor, 1, None):  # a file that grew is found here
        pass
    count = os.lseek(descriptor, 0, os.SEEK_CUR)
    return count, joiner.hex() if joiner.taken == joiner.count else ""  # else it shrank, and the caller says so


def _blocks(descriptor: int, limit: int, on_bytes: OnBytes | None) -> Iterator[memoryview]:
    """Yield what comes from a descriptor, up to `limit` bytes; each block is overwritten by the next."""
    buffer = getattr(_own, "buffer", None)
    if buffer is None or len(buffer) != _BLOCK:
        buffer = _own.buffer = memoryview(mmap.mmap(-1, _BLOCK, **_PRIVATE))
    # A generator that is held while another one of its thread reads would lose its block: nobody here does so.
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        while limit > 0:
            count = file.readinto(buffer[: min(limit, _BLOCK)])
            if not count:
                return
            limit -= count
            yield buffer[:count]
            if on_bytes is not None:
                on_bytes(count)


def _open(name: str, symlinks: Symlinks) -> int:
    if symlinks == "follow":
        return os.open(to_system(name), OPEN_FLAGS)
    if not NO_FOLLOW and os.path.islink(to_system(name)):
        raise OSError(errno.ELOOP, "is a symbolic link")
    return os.open(to_system(name), OPEN_FLAGS | NO_FOLLOW)


def _regular(descriptor: int, expect: FileStat | None) -> FileStat:
    """Return the stat values of a regular file; what isn't one, or isn't as expected, is a trouble."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        what = "is a folder" if stat.S_ISDIR(found.st_mode) else "is no regular file"
        raise _Trouble(f"{what}: it has no content to hash; list the data again")
    values = _values(found)
    if expect is not None:
        _check_same(expect, values, "since it was listed")
    return values


def _values(found: os.stat_result) -> FileStat:
    return FileStat(*map(as_int64, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)))


def _check_same(before: FileStat, after: FileStat, when: str = "while it was read") -> None:
    for name, old, new in zip(FileStat._fields, before, after, strict=True):
        if old != new:
            raise _Trouble(f"changed {when}: its {name} was {old} and is {new}; {_QUIET}")


_QUIET = "go on when nothing writes to it"


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"is not there any more; {_QUIET}"
    if error.errno == errno.ELOOP:
        return "is a symbolic link that leads nowhere, or a link where none is wanted (symlinks=); list the data again"
    if error.errno == errno.ENXIO:
        return "is a socket or a device: it has no content to hash; move it away, or exclude it by a pattern"
    return f"cannot be read ({error.strerror or type(error).__name__}); see to that, or exclude it by a pattern"
