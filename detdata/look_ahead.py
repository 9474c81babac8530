"""What a plan knows of the future, told to those who read: which blocks of a corpus will be needed, in which order.

A dataset takes part if it has two methods. `blocks_of(ids)` gives the block in which each sample lies. `expect(notice)`
is called in the process that reads, before a batch that has news, and once in the training process with an empty
notice; it says whether notices are of any use to the dataset. A dataset that wraps a corpus hands both on.

Requests go to the workers in turn, so the blocks that a notice asks to load are each worker's share of the work.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from detdata.plans.shards import Part

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PREFIX = "detdata-blocks-"
_PARTS = 4096  # how far is looked: batches …
_ROWS = 1 << 20  # … their rows …
_BLOCKS = 4096  # … and the blocks that they lie in


class Notice(NamedTuple):
    """News for one process that reads. Requests are numbered through all passes of a Loader.

    folder: where processes share decoded blocks, or None. readers: how many processes read (0: the training process).
    first: number of the first request of this pass. number: of this one; -1: only a question. loads: (block, number of
    the request that needs it first), soonest first. done: blocks that nobody needs for as far as is known.
    """

    folder: str | None
    readers: int
    first: int = 0
    number: int = -1
    loads: tuple[tuple[int, int], ...] = ()
    done: tuple[int, ...] = ()


def look_ahead(dataset: Any, readers: int, in_flight: int) -> LookAhead | None:
    """Return who tells a dataset of the future, or None if the dataset has no use for that.

    readers: worker processes, 0 for none. in_flight: requests that may be handed out and not done.
    """
    if not callable(getattr(dataset, "blocks_of", None)) or not callable(getattr(dataset, "expect", None)):
        return None
    if readers > 1 and fcntl is None:  # nothing can be shared, and a share of the blocks is of no use to each
        return None
    return LookAhead(dataset, readers, in_flight) if dataset.expect(Notice(None, readers)) else None


class LookAhead:
    """Walks over the parts of a pass, some way ahead of them, and says with each what is new."""

    def __init__(self, dataset: Any, readers: int, in_flight: int) -> None:
        self._blocks_of = dataset.blocks_of
        self._readers = readers
        self._in_flight = max(1, in_flight)
        self._count = 0  # requests so far
        self._folder: str | None = None
        self._tried = False

    @property
    def blocks_loaded(self) -> int | None:
        """Blocks that the workers have decoded so far, or None if that is not known."""
        if self._folder is None:
            return None if self._tried or not self._readers else 0
        try:
            return Path(self._folder, "loads").stat().st_size
        except FileNotFoundError:
            return 0

    def walk(self, parts: Iterator[Part]) -> Iterator[tuple[Part, Notice | None]]:
        """Yield the parts, each with the news for the process that gets it."""
        if self._readers and not self._tried:
            self._tried, self._folder = True, _make_folder()
            if self._folder is not None:
                weakref.finalize(self, _remove, self._folder, os.getpid())
        if self._readers > 1 and self._folder is None:
            for part in parts:
                yield part, None
            return
        turns = max(1, self._readers)
        first = self._count
        last: dict[int, int] = {}  # block: the last request that is known to need it
        coming: deque[tuple[Part, list[int]]] = deque()
        going: deque[list[int]] = deque()  # blocks of this request and of those that the other workers may be at
        pending: deque[tuple[int, int]] = deque()  # blocks that are known to be needed and not yet told
        done: list[list[int]] = [[] for _ in range(turns)]
        rows = 0
        while True:
            # A little further with each request: the first batch must not wait for all that is to be seen.
            for _ in range(2):
                if coming and (len(coming) >= _PARTS or rows >= _ROWS or len(last) >= _BLOCKS):
                    break
                seen = next(parts, None)
                if seen is None:
                    break
                number = self._count + len(coming)
                found = np.unique(self._blocks_of(seen.ids)).tolist()
                pending.extend((block, number) for block in found if block not in last)
                last.update(dict.fromkeys(found, number))
                coming.append((seen, found))
                rows += seen.ids.size
            if not coming:
                return
            part, found = coming.popleft()
            rows -= part.ids.size
            number, self._count = self._count, self._count + 1
            going.append(found)
            if len(going) > turns:
                oldest = number - turns
                gone = [block for block in going.popleft() if last[block] == oldest]
                for block in gone:
                    del last[block]
                for mine in done:
                    mine.extend(gone)
            turn = (number - first) % turns
            loads = _share(pending, turns - turn, number + self._in_flight)
            if loads or done[turn] or number - first < turns:
                yield part, Notice(self._folder, self._readers, first, number, loads, tuple(done[turn]))
                done[turn].clear()
            else:
                yield part, None


def _share(pending: deque[tuple[int, int]], turns: int, soon: int) -> tuple[tuple[int, int], ...]:
    """Take what this request's process is to load: one block, or as many as it takes to have all in time.

    turns: requests left in this round of the workers. soon: what is needed before that request is urgent.
    """
    if not pending:
        return ()
    count = -(-len(pending) // max(turns, pending[0][1] - soon))
    return tuple(pending.popleft() for _ in range(count))


def _make_folder() -> str | None:
    """Make the private folder of this process, held by a lock for as long as it or a worker lives; None if impossible.

    Folders that nobody holds any more, of processes that were killed, are removed first.
    """
    if fcntl is None:
        return None
    try:
        base = tempfile.gettempdir()
        with suppress(OSError):
            _remove_stale(base)
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
        _held[folder] = os.open(folder, os.O_RDONLY)
        fcntl.flock(_held[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    return folder


_held: dict[str, int] = {}  # folder: the descriptor that holds its lock


def _remove_stale(base: str) -> None:
    for entry in list(os.scandir(base)):
        if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
            continue
        with suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                continue
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(_held.pop(folder))
