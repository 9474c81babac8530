"""Plan: global step -> global batch, as arithmetic.

A plan is an order, a batch size, a tail policy, and what was changed on the way: from which step on another batch size
holds (`resizes`), and which stretches of the data are never trained on (`skips`). That is the whole state of a run's
data; the place of any step, and the step of any sample, follow from it (detdata.plans.walk, detdata.plans.epochs).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from detdata.arrays import Int64Array, as_int64
from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.orders.base import MAX_EPOCH, Order, as_order
from detdata.orders.tables import Tables, rebuild
from detdata.plans.batch import Batch, check_division, part_of
from detdata.plans.digests import digest_of
from detdata.plans.epochs import Epochs, Skip
from detdata.plans.walk import EpochWalk, Place, StreamWalk, Walk
from detdata.records import Spec, from_spec, register_format

Tail: TypeAlias = Literal["drop", "pad", "keep", "carry"]
MAX_STEP = 2**63 - 1
MAX_BATCH = 2**31 - 1


@dataclass(frozen=True)
class Plan:
    """Which samples every global step consumes.

    order: position -> sample id. batch_size: samples of a global step, over all ranks and micro steps.
    tail: what happens to the last samples of an epoch that fill no batch:
    "drop" leaves them out (other ones each epoch), "keep" makes a short last batch, "pad" fills it up with the epoch's
    first samples, marked in `Batch.real`, "carry" lets the batch run on into the next epoch.
    resizes, skips: changes on the way; made by `resized` and `skipping`.

    Immutable; equal exactly if the specs are equal. Any step costs the same: O(batch_size), whatever n and the step.
    Raises ValueError, TypeError; with tail="drop" also for an order of fewer samples than a batch.

    >>> from detdata import Shuffle
    >>> plan = Plan(Shuffle(10**12, seed=1), batch_size=4)
    >>> plan.batch(10**9).ids.shape, plan.consumed(10**9)
    ((4,), 4000000000)
    """

    order: Order
    batch_size: int
    tail: Tail = "drop"
    resizes: tuple[tuple[int, int], ...] = ()
    skips: tuple[Skip, ...] = ()

    def __post_init__(self) -> None:
        as_order(self.order, "order")
        object.__setattr__(self, "batch_size", as_int(self.batch_size, "batch_size", low=1, high=MAX_BATCH))
        if not isinstance(self.tail, str) or self.tail not in get_args(Tail):
            raise ArgumentValueError(f"tail must be one of {', '.join(get_args(Tail))}; got {self.tail!r}")
        object.__setattr__(self, "tail", str(self.tail))
        object.__setattr__(self, "resizes", _rows(self.resizes, "resizes", 2))
        object.__setattr__(self, "skips", _rows(self.skips, "skips", 4))
        _check_changes(self)
        self._walk  # noqa: B018  builds the table now, so that a plan without batches is refused here

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the plan is for."""
        return self.order.id_bound

    @cached_property
    def _epochs(self) -> Epochs:
        return Epochs(self.order.size, self.skips)

    @cached_property
    def _walk(self) -> Walk:
        sizes = ((0, self.batch_size), *self.resizes)
        if self.tail == "carry":
            return StreamWalk.build(self._epochs, sizes)
        return EpochWalk.build(self._epochs, sizes, keeps_tail=self.tail != "drop")

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step: any step from 0 on, in any order of calls.

        Raises ValueError for a negative step, TypeError for no integer. Cost O(batch_size).

        >>> from detdata import Sequential
        >>> Plan(Sequential(10), 4, tail="carry").batch(2).ids.tolist()
        [8, 9, 0, 1]
        """
        number = _step(step)
        place = self._walk.place(number)
        if place.epoch + place.batch_size // self.order.size > MAX_EPOCH:
            raise ArgumentValueError(f"step {number} lies in epoch {place.epoch}; epochs go up to 2**63 - 1")
        epochs, positions, real = self._rows(place)
        ids = np.empty_like(positions)
        for epoch in np.unique(epochs):
            mask = epochs == epoch
            ids[mask] = self.order.take(positions[mask], int(epoch))
        return Batch(number, place.epoch, int(positions[0]), ids, real, epochs)

    def _rows(self, place: Place) -> tuple[Int64Array, Int64Array, Any]:
        """(epoch int64[b], position int64[b], real bool[b]) of each row of a batch."""
        left = self._epochs.run(place.epoch)[0] - place.q
        if self.tail == "carry":
            rows, epoch, q, wanted = [], place.epoch, place.q, place.batch_size
            while wanted:
                take = min(wanted, self._epochs.run(epoch)[0] - q)
                rows.append((epoch, self._epochs.positions(epoch, np.arange(q, q + take, dtype=np.int64))))
                epoch, q, wanted = epoch + 1, 0, wanted - take
            epochs = np.concatenate([np.full(part.size, epoch, dtype=np.int64) for epoch, part in rows])
            return epochs, np.concatenate([part for _, part in rows]), np.ones(epochs.size, dtype=np.bool_)
        padding = max(place.batch_size - left, 0) if self.tail == "pad" else 0
        q_real = np.arange(place.q, place.q + place.real, dtype=np.int64)
        positions = np.concatenate(
            [self._epochs.positions(place.epoch, q_real), np.arange(padding, dtype=np.int64) % self.order.size]
        )
        real = np.arange(positions.size) < place.real
        return np.full(positions.size, place.epoch, dtype=np.int64), positions, real

    def shard(
        self, step: int, rank: int = 0, world_size: int = 1, micro_step: int | None = None, micro_steps: int = 1
    ) -> Batch:
        """Return one rank's part of a step: of one micro step, or of all of them where `micro_step` is None.

        Rank r of W takes rows r, r+W, r+2W … of each micro-batch. The parts are disjoint; their union is the batch.
        Raises ValueError if world_size x micro_steps does not divide the batch size. Cost O(batch_size).

        >>> from detdata import Sequential
        >>> plan = Plan(Sequential(8), 8)
        >>> [plan.shard(0, rank, 2, micro, 2).ids.tolist() for rank in range(2) for micro in range(2)]
        [[0, 2], [4, 6], [1, 3], [5, 7]]
        """
        batch_size = self.batch_size_at(step)
        ranks, parts = check_division(batch_size, world_size, micro_steps)
        number = as_int(rank, "rank", high=ranks - 1, why=f"; world_size is {ranks}")
        micro = range(parts)
        if micro_step is not None:
            one = as_int(micro_step, "micro_step", high=parts - 1, why=f"; micro_steps is {parts}")
            micro = range(one, one + 1)
        return part_of(self.batch(step), batch_size, number, ranks, micro, parts)

    def batch_size_at(self, step: int) -> int:
        """Return the global batch size that holds at a step (a kept last batch of an epoch is shorter)."""
        return self._walk.place(_step(step)).batch_size

    def batch_sizes(self, first: int, last: int) -> tuple[int, ...]:
        """Return the global batch sizes that hold at some step of first … last - 1, in order.

        >>> from detdata import Sequential
        >>> Plan(Sequential(100), 8).resized(5, 12).batch_sizes(0, 10)
        (8, 12)
        """
        here = self.batch_size_at(first)
        return (here, *(size for step, size in self.resizes if first < step < last))

    def steps(self, epoch: int = 0) -> int:
        """Return how many steps begin in an epoch.

        >>> from detdata import Sequential
        >>> Plan(Sequential(10), 4).steps(), Plan(Sequential(10), 4, tail="keep").steps()
        (2, 3)
        """
        return self.first_step(as_int(epoch, "epoch", high=MAX_EPOCH) + 1) - self.first_step(epoch)

    def first_step(self, epoch: int) -> int:
        """Return the first step that begins in this epoch or a later one."""
        return self._walk.first_step(as_int(epoch, "epoch", high=MAX_EPOCH + 1))

    def epoch(self, step: int) -> int:
        """Return the epoch in which a step begins."""
        return self._walk.place(_step(step)).epoch

    def consumed(self, step: int) -> int:
        """Return the samples that all ranks have consumed before a step; padding does not count.

        >>> from detdata import Sequential
        >>> Plan(Sequential(10), 4, tail="pad").consumed(3)
        10
        """
        return self._walk.place(_step(step)).consumed

    def step(self, consumed: int) -> int:
        """Return the step that begins after `consumed` samples: the inverse of `consumed`.

        Raises ValueError naming the two nearest edges for a count at which no step begins.

        >>> from detdata import Sequential
        >>> Plan(Sequential(10), 4, tail="pad").step(10)
        3
        """
        count = as_int(consumed, "consumed")
        step, beyond = self._walk.step_of(count)
        if beyond:
            raise ArgumentValueError(
                f"consumed is {count}, but no step begins there: step {step} begins at {count - beyond} and step "
                f"{step + 1} at {self.consumed(step + 1)}. If the batch size was changed on the way, "
                "rebuild the plan with plan.resized(step, batch_size)"
            )
        return step

    def when(self, id: int, epoch: int = 0) -> int | None:
        """Return the step in which a sample is used in an epoch; None if that epoch drops or skips it.

        Of a sample that an order uses several times, that of the position that `order.find` gives.
        Raises IndexError for an id that the order does not have. Cost: one look-up, for any n and epoch.

        >>> from detdata import Shuffle
        >>> plan = Plan(Shuffle(10**9, seed=5), 512)
        >>> 123 in plan.batch(plan.when(123, epoch=2)).ids
        True
        """
        number = as_int(epoch, "epoch", high=MAX_EPOCH)
        checked = as_int64(as_int(id, "id"), "id", below=self.order.id_bound, what="sample id")
        position = int(self.order._find(checked, number))
        q = None if position < 0 else self._epochs.q(number, position)
        return None if q is None else self._walk.step_at(number, q)

    def resized(self, step: int, batch_size: int) -> Plan:
        """Return the plan that goes on from `step` on another global batch size, at exactly the next unseen sample.

        Steps before keep their batches. May be done any number of times, at any step; later changes of size are
        replaced, skipped data stay skipped. Raises ValueError, TypeError.

        >>> from detdata import Sequential
        >>> Plan(Sequential(120), 8).resized(5, 12).batch(5).ids.tolist()[:3]
        [40, 41, 42]
        """
        first = _step(step)
        size = as_int(batch_size, "batch_size", low=1, high=MAX_BATCH)
        kept = tuple(item for item in self.resizes if item[0] < first)
        return self._with_sizes((*kept, (first, size)), self.skips)

    def skipping(self, first: int, last: int) -> Plan:
        """Return the plan in which the data of steps first … last - 1 are never trained on (after a loss spike, say).

        Later data move up: `batch(first)` is what `batch(last)` was. With tail="pad", rows that only pad (`real` is
        False) are the first of the epoch all the same, and may be of skipped samples. Raises ValueError, TypeError.

        >>> from detdata import Sequential
        >>> plan = Plan(Sequential(100), 10)
        >>> plan.skipping(2, 5).batch(2).ids.tolist() == plan.batch(5).ids.tolist()
        True
        """
        begin = _step(first, "first")
        end = as_int(last, "last", low=begin, high=MAX_STEP)
        if begin == end:
            return self
        at, to = self._walk.place(begin), self._walk.place(end)
        skip = (at.epoch, self._epochs.position(at.epoch, at.q), to.epoch, self._epochs.position(to.epoch, to.q))
        sizes = [item for item in self.resizes if item[0] < begin]
        sizes.append((begin, to.batch_size))
        sizes += [(step - (end - begin), size) for step, size in self.resizes if step > end]
        return self._with_sizes(tuple(sizes), self._epochs.with_skip(skip))

    def _with_sizes(self, sizes: tuple[tuple[int, int], ...], skips: tuple[Skip, ...]) -> Plan:
        """Return the plan with these changes, in the one form that equal plans share: none that changes nothing."""
        first = self.batch_size
        kept: list[tuple[int, int]] = []
        for step, size in sizes:
            if step == 0:
                first = size
            elif size != (kept[-1][1] if kept else first):
                kept.append((step, size))
        return replace(self, batch_size=first, resizes=tuple(kept), skips=skips)

    def digest(self, first: int, last: int) -> str:
        """Return the digest of the batches of steps first … last - 1: the same on any machine.

        Covers ids, their order, batch edges and padding (docs/spec.md, section 4). Cost O(samples).

        >>> from detdata import Shuffle
        >>> Plan(Shuffle(1000, seed=1), 10).digest(0, 100)
        'xxh3-128:0d62303a9b014213beedfbe787d5afcc'
        """
        begin = _step(first, "first")
        return digest_of(self.batch, begin, as_int(last, "last", low=begin, high=MAX_STEP))

    def spec(self) -> Spec:
        """Return the plain JSON from which `detdata.from_spec` rebuilds this plan."""
        return {
            "format": "detdata.plan/1",
            "order": self.order.spec(),
            "batch_size": self.batch_size,
            "tail": self.tail,
            "resizes": [list(item) for item in self.resizes],
            "skips": [list(item) for item in self.skips],
        }

    def _tables(self) -> Tables:
        return self.order._tables()

    def __reduce__(self) -> tuple[Any, ...]:
        tables = self._tables()
        return (rebuild, (self.spec(), tables)) if tables else (from_spec, (self.spec(),))


def _step(value: object, name: str = "step") -> int:
    return as_int(value, name, high=MAX_STEP)


def _rows(value: object, name: str, width: int) -> Any:
    """Return resizes or skips as tuples of Python integers, whatever sequences and integers they came as."""
    rows = tuple(value) if isinstance(value, (list, tuple)) else None
    if rows is None or any(not isinstance(row, (list, tuple)) or len(row) != width for row in rows):
        raise ArgumentTypeError(f"{name} must be rows of {width} integers, got {brief(value)}")
    return tuple(tuple(as_int(item, name) for item in row) for row in rows)


def _check_changes(plan: Plan) -> None:
    """Check resizes and skips, which may come from a file, to be in their one form."""
    n = plan.order.size
    steps = [0] + [as_int(step, "resizes: step", high=MAX_STEP) for step, _ in plan.resizes]
    sizes = [plan.batch_size] + [as_int(size, "resizes: batch_size", low=1, high=MAX_BATCH) for _, size in plan.resizes]
    if any(a >= b for a, b in pairwise(steps)) or any(a == b for a, b in pairwise(sizes)):
        raise ArgumentValueError(f"resizes must have rising steps and changing sizes, got {plan.resizes}")
    last: tuple[int, int] = (-1, 0)
    for first_epoch, first, last_epoch, stop in plan.skips:
        for epoch in (first_epoch, last_epoch):
            as_int(epoch, "skips: epoch", high=MAX_EPOCH)
        for position in (first, stop):
            as_int(position, "skips: position", high=n - 1)
        if not last < (first_epoch, first) < (last_epoch, stop):
            raise ArgumentValueError(f"skips must be rising, disjoint ranges of (epoch, position), got {plan.skips}")
        last = (last_epoch, stop)


def _build(spec: Spec) -> Plan:
    order = as_order(from_spec(spec["order"]), "order")
    return Plan(order, spec["batch_size"], spec["tail"], spec["resizes"], spec["skips"])


register_format("detdata.plan/1", ("order", "batch_size", "tail", "resizes", "skips"), _build)
