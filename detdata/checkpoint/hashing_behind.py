"""A digest made by a second thread, behind the one that reads: on a core of its own it costs a load next to nothing."""

from __future__ import annotations

import os
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Self

import xxhash

PIECE = 1 << 22  # bytes handed over at once: waking a thread costs as much as hashing a tenth of that


class HashingBehind:
    """An xxh3-128 that takes pieces and returns at once; use it in a `with` block, which waits for its thread.

    A piece must stay as it is until `hexdigest` returns. Where there is one processor only, it hashes on the spot.
    """

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()
        self._pieces: SimpleQueue[memoryview | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def update(self, piece: memoryview) -> None:
        """Take the next piece."""
        if self._thread is None:
            if len(piece) < PIECE or _processors() < 2:
                self._hash.update(piece)
                return
            self._thread = Thread(target=self._run, name="detdata-hash", daemon=True)
            self._thread.start()
        self._pieces.put(piece)

    def _run(self) -> None:
        try:
            while (piece := self._pieces.get()) is not None:
                self._hash.update(piece)
        except BaseException as error:  # noqa: BLE001 - raised by who asks for the digest
            self._error = error

    def hexdigest(self) -> str:
        """Return the digest of all pieces, 32 hexadecimal digits. Raises what went wrong behind."""
        self._stop()
        if self._error is not None:
            raise self._error
        return self._hash.hexdigest()

    def _stop(self) -> None:
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()


def _processors() -> int:
    """Return how many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
