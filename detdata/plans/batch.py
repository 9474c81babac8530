"""The batch of a global step, and the part of it that one rank takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from detdata.arrays import BoolArray, Int64Array
from detdata.checks import as_int
from detdata.errors import ArgumentValueError
from detdata.plans.pack_segments import Segments, rows_of


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """The samples of one global step, or a rank's part of them, in order.

    step: the global step. epoch: the epoch in which it begins. start: position of its first sample in that epoch's
    order. ids: int64[b], sample ids. real: bool[b], False where a row only pads. epochs: int64[b], each sample's own
    epoch (with tail="carry" a batch may hold samples of several). A part keeps the step, epoch and start of its batch.
    segments: of a packed batch, which tokens of which documents its rows are: a structured array (row, document, start,
    stop), sorted by row and within a row in reading order; ids are then numbers of sequences. width: the length that
    all rows are filled up to, where the plan knows it.

    >>> import detdata
    >>> batch = detdata.Plan(detdata.Sequential(5), 2, tail="pad").batch(2)
    >>> batch.ids.tolist(), batch.real.tolist(), batch.start
    ([4, 0], [True, False], 4)
    """

    step: int
    epoch: int
    start: int
    ids: Int64Array
    real: BoolArray
    epochs: Int64Array
    segments: Segments | None = None
    width: int | None = None

    def __len__(self) -> int:
        return int(self.ids.size)


def check_division(batch_size: int, world_size: object, micro_steps: object) -> tuple[int, int]:
    """Return (world_size, micro_steps), checked to divide the global batch size between them."""
    ranks = as_int(world_size, "world_size", low=1)
    parts = as_int(micro_steps, "micro_steps", low=1)
    if batch_size % (ranks * parts):
        raise ArgumentValueError(
            f"batch_size {batch_size} is not divisible by world_size {ranks} x micro_steps {parts} = {ranks * parts}; "
            "every rank must get equally many samples in every micro step"
        )
    return ranks, parts


def part_of(batch: Batch, batch_size: int, rank: int, world_size: int, micro: range, micro_steps: int) -> Batch:
    """Cut rank `rank`'s rows of the micro steps `micro` out of a global batch.

    Micro-batch k is rows k·m … (k+1)·m - 1 of the grid of `batch_size` rows, m = batch_size / micro_steps; the rank
    takes rows rank, rank + world_size, … of it. A short last batch fills the grid from the front.
    """
    size = batch_size // micro_steps
    rows = np.concatenate([np.arange(k * size + rank, (k + 1) * size, world_size) for k in micro])
    rows = rows[rows < batch.ids.size]
    segments = None if batch.segments is None else rows_of(batch.segments, rows)
    return replace(batch, ids=batch.ids[rows], real=batch.real[rows], epochs=batch.epochs[rows], segments=segments)
