"""Decoded blocks of one process, up to a number of bytes: those that will be needed, and those used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from detdata.corpora.protocol import Rows

_LEAST = 4096  # bytes that a block counts for at least: views of a mapping cost memory too


class BlockCache:
    """Blocks by number. limit: bytes of all that are held; one that is larger than that is held alone.

    What must go is the least recently used of the blocks that are not known to be needed; if all are, the one that is
    needed last, even if it is the newcomer: so a cache that is too small keeps some blocks for good, and does not
    lose each just before its turn. Threads may share it; a block that several ask for at once is loaded once. Not for
    use after a fork: make a new one.

    >>> cache = BlockCache(10_000)
    >>> cache.get(7, lambda: (b"abc", "rows of block 7"))
    'rows of block 7'
    >>> 7 in cache
    True
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.loads = 0
        self._needed: dict[int, int] = {}
        self._held: OrderedDict[int, tuple[Rows, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._loading: dict[int, threading.Event] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._held

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks that are held."""
        return self._bytes

    def held(self, block: int) -> Rows | None:
        """Return the rows of a block if they are held."""
        with self._lock:
            held = self._held.get(block)
            if held is None:
                return None
            self._held.move_to_end(block)
            return held[0]

    def get(self, block: int, load: Callable[[], tuple[Any, Rows]]) -> Rows:
        """Return the rows of a block, from `load`, which gives (buffer, rows), if they are not held."""
        while (found := self.try_get(block, load)) is None:
            with self._lock:
                other = self._loading.get(block)
            if other is not None:
                other.wait()
        return found

    def try_get(self, block: int, load: Callable[[], tuple[Any, Rows]]) -> Rows | None:
        """Do the same, but return None where another thread is loading the block."""
        with self._lock:
            held = self._held.get(block)
            if held is not None:
                self._held.move_to_end(block)
                return held[0]
            if block in self._loading:
                return None
            mine = self._loading[block] = threading.Event()
        try:
            buffer, rows = load()
            self._put(block, rows, max(memoryview(buffer).nbytes, _LEAST))
            return rows
        finally:
            with self._lock:
                del self._loading[block]
            mine.set()

    def need(self, blocks: Iterable[tuple[int, int]]) -> None:
        """Note blocks that will be needed: (block, when), where a larger number is later."""
        with self._lock:
            self._needed.update(blocks)

    def done(self, blocks: Iterable[int] | None) -> None:
        """Note blocks that are not needed any more (None: any). They are held until there is need of their room."""
        with self._lock:
            for block in list(self._needed) if blocks is None else blocks:
                self._needed.pop(block, None)

    def forget(self, blocks: Iterable[int]) -> None:
        """Let go of blocks, if they are held."""
        with self._lock:
            found = [block for block in self._held if block in blocks] if isinstance(blocks, range) else blocks
            for block in found:
                self._bytes -= self._held.pop(block, (None, 0))[1]

    def has_room(self, size: int, when: int) -> bool:
        """Whether a block of `size` bytes, needed at `when`, would be held without losing one that is needed before."""
        with self._lock:
            if self._bytes + size <= self.limit:
                return True
            return any(self._needed.get(block, when + 1) > when for block in self._held)

    def _put(self, block: int, rows: Rows, size: int) -> None:
        with self._lock:
            self.loads += 1
            self._held[block] = (rows, size)
            self._bytes += size
            while self._bytes > self.limit and len(self._held) > 1:
                _, freed = self._held.pop(self._least())
                self._bytes -= freed

    def _least(self) -> int:
        needed = self._needed
        for block in self._held:
            if block not in needed:
                return block
        return max(reversed(self._held), key=needed.__getitem__)  # of equals the newcomer
