"""A sorted set of integers as runs: which one is the k-th, which number has one, and parts of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Runs:
    """runs: (first, count) of each, ascending and apart. edges: how many come before each run, and in all.

    >>> runs = Runs.of([(10, 3), (0, 2)])
    >>> runs.size, runs.pieces(1, 3), runs.index(11), runs.index(5)
    (5, [(1, 1), (10, 2)], 3, None)
    """

    runs: tuple[tuple[int, int], ...]
    edges: tuple[int, ...]

    @staticmethod
    def of(runs: list[tuple[int, int]]) -> Runs:
        """Return the set that consists of these runs, which must not overlap; they may touch, and may be empty."""
        merged: list[tuple[int, int]] = []
        for first, count in sorted(run for run in runs if run[1]):
            if merged and sum(merged[-1]) == first:
                merged[-1] = (merged[-1][0], merged[-1][1] + count)
            else:
                merged.append((first, count))
        return Runs(tuple(merged), tuple(accumulate((count for _, count in merged), initial=0)))

    @property
    def size(self) -> int:
        """How many there are."""
        return self.edges[-1]

    def pieces(self, first: int, count: int) -> list[tuple[int, int]]:
        """Return the runs that members first … first + count - 1 make up."""
        found = []
        while count:
            index = bisect_right(self.edges, first) - 1
            begin, length = self.runs[index]
            inside = first - self.edges[index]
            taken = min(count, length - inside)
            found.append((begin + inside, taken))
            first, count = first + taken, count - taken
        return found

    def part(self, runs: list[tuple[int, int]]) -> Runs:
        """Return the members at these runs of numbers."""
        return Runs.of([piece for first, count in runs for piece in self.pieces(first, count)])

    def index(self, value: int) -> int | None:
        """Return the number of a member; None of what is none."""
        at = bisect_right(self.runs, (value, 2**63)) - 1
        if at < 0 or value - self.runs[at][0] >= self.runs[at][1]:
            return None
        return self.edges[at] + value - self.runs[at][0]
