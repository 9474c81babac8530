"""One epoch of a bucketed plan, or what a change left of one: step -> pieces of buckets, and back.

The samples of a bucket come in an order that is keyed by the epoch; "place" here is a sample's number in that order.
Batches of a bucket take its places from the front, so that at any step what is seen of each bucket is known by how many
of its batches came before. Which bucket's turn it is at a step is dealt out (detdata.orders.deal); the mixed batches
and those of the pool share one label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast, final

import numpy as np

from detdata.arrays import Int64Array
from detdata.keys import fold
from detdata.orders.deal import Deal
from detdata.permutation import permute, unpermute
from detdata.plans.bucket_layout import Cut, Piece, cut, part_of_pool
from detdata.plans.bucket_rules import Rules
from detdata.plans.runs import Runs

FORMAT = "detdata.bucket_plan/1"


class Batched(NamedTuple):
    """A batch. pieces: in places of the epoch; size: rows of it, of which a short last batch fills only some."""

    pieces: tuple[Piece, ...]
    size: int


@dataclass(frozen=True, slots=True)
class _Epoch:
    """What differs between epochs. order: int64[specials], which special batch comes k-th; edges: samples before it."""

    deal: Deal | None
    order: Int64Array
    back: Int64Array
    edges: Int64Array
    gap: int  # where in the pool the dropped samples begin


@final
class BucketShape:
    """rules: of the plan. size: batch_size, or max_tokens. runs: the unseen places of each bucket.

    seen: samples of the epoch before this shape. first: whether the costliest batch comes first in epoch 0.
    swap: (bucket, place) at which the longest sample of that bucket is put in epoch 0.
    """

    def __init__(
        self,
        rules: Rules,
        size: int,
        runs: tuple[Runs, ...],
        seen: int,
        *,
        first: bool,
        swap: tuple[int, int] | None = None,
    ) -> None:
        self.rules = rules
        self.runs = runs
        self.seen = seen
        counts = np.array([run.size for run in runs], dtype=np.int64)
        self.cut: Cut = cut(counts, rules.sizes(size), rules.divisor)
        pool = sum(piece.count for piece in self.cut.pool)
        self._pool_batches, self.left = divmod(pool, self.cut.pool_size)
        self._pool = pool
        mixed = [sum(piece.count for piece in pieces) for pieces in self.cut.mixed]
        self._special_sizes = np.array(mixed + [self.cut.pool_size] * self._pool_batches, dtype=np.int64)
        self._short = self.left if rules.tail != "drop" else 0
        self.steps = int(self.cut.pure.sum()) + self._special_sizes.size + (1 if self._short else 0)
        pure = (self.cut.pure * self.cut.sizes).sum()
        self.samples = int(pure) + int(self._special_sizes.sum()) + self._short
        self._first = self._costliest() if first else None
        self.swap = swap if self._first is None else self._first[2:]
        self._known: tuple[tuple[int, _Epoch], ...] = ()

    @property
    def nominal_sizes(self) -> set[int]:
        """Rows that batches may have."""
        found = set(self.cut.sizes[self.cut.pure > 0].tolist()) | set(self._special_sizes.tolist())
        return found | ({self.cut.pool_size} if self._short else set())

    def before(self, epoch: int, step: int) -> int:
        """Samples before a step, 0 … steps."""
        if step >= self.steps:
            return self.samples
        seen = self._seen(epoch, step)
        return int(seen[:-1] @ self.cut.sizes) + int(self._epoch(epoch).edges[seen[-1]])

    def batch(self, epoch: int, step: int) -> Batched:
        """Return the batch of a step."""
        if self._short and step == self.steps - 1:
            pieces = part_of_pool(self.cut.pool, self._pool - self.left, self.left)
            return Batched(self._placed(pieces), self.cut.pool_size)
        known, forced = self._epoch(epoch), self._forced(epoch)
        if forced is not None and step == 0:
            label, rank = forced, 0
        else:
            label, rank = self._dealt(known, step - (forced is not None), forced)
        if label < self.cut.sizes.size:
            size = int(self.cut.sizes[label])
            return Batched(self._placed((Piece(label, rank * size, size),)), size)
        special = int(known.order[rank])
        return Batched(self._placed(self._special(known, special)), int(self._special_sizes[special]))

    def find(self, epoch: int, bucket: int, place: int) -> int | None:
        """Return the step that uses a place; None if none does."""
        number = self.runs[bucket].index(place)
        if number is None:
            return None
        size, known = int(self.cut.sizes[bucket]), self._epoch(epoch)
        if number < int(self.cut.pure[bucket]) * size:
            return self._step_of(known, bucket, number // size, self._forced(epoch))
        special = self._find_special(known, bucket, number)
        if special is None or special < self._special_sizes.size:
            back = None if special is None else int(known.back[special])
            return None if back is None else self._step_of(known, self.cut.sizes.size, back, self._forced(epoch))
        return self.steps - 1 if self._short else None

    def rest(self, epoch: int, step: int, size: int) -> BucketShape:
        """The shape of what is unseen before a step, in batches of another size."""
        known, seen = self._epoch(epoch), self._seen(epoch, step)
        parts: list[list[tuple[int, int]]] = [
            [(int(seen[bucket] * width), int((pure - seen[bucket]) * width))]
            for bucket, (pure, width) in enumerate(zip(self.cut.pure, self.cut.sizes, strict=True))
        ]
        pieces = [piece for special in known.order[seen[-1] :] for piece in self._special(known, int(special))]
        if self.left:
            pieces += part_of_pool(self.cut.pool, known.gap, self.left)
        for piece in pieces:
            parts[piece.bucket].append((piece.first, piece.count))
        runs = tuple(run.part(own) for run, own in zip(self.runs, parts, strict=True))
        return BucketShape(self.rules, size, runs, self.seen + self.before(epoch, step), first=False, swap=self.swap)

    def _placed(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """Turn pieces of what this shape has into pieces of places."""
        return tuple(
            Piece(piece.bucket, first, count)
            for piece in pieces
            for first, count in self.runs[piece.bucket].pieces(piece.first, piece.count)
        )

    def _special(self, known: _Epoch, number: int) -> tuple[Piece, ...]:
        mixed = len(self.cut.mixed)
        if number < mixed:
            return self.cut.mixed[number]
        first, count = (number - mixed) * self.cut.pool_size, self.cut.pool_size
        before = max(0, min(count, known.gap - first))  # what lies before the gap; the gap is at the end if none drops
        parts = part_of_pool(self.cut.pool, first, before) if before else ()
        if before < count:
            parts += part_of_pool(self.cut.pool, first + before + self.left, count - before)
        return parts

    def _find_special(self, known: _Epoch, bucket: int, number: int) -> int | None:
        """Return which special batch has a sample, specials for the short one, None if it is dropped."""
        for index, pieces in enumerate(self.cut.mixed):
            if any(piece.bucket == bucket and 0 <= number - piece.first < piece.count for piece in pieces):
                return index
        at = 0
        for piece in self.cut.pool:
            if piece.bucket == bucket and 0 <= number - piece.first < piece.count:
                at += number - piece.first
                break
            at += piece.count
        if known.gap <= at < known.gap + self.left:
            return self._special_sizes.size if self._short else None
        return len(self.cut.mixed) + (at - (self.left if at >= known.gap else 0)) // self.cut.pool_size

    def _seen(self, epoch: int, step: int) -> Int64Array:
        """How many batches of each bucket, and of the special ones, come before a step: int64[buckets + 1]."""
        known, forced = self._epoch(epoch), self._forced(epoch)
        one = int(forced is not None and step > 0)
        if known.deal is None:
            seen = np.zeros(self.cut.sizes.size + 1, dtype=np.int64)
        else:
            seen = known.deal.before(np.array([min(step - one, known.deal.size)], dtype=np.int64))[0]
        if one:
            seen[forced] += 1
        return seen

    def _dealt(self, known: _Epoch, position: int, forced: int | None) -> tuple[int, int]:
        deal = cast("Deal", known.deal)  # None only where there is one step at most, which is forced or short
        drawn = deal.draw(np.array([position], dtype=np.int64))
        label = int(drawn.label[0])
        return label, int(drawn.rank[0]) + (label == forced)

    def _step_of(self, known: _Epoch, label: int, rank: int, forced: int | None) -> int:
        if label == forced:
            if rank == 0:
                return 0
            rank -= 1
        deal = cast("Deal", known.deal)  # as above
        found = deal.find(np.array([label], dtype=np.int64), np.array([rank], dtype=np.int64))
        return int(found[0]) + (forced is not None)

    def _forced(self, epoch: int) -> int | None:
        """The label whose batch comes first in this epoch, whatever is dealt."""
        return self._first[0] if epoch == 0 and self._first is not None else None

    def _costliest(self) -> tuple[int, int, int, int] | None:
        """(label, number of the special batch, bucket, place) of the batch that is to come first."""
        sizes = self.cut.sizes.tolist()
        widest = max(bucket for bucket, runs in enumerate(self.runs) if runs.size)
        able = {widest, *np.flatnonzero(self.cut.pure).tolist()}
        bucket = max(able, key=lambda number: (sizes[number] * self.rules.widths[number], number))
        if self.cut.pure[bucket]:
            return bucket, 0, bucket, 0
        batches = [*self.cut.mixed, *([self.cut.pool] if self._pool_batches else [])]  # of the pool it is the first
        for number, pieces in enumerate(batches):
            for piece in pieces:
                if piece.bucket == bucket:
                    return len(sizes), number, bucket, piece.first
        return None

    def _epoch(self, epoch: int) -> _Epoch:
        """What this epoch is like; of the last two asked for it is kept. O(buckets)."""
        for number, known in self._known:
            if number == epoch:
                return known
        made = self._made(epoch)
        self._known = ((epoch, made), *self._known[:1])  # replaced whole, so threads see no half
        return made

    def _made(self, epoch: int) -> _Epoch:
        specials = self._special_sizes.size
        order = np.zeros(0, dtype=np.int64)
        if specials:
            order = permute(np.arange(specials), specials, self._key("mixed", epoch))
        forced = self._forced(epoch)
        if self._first is not None and forced == self.cut.sizes.size:
            at = int(np.flatnonzero(order == self._first[1])[0])
            order[at], order[0] = order[0], self._first[1]
        counts = np.append(self.cut.pure, specials)
        if forced is not None:
            counts[forced] -= 1
        deal = Deal(counts, self._key("batches", epoch)) if counts.sum() else None
        back = np.empty_like(order)
        back[order] = np.arange(specials)
        edges = np.concatenate([[0], np.cumsum(self._special_sizes[order])]).astype(np.int64)
        gap = self._pool - self.left
        if self.left and not self._short and forced != self.cut.sizes.size:
            turn = fold(FORMAT, "dropped", self.rules.seed, self.seen) + epoch
            gap = self.left * (turn % (self._pool // self.left))
        return _Epoch(deal, order, back, edges, gap)

    def _key(self, use: str, epoch: int) -> int:
        return fold(FORMAT, use, self.rules.seed, epoch, self.seen)


EXACT = 2**10  # buckets of more samples are shuffled by the network: sorting them for each batch would take too long


def members(rules: Rules, epoch: int, pieces: tuple[Piece, ...], swap: tuple[int, int] | None) -> Int64Array:
    """Return the ids of the samples at pieces of places."""
    found = []
    for piece in pieces:
        n, key = int(rules.index.sizes[piece.bucket]), fold(FORMAT, "samples", rules.seed, epoch, piece.bucket)
        places = np.arange(piece.first, piece.first + piece.count, dtype=np.int64)
        if swap is not None and epoch == 0 and swap[0] == piece.bucket:
            places = _swapped(rules, places, swap, n, key)
        found.append(rules.index.ids(piece.bucket, permute(places, n, key, EXACT)))
    return np.concatenate(found)


def place_of(rules: Rules, epoch: int, id: int, swap: tuple[int, int] | None) -> tuple[int, int]:
    """Return (bucket, place) of a sample: the inverse of `members`."""
    bucket, rank = rules.index.place(id)
    n, key = int(rules.index.sizes[bucket]), fold(FORMAT, "samples", rules.seed, epoch, bucket)
    place = unpermute(np.array([rank], dtype=np.int64), n, key, EXACT)
    if swap is not None and epoch == 0 and swap[0] == bucket:
        place = _swapped(rules, place, swap, n, key)
    return bucket, int(place[0])


def _swapped(rules: Rules, places: Int64Array, swap: tuple[int, int], n: int, key: int) -> Int64Array:
    """Exchange the place that the longest sample must have and the one that it had."""
    bucket, wanted = swap
    had = int(unpermute(np.array([rules.index.longest(bucket)], dtype=np.int64), n, key, EXACT)[0])
    return np.where(places == wanted, had, np.where(places == had, wanted, places))
