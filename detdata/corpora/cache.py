"""Decoded blocks of one process: the most recently used ones, up to a number of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from detdata.corpora.protocol import Rows

_LEAST = 4096  # bytes that a block counts for at least: views of a mapping cost memory too


class BlockCache:
    """Blocks by number. limit: bytes of all that are held; one that is larger than that is held alone.

    Threads may share it; a block that several ask for at once is loaded once. Not for use after a fork: make a new one.

    >>> cache = BlockCache(10_000)
    >>> cache.get(7, lambda: (b"abc", "rows of block 7"))
    'rows of block 7'
    >>> 7 in cache
    True
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.loads = 0  # how often a block was loaded, which over an epoch tells the decode factor
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

    def get(self, block: int, load: Callable[[], tuple[Any, Rows]]) -> Rows:
        """Return the rows of a block, from `load`, which gives (buffer, rows), if they are not held."""
        while True:
            with self._lock:
                held = self._held.get(block)
                if held is not None:
                    self._held.move_to_end(block)
                    return held[0]
                other = self._loading.get(block)
                if other is None:
                    mine = self._loading[block] = threading.Event()
                    break
            other.wait()
        try:
            buffer, rows = load()
            self._put(block, rows, max(memoryview(buffer).nbytes, _LEAST))
            return rows
        finally:
            with self._lock:
                del self._loading[block]
            mine.set()

    def _put(self, block: int, rows: Rows, size: int) -> None:
        with self._lock:
            self.loads += 1
            self._held[block] = (rows, size)
            self._bytes += size
            while self._bytes > self.limit and len(self._held) > 1:
                _, (_, freed) = self._held.popitem(last=False)
                self._bytes -= freed
