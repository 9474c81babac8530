"""Where the bytes of a corpus lie: one file, read at any place, known to be the same one as before.

`LocalFile` is a file of this machine. `detdata.corpora.remote` has the one behind a URL. Both give the same bytes or a
CorpusUnreadable, never fewer bytes than asked for.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from typing import Any, NamedTuple, Protocol

from detdata.corpora.errors import CorpusUnreadable

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_IRREGULAR = "it is no regular file"
_TRUSTED = 1 << 20  # bytes that are asked for without looking whether they are there


class Identity(NamedTuple):
    """What tells that a file is the same as before. size: bytes. tag: whatever the store says of its content and time.

    Of a local file the tag is device, inode, mtime and ctime: no ordinary edit leaves it as it was.
    """

    size: int
    tag: str


class DataFile(Protocol):
    """One file at rest. Picklable; what it has opened stays in its own process. Threads may share it.

    name: as it is told to people. path: where it lies on this machine, or None if it does not.
    """

    @property
    def name(self) -> str:
        """What the file is called in messages and in `locate`."""
        ...

    @property
    def path(self) -> str | None:
        """The path on this machine that may be mapped, or None."""
        ...

    def identity(self) -> Identity:
        """Return what the file is now. Raises CorpusUnreadable."""
        ...

    def read(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on. Raises CorpusUnreadable, for a file that ends before too."""
        ...

    def map(self) -> Any:
        """Return the whole file as one read-only buffer without reading it. Raises CorpusUnreadable where path is None.

        A mapped file that somebody cuts short ends the process that touches it: whoever maps checks `identity` before
        reading.
        """
        ...

    def fresh(self) -> DataFile:
        """Return the same file, not open yet. The one that is open is closed when nobody holds it any more."""
        ...


class LocalFile:
    """A file of this machine, opened when it is first read in a process, and read by `pread`: no shared position.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a"
    >>> _ = path.write_bytes(b"hello")
    >>> file = LocalFile(str(path))
    >>> file.read(1, 3), file.identity().size
    (b'ell', 5)
    """

    __slots__ = ("_descriptor", "_map", "_pid", "name", "path")

    def __init__(self, path: str, name: str | None = None) -> None:
        self.name = path if name is None else name  # as it was given
        self.path: str = os.path.abspath(path)  # the same file from wherever a worker, or this process, runs later
        self._descriptor = -1
        self._map: Any = None
        self._pid = 0

    def __reduce__(self) -> tuple[type[LocalFile], tuple[str, str]]:
        return LocalFile, (self.path, self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalFile) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __del__(self) -> None:
        # Only here, when nobody can be reading: a number that is closed under a reader is soon another file's.
        if self._descriptor >= 0 and self._pid == os.getpid():
            os.close(self._descriptor)

    def identity(self) -> Identity:
        """Return what the file is now: of the one that is open, if one is, so a file put in its place does no harm."""
        try:
            found = os.stat(self.path) if self._descriptor < 0 else os.fstat(self._descriptor)
            if not stat.S_ISREG(found.st_mode):  # a pipe would pass for an empty file
                raise OSError(errno.EINVAL, _IRREGULAR)
        except (OSError, ValueError) as error:  # a name with a zero in it is a ValueError
            raise _unreadable(self.name, error) from error
        return Identity(found.st_size, f"{found.st_dev}:{found.st_ino}:{found.st_mtime_ns}:{found.st_ctime_ns}")

    def read(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on."""
        try:
            descriptor = self._open()
            if start < 0 or not 0 <= length <= _TRUSTED:  # a damaged file may ask for memory for what is not there
                size = os.fstat(descriptor).st_size
                if length < 0 or not 0 <= start <= size - length:
                    raise CorpusUnreadable(
                        self.name, f"has {size} bytes, and {length} from byte {start} on were asked for"
                    )
            data = os.pread(descriptor, length, start)
            while len(data) < length:  # a read is cut at 2 GiB, and by some file systems before
                more = os.pread(descriptor, length - len(data), start + len(data))
                if not more:
                    break
                data += more
        except CorpusUnreadable:
            raise
        except (OSError, ValueError, OverflowError) as error:
            raise _unreadable(self.name, error) from error
        if len(data) < length:
            raise CorpusUnreadable(
                self.name, f"ends at byte {start + len(data)}, and bytes {start} … {start + length} were asked for"
            )
        return data

    def map(self) -> Any:
        """Return the whole file as one read-only buffer."""
        try:
            descriptor = self._open()
            if self._map is None:
                size = os.fstat(descriptor).st_size
                self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if size else b""
        except (OSError, ValueError) as error:
            raise _unreadable(self.name, error) from error
        return self._map

    def fresh(self) -> LocalFile:
        """Return the same file, not open yet."""
        return LocalFile(self.path, self.name)

    def _open(self) -> int:
        if self._descriptor < 0:
            descriptor = os.open(self.path, _FLAGS)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, _IRREGULAR)
            if self._descriptor >= 0:  # another thread was faster
                os.close(descriptor)
            else:
                self._pid, self._descriptor = os.getpid(), descriptor
        return self._descriptor  # after a fork too: pread shares no position


def _unreadable(name: str, error: BaseException) -> CorpusUnreadable:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, FileNotFoundError):
        reason = "there is no such file; was it moved or deleted after the corpus was opened?"
    return CorpusUnreadable(name, f"cannot be read: {reason}")
