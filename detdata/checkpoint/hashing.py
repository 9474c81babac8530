"""A digest computed beside the reading or writing of what it is of: large pieces on a thread of their own.

xxhash and the system calls both let other threads run, so on two cores the digest costs next to no time.
"""

from __future__ import annotations

import queue
import threading

import xxhash

DIGEST = "xxh3-128:"
LARGE = 1 << 20  # bytes; to hand a piece over costs some 20 µs, to hash this much 50 to 100


class Digester:
    """The xxh3-128 of the pieces given to `update`, in their order.

    A piece of LARGE bytes or more, and all after the first such, are hashed by a thread: they must not change, nor be
    freed, before `wait` or `finish` returns. `close` must be called in the end, whatever happened; it ends the thread.
    """

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()
        self._pieces: queue.SimpleQueue[bytes | bytearray | memoryview | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._given = self._hashed = 0  # pieces
        self._thread: threading.Thread | None = None
        self._alone = False

    def update(self, piece: bytes | bytearray | memoryview) -> None:
        """Hash `piece`, contiguous bytes, now or soon."""
        if self._thread is None and (self._alone or memoryview(piece).nbytes < LARGE or not self._start()):
            self._hash.update(piece)
            return
        self._given += 1
        self._pieces.put(piece)

    def _start(self) -> bool:
        thread = threading.Thread(target=self._work, name="detdata-digest", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is shutting down
            self._alone = True
            return False
        self._thread = thread
        return True

    def _work(self) -> None:
        while (piece := self._pieces.get()) is not None:
            self._hash.update(piece)
            self._hashed += 1
            self._done.put(None)

    def wait(self) -> None:
        """Return when every piece given is hashed. An interrupt (Ctrl-C) is raised, but only then."""
        interrupt: BaseException | None = None
        while self._hashed < self._given:
            try:
                self._done.get()
            except BaseException as error:  # noqa: BLE001 - the memory may be freed once this returns
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    def finish(self) -> str:
        """Return `xxh3-128:<32 hex digits>` of all pieces."""
        self.wait()
        return DIGEST + self._hash.hexdigest()

    def close(self) -> None:
        """End the thread. Does nothing the second time."""
        thread, self._thread, self._alone = self._thread, None, True
        if thread is not None:
            self._pieces.put(None)
            thread.join()
