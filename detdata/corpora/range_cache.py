"""Parts of remote files on this machine's disk, up to a number of bytes, for all processes and over runs.

One file for each part, named by the xxh3-128 of what it is a part of: the URL, what the store said of the object (so a
changed object has other names), and the range. Fixed in docs/spec.md, section 9. Each is checked when it is read: a
torn or edited one is removed, and fetched again. The ones not used for longest go first. Whatever goes wrong with the
disk, a full one above all, only means that a part is not kept.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import xxhash

from detdata.records import canonical_json
from detdata.versions.own_files import RANGE_ENDING, open_own, remove_leftovers, temporary_beside

_MAGIC = b"detdata.range/1\n"
_HEAD = len(_MAGIC) + 16
_SHARE = 64  # after writing 1/64 of the limit a process looks again at what all of them hold
_KEPT = 15 / 16  # of the limit, after an eviction
_LONGEST = 1 << 30  # bytes of a part: what systems read and write at one stroke


class RangeCache:
    """A folder of parts. limit: bytes that they may take; each process that writes may pass it by 1/64.

    Threads and processes may share it, on one machine. Picklable. Cost of a part that is held: reading and hashing it.

    >>> import tempfile
    >>> cache = RangeCache(tempfile.mkdtemp(), 1 << 20)
    >>> key = cache.key("s3://bucket/a", 5000, "etag", 0, 3)
    >>> cache.put(key, b"abc")
    >>> cache.get(key, 3)
    b'abc'
    """

    __slots__ = ("_lock", "_since", "folder", "limit")

    def __init__(self, folder: str, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._lock = threading.Lock()
        self._since = limit  # bytes written since this process looked: before the first it knows nothing

    def __reduce__(self) -> tuple[type[RangeCache], tuple[str, int]]:
        return RangeCache, (self.folder, self.limit)

    @staticmethod
    def key(url: str, size: int, tag: str, start: int, length: int) -> str:
        """Return the name of a part of the object at `url` that has this size and tag."""
        return xxhash.xxh3_128_hexdigest(canonical_json([url, size, tag, start, length]))

    def get(self, key: str, length: int) -> bytes | None:
        """Return a part that is held and whole, else None."""
        path = self._path(key)
        file = open_own(path)
        if file is None:
            return None
        with suppress(OSError), file:
            head, data = file.read(_HEAD), file.read(length + 1)
            if len(data) == length and head == _head(key, data):
                os.utime(path)  # used just now
                return data
            os.unlink(path)
        return None

    def put(self, key: str, data: bytes) -> None:
        """Keep a part, if there is room for it. Never raises OSError."""
        size = _HEAD + len(data)
        if size > min(self.limit, _LONGEST):
            return
        with suppress(OSError):
            self._make_room(size)
            path = self._path(key)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            temporary = temporary_beside(os.path.dirname(path), RANGE_ENDING)
            try:
                with open(temporary, "wb", buffering=0) as target:
                    for part in (_head(key, data), data):
                        if target.write(part) != len(part):
                            raise OSError("the disk is full")
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise

    def _path(self, key: str) -> str:
        return os.path.join(self.folder, "ranges", key[:2], key + RANGE_ENDING)

    def _make_room(self, size: int) -> None:
        with self._lock:
            self._since += size
            if self._since <= self.limit // _SHARE:
                return
            self._since = 0
            held = self._held()
            total = sum(part[1] for part in held) + size
            if total <= self.limit:
                return
            for _, freed, path in sorted(held):
                with suppress(FileNotFoundError):  # another process was faster
                    os.unlink(path)
                total -= freed
                if total <= self.limit * _KEPT:
                    break

    def _held(self) -> list[tuple[int, int, str]]:
        """Return (time of the last use, bytes, path) of each part that is held."""
        found = []
        with suppress(FileNotFoundError), os.scandir(os.path.join(self.folder, "ranges")) as folders:
            for folder in folders:
                if len(folder.name) != 2 or not folder.is_dir(follow_symlinks=False):
                    continue
                remove_leftovers(folder.path, (RANGE_ENDING,))
                with os.scandir(folder.path) as entries:
                    for entry in entries:
                        if entry.name.endswith(RANGE_ENDING):
                            with suppress(FileNotFoundError):
                                stat = entry.stat(follow_symlinks=False)
                                found.append((stat.st_mtime_ns, stat.st_size, entry.path))
        return found


def _head(key: str, data: bytes) -> bytes:
    hasher = xxhash.xxh3_128(key.encode())
    hasher.update(data)
    return _MAGIC + hasher.digest()
