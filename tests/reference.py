"""Naive oracles: lists, no arithmetic that the library could share a bug with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice


class Stream:
    """A plan as a list of changes, replayed sample by sample. A row is (epoch, position, real)."""

    def __init__(self, n, batch_size, tail, changes=(), gone=frozenset()):
        self.n, self.tail, self.gone = n, tail, gone
        self.sizes = changes or ((0, batch_size),)

    def size_at(self, step):
        return [size for first, size in self.sizes if first <= step][-1]

    def batches(self) -> Iterator[list[tuple[int, int, bool]]]:
        samples = ((e, p) for e in count() for p in range(self.n) if (e, p) not in self.gone)
        if self.tail == "carry":
            for step in count():
                yield [(e, p, True) for e, p in islice(samples, self.size_at(step))]
        step = 0
        for epoch in count():
            left = [p for p in range(self.n) if (epoch, p) not in self.gone]
            while left:
                size = self.size_at(step)
                rows = [(epoch, p, True) for p in left[:size]]
                if self.tail == "drop" and len(rows) < size:
                    break
                if self.tail == "pad":
                    rows += [(epoch, k % self.n, False) for k in range(size - len(rows))]
                yield rows
                left, step = left[size:], step + 1
                if self.tail == "drop" and len(left) < size:  # the epoch is over, whatever size comes next
                    break

    def resized(self, step, size):
        kept = tuple(item for item in self.sizes if item[0] < step)
        return Stream(self.n, size, self.tail, (*kept, (step, size)), self.gone)

    def skipping(self, first, last):
        """What the steps first … last - 1 see, and what lies between that and `last`'s first sample, is gone."""
        if first == last:
            return self
        begins = [rows[0][:2] for rows in islice(self.batches(), last + 1)]
        between = ((e, p) for e in range(begins[first][0], begins[last][0] + 1) for p in range(self.n))
        gone = self.gone | {place for place in between if begins[first] <= place < begins[last]}
        sizes = [item for item in self.sizes if item[0] < first] + [(first, self.size_at(last))]
        sizes += [(step - (last - first), size) for step, size in self.sizes if step > last]
        return Stream(self.n, 0, self.tail, tuple(sizes), gone)
