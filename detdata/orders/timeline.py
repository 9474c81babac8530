"""All draws of a mixture's run: its segments one after another, and where it ends.

A segment ends where weights change, and where a source has had all the draws that it may have: that draw is found by
arithmetic on its quota (`Segment.first_past`). What ends an epoch, a source that is used up, is found likewise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from detdata.arrays import Int64Array
from detdata.orders.quotas import Quotas
from detdata.orders.segments import Drawn, Segment, grouped

Change: TypeAlias = tuple[int, tuple[tuple[int, Fraction], ...]]  # from this draw on, the weights of these sources
Goal: TypeAlias = Literal["first", "all"]  # the run ends once one source is used up, or every one that is drawn


class Rules(NamedTuple):
    """What a run of draws follows.

    names, weights: of each source. changes: of weights, positions rising, from 1 on. most: draws that each source may
    have; None: any number. used_up: after how many draws each is used up. goal: when the run ends by itself.
    """

    names: tuple[str, ...]
    weights: tuple[Fraction, ...]
    changes: tuple[Change, ...]
    most: tuple[int | None, ...]
    used_up: tuple[int, ...]
    goal: Goal | None
    seed: int


@dataclass(frozen=True)
class Timeline:
    """Segments, rising; `end`: how many draws there are, None where there is no end; `unreached`: changes beyond it."""

    segments: tuple[Segment, ...]
    starts: tuple[int, ...]
    end: int | None
    unreached: tuple[Change, ...]

    def counts(self, draws: int) -> Int64Array:
        """Return how often each source comes in the first `draws` draws, at most `end`: int64[sources]."""
        return self.segments[max(bisect_right(self.starts, draws) - 1, 0)].counts(draws)

    def draw(self, draws: Int64Array) -> Drawn:
        """Return what is drawn at draw numbers below `end`: int64 of one dimension, in any order."""
        if len(self.segments) == 1:
            return self.segments[0].draw(draws)
        source, rank = np.empty_like(draws), np.empty_like(draws)
        owner = np.searchsorted(np.array(self.starts, dtype=np.int64), draws, side="right") - 1
        for index, where in grouped(owner):
            source[where], rank[where] = self.segments[index].draw(draws[where])
        return Drawn(source, rank)

    def find(self, source: int, ranks: Int64Array) -> Int64Array:
        """Return the numbers of draws of one source: int64[ranks]; -1 where that draw never comes."""
        result = np.full(ranks.size, -1, dtype=np.int64)
        bases = np.array([segment.base[source] for segment in self.segments], dtype=np.int64)
        owner = np.searchsorted(bases, ranks, side="right") - 1
        for index, where in grouped(owner):
            if source in self.segments[index].place_of:
                result[where] = self.segments[index].find(source, ranks[where])
        if self.end is not None:
            result[result >= self.end] = -1
        return result


def lay_out(rules: Rules) -> Timeline:
    """Lay out the segments of a run. Cost: some 0.3 ms a segment. Raises ValueError for a weight that is too small."""
    segments: list[Segment] = []
    changes, weights = list(rules.changes), list(rules.weights)
    start, base = 0, np.zeros(len(weights), dtype=np.int64)
    end: int | None = None
    while end is None:
        drawn = [i for i, weight in enumerate(weights) if weight and not _reached(base[i], rules.most[i])]
        if not drawn:
            end = start
            break
        quotas = Quotas({rules.names[i]: weights[i] for i in drawn})
        segment = Segment(start, base, drawn, quotas, rules.seed)
        segments.append(segment)
        stops = [changes[0][0]] if changes else []
        limits = {i: most - 1 for i in drawn if (most := rules.most[i]) is not None}
        if limits and (dropped := segment.first_past(limits, every=False)) is not None:
            stops.append(dropped)
        over = _over(segment, drawn, rules)
        if over is not None and over <= min(stops, default=over):
            end = over
        elif stops:
            start = min(stops)
            base = segment.counts(start)
            while changes and changes[0][0] <= start:
                for source, weight in changes.pop(0)[1]:
                    weights[source] = weight
        else:
            break
    return Timeline(tuple(segments), tuple(segment.start for segment in segments), end, tuple(changes))


def _reached(draws: int, most: int | None) -> bool:
    return most is not None and draws >= most


def _over(segment: Segment, drawn: Sequence[int], rules: Rules) -> int | None:
    """After how many draws the goal is reached in a segment, as if it went on for ever."""
    if rules.goal is None:
        return None
    goals = {i: rules.used_up[i] - 1 for i in drawn if segment.base[i] < rules.used_up[i]}
    if not goals:  # what had not been used up was taken away: one draw more, as an end comes after a draw
        return segment.start + 1
    return segment.first_past(goals, every=rules.goal == "all")
