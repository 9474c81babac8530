"""An object read as a file: in pieces, some ahead of the reader, none of them twice."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from detdata.checkpoint.placed import Placed
from detdata.checkpoint.remote_path import RemotePath

PIECE = 1 << 23  # bytes of one request
AHEAD = 4  # requests that are under way beyond the reader
TAIL = 1 << 18  # bytes of the last piece, which is kept: an archive's directory is looked at first and read last


class RemoteFile(Placed):
    """The open object. Holds AHEAD + 2 pieces at most. Raises FileNotFoundError, StoreError."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._pieces: dict[int, Future[bytes]] = {}
        self._pool = ThreadPoolExecutor(AHEAD + 1, thread_name_prefix="detdata-read")
        super().__init__(size := path.size())  # after what `close` needs: it is called where this raises, too
        self._cuts = sorted({*range(0, size - TAIL, PIECE), max(size - TAIL, 0), size})

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`; return the bytes, fewer only at the end."""
        target = memoryview(buffer).cast("B")
        done = 0
        while done < len(target) and self._at < self._size:
            start, piece = self._piece()
            part = memoryview(piece)[self._at - start :][: len(target) - done]
            target[done : done + len(part)] = part
            done += len(part)
            self._at += len(part)
        return done

    def close(self) -> None:
        """Wait for the requests under way, and forget everything."""
        if not self.closed:
            self._pool.shutdown(cancel_futures=True)
            self._pieces.clear()
        super().close()

    def _piece(self) -> tuple[int, bytes]:
        """Return where the piece that holds the next byte starts, and the piece; see to those after it."""
        count = len(self._cuts) - 1
        number = min(self._at // PIECE, count - 1)
        if self._at >= self._cuts[-2]:
            number = count - 1
        wanted = range(number, min(number + 1 + AHEAD, count))
        if number < count - 1:  # who looks into the last piece comes back to where it was
            self._pieces = {one: piece for one, piece in self._pieces.items() if one in wanted or one == count - 1}
        for one in wanted:
            if one not in self._pieces:
                self._pieces[one] = self._pool.submit(self._path.read, self._cuts[one], self._cuts[one + 1])
        return self._cuts[number], self._pieces[number].result()
