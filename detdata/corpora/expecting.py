"""Blocks of one process: held, shared with other processes, and loaded ahead in the order in which they are needed.

A thread loads what was announced, soonest first, for as long as there is room. It ends when there is nothing to do,
with the process, and before a fork. What goes wrong in it is met again, and raised, by whoever asks for the row.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import Protocol

from detdata.corpora.cache import BlockCache
from detdata.corpora.protocol import Buffer, Rows
from detdata.corpora.shared_blocks import BlockStore, count_load
from detdata.look_ahead import Notice

_LONGEST_REST_S = 30.0


class Source(Protocol):
    """Where blocks come from."""

    def load(self, block: int) -> Buffer:
        """Return one block, decoded."""
        ...

    def view(self, block: int, buffer: Buffer) -> Rows:
        """Return the rows of a loaded block."""
        ...


class Blocks:
    """The blocks of one corpus in one process. limit: bytes of decoded blocks. name: of the corpus, for sharing.

    With shared blocks, half of every process's limit makes the limit of what is shared, and half is its own.
    """

    def __init__(self, limit: int, name: str) -> None:
        self.loads = 0  # how often a block was loaded, which over an epoch tells the decode factor
        self.told = False  # whether blocks were announced in this pass
        self.past = 0  # blocks of this pass that were needed and are no more
        self.readers = 1
        self._limit = limit
        self._name = name
        self._cache = BlockCache(limit)
        self._store: BlockStore | None = None
        self._counter: str | None = None
        self._pass: tuple[str | None, int] | None = None
        self._now = 0
        self._largest = 0
        self._queue: dict[int, int] = {}  # block: when it is needed
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._resting = False
        _living.add(self)

    def rows(self, source: Source, block: int) -> Rows:
        """Return the rows of a block. Raises what `source` raises."""
        held = self._cache.held(block)
        return self._cache.get(block, partial(self._loaded, source, block)) if held is None else held

    def expect(self, source: Source, notice: Notice) -> None:
        """Act on a notice: let go of what is done, and begin to load what is announced."""
        if self._pass != (notice.folder, notice.first):
            self._begin(notice)
        self._now = notice.number
        self.told |= bool(notice.loads)
        self.past += len(notice.done)
        store = self._store
        with self._lock:
            for block in notice.done:
                self._queue.pop(block, None)
            self._queue.update(notice.loads)
        if store is None:
            self._cache.done(notice.done)
            self._cache.need(notice.loads)
        elif notice.done:
            store.done(notice.done)
            self._cache.forget(notice.done)
        self._start(source)

    def forget(self, blocks: range) -> None:
        """Let go of what this process itself holds of these blocks."""
        self._cache.forget(blocks)

    def rest(self) -> None:
        """Wait until no thread works here. What is left in the queue goes on with the next notice."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._resting = True
            thread.join(_LONGEST_REST_S)  # it may be about to fork too, which other hooks of forks may keep waiting
            self._resting = False

    def _begin(self, notice: Notice) -> None:
        """Begin a pass: nothing that was announced before counts any more."""
        self.readers, self.told, self.past = max(1, notice.readers), False, 0
        with self._lock:
            self._queue.clear()
        shares = notice.folder is not None and notice.readers > 1
        if self._pass is None or self._pass[0] != notice.folder:
            self._store = None
            if shares:
                self._store = BlockStore(str(notice.folder), self._name, self._limit * notice.readers // 2)
            self._counter = notice.folder
        if self._store is None:
            self._cache.limit = self._limit
            self._cache.done(None)
        else:
            self._store.begin(notice.first)
            self._cache = BlockCache(self._limit // 2)  # what is mapped is mapped again if it is needed
        self._pass = notice.folder, notice.first

    def _loaded(self, source: Source, block: int) -> tuple[Buffer, Rows]:
        buffer, shared = self._load(source, block)
        self._largest = max(self._largest, memoryview(buffer).nbytes)
        return b"" if shared else buffer, source.view(block, buffer)  # shared ones count in the folder

    def _load(self, source: Source, block: int) -> tuple[Buffer, bool]:
        """Return a block, and whether it is shared."""
        store = self._store
        if store is None:
            return self._counted(source, block), False
        if store.broken:
            self._cache.limit = self._limit
        return store.get(block, partial(self._counted, source, block), self._now)

    def _counted(self, source: Source, block: int) -> Buffer:
        buffer = source.load(block)
        self.loads += 1
        if self._counter is not None:
            count_load(self._counter)
        return buffer

    def _start(self, source: Source) -> None:
        with self._lock:
            if not self._queue or self._thread is not None or self._resting:
                return
            self._thread = threading.Thread(target=self._work, args=(source,), name="detdata-blocks")
            try:
                self._thread.start()
            except RuntimeError:  # a limit of the system, or the end of the process: then nothing is loaded ahead
                self._thread = None

    def _work(self, source: Source) -> None:
        """Load what is announced, until there is nothing more, no room, or an end to this process."""
        while True:
            with self._lock:
                job = next(iter(self._queue.items()), None)
                ends = self._resting or not threading.main_thread().is_alive()
                if job is None or ends or not self._has_room(job[1]):
                    self._thread = None
                    return
                block, when = job
                del self._queue[block]
            with suppress(Exception):  # whoever asks for a row of this block meets it again, and there it is raised
                self._load_ahead(source, block, when)

    def _load_ahead(self, source: Source, block: int, when: int) -> None:
        store = self._store
        if store is None:
            # Without waiting: whoever loads the block may be about to fork, and wait for this thread.
            self._cache.try_get(block, partial(self._loaded, source, block))
        else:
            load = partial(self._counted, source, block)
            self._largest = max(self._largest, store.load_ahead(block, load, when))

    def _has_room(self, when: int) -> bool:
        holder = self._cache if self._store is None else self._store
        return holder.has_room(self._largest, when)


_living: weakref.WeakSet[Blocks] = weakref.WeakSet()


def _rest() -> None:
    for blocks in list(_living):
        blocks.rest()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_rest)  # a thread does not live on in the child, and what it holds would stay locked
