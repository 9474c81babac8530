"""Where each source of a mixture stands at any position of any epoch: the timeline, cut into epochs.

With a size the timeline is the whole run, and epoch e begins at draw e·size. With a stopping rule it is one epoch, and
every epoch has the same labels; sources then go on from epoch to epoch ("first") or begin a fresh pass with each.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from detdata.arrays import Int64Array
from detdata.checks import MAX_SIZE, as_int
from detdata.errors import ArgumentValueError
from detdata.orders.base import MAX_EPOCH
from detdata.orders.mixture_terms import Terms
from detdata.orders.segments import MAX_DRAWS
from detdata.orders.timeline import lay_out


class EpochPlace(NamedTuple):
    """Where an epoch begins.

    draw: its first draw of the timeline. end: the one after its last. ranks, passes: int64[sources]; draw number `rank`
    of a source on the timeline is its draw rank + ranks[source], counted from pass `passes[source]` on.
    """

    draw: int
    end: int
    ranks: Int64Array
    passes: Int64Array


class Places(NamedTuple):
    """What is drawn at positions, each int64[k]: the source, which pass of it, and the place in that pass."""

    source: Int64Array
    number: Int64Array
    place: Int64Array


@final
class Run:
    """The draws of a mixture by epoch and position. Raises ValueError for terms that no epoch of that size follows."""

    __slots__ = ("_in_epoch", "_passes", "_sizes", "_stop", "_timeline", "size")

    def __init__(self, terms: Terms) -> None:
        self._timeline = lay_out(terms.rules())
        self._stop = terms.stop
        self.size = self._measured(terms)
        self._sizes = np.array([order.size for order in terms.sources.values()], dtype=np.int64)
        none = np.zeros_like(self._sizes)
        self._in_epoch = none if terms.stop is None else self._timeline.counts(self.size)
        self._passes = -(-self._in_epoch // self._sizes)  # of each source in an epoch, begun ones too

    def epoch(self, epoch: object) -> EpochPlace:
        """Return where an epoch begins. Raises TypeError, and ValueError for one beyond the end of the run."""
        number = as_int(epoch, "epoch", high=MAX_EPOCH)
        if (number + 1) * self.size > MAX_DRAWS:
            raise ArgumentValueError(
                f"epoch {number} of {self.size} draws each lies beyond the 2**63 - 2**32 draws that a mixture has"
            )
        none = np.zeros_like(self._sizes)
        if self._stop is None:
            first = number * self.size
            return EpochPlace(first, first + self.size, none, none)
        if self._stop == "first":
            return EpochPlace(0, self.size, number * self._in_epoch, none)
        return EpochPlace(0, self.size, none, number * self._passes)

    def draw(self, positions: Int64Array, epoch: int) -> Places:
        """Return what is drawn at positions of an epoch: int64 of one dimension, at least one, in [0, size)."""
        at = self.epoch(epoch)
        self._check(at.draw + int(positions.max()) + 1)
        source, rank = self._timeline.draw(positions + at.draw)
        number, place = np.divmod(rank + at.ranks[source], self._sizes[source])
        return Places(source, number + at.passes[source], place)

    def counts(self, position: object, epoch: object) -> Int64Array:
        """Return how often each source was drawn in the run before a position 0 … size of an epoch: int64[sources]."""
        at = self.epoch(epoch)
        return self._before(position, at) + as_int(epoch, "epoch") * self._in_epoch

    def standing(self, position: object, epoch: object) -> tuple[Int64Array, Int64Array]:
        """Return (pass, place) of each source's next draw from a position of an epoch on: int64[sources] each."""
        at = self.epoch(epoch)
        ranks = self._before(position, at) + at.ranks
        return ranks // self._sizes + at.passes, ranks % self._sizes

    def ranks(self, source: int, at: EpochPlace) -> tuple[int, int]:
        """Return [low, high): the draws of a source that an epoch has, counted from pass `at.passes[source]` on."""
        end = at.end if self._timeline.end is None else min(at.end, self._timeline.end)
        before = self._timeline.counts(min(at.draw, end))[source] + at.ranks[source]
        after = self._timeline.counts(end)[source] + at.ranks[source]
        return int(before), int(after)

    def positions(self, source: int, ranks: Int64Array, at: EpochPlace) -> Int64Array:
        """Return at which positions of an epoch those draws of a source come: int64[ranks]."""
        return self._timeline.find(source, ranks - at.ranks[source]) - at.draw

    def _before(self, position: object, at: EpochPlace) -> Int64Array:
        draws = at.draw + as_int(position, "position", high=self.size)
        self._check(draws)
        return self._timeline.counts(draws)

    def _check(self, draws: int) -> None:
        end = self._timeline.end
        if end is not None and draws > end:
            raise ArgumentValueError(
                f"the mixture ends after draw {end} of the run: each source has made the passes that limits allow; "
                f"asked was for {draws} draws"
            )

    def _measured(self, terms: Terms) -> int:
        """The draws of an epoch, by `size` or by `stop`."""
        end, beyond = self._timeline.end, self._timeline.unreached
        if beyond:
            raise ArgumentValueError(f"changes: position {beyond[0][0]} lies beyond the end, which is after draw {end}")
        if terms.size is not None:
            if end is not None and end < terms.size:
                raise ArgumentValueError(
                    f"size is {terms.size}, but after {end} draws each source has made the passes that limits allow; "
                    "take a smaller size, or higher limits"
                )
            return terms.size
        if end is None or end > MAX_SIZE:
            raise ArgumentValueError(f"stop={terms.stop!r}: an epoch would have more than 2**62 draws; give a size")
        return end
