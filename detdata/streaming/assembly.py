"""Lanes: rows come from the workers in chunks and become samples in exact order in the process that trains.

A rank has one lane or more. Which lane the next chunk is read for is decided when a worker is free, by what each lane
has in stock; a lane's rows arrive in the lane's order all the same, so nothing that is handed out depends on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from detdata.arrays import Int64Array
from detdata.errors import DetdataError, StateMismatch
from detdata.streaming.places import Grid, LanePlace
from detdata.streaming.rows import Chunk

_CHUNK = 64  # rows asked for at a time, once a stream is running


class Asked(NamedTuple):
    """Rows that were asked for: `ids` are those from `row` of `epoch` on."""

    lane: int  # its number among this rank's
    epoch: int
    row: int
    ids: Int64Array


class Piece(NamedTuple):
    """One kept row in stock."""

    epoch: int
    row: int
    id: int
    value: Any


@final
class NothingKept(DetdataError, ValueError):
    """A filter that keeps no row of a whole epoch, in a stream that would read on for ever."""


@final
class Lane:
    """One lane: what is in stock, what was asked for, and how far what was handed out reaches."""

    def __init__(self, place: LanePlace, seq_len: int | None) -> None:
        self.number = place.lane
        self.epoch, self.row, self.offset, self.kept = place.epoch, place.row, place.offset, place.kept
        self.next = (place.epoch, place.row)  # to ask for
        self.pending = 0
        self.stock: deque[Piece] = deque()
        self._seq_len = seq_len
        self._tokens = 0
        self._seen = self._made = 0
        self._barren = 0
        self._cut = place.offset  # tokens of the first row that were used before

    @property
    def ready(self) -> int:
        """Samples in stock."""
        return len(self.stock) if self._seq_len is None else self._tokens // self._seq_len

    @property
    def supply(self) -> float:
        """Samples in stock and, by what rows gave so far, on their way."""
        return self.ready + self.pending * (self._made + 1) / (self._seen + 1)

    def place(self) -> LanePlace:
        """Return how far what was handed out reaches."""
        return LanePlace(self.number, self.epoch, self.row, self.offset, self.kept)

    def put(self, asked: Asked, chunk: Chunk, rows_of_epoch: int) -> None:
        """Take what came of rows that were asked for."""
        self.pending -= asked.ids.size
        self._seen += asked.ids.size
        kept = chunk.kept.tolist()
        useful = chunk.kept if chunk.lengths is None else chunk.kept[chunk.lengths > 0]
        self._barren = asked.ids.size - 1 - int(useful[-1]) if useful.size else self._barren + asked.ids.size
        if self._barren > 2 * rows_of_epoch:
            raise NothingKept(
                f"none of the {rows_of_epoch} rows of an epoch was kept (or none has tokens), so the stream would read "
                "on without end: check the filter"
            )
        values: Any = chunk.rows
        if chunk.lengths is not None:
            values = np.split(chunk.rows, np.cumsum(chunk.lengths)[:-1]) if kept else []
        if self._cut and (not kept or kept[0] != 0 or values[0].size < self._cut):
            raise StateMismatch(
                f"the saved position lies {self._cut} tokens inside source row {int(asked.ids[0])}, and that row has "
                "fewer here, or is dropped: data, filter, map or tokens are not those of the saved run"
            )
        for at, value in zip(kept, values, strict=True):
            self.stock.append(Piece(asked.epoch, asked.row + at, int(asked.ids[at]), value))
            if chunk.lengths is None:
                self._made += 1
            else:
                self._tokens += value.size
        if chunk.lengths is not None and self._seq_len is not None:
            self._tokens -= self._cut
            self._made = max(self._made, (self._tokens + self._seq_len - 1) // self._seq_len)
        self._cut = 0

    def take(self) -> Piece:
        """Hand out a row."""
        piece = self.stock.popleft()
        self.epoch, self.row, self.offset, self.kept = piece.epoch, piece.row + 1, 0, self.kept + 1
        return piece

    def take_sequence(self) -> tuple[Int64Array, list[tuple[Piece, int, int]]]:
        """Hand out seq_len tokens: the array, and (row, first token, last + 1) of what is in it."""
        wanted = self._seq_len or 0
        self._tokens -= wanted
        parts, origins = [], []
        while wanted:
            piece = self.stock[0]
            start = self.offset if (piece.epoch, piece.row) == (self.epoch, self.row) else 0
            stop = min(start + wanted, piece.value.size)
            if stop > start:
                parts.append(piece.value[start:stop])
                origins.append((piece, start, stop))
            wanted -= stop - start
            if stop == piece.value.size:
                self.stock.popleft()
                self.epoch, self.row, self.offset, self.kept = piece.epoch, piece.row + 1, 0, self.kept + 1
            else:
                self.epoch, self.row, self.offset = piece.epoch, piece.row, stop
        return np.concatenate(parts), origins


@final
class Run:
    """One pass over a rank's lanes: what to ask for next, and where what came belongs."""

    def __init__(self, grid: Grid, places: Sequence[LanePlace], seq_len: int | None, first: int, endless: bool) -> None:
        self.lanes = [Lane(place, seq_len) for place in places]
        self._grid = grid
        self._endless = endless
        self._first_epoch = places[0].epoch
        self._size = max(1, min(first, _CHUNK))
        self._asked: deque[Asked] = deque()

    def requests(self) -> Iterator[Asked]:
        """Yield what to read, for as long as there is something; decided anew each time by what is in stock."""
        while True:
            best = None
            for number, lane in enumerate(self.lanes):
                if (self._endless or lane.next[0] == self._first_epoch) and (
                    best is None or lane.supply < self.lanes[best].supply
                ):
                    best = number
            if best is None:
                return
            asked = self._ask(best)
            if asked is not None:
                yield asked

    def _ask(self, number: int) -> Asked | None:
        lane = self.lanes[number]
        epoch, row = lane.next
        left = self._grid.rows(epoch, lane.number) - row
        count = min(self._size, left)
        lane.next = (epoch + 1, 0) if count >= left else (epoch, row + count)
        if count < 1:
            return None
        self._size = min(2 * self._size, _CHUNK)
        lane.pending += count
        ids, _ = self._grid.places(epoch, lane.number, np.arange(row, row + count, dtype=np.int64))
        asked = Asked(number, epoch, row, ids)
        self._asked.append(asked)
        return asked

    def put(self, chunk: Chunk) -> None:
        """Take what came of the oldest request."""
        asked = self._asked.popleft()
        lane = self.lanes[asked.lane]
        lane.put(asked, chunk, self._grid.rows(asked.epoch, lane.number))
