"""One rank's parts of many steps in a row, made many at a time: what a sampler walks over.

Says exactly what `Plan.shard` says, step by step (a test holds them together), at a fraction of the cost: whole batches
that follow each other in an epoch are a regular grid of positions, so thousands of ids come out of one NumPy call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from detdata.arrays import Int64Array
from detdata.plans.batch import check_division, part_of
from detdata.plans.plan import Plan
from detdata.plans.protocol import AnyPlan
from detdata.plans.short_steps import short_steps

CHUNK = 32768  # ids made at once, after a first chunk of one step: the first batch must not wait for the others


class Part(NamedTuple):
    """One rank's part of one micro step. Parts without a sample (a short last batch) are left out."""

    step: int
    micro_step: int
    ids: Int64Array
    epochs: Int64Array | int  # an int where all rows are of one epoch


class Block(NamedTuple):
    """Parts of one length that follow each other: those of micro step `micro_step` of `step`, and on."""

    step: int
    micro_step: int
    ids: Int64Array  # int64[parts, samples of a part]
    epochs: Int64Array | int


def parts(
    plan: AnyPlan, start: tuple[int, int], stop: int | None, rank: int, world_size: int, micro_steps: int
) -> Iterator[Part]:
    """Yield a rank's parts from (step, micro step) `start` on, up to step `stop` or for ever."""
    for block in blocks(plan, start, stop, rank, world_size, micro_steps):
        step, micro = block.step, block.micro_step
        for ids in block.ids:
            yield Part(step, micro, ids, block.epochs)
            micro += 1
            if micro == micro_steps:
                step, micro = step + 1, 0


def blocks(
    plan: AnyPlan, start: tuple[int, int], stop: int | None, rank: int, world_size: int, micro_steps: int
) -> Iterator[Block]:
    """Yield what `parts` yields, as many at a time as were made at once."""
    if not isinstance(plan, Plan):
        yield from _one_by_one(plan, start, stop, rank, world_size, micro_steps)
        return
    step, skip = start
    wanted = 1
    work = np.empty(0, dtype=np.int64)  # kept from block to block: fresh pages cost more than the sums in them
    while stop is None or step < stop:
        place = plan._walk.place(step)
        check_division(place.batch_size, world_size, micro_steps)
        if place.full < 1:
            for micro in range(skip, micro_steps):
                part = plan.shard(step, rank, world_size, micro, micro_steps)
                if part.ids.size:
                    yield Block(step, micro, part.ids[np.newaxis], part.epochs)
            step, skip = step + 1, 0
            continue
        mine = place.batch_size // world_size
        count = min(place.full, max(1, wanted // mine), CHUNK if stop is None else stop - step)
        grid = place.batch_size // micro_steps
        if world_size == 1 and not plan._epochs.skips:  # no gaps: one run of positions
            held = count * micro_steps - skip
            ids = plan.order._take_run(place.q + skip * grid, held * grid, place.epoch).reshape(held, grid)
        else:
            rows = np.arange(skip, count * micro_steps, dtype=np.int64) * grid + place.q
            columns = np.arange(rank, grid, world_size, dtype=np.int64)
            if work.size < rows.size * columns.size:
                work = np.empty(rows.size * columns.size, dtype=np.int64)
            q = work[: rows.size * columns.size].reshape(rows.size, columns.size)
            np.add(rows[:, np.newaxis], columns, out=q)
            ids = plan.order._take(plan._epochs.positions(place.epoch, q), place.epoch)
        yield Block(step, skip, ids, place.epoch)
        step, skip, wanted = step + count, 0, min(max(wanted, mine) * 4, CHUNK)


def _one_by_one(
    plan: AnyPlan, start: tuple[int, int], stop: int | None, rank: int, world_size: int, micro_steps: int
) -> Iterator[Block]:
    """Do the same for a plan whose batches are no grid of positions."""
    step, skip = start
    while stop is None or step < stop:
        size = plan.batch_size_at(step)
        check_division(size, world_size, micro_steps)
        batch = plan.batch(step)
        for micro in range(skip, micro_steps):
            part = part_of(batch, size, rank, world_size, range(micro, micro + 1), micro_steps)
            if part.ids.size:
                one = int(part.epochs[0])
                yield Block(step, micro, part.ids[np.newaxis], one if (part.epochs == one).all() else part.epochs)
        step, skip = step + 1, 0


def count_parts(plan: AnyPlan, first: int, last: int, rank: int, world_size: int, micro_steps: int) -> int:
    """Return how many parts `parts` yields for the steps first … last - 1, all of one epoch.

    Cost: a look-up; of a plan of plans one for each of their epochs that ends in between.
    """
    if first >= last:
        return 0
    if not isinstance(plan, Plan):
        held = (last - first) * micro_steps
        for step in short_steps(plan, first, last):
            held += sum(1 for _ in _one_by_one(plan, (step, 0), step + 1, rank, world_size, micro_steps)) - micro_steps
        return held
    place = plan._walk.place(last - 1)
    if plan.tail != "keep" or place.real == place.batch_size:
        return (last - first) * micro_steps
    grid = place.batch_size // micro_steps
    held = -(-max(place.real - rank, 0) // grid)  # micro-batches of the short last batch that reach row `rank`
    return (last - 1 - first) * micro_steps + min(held, micro_steps)
