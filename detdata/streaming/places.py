"""Where a stream stands, as values: lanes, the rows of each by arithmetic, and what a batch was made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from detdata.arrays import BoolArray, Int64Array
from detdata.plans import Plan


@dataclass(frozen=True, slots=True)
class LanePlace:
    """How far a lane is: `row` of `epoch` comes next, `offset` tokens of it are used; `kept` rows were handed out."""

    lane: int
    epoch: int = 0
    row: int = 0
    offset: int = 0
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """How far a stream is. step: the next global step. lanes: of this rank, in rising order, where it has any.

    ended: the pass is over, so the next one begins with the next epoch; the lanes say how far what was handed out
    reaches, as rows may be added behind it.
    """

    step: int = 0
    lanes: tuple[LanePlace, ...] = ()
    ended: bool = False

    def following(self) -> Place:
        """Return where the next row comes from, if nothing is added."""
        if not self.ended:
            return self
        lanes = tuple(LanePlace(lane.lane, lane.epoch + 1, 0, 0, lane.kept) for lane in self.lanes)
        return Place(self.step, lanes)


@dataclass(frozen=True, slots=True)
class Grid:
    """The rows of each lane: lane l of L takes positions l, l + L, l + 2L … of an epoch's order.

    start: (epoch, position) from which on they are counted; later epochs are counted from their beginning.
    """

    plan: Plan
    lanes: int
    start: tuple[int, int] = (-1, 0)

    def _span(self, epoch: int) -> tuple[int, int]:
        return self.start[1] if epoch == self.start[0] else 0, self.plan._epochs.run(epoch)[0]

    def rows(self, epoch: int, lane: int) -> int:
        """Return how many rows a lane has in an epoch."""
        first, size = self._span(epoch)
        if self.plan.tail == "drop":
            return (size - first) // self.lanes
        if self.plan.tail == "pad":
            return -(-(size - first) // self.lanes)
        return max(0, -(-(size - first - lane) // self.lanes))

    def rows_before(self, epoch: int, lane: int) -> int:
        """Return how many rows a lane has in all epochs before this one."""
        runs = [start for start, _ in self.plan._epochs.runs if start < epoch]
        return sum((end - start) * self.rows(start, lane) for start, end in pairwise([*runs, epoch]))

    def places(self, epoch: int, lane: int, rows: Int64Array) -> tuple[Int64Array, BoolArray]:
        """Return the source rows of some rows of a lane, and False where one only pads."""
        first, size = self._span(epoch)
        q = rows * self.lanes + (first + lane)
        real = q < size
        if self.plan.tail == "pad":
            # What pads is counted as a plan counts it: from the beginning of the order, skipped rows included.
            padding = (q - size) % self.plan.order.size
            positions = np.where(real, self.plan._epochs.positions(epoch, np.where(real, q, 0)), padding)
        else:
            positions = self.plan._epochs.positions(epoch, q)
        return self.plan.order._take(positions, epoch), real


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Where a stream stands, in every count that there is.

    global_step: steps done. epoch: of the next row. consumed_samples: what all ranks were handed in these steps; in a
    batch that a filter left short the dropped rows count too. source_rows: rows of the source that were gone through;
    kept_rows: those that were handed out. Without a filter both count all ranks', with one this rank's.

    >>> StreamPosition(global_step=2, epoch=0, consumed_samples=8, source_rows=8, kept_rows=8).kept_rows
    8
    """

    global_step: int
    epoch: int
    consumed_samples: int
    source_rows: int
    kept_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class StreamBatch:
    """What the batch that was handed out last is made of.

    step: its global step. rows: int64[b], the source rows in it. epochs: int64[b], the epoch of each. real: bool[b],
    False where a row only pads. segments: of packed sequences, int64[s, 4]: sequence of the batch, source row, and the
    first and last + 1 of the row's tokens that stand there, in reading order; else None.

    >>> from detdata import Stream
    >>> stream = Stream(list(range(5)), batch_size=3)
    >>> for batch in stream:
    ...     print(stream.batch.rows)
    [0 1 2]
    [3 4]
    """

    step: int
    rows: Int64Array
    epochs: Int64Array
    real: BoolArray
    segments: Int64Array | None = field(default=None)
