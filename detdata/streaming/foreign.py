"""A stream inside the workers of another DataLoader: each worker's exact part.

Worker k of K takes batches k, k + K … of the rank's: torch asks its workers in turn, so they arrive in the stream's
order for every K. Of single rows it takes rows k, k + K …; how they are batched outside, and so their order, depends
on K.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from detdata.plans.shards import Part, parts
from detdata.reading import Reader, pack
from detdata.streaming.passes import ForeignWorkers
from detdata.streaming.places import Grid
from detdata.streaming.settings import Settings

_ROWS = 64


@dataclass(slots=True)
class Share:
    """A worker's part of a pass. step: where the pass begins; done: batches, or source rows, of its own so far."""

    worker: int
    workers: int
    step: int
    done: int = 0


def check_foreign(settings: Settings, workers: int) -> None:
    """Refuse what no single worker can make a part of."""
    if settings.arithmetic or (settings.kind == "filled" and not settings.batched and not settings.endless):
        return
    what = "packed sequences" if settings.kind == "packed" else "rows that a filter keeps"
    raise ForeignWorkers(
        f"{what} are put together in order from all rows of a rank, and none of {workers} worker(s) of a DataLoader "
        "sees them all. Let the stream run its "
        "own: Stream(…, num_workers=K), and iterate over it directly (or by DataLoader(stream, batch_size=None))"
    )


def iterate(settings: Settings, share: Share) -> Iterator[Any]:
    """Yield a worker's part, counting it in `share` as it is handed out."""
    reader = Reader(
        settings.reader, settings.randomness, settings.seed, settings.topology.rank, settings.reader_collate
    )
    return (_batches if settings.kind == "batches" else _rows)(settings, reader, share)


def _batches(settings: Settings, reader: Reader, share: Share) -> Iterator[Any]:
    rank, ranks = settings.topology.rank, settings.topology.world_size
    stop = settings.plan.first_step(settings.plan.epoch(share.step) + 1)
    first = share.step + share.done * share.workers + share.worker
    for number, part in enumerate(parts(settings.plan, (first, 0), stop, rank, ranks, 1) if first < stop else ()):
        if number % share.workers == 0:
            batch = reader.__getitems__(pack(part))
            share.done += 1
            yield batch[1] if settings.filtered else batch


def _rows(settings: Settings, reader: Reader, share: Share) -> Iterator[Any]:
    at = settings.plan._walk.place(share.step)
    grid, rank = Grid(settings.plan, settings.lanes, (at.epoch, at.q)), settings.topology.rank
    mine = range(share.worker, grid.rows(at.epoch, rank), share.workers)
    for begin in range(share.done, len(mine), _ROWS):
        rows = np.array(mine[begin : begin + _ROWS], dtype=np.int64)
        ids, _ = grid.places(at.epoch, rank, rows)
        chunk = reader.__getitems__(pack(Part(int(rows[0]), share.worker, ids, at.epoch)))
        for kept, row in zip(chunk.kept.tolist(), chunk.rows, strict=True):
            share.done = begin + kept + 1
            yield row
        share.done = begin + rows.size
