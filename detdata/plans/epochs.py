"""What is left of each epoch when some samples are skipped for good: two coordinates of one sample, and the way across.

A *position* counts all n samples of an epoch's order. A *rank number* q counts only those that are left, so batches are
cut out of 0 … size(epoch) - 1 without a gap. A skip is a half-open range of places (epoch, position) and may run over
epoch ends. All of it is arithmetic on the list of skips; nothing here grows with n or with the epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from detdata.arrays import Int64Array

Skip: TypeAlias = tuple[int, int, int, int]  # first epoch, first position; last epoch, position after the last one


@dataclass(frozen=True)
class Epochs:
    """The epochs of an order of n samples without those that `skips` (sorted, disjoint, not touching) take out."""

    n: int
    skips: tuple[Skip, ...] = ()

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """(first epoch, size) of each run of epochs of equal size; the last run has no end, and its size is n."""
        starts = {0}
        for first, _, last, _ in self.skips:
            starts |= {first, first + 1, last, last + 1}
        runs: list[tuple[int, int]] = []
        for start in sorted(starts):
            size = self.n - sum(stop - begin for begin, stop in self.holes(start))
            if not runs or runs[-1][1] != size:
                runs.append((start, size))
        return tuple(runs)

    @cached_property
    def _run_starts(self) -> tuple[int, ...]:
        return tuple(start for start, _ in self.runs)

    @cached_property
    def _run_totals(self) -> tuple[int, ...]:
        """Samples left in all epochs before each run."""
        totals = [0]
        for (start, size), (following, _) in pairwise(self.runs):
            totals.append(totals[-1] + (following - start) * size)
        return tuple(totals)

    def run(self, epoch: int) -> tuple[int, int | None]:
        """(size, first epoch after its run or None) of an epoch."""
        index = bisect_right(self._run_starts, epoch) - 1
        after = self._run_starts[index + 1] if index + 1 < len(self.runs) else None
        return self.runs[index][1], after

    def before(self, epoch: int) -> int:
        """Samples left in all epochs before this one."""
        index = bisect_right(self._run_starts, epoch) - 1
        start, size = self.runs[index]
        return self._run_totals[index] + (epoch - start) * size

    def split(self, count: int) -> tuple[int, int]:
        """(epoch, q) of the sample before which `count` samples are left in the whole stream."""
        index = bisect_right(self._run_totals, count) - 1  # of empty runs with equal totals, the last: not empty
        start, size = self.runs[index]
        full, q = divmod(count - self._run_totals[index], size)
        return start + full, q

    def holes(self, epoch: int) -> list[tuple[int, int]]:
        """The [begin, stop) ranges of positions that are skipped in an epoch, sorted."""
        return [
            (begin if first == epoch else 0, stop if last == epoch else self.n)
            for first, begin, last, stop in self.skips
            if first <= epoch <= last and (last > epoch or stop > 0)
        ]

    def positions(self, epoch: int, q: Int64Array) -> Int64Array:
        """Positions of the samples q of an epoch."""
        holes = self.holes(epoch) if self.skips else []
        if not holes:
            return q
        begins, gone = self._holes_as_arrays(holes)
        return q + gone[np.searchsorted(begins - gone[:-1], q, side="right")]

    def position(self, epoch: int, q: int) -> int:
        """Position of the sample q of an epoch, as a Python int."""
        return int(self.positions(epoch, np.array([q], dtype=np.int64))[0])

    def q(self, epoch: int, position: int) -> int | None:
        """The inverse of `position`: None where that sample is skipped."""
        gone = 0
        for begin, stop in self.holes(epoch):
            if position < begin:
                break
            if position < stop:
                return None
            gone += stop - begin
        return position - gone

    @staticmethod
    def _holes_as_arrays(holes: list[tuple[int, int]]) -> tuple[Int64Array, Int64Array]:
        begins = np.array([begin for begin, _ in holes], dtype=np.int64)
        gone = np.concatenate([[0], np.cumsum([stop - begin for begin, stop in holes])]).astype(np.int64)
        return begins, gone

    def with_skip(self, skip: Skip) -> tuple[Skip, ...]:
        """Return `skips` and one more, sorted, with overlapping and touching ones made one."""
        merged: list[Skip] = []
        for item in sorted([*self.skips, skip]):
            if merged and item[:2] <= merged[-1][2:]:
                merged[-1] = (*merged[-1][:2], *max(merged[-1][2:], item[2:]))
            else:
                merged.append(item)
        return tuple(merged)
