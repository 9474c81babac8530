"""The endless sequence of a mixture's draws: which source comes when, and its how-manieth draw that is.

The sequence is a list of segments. Within one the weights are the same, and draws come in blocks, whose counts are
quotas (detdata.orders.quotas) and of which each is dealt on its own (detdata.orders.deal). A segment begins where a
weight changes and where a source drops out, with the draws that each source has had as its base; so each goes on
exactly where it was. Where a source will have had so many draws follows from its quota, without walking there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, final

import numpy as np

from detdata.arrays import Int64Array
from detdata.keys import fold
from detdata.orders.deal import STRETCH, Deal
from detdata.orders.quotas import Quotas

MAX_DRAWS = 2**63 - 2**32  # of a run: the counts of whole blocks fit an int64 then


class Drawn(NamedTuple):
    """What is drawn. source: int64[k]; rank: int64[k], how often that source came before."""

    source: Int64Array
    rank: Int64Array


def grouped(owner: Int64Array) -> Iterator[tuple[int, Int64Array]]:
    """Yield (owner, int64 indices at which it stands), owners rising and indices too."""
    if owner.size:
        order = np.argsort(owner, kind="stable")
        cuts = np.flatnonzero(np.diff(owner[order])) + 1
        for part in np.split(order, cuts):
            yield int(owner[part[0]]), part


@final
class Segment:
    """Draws from `start` on, of sources of constant weights.

    base: int64[sources], draws of each source before it. sources: those of a weight above 0, rising; quotas: theirs.
    """

    __slots__ = ("base", "place_of", "quotas", "seed", "sources", "start")

    def __init__(self, start: int, base: Int64Array, sources: Sequence[int], quotas: Quotas, seed: int) -> None:
        self.start, self.base, self.quotas, self.seed = start, base, quotas, seed
        self.sources = np.array(sources, dtype=np.int64)
        self.place_of = {source: index for index, source in enumerate(sources)}

    def counts(self, draws: int) -> Int64Array:
        """Return how often each source comes before draw number `draws`, at or after `start`: int64[sources]."""
        block, inside = divmod(draws - self.start, self.quotas.block)
        deal, before = _block(self, block)
        counts = self.base.copy()
        counts[self.sources] += before
        if inside:
            counts[self.sources] += deal.before(np.array([inside], dtype=np.int64))[0]
        return counts

    def draw(self, draws: Int64Array) -> Drawn:
        """Return what is drawn at draw numbers from `start` on, int64 of one dimension in any order."""
        source, rank = np.empty_like(draws), np.empty_like(draws)
        block, inside = np.divmod(draws - self.start, self.quotas.block)
        for number, where in grouped(block):
            deal, before = _block(self, number)
            drawn = deal.draw(inside[where])
            source[where] = self.sources[drawn.label]
            rank[where] = drawn.rank + before[drawn.label]
        rank += self.base[source]
        return Drawn(source, rank)

    def find(self, source: int, ranks: Int64Array) -> Int64Array:
        """Return the numbers of a source's draws, each rank at or above its base; -1 beyond the last possible one."""
        label = self.place_of[source]
        own = ranks - self.base[source]
        near = np.array([self.quotas.block_of(label, rank) for rank in own.tolist()], dtype=np.int64)
        blocks, result = near.copy(), np.full(ranks.size, -1, dtype=np.int64)
        for number, where in grouped(near):
            if self._is_possible(number):
                blocks[where] += self.quotas.before(number + 1)[label] <= own[where]
            else:
                blocks[where] = -1
        for number, where in grouped(blocks):
            if number >= 0:
                deal, before = _block(self, number)
                inside = deal.find(np.full(where.size, label, dtype=np.int64), own[where] - before[label])
                result[where] = inside + (self.start + number * self.quotas.block)
        return result

    def first_past(self, goals: dict[int, int], *, every: bool) -> int | None:
        """Return after how many draws of the run a source has had more draws than its goal: one of them, or every one.

        goals: source -> draws over the run, at least its base. None: not within the most draws that a run can have.
        """
        own = {self.place_of[source]: goal - int(self.base[source]) for source, goal in goals.items()}
        near = [self.quotas.block_of(label, goal) for label, goal in own.items()]
        number = max(near) if every else min(near)
        if not self._is_possible(number):
            return None
        labels = np.array(list(own), dtype=np.int64)
        goal = np.array([min(one, MAX_DRAWS) for one in own.values()], dtype=np.int64)
        decide = np.all if every else np.any
        if not decide(np.array(self.quotas.before(number + 1), dtype=np.int64)[labels] > goal):
            number += 1
        deal, before = _block(self, number)
        goal -= before[labels]
        low, high = 0, -(-deal.size // STRETCH)  # stretches: at the edge `low` it isn't so yet, at `high` it is
        while high - low > 1:
            middle = (low + high) // 2
            past = decide(deal.before(np.array([middle * STRETCH], dtype=np.int64))[0, labels] > goal)
            low, high = (low, middle) if past else (middle, high)
        drawn = deal.draw(np.arange(low * STRETCH, (low + 1) * STRETCH, dtype=np.int64))
        wanted = np.full(len(self.place_of), -1, dtype=np.int64)
        wanted[labels] = goal
        hits = np.flatnonzero(drawn.rank == wanted[drawn.label])
        inside = low * STRETCH + int(hits[-1] if every else hits[0])
        return self.start + number * self.quotas.block + inside + 1

    def _is_possible(self, block: int) -> bool:
        """Whether a block and the next one are among the draws that a run can have."""
        return self.start + (block + 2) * self.quotas.block <= MAX_DRAWS


@lru_cache(maxsize=64)  # a segment never changes, so the cache can't change a result
def _block(segment: Segment, number: int) -> tuple[Deal, Int64Array]:
    """A block's deal, and the draws of each of the segment's own sources in the blocks before it."""
    before = np.array(segment.quotas.before(number), dtype=np.int64)
    after = np.array(segment.quotas.before(number + 1), dtype=np.int64)
    before.flags.writeable = False
    return Deal(after - before, fold("detdata.mixture/1", "block", segment.seed, segment.start, number)), before
