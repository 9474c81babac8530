"""How the samples of buckets are cut into batches: most from one bucket each, the rest mixed from neighbouring ones.

Buckets are numbered from the shortest lengths up. Each gives as many whole batches of its own size as it has. What is
left over is carried to the next bucket towards the largest one, the pivot: from the widest down, from the narrowest up.
There it fills a batch together with that bucket's own. What arrives at the pivot from both sides, and so many of the
pivot's own that it makes three batches, is the pool: cut into batches of one size, and what remains of it is the one
short batch of the epoch, or what the epoch drops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from detdata.arrays import Int64Array

_POOL = 3  # batches in the pool at least: so that what an epoch drops is not what the one before did


@dataclass(frozen=True, slots=True)
class Piece:
    """Samples first … first + count - 1 of a bucket."""

    bucket: int
    first: int
    count: int


class Cut(NamedTuple):
    """sizes: samples of a batch of each bucket. pure: int64[buckets], batches of one bucket each: the first ones of it.

    mixed: the pieces of each mixed batch. pool: the pieces of the pool, from the widest to the narrowest, and how many
    samples a batch of it has.
    """

    sizes: Int64Array
    pure: Int64Array
    mixed: tuple[tuple[Piece, ...], ...]
    pool: tuple[Piece, ...]
    pool_size: int


def cut(counts: Int64Array, sizes: Int64Array, divisor: int) -> Cut:
    """Cut buckets of so many samples into batches. sizes: of a batch of each bucket, multiples of `divisor`.

    Wider buckets have smaller batches or equal ones. O(buckets).

    >>> done = cut(np.array([5, 9]), np.array([4, 4]), 1)
    >>> done.pure.tolist(), done.mixed, done.pool, done.pool_size
    ([1, 0], (), (Piece(bucket=1, first=0, count=9), Piece(bucket=0, first=4, count=1)), 4)
    """
    pivot = int(np.argmax(counts))
    wide, narrow = _Work(counts, sizes, divisor), _Work(counts, sizes, divisor)
    above = wide.carry(range(counts.size - 1, pivot, -1), widest_first=True)
    below = narrow.carry(range(pivot), widest_first=False)
    own, step = int(counts[pivot]), int(sizes[pivot])
    while True:
        pool_size = int(sizes[above[0].bucket if above else pivot])
        carried = sum(piece.count for piece in (*above, *below))
        if own + carried >= _POOL * pool_size or not (wide.mixed or narrow.mixed):
            break
        if wide.mixed:  # too little is left to make a pool of: so those batches that were made last go into it
            above = [*wide.mixed.pop(), *above]
        else:
            below = [*narrow.mixed.pop(), *below]
    pure = wide.pure + narrow.pure
    pure[pivot] = batches = max(0, min(own // step, (own + carried - _POOL * pool_size) // step))
    middle = Piece(pivot, batches * step, own - batches * step)
    pool = tuple(piece for piece in (*above, middle, *reversed(below)) if piece.count)
    return Cut(sizes, pure, (*wide.mixed, *narrow.mixed), pool, pool_size)


class _Work:
    """The carrying from bucket to bucket."""

    def __init__(self, counts: Int64Array, sizes: Int64Array, divisor: int) -> None:
        self.counts, self.sizes, self.divisor = counts.tolist(), sizes.tolist(), divisor
        self.pure = np.zeros(counts.size, dtype=np.int64)
        self.mixed: list[tuple[Piece, ...]] = []

    def carry(self, buckets: range, *, widest_first: bool) -> list[Piece]:
        """Go through buckets; return what the last one passes on."""
        carried: list[Piece] = []
        for bucket in buckets:
            size, own = self.sizes[bucket], self.counts[bucket]
            held = sum(piece.count for piece in carried)
            wanted = self.sizes[carried[0].bucket] if carried and widest_first else size
            if held >= wanted:  # narrow ones that would not fit a batch of this bucket's: a batch of their own
                carried = self._cut_off(carried, held - held % self.divisor)
                held %= self.divisor
            filling = min(own, wanted - held) if held else 0
            self.pure[bucket] = batches = (own - filling) // size
            first, left = batches * size, own - batches * size
            if held and held + filling == wanted:
                self.mixed.append((*carried, Piece(bucket, first, filling)))
                carried, first, left = [], first + filling, left - filling
            if left:
                carried.append(Piece(bucket, first, left))
        return carried

    def _cut_off(self, carried: list[Piece], count: int) -> list[Piece]:
        """Make a batch of the first `count` that are carried; return the rest."""
        batch, rest = [], []
        for piece in carried:
            taken = min(piece.count, count)
            count -= taken
            batch += [Piece(piece.bucket, piece.first, taken)] if taken else []
            rest += [Piece(piece.bucket, piece.first + taken, piece.count - taken)] if piece.count > taken else []
        self.mixed.append(tuple(batch))
        return rest


def part_of_pool(pool: tuple[Piece, ...], first: int, count: int) -> tuple[Piece, ...]:
    """Return the pieces that make up samples first … first + count - 1 of a pool.

    >>> part_of_pool((Piece(1, 0, 9), Piece(0, 4, 1)), 8, 2)
    (Piece(bucket=1, first=8, count=1), Piece(bucket=0, first=4, count=1))
    """
    found = []
    for piece in pool:
        taken = min(piece.count - first, count)
        if taken > 0:
            found.append(
                Piece(piece.bucket, piece.first + max(first, 0), taken if first > 0 else min(piece.count, count))
            )
            count -= found[-1].count
            first = 0
        else:
            first -= piece.count
        if not count:
            break
    return tuple(found)
