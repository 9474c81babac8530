"""RemoteFile: a file behind a URL, read in ranges, each of them of the object that was there at the beginning."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from detdata.checks import as_int
from detdata.corpora.errors import CorpusUnreadable
from detdata.corpora.files import DataFile, Identity
from detdata.corpora.range_cache import RangeCache
from detdata.corpora.remote import UNTAGGED, changed, get, look, put
from detdata.corpora.retrying import TRIES, passes, retried, status
from detdata.errors import ArgumentTypeError, ArgumentValueError, DetdataError

PART = 16 << 20  # bytes of one request: what a time-out is for
AHEAD = 8 << 20  # bytes read at a time where a file is read from its start to its end
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How remote files are read. cache: of ranges, or None. timeout: seconds for one request. Picklable."""

    cache: RangeCache | None = None
    timeout: float = 60.0

    @staticmethod
    def of(folder: str | os.PathLike[str] | None, limit: object, timeout: object) -> RemoteOptions:
        """Return options from arguments of `open_corpus`. Raises TypeError, ValueError.

        >>> RemoteOptions.of(None, 1 << 30, 10).timeout
        10.0
        """
        most = as_int(limit, "remote_cache_bytes", low=1)
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise ArgumentTypeError(f"remote_timeout must be seconds, got {timeout!r}")
        if not 0 < timeout < 1e6:
            raise ArgumentValueError(f"remote_timeout must be seconds, more than 0, got {timeout!r}")
        if folder is None:
            return RemoteOptions(None, float(timeout))
        if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
            raise ArgumentTypeError(f"remote_cache must be a folder, got {folder!r}")
        return RemoteOptions(RangeCache(os.path.abspath(os.fspath(folder)), most), float(timeout))


@dataclass(slots=True, eq=False)
class RemoteFile:
    """A file behind a URL. What it is, is asked for once; from then on all reads are of that object or fail.

    So `identity` costs nothing but the first time, here and in every process that it is sent to. Reads ask for just the
    bytes that are wanted, in requests of at most 16 MiB, tried four times. Threads may share it.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/example/a", b"hello")
    >>> file = RemoteFile("memory://example/a")
    >>> file.read(1, 3), file.identity().size
    (b'ell', 5)
    """

    name: str
    options: RemoteOptions = field(default_factory=RemoteOptions)
    known: Identity | None = None

    @property
    def path(self) -> None:
        """None: it does not lie on this machine."""
        return None

    def identity(self) -> Identity:
        """Return what the file is: what it was when that was first asked. Raises CorpusUnreadable."""
        if self.known is None:
            self.known = self.now()
        return self.known

    def now(self) -> Identity:
        """Return what the file is now, by a request. Raises CorpusUnreadable."""
        kind, found = look_at(self.name, self.options)
        if kind != "file":
            raise CorpusUnreadable(self.name, "is a folder, and a file was expected")
        if found.size < 0:
            raise CorpusUnreadable(self.name, "its size is unknown to the store; copy it to this machine")
        return found

    def read(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on, from the cache of ranges if there is one."""
        cache, expected = self.options.cache, self.identity()
        if cache is None or not length or expected.tag == UNTAGGED:  # untagged: nothing would tell that it changed
            return self.fetch(start, length)
        key = cache.key(self.name, expected.size, expected.tag, start, length)
        data = cache.get(key, length)
        if data is None:
            data = self.fetch(start, length)
            cache.put(key, data)
        return data

    def fetch(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on, from the store."""
        expected = self.identity()
        if start < 0 or length < 0 or start + length > expected.size:
            raise CorpusUnreadable(
                self.name, f"ends at byte {expected.size}, and bytes {start} … {start + length} were asked for"
            )
        stop = start + length
        parts = [self._part(place, min(PART, stop - place)) for place in range(start, stop, PART)]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def map(self) -> Any:
        """Raise CorpusUnreadable: only files of this machine can be mapped."""
        raise CorpusUnreadable(self.name, "lies behind a URL and cannot be mapped; its format has to read it")

    def fresh(self) -> RemoteFile:
        """Return the same file, as it was known."""
        return RemoteFile(self.name, self.options, self.known)

    def other(self, name: str) -> RemoteFile:
        """Return another file, to be read in the same way."""
        return RemoteFile(name, self.options)

    def write(self, data: bytes) -> None:
        """Make `data` the content at this URL. Raises CorpusUnreadable."""
        with_errors(self.name, lambda: put(self.name, data, self.options.timeout), "written")
        self.known = None

    def _part(self, start: int, length: int) -> bytes:
        expected = self.identity()

        def request() -> bytes:
            try:
                return get(self.name, expected, start, length, self.options.timeout)
            except Exception as error:
                if status(error) == 416:  # a range that it had
                    raise changed(self.name, expected) from error
                raise

        return with_errors(self.name, request)


class ReadAhead:
    """A remote file for reading from its start to its end: small reads are served of large ones. Not for threads."""

    __slots__ = ("_data", "_file", "_start")

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._data = b""
        self._start = 0

    @property
    def name(self) -> str:
        """The file's name."""
        return self._file.name

    @property
    def path(self) -> None:
        """None."""
        return None

    def identity(self) -> Identity:
        """Return what the file is."""
        return self._file.identity()

    def read(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on. Nothing of it goes into the cache of ranges."""
        at = start - self._start
        if at < 0 or at + length > len(self._data):
            size = self._file.identity().size
            self._data = self._file.fetch(start, max(length, min(AHEAD, size - start)))
            self._start, at = start, 0
        return self._data[at : at + length]

    def map(self) -> Any:
        """Raise CorpusUnreadable."""
        return self._file.map()

    def fresh(self) -> RemoteFile:
        """Return the file itself."""
        return self._file.fresh()


def ahead(file: DataFile) -> DataFile:
    """Return the file, or where it is remote, one for reading it from its start to its end.

    >>> from detdata.corpora.files import LocalFile
    >>> type(ahead(LocalFile("a"))).__name__, type(ahead(RemoteFile("memory://a"))).__name__
    ('LocalFile', 'ReadAhead')
    """
    return ReadAhead(file) if isinstance(file, RemoteFile) else file


def look_at(url: str, options: RemoteOptions) -> tuple[str, Identity]:
    """Return the kind of what is at a URL, "file" or "directory", and what it is. Raises CorpusUnreadable."""
    return with_errors(url, lambda: look(url, options.timeout))


def with_errors(url: str, request: Callable[[], _T], done: str = "read") -> _T:
    """Return what a request to a store returns, tried again where that helps. Raises CorpusUnreadable naming the URL.

    >>> with_errors("memory://a", lambda: 1)
    1
    """
    try:
        return retried(request)
    except (DetdataError, MemoryError):
        raise
    except FileNotFoundError as error:
        reason = "there is no such object; was it moved or deleted after the corpus was opened?"
        raise CorpusUnreadable(url, f"cannot be {done}: {reason}") from error
    except PermissionError as error:
        reason = f"the store refuses ({_text(error)}); see who may read it, and whose credentials are used"
        raise CorpusUnreadable(url, f"cannot be {done}: {reason}") from error
    except Exception as error:
        # Not only OSErrors: packages let those of their HTTP library through.
        tried = f", tried {TRIES} times" if passes(error) else ""
        raise CorpusUnreadable(url, f"cannot be {done}: {_text(error)}{tried}") from error


def _text(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__
