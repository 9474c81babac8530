"""Stream: a corpus, or any map-style dataset, for those who think in IterableDatasets; resumed at any place exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, final

from torch.utils.data import IterableDataset, get_worker_info

from detdata.checks import as_int
from detdata.errors import ArgumentValueError, DetdataError, StateMismatch
from detdata.keys import fold
from detdata.orders import Order
from detdata.orders.base import MAX_EPOCH
from detdata.plans import Plan
from detdata.plans.plan import MAX_STEP
from detdata.plans.shards import count_parts
from detdata.progress import Progress
from detdata.reading import Randomness
from detdata.records import canonical_json
from detdata.streaming.engines import Engine, engine_for
from detdata.streaming.foreign import Share
from detdata.streaming.passes import ForeignWorkers, Passes
from detdata.streaming.places import LanePlace, Place, StreamBatch, StreamPosition
from detdata.streaming.rows import Filter, Map
from detdata.streaming.settings import Settings, Tail, check, check_last_step
from detdata.streaming.source import Source
from detdata.streaming.state import differences, read, resumed, size_change, write
from detdata.topology import Topology


@final
class Stream(IterableDataset[Any]):
    """Rows of a corpus in order, shared exactly by ranks and workers, resumable at any of them.

    dataset: an `open_corpus(…)`, a list, any map-style dataset. order: of its rows, by default as they lie; or a Plan.
    batch_size: rows of a global step over all ranks; None gives single rows, one for each rank a step.
    tail: of an epoch that does not divide: "keep" (default), "drop", "pad", "carry".
    filter, map: functions of a row; the filter sees the source row, the map what the filter kept. Python's, NumPy's and
    torch's random streams are seeded in both by (seed, epoch, row), as in `Loader`.
    fill: whether batches are filled up with rows that are kept, or a step gives what is kept of its batch_size rows.
    seq_len: tokens of a sequence, to pack rows; tokens: the column of a row's tokens, or a function that gives them;
    eos: the token put after each row. lanes: of filled and packed batches, how many ranks they may ever be shared by.
    num_workers and prefetch_factor, persistent_workers, multiprocessing_context, timeout, worker_init_fn, pin_memory:
    of the processes that read. collate_fn: default torch's. topology, randomness, seed: as of `Loader`.

    `for batch in stream` gives the rest of the epoch, then stops; the next `for` is the next epoch. A filled or packed
    stream with tail="carry" has no end: `until(step)`. Nothing that is handed out depends on num_workers.
    Inside another DataLoader each of its workers gives its exact part; docs/streams.md says what is known there.
    Raises TypeError, ValueError: also where ranks would not have equally many steps.

    >>> stream = Stream([3, 1, 4, 1, 5, 9, 2, 6], batch_size=4, map=lambda row: 10 * row)
    >>> for batch in stream:
    ...     break
    >>> batch.tolist(), stream.progress.consumed_samples
    ([30, 10, 40, 10], 4)
    >>> odd = Stream(list(range(10)), batch_size=2, filter=lambda row: row % 2)
    >>> [batch.tolist() for batch in odd]
    [[1, 3], [5, 7], [9]]
    """

    def __init__(
        self,
        dataset: Any,
        order: Order | Plan | None = None,
        batch_size: int | None = None,
        *,
        topology: Topology | None = None,
        tail: Tail | None = None,
        filter: Filter | None = None,
        map: Map | None = None,
        fill: bool = True,
        lanes: int | None = None,
        seq_len: int | None = None,
        tokens: str | Callable[[Any], Any] | None = None,
        eos: int | None = None,
        num_workers: int = 0,
        randomness: Randomness = "sample",
        seed: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **loading: Any,
    ) -> None:
        super().__init__()
        self._settings: Settings = check(
            dataset,
            order,
            batch_size,
            topology=topology,
            tail=tail,
            filter=filter,
            map=map,
            fill=fill,
            lanes=lanes,
            seq_len=seq_len,
            tokens=tokens,
            eos=eos,
            num_workers=num_workers,
            randomness=randomness,
            seed=seed,
            collate_fn=collate_fn,
            loading=loading,
        )
        self._source = Source(dataset)
        self._engine: Engine | None = None  # made when it is first needed, in the process that needs it
        self._at, self._seen, self._kept = self._beginning(0), 0, 0
        self._earlier = 0  # sequences that were packed in batches of another size: more than steps * batch_size says
        self._passes = Passes()
        self._share = Share()  # of a worker of a foreign DataLoader
        self._aim()

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def dataset(self) -> Any:
        """The dataset that was given."""
        return self._settings.reader.dataset

    @property
    def plan(self) -> Plan:
        """What each global step consumes of the source rows; of a filled or packed stream, only their order."""
        return self._settings.plan

    @property
    def topology(self) -> Topology:
        """This rank's place."""
        return self._settings.topology

    def __len__(self) -> int:
        """What this rank is handed in a whole epoch: rows, or batches. TypeError where a filter or packing decides."""
        settings = self._settings
        if settings.kind in {"filled", "packed"}:
            what = "sequences" if settings.kind == "packed" else "rows are kept"
            raise TypeError(
                f"this Stream has no length: how many {what} is known only when they were read; count batches by "
                "stream.progress, and end by stream.until(step)"
            )
        epoch = self.plan.epoch(self._place().step)
        first, last = self.plan.first_step(epoch), self.plan.first_step(epoch + 1)
        return count_parts(self.plan, first, last, settings.topology.rank, settings.topology.world_size, 1)

    # --- iterating ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Yield the rest of the current epoch; in a worker of a foreign DataLoader, its part of it."""
        info = get_worker_info()
        if info is not None:
            return self._share.iterate(self._settings, self._passes, self._plan_key(), info.id, info.num_workers)
        return self._run(None)

    def until(self, step: int) -> Iterator[Any]:
        """Yield batches until global step `step` is done, over epoch ends.

        >>> len(list(Stream(list(range(10)), batch_size=5).until(7)))
        7
        """
        return self._run(as_int(step, "step", high=MAX_STEP))

    def _run(self, stop: int | None) -> Iterator[Any]:
        self._check_counted()
        if self._engine is None:
            self._engine = engine_for(self._settings, self._at, self._seen, self._kept)
        return self._followed(self._engine.run(stop))

    def _followed(self, items: Iterator[Any]) -> Iterator[Any]:
        """Yield what is read here; workers of a foreign DataLoader, if it is that next, go on behind it."""
        for item in items:
            self._passes.follow(self._next_step())
            yield item
        self._passes.follow(self._next_step())

    # --- where it stands ----------------------------------------------------------------------------------------------

    def _beginning(self, epoch: int, step: int = 0, kept: Mapping[int, int] | None = None) -> Place:
        if self._settings.arithmetic:
            return Place(self.plan.first_step(epoch))
        counts = {} if kept is None else kept
        lanes = [LanePlace(lane, epoch, 0, 0, counts.get(lane, 0)) for lane in self._settings.own_lanes]
        return Place(step, tuple(lanes))

    def _place(self) -> Place:
        return self._at if self._engine is None else self._engine.place

    def _move(self, place: Place, seen: int, kept: int) -> None:
        if self._engine is not None:
            self._engine.place = place
            self._engine.seen, self._engine.kept = seen, kept
        elif self._settings.kind == "batches":  # checks that ranks have equally many steps from there on
            self._engine = engine_for(self._settings, place, seen, kept)
        self._at, self._seen, self._kept = place, seen, kept
        self._aim()

    def _aim(self) -> None:
        """Let workers of a foreign DataLoader begin where the stream stands."""
        self._passes.aim(self._next_step(), self._plan_key())

    def _next_step(self) -> int:
        """Return the step at which foreign workers would begin."""
        place = self._place()
        if self._settings.arithmetic:
            return place.step
        if self._settings.batched or self._settings.endless or self._settings.kind == "packed":
            return 0  # no foreign worker runs these
        at = place.following().lanes[0]
        return self.plan.first_step(at.epoch) + at.row

    def _plan_key(self) -> int:
        return fold("detdata.stream_plan/1", canonical_json(self.plan.spec()).decode()) >> 1

    def _check_counted(self) -> None:
        begun = self._passes.since_aim()
        if begun:
            raise ForeignWorkers(
                f"workers of another DataLoader have begun {begun} pass(es) over this stream, and how much of what "
                "they read was consumed is not known here. Iterate over the stream itself, with num_workers of its "
                "own; or count in the loop, and go there: stream.resume(consumed_samples), stream.set_epoch(epoch)"
            )

    @property
    def progress(self) -> Progress:
        """Where training stands: counts what the loop was handed. Readable at any time. RuntimeError: `state_dict`."""
        self._check_counted()
        place = self._place()
        if self._settings.arithmetic:
            return Progress(place.step, self.plan.epoch(place.step), self.plan.consumed(place.step))
        consumed = self._earlier + place.step * self.plan.batch_size
        if self._settings.kind == "filled":  # each lane has given as many, also those of other ranks
            consumed = self._settings.lanes * place.lanes[0].kept
        return Progress(place.step, min(lane.epoch for lane in place.following().lanes), consumed)

    @property
    def position(self) -> StreamPosition:
        """Where the stream stands, in source rows and in kept rows.

        >>> stream = Stream(list(range(10)), batch_size=2, filter=lambda row: row % 2)
        >>> _ = next(iter(stream))
        >>> stream.position.source_rows, stream.position.kept_rows
        (4, 2)
        """
        progress, place = self.progress, self._place()
        seen = kept = progress.consumed_samples
        if not self._settings.arithmetic:
            grid = self._settings.grid
            seen = sum(grid.rows_before(lane.epoch, lane.lane) + lane.row for lane in place.following().lanes)
            kept = sum(lane.kept for lane in place.lanes)
        elif self._settings.filtered:
            seen, kept = self._counts()
        return StreamPosition(progress.global_step, progress.epoch, progress.consumed_samples, seen, kept)

    def _counts(self) -> tuple[int, int]:
        return (self._seen, self._kept) if self._engine is None else (self._engine.seen, self._engine.kept)

    @property
    def batch(self) -> StreamBatch | None:
        """What was handed out last is made of: its source rows. None before the first, and in foreign workers."""
        return None if self._engine is None else self._engine.last()

    # --- going somewhere ----------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch. Naming the present one changes nothing, so a pending resume stays."""
        number = as_int(epoch, "epoch", high=MAX_EPOCH)
        place = self._place().following()
        here = self.plan.epoch(place.step) if self._settings.arithmetic else min(lane.epoch for lane in place.lanes)
        if number == here + self._passes.since_aim():
            return
        self._move(self._beginning(number, place.step, {lane.lane: lane.kept for lane in place.lanes}), *self._counts())

    def resume(self, consumed_samples: int) -> None:
        """Go to `consumed_samples`, counted over all ranks; reads nothing.

        Raises ValueError for a count at which no step begins, and for a filled or packed stream: where that many
        samples end in the source is known to a state only.
        """
        count = as_int(consumed_samples, "consumed_samples")
        if not self._settings.arithmetic and count:
            raise ArgumentValueError(
                f"consumed_samples {count} says nothing of the place in the source where "
                f"{'rows are packed' if self._settings.kind == 'packed' else 'a filter decides'}: use load_state_dict"
            )
        place = Place(self.plan.step(count)) if self._settings.arithmetic else self._beginning(0)
        self._move(place, 0, 0)
        self._earlier = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain JSON: what was consumed, not what was fetched ahead. Holds no data.

        Raises RuntimeError where it is not known: workers of a foreign DataLoader read, or, of a filled or packed
        stream, other ranks have lanes of their own (`rank_state_dict`). In a worker: of that worker's part.
        """
        if get_worker_info() is not None:
            return self._share.state_dict(self._plan_key())
        settings = self._settings
        if not settings.arithmetic and settings.topology.world_size > 1:
            raise OtherRanks(
                f"this rank knows how far its own lanes are, {list(settings.own_lanes)} of {settings.lanes}, and not "
                "those of the others. Save stream.rank_state_dict() of every rank, and load them all as one list: "
                "stream.load_state_dict([state, …])"
            )
        return self.rank_state_dict()

    def rank_state_dict(self) -> dict[str, Any]:
        """Return the state of this rank: of a filled or packed stream on several ranks, a part of the whole."""
        topology = self._settings.topology
        counted = (topology.rank, topology.world_size, *self._counts())
        return write(self._settings, self.progress, self._place(), counted, self._source)

    def check_state(self, state: Any) -> list[tuple[str, str, str]]:
        """Return what keeps a state from being loaded here: (field, saved, found) of each. Changes nothing.

        Raises UnknownFormat for a record that is no stream's state.
        """
        return differences(read(state), self._settings, self._source)

    def batch_size_change(self, state: Any) -> tuple[int, int] | None:
        """Return (saved, present) global batch size if loading this state would go on with another one, else None.

        Of single rows it is the world size, and none. Changes nothing; raises UnknownFormat.
        """
        return size_change(read(state), self._settings)

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Go on from a state, or from the list of all ranks' states, on any number of workers.

        On any world size and batch size, but that filled and packed streams keep their lanes. Rows may have been added
        behind those that were there, in order, while the first epoch lasts. Raises StateMismatch naming every field and
        file that differs, before anything changes; UnknownFormat; ValueError.
        """
        info = get_worker_info()
        if info is not None:
            self._share.load_state_dict(state, self._plan_key(), info.id, info.num_workers)
            return
        saved = read(state)
        wrong = differences(saved, self._settings, self._source)
        if wrong:
            lines = "\n  ".join(f"{field}: saved {was}, here {now}" for field, was, now in wrong)
            raise StateMismatch(f"the state belongs to another stream, or its data have changed:\n  {lines}")
        plan, place = resumed(saved, self._settings)
        seen = kept = 0
        topology = self._settings.topology
        if saved.counted is not None and saved.counted[:2] == (topology.rank, topology.world_size):
            seen, kept = saved.counted[2:]
        if plan != self.plan:
            settings = replace(self._settings, plan=plan)
            if settings.kind == "batches":
                engine_for(settings, place, seen, kept)  # may refuse, and nothing has changed yet
            elif settings.kind == "rows":  # workers of a foreign DataLoader would not notice
                for epoch in (plan.epoch(place.step), plan.epoch(place.step) + 1):
                    check_last_step(plan, epoch, topology.world_size)
            self._engine, self._settings = None, settings
        self._move(place, seen, kept)
        self._earlier = saved.loader.progress.consumed_samples - place.step * self.plan.batch_size

    # --- copies -------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        seen, kept = self._counts()
        return {**self.__dict__, "_engine": None, "_at": self._place(), "_seen": seen, "_kept": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


@final
class OtherRanks(DetdataError, RuntimeError):
    """A state that this rank alone does not know."""
