"""A stream inside the workers of another DataLoader: each worker's exact part.

Worker k of K takes batches k, k + K … of the rank's: torch asks its workers in turn, so they arrive in the stream's
order for every K. Of single rows it takes rows k, k + K …; how they are batched outside, and so their order, depends
on K.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np

from detdata.checks import as_int
from detdata.errors import StateMismatch, UnknownFormat
from detdata.plans.shards import Part, parts
from detdata.reading import Reader, pack
from detdata.streaming.passes import ForeignWorkers, Passes
from detdata.streaming.places import Grid
from detdata.streaming.settings import Settings

_ROWS = 64
_FORMAT = "detdata.stream_worker/1"


@final
class Share:
    """A worker's part of a pass. step: where the pass begins; done: batches, or source rows, of its own so far."""

    def __init__(self) -> None:
        self.worker, self.workers, self.step, self.done = 0, 0, 0, 0
        self._resumed = False

    def iterate(self, settings: Settings, passes: Passes, plan_key: int, worker: int, workers: int) -> Iterator[Any]:
        """Begin a pass, and yield the worker's part of it. Raises ForeignWorkers, at the first item."""
        try:
            check_foreign(settings, workers)
            aim = passes.begin(worker, workers, plan_key)
        except ForeignWorkers as error:  # not at once: torch loses what a persistent worker raises here
            return _raising(error)
        if self._resumed:
            self._resumed = False
            passes.aim_here(self.step)
        else:
            step = aim.step
            if aim.epochs_later:
                step = settings.plan.first_step(settings.plan.epoch(step) + aim.epochs_later)
            self.worker, self.workers, self.step, self.done = worker, workers, step, 0
        return _iterate(settings, self)

    def state_dict(self, plan_key: int) -> dict[str, Any]:
        """Return the state of this worker's part."""
        if not self.workers:
            return {"format": _FORMAT}
        numbers = {"worker": self.worker, "workers": self.workers, "step": self.step, "done": self.done}
        return {"format": _FORMAT, "plan": plan_key, **numbers}

    def load_state_dict(self, state: Any, plan_key: int, worker: int, workers: int) -> None:
        """Let the next pass go on from a worker's state. Raises UnknownFormat, StateMismatch."""
        if not isinstance(state, Mapping) or state.get("format") != _FORMAT:
            raise UnknownFormat(f"a worker takes a {_FORMAT} state, one that state_dict() gave in a worker")
        if set(state) == {"format"}:
            return
        if (state.get("plan"), state.get("worker"), state.get("workers")) != (plan_key, worker, workers):
            raise StateMismatch(
                f"the state is of worker {state.get('worker')} of {state.get('workers')} and its plan; this is worker "
                f"{worker} of {workers}. Such states belong to one number of workers; a Stream's own state does not"
            )
        step, done = (as_int(state.get(name), name) for name in ("step", "done"))
        self.worker, self.workers, self.step, self.done, self._resumed = worker, workers, step, done, True


def _raising(error: Exception) -> Iterator[Any]:
    raise error
    yield


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


def _iterate(settings: Settings, share: Share) -> Iterator[Any]:
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
