"""How a stream is read in the process that trains: whole batches by `Loader`, everything else by lanes.

Both hand out what was asked for, in exact order for any number of workers, and count it when it is handed out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, final

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from detdata.keys import fold
from detdata.loader import Loader, StaleIteration
from detdata.look_ahead import LookAhead, look_ahead
from detdata.plans.shards import Part
from detdata.reading import Reader, Request, as_is, pack
from detdata.seeding import seed_found, seed_global
from detdata.streaming.assembly import Lane, NothingKept, Piece, Run
from detdata.streaming.places import Grid, LanePlace, Place, StreamBatch
from detdata.streaming.settings import Settings, check_last_step
from detdata.streams import find_streams, restore_global, save_global

_ROWS_AT_FIRST = 16  # of single rows: the first one must not wait for many


class Engine(Protocol):
    """What reads a stream."""

    place: Place
    seen: int  # source rows that a filter of this rank saw, where batches are left short
    kept: int

    def run(self, stop: int | None) -> Iterator[Any]:
        """Yield what there is up to global step `stop`, or to the end of the epoch (for ever, where it has none)."""

    def last(self) -> StreamBatch | None:
        """Return what was handed out last."""


def engine_for(settings: Settings, place: Place, seen: int, kept: int) -> Engine:
    """Return what reads a stream from a place on."""
    return Batches(settings, place, seen, kept) if settings.kind == "batches" else Lanes(settings, place)


@final
class Batches:
    """Whole batches of a plan; where a filter leaves them short, it is noted of what is left."""

    def __init__(self, settings: Settings, place: Place, seen: int, kept: int) -> None:
        self.seen, self.kept = seen, kept
        self._settings = settings
        self._rows: list[int] | None = None
        self._loader = Loader(
            settings.reader,
            settings.plan,
            settings.topology,
            num_workers=settings.num_workers,
            randomness=settings.randomness,
            seed=settings.seed,
            collate_fn=settings.reader_collate,
            **settings.loading,
        )
        self.place = place

    @property
    def place(self) -> Place:
        """Where it stands; may be set."""
        return Place(self._loader.progress.global_step)

    @place.setter
    def place(self, place: Place) -> None:
        plan, ranks = self._settings.plan, self._settings.topology.world_size
        for epoch in (plan.epoch(place.step), plan.epoch(place.step) + 1):
            check_last_step(plan, epoch, ranks)
        self._loader.resume(plan.consumed(place.step))

    def run(self, stop: int | None) -> Iterator[Any]:
        """Yield batches."""
        for item in self._loader if stop is None else self._loader.until(stop):
            if not self._settings.filtered:
                yield item
                continue
            self._rows, batch = item
            held = self._loader.batch
            self.seen += 0 if held is None else len(held)
            self.kept += len(self._rows)
            yield batch

    def last(self) -> StreamBatch | None:
        """Return what was handed out last."""
        held = self._loader.batch
        if held is None:
            return None
        kept = slice(None) if self._rows is None else self._rows
        return StreamBatch(held.step, held.ids[kept], held.epochs[kept], held.real[kept])


@final
class Lanes:
    """Single rows, batches of rows that a filter keeps, and packed sequences."""

    seen = kept = 0

    def __init__(self, settings: Settings, place: Place) -> None:
        self._settings = settings
        self._pass: object = None
        self._run: Run | None = None
        self._ended = False
        self._last: tuple[int, Grid, list[Piece], list[tuple[int, Piece, int, int]]] | None = None
        self._grid = settings.grid
        self._held = find_streams([settings.collate])
        self._requests = _Requests()
        self._generator = torch.Generator()  # of its own, so that torch draws nothing from the global stream
        self._torch_loader: DataLoader[Any] = DataLoader(
            Reader(
                settings.reader,
                settings.randomness,
                settings.seed,
                settings.topology.rank,
                settings.reader_collate,
            ),  # type: ignore[arg-type]
            batch_sampler=self._requests,  # type: ignore[arg-type]
            num_workers=settings.num_workers,
            generator=self._generator,
            collate_fn=as_is,
            **settings.loading,
        )
        if len(settings.own_lanes) == 1:  # of several, which is read next hangs on what comes: nothing is known ahead
            workers = self._torch_loader.num_workers
            in_flight = workers * (self._torch_loader.prefetch_factor or 1)
            self._requests.ahead = look_ahead(settings.reader, workers, in_flight)
        self._step, self._start = place.step, place

    @property
    def place(self) -> Place:
        """Where it stands; may be set."""
        if self._settings.kind == "rows":
            return Place(self._step)
        if self._run is None:
            return Place(self._step, self._start.lanes, self._start.ended)
        return Place(self._step, tuple(lane.place() for lane in self._run.lanes), self._ended)

    @place.setter
    def place(self, place: Place) -> None:
        self._step, self._start = place.step, place
        self._pass = self._run = self._last = None

    def run(self, stop: int | None) -> Iterator[Any]:
        """Yield rows, batches or sequences."""
        mine = self._pass = object()
        if stop is None:
            yield from self._epoch(mine, None)
            return
        while self._step < stop:
            before = self._step
            yield from self._epoch(mine, stop)
            if self._step == before:
                yield from self._epoch(mine, stop)  # the rest of an epoch may hold nothing any more
            if self._step == before:
                raise NothingKept("an epoch has no sample: the filter keeps no row, or too few for a batch")

    def _epoch(self, mine: object, stop: int | None) -> Iterator[Any]:
        """Yield what is left of the epoch, or of all epochs in a stream without end."""
        settings = self._settings
        places = self.place.following().lanes
        if settings.kind == "rows":
            at = settings.plan._walk.place(self._step)
            check_last_step(settings.plan, at.epoch, settings.topology.world_size)
            self._grid = Grid(settings.plan, settings.lanes, (at.epoch, at.q))
            places = (LanePlace(settings.topology.rank, at.epoch),)
        first = settings.per_lane if settings.batched else _ROWS_AT_FIRST
        run = self._run = self._requests.run = Run(self._grid, places, settings.seq_len, first, settings.endless)
        self._ended = False
        self._generator.manual_seed(fold("detdata.stream/1", settings.seed, settings.topology.rank, self._step))
        chunks = iter(self._torch_loader)
        while stop is None or self._step < stop:
            wanted = settings.per_lane
            for lane in run.lanes:
                while lane.ready < wanted:
                    chunk = next(chunks, None)
                    self._check_pass(mine)
                    if chunk is None:  # the end: one lane alone ends
                        wanted = lane.ready
                        break
                    run.put(chunk)
            if wanted < settings.per_lane and (wanted == 0 or settings.drops_rest):
                break
            item = self._assemble(run.lanes, wanted)
            self._step += 1
            yield item
            self._check_pass(mine)
        else:
            return  # not at the end of the epoch
        self._ended = True

    def _check_pass(self, mine: object) -> None:
        if self._pass is not mine:
            raise StaleIteration(
                "this iteration of the Stream is over: another `for`, `until`, `resume` or `load_state_dict` has moved "
                "its position since; begin a new `for batch in stream`"
            )

    def _assemble(self, lanes: list[Lane], wanted: int) -> Any:
        settings = self._settings
        if settings.seq_len is None:
            if not settings.batched:
                piece = lanes[0].take()
                self._last = self._step, self._grid, [piece], []
                return piece.value
            pieces = [lane.take() for _ in range(wanted) for lane in lanes]
            self._last = self._step, self._grid, pieces, []
            return self._collate([piece.value for piece in pieces])
        sequences: list[Any] = []
        segments: list[tuple[int, Piece, int, int]] = []
        for _ in range(wanted):
            for lane in lanes:
                tokens, origins = lane.take_sequence()
                segments += [(len(sequences), *origin) for origin in origins]
                sequences.append(torch.from_numpy(tokens))
        self._last = self._step, self._grid, [], segments
        return self._collate(sequences) if settings.batched else sequences[0]

    def _collate(self, samples: list[Any]) -> Any:
        """Collate, seeded by the batch's address, as a collate function may draw; the streams are put back after."""
        settings = self._settings
        if settings.randomness == "off":
            return settings.collate(samples)
        state = save_global()
        try:
            seed = fold("detdata.stream_batch/1", settings.seed, self._step, settings.topology.rank)
            seed_global(seed)
            seed_found(self._held, seed)
            return settings.collate(samples)
        finally:
            restore_global(state)

    def last(self) -> StreamBatch | None:
        """Return what was handed out last."""
        if self._last is None:
            return None
        step, grid, pieces, segments = self._last
        if segments:
            pieces = [piece for _, piece, _, _ in segments]
        rows = np.array([piece.id for piece in pieces], dtype=np.int64)
        epochs = np.array([piece.epoch for piece in pieces], dtype=np.int64)
        real = np.ones(rows.size, dtype=np.bool_)
        if self._settings.kind == "rows":
            last = np.array([piece.row for piece in pieces], dtype=np.int64)
            real = grid.places(pieces[0].epoch, self._settings.topology.rank, last)[1]
        table = np.array([(at, piece.id, start, stop) for at, piece, start, stop in segments], dtype=np.int64)
        return StreamBatch(step, rows, epochs, real, table if segments else None)


@final
class _Requests(Sampler[Request]):
    """The batch sampler inside: what the present run asks for, when torch has room for it."""

    run: Run | None = None
    ahead: LookAhead | None = None

    def __iter__(self) -> Iterator[Request]:
        if self.run is None:
            return
        parts = (Part(asked.row, asked.lane, asked.ids, asked.epoch) for asked in self.run.requests())
        if self.ahead is None:
            yield from map(pack, parts)
            return
        for part, notice in self.ahead.walk(parts):
            yield pack(part, notice)
