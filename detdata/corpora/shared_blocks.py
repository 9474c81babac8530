"""Decoded blocks that the processes of one Loader share: files in a private folder, mapped by whoever needs them.

A block is decoded by one process at a time, which holds a lock on the unfinished file; the lock goes with the process,
so one that is killed keeps nobody waiting. The bytes of all files stay under a limit. What must go is what is needed
last: each file has as its time of change the number of the request that needs it first (NEVER if none that is known).

Whatever goes wrong with folder or disk costs time and nothing else: the block is then decoded by each process itself.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa

from detdata.corpora.protocol import Buffer

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NEVER = 2**31 - 1  # the latest time that every file system keeps
_STATE = struct.Struct("<qq")
_WAIT_S = 0.0005
_LONGEST_WAIT_S = 0.01
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class _State(NamedTuple):
    total: int  # bytes of all files, finished or not
    farthest: int  # no file is needed later than this


class BlockStore:
    """Blocks of one corpus in a folder. name: of the corpus. limit: bytes of all files.

    Threads may share one. Every process makes its own; none is used after a fork. `broken` says that folder or disk
    failed: from then on nothing is stored.

    >>> import tempfile
    >>> store = BlockStore(tempfile.mkdtemp(), "a", 1000)
    >>> store.get(7, lambda: b"abc", when=1)[1], bytes(store.get(7, lambda: b"unused", when=1)[0])
    (True, b'abc')
    """

    def __init__(self, folder: str, name: str, limit: int) -> None:
        self.limit = limit
        self.broken = fcntl is None
        self.since = 0
        self._folder = os.path.join(folder, name)
        self._guard = threading.Lock()
        self._descriptor = -1
        if self.broken:
            return
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._descriptor = os.open(os.path.join(self._folder, "state"), _OPEN, 0o600)
            with self._locked():
                if os.fstat(self._descriptor).st_size < _STATE.size:
                    self._write(_State(0, 0))
        except OSError:
            self.broken = True

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def get(self, block: int, load: Callable[[], Buffer], when: int) -> tuple[Buffer, bool]:
        """Return a block, and whether it is mapped from a file; from `load` if no process has it. Waits for another's.

        when: the number of the request that needs it. Raises what `load` raises.
        """
        found = self._mapped(block)
        if found is None:
            claim = self._claim(block, wait=True)
            if claim >= 0:
                return self._load(block, claim, load, when)
            found = self._mapped(block)
        return (load(), False) if found is None else (found, True)

    def load_ahead(self, block: int, load: Callable[[], Buffer], when: int) -> int:
        """Load a block that no process has or is loading. Returns its bytes, or 0. Raises what `load` raises."""
        claim = self._claim(block, wait=False)
        if claim < 0:
            self.need([(block, when)])
            return 0
        return memoryview(self._load(block, claim, load, when)[0]).nbytes

    def has_room(self, size: int, when: int) -> bool:
        """Whether a block of `size` bytes, needed at `when`, would be stored."""
        if self.broken:
            return False
        try:
            with self._locked():
                state = self._read()
        except OSError:
            self.broken = True
            return False
        return state.total + size <= self.limit or (size <= self.limit and state.farthest > when)

    def need(self, blocks: Iterable[tuple[int, int]]) -> None:
        """Note when blocks that may be here are needed next."""
        latest = 0
        for block, when in blocks:
            latest = max(latest, when)
            with suppress(OSError):
                os.utime(self._path(block), (when, when))
        if latest and not self.broken:
            with suppress(OSError), self._locked():
                state = self._read()
                self._write(state._replace(farthest=max(state.farthest, latest)))

    def done(self, blocks: Iterable[int]) -> None:
        """Note blocks that are not needed any more: they go when there is need of their room."""
        self.need((block, NEVER) for block in blocks)

    def begin(self, since: int) -> None:
        """Begin a pass whose requests are numbered from `since` on: what was needed before is needed by nobody now.

        Counts the files anew, and removes the unfinished ones of processes that were killed.
        """
        self.since = since
        if self.broken:
            return
        try:
            with self._locked():
                total = 0
                for entry in list(os.scandir(self._folder)):
                    if entry.name == "state" or (entry.name.endswith(".part") and self._removed(entry.path)):
                        continue
                    with suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_size
                self._write(_State(total, NEVER))
        except OSError:
            self.broken = True

    # One process at a time loads a block: the one whose lock is on the unfinished file.

    def _claim(self, block: int, *, wait: bool) -> int:
        """Return a descriptor of the block's unfinished file, locked; -1 if the block is there, or another has it."""
        pause = _WAIT_S
        try:
            while not self.broken:
                descriptor = os.open(self._path(block) + ".part", _OPEN, 0o600)
                if self._took(descriptor, block):
                    if not os.path.exists(self._path(block)):
                        return descriptor
                    os.unlink(self._path(block) + ".part")
                os.close(descriptor)
                if not wait or os.path.exists(self._path(block)):
                    break
                time.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_WAIT_S)
        except OSError:
            self.broken = True
        return -1

    def _took(self, descriptor: int, block: int) -> bool:
        """Whether the file is locked now and still the one of that name: another may have finished or removed it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path(block) + ".part"))
        except (BlockingIOError, FileNotFoundError):
            return False

    def _load(self, block: int, claim: int, load: Callable[[], Buffer], when: int) -> tuple[Buffer, bool]:
        """Load a claimed block and store it if there is room; mapped if it was stored, else as loaded."""
        stored = False
        try:
            buffer = load()
            stored = self._put(block, claim, memoryview(buffer).cast("B"), when)
        finally:
            if not stored:
                with suppress(OSError):
                    os.unlink(self._path(block) + ".part")  # before the lock goes: after it, it may be another's
            os.close(claim)
        found = self._mapped(block) if stored else None
        return (buffer, False) if found is None else (found, True)

    def _put(self, block: int, claim: int, data: memoryview, when: int) -> bool:
        if self.broken or not data.nbytes:
            return False
        try:
            with self._locked():
                if not self._made_room(data.nbytes, when):
                    return False
                os.ftruncate(claim, 0)  # whatever one that was killed has left
                _reserve(claim, data.nbytes)
            done = 0
            while done < data.nbytes:
                done += os.write(claim, data[done : done + (1 << 30)])
            os.utime(claim, (when, when))
            with self._locked():  # whoever counts the files must see this one once
                os.rename(self._path(block) + ".part", self._path(block))
        except OSError:  # a full disk, a folder that is gone
            self.broken = True
            return False
        return True

    def _made_room(self, size: int, when: int) -> bool:
        """Make room for `size` bytes that are needed at `when`, if what is needed later is enough. Under the lock."""
        total, farthest = self._read()
        if total + size > self.limit:
            if size > self.limit or farthest <= when:
                return False
            files = sorted(self._files(), reverse=True)
            spare = self.limit // 8  # of what nobody needs, so much more goes that this is not done for every block
            while files and files[0][0] > when:
                goal = self.limit - size - (spare if files[0][0] == NEVER else 0)
                if total <= goal:
                    break
                _, held, path = files.pop(0)
                os.unlink(path)
                total -= held
            farthest = files[0][0] if files else 0
        fits = total + size <= self.limit
        self._write(_State(total + size if fits else total, max(farthest, when)))
        return fits

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """(when it is needed, bytes, path) of each finished file."""
        for entry in list(os.scandir(self._folder)):
            if entry.name.isdigit():
                found = entry.stat(follow_symlinks=False)
                when = int(found.st_mtime)
                yield (when if when >= self.since else NEVER), found.st_size, entry.path

    def _removed(self, path: str) -> bool:
        """Remove an unfinished file if the process that wrote it is dead."""
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _path(self, block: int) -> str:
        return os.path.join(self._folder, str(block))

    def _mapped(self, block: int) -> Buffer | None:
        try:
            with pa.memory_map(self._path(block)) as file:  # unlike mmap, keeps no descriptor for as long as it is held
                return file.read_buffer()
        except OSError:
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._guard:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _read(self) -> _State:
        return _State(*_STATE.unpack(os.pread(self._descriptor, _STATE.size, 0)))

    def _write(self, state: _State) -> None:
        os.pwrite(self._descriptor, _STATE.pack(*state), 0)


def count_load(folder: str) -> None:
    """Note that a process has loaded a block: one more byte in a file of the folder."""
    with suppress(OSError):
        descriptor = os.open(os.path.join(folder, "loads"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, b".")
        finally:
            os.close(descriptor)


def _reserve(descriptor: int, size: int) -> None:
    """Take the room on disk at once: a full one must be an error now, and not end the process that maps the file."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)
