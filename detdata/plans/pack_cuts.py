"""How the tokens of an epoch are cut into numbered sequences of one length, from a place in the data on.

A packed plan has one such cut, or several after each other where its seq_len changes on the way. A cut begins in an
epoch at a token: there its sequences are counted on from those of the cuts before it, and in later epochs from 0.
"""

from __future__ import annotations

from typing import Protocol, final

import numpy as np

from detdata.arrays import Int64Array
from detdata.errors import ArgumentValueError
from detdata.orders.base import Order
from detdata.orders.shuffle import Sequential, Shuffle
from detdata.plans.pack_bins import Bins
from detdata.plans.pack_segments import Segments
from detdata.plans.pack_stream import TokenStream
from detdata.records import Spec


class Cut(Protocol):
    """One way to cut.

    Positions are those of `order`, which has the same size in every epoch; the first `gap` of them are not there in
    `epoch`, the one in which the cut begins. `base` is the number of its first sequence there.
    """

    seq_len: int
    epoch: int
    token: int
    base: int
    gap: int
    order: Order
    alike: bool  # whether the tokens at a position are as many in each later epoch

    def segments(self, ids: Int64Array, epoch: int) -> Segments:
        """What the sequences `ids` of an epoch hold, as rows 0, 1 …."""
        ...

    def positions_of(self, document: int, length: int, epoch: int) -> Int64Array:
        """Where in an epoch tokens of a document are, as far as this cut has them: rising ranges as in `tokens`."""
        ...

    def tokens(self, positions: Int64Array, epoch: int) -> int:
        """Tokens of the sequences at some ranges of positions, int64[k, 2] of (first, after the last one)."""
        ...

    def edge(self, position: int, epoch: int) -> tuple[int, int]:
        """(tokens of the epoch before a position, number of its first sequence)."""
        ...


@final
class JoinedCut:
    """Joined documents, cut every `seq_len` tokens; the last sequence of an epoch is shorter."""

    __slots__ = ("_stream", "_tokens", "alike", "base", "epoch", "gap", "order", "seq_len", "token")

    def __init__(
        self, stream: TokenStream, tokens: int, seq_len: int, *, epoch: int = 0, token: int = 0, base: int = 0
    ) -> None:
        self._stream, self._tokens, self.alike = stream, tokens, True
        self.seq_len, self.epoch, self.token, self.base = seq_len, epoch, token, base
        whole, left = -(-tokens // seq_len), -(-(tokens - token) // seq_len)
        self.gap = whole - left
        self.order: Order = _Numbers(whole, epoch, self.gap, base) if self.gap or base else Sequential(whole)

    def segments(self, ids: Int64Array, epoch: int) -> Segments:
        """What the sequences `ids` of an epoch hold."""
        first, number = (self.token, self.base) if epoch == self.epoch else (0, 0)
        starts = first + (ids - number) * self.seq_len
        return self._stream.segments(starts, np.minimum(starts + self.seq_len, self._tokens), epoch)

    def positions_of(self, document: int, length: int, epoch: int) -> Int64Array:
        """The one range of positions that holds tokens of a document; empty where all come before the cut."""
        start, stop = self._stream.span(document, epoch)
        first, gap = (self.token, self.gap) if epoch == self.epoch else (0, 0)
        begin, end = max(start - first, 0) // self.seq_len, -(-max(stop - first, 0) // self.seq_len)
        return np.array([[gap + begin, gap + end]], dtype=np.int64)

    def tokens(self, positions: Int64Array, epoch: int) -> int:
        """Tokens at ranges of positions."""
        first, left = (self.token, self.order.size - self.gap) if epoch == self.epoch else (0, self.order.size)
        count = int((positions[:, 1] - positions[:, 0]).sum())
        missing = left * self.seq_len - (self._tokens - first)  # in the last sequence
        return count * self.seq_len - (missing if (positions[:, 1] == self.order.size).any() else 0)

    def edge(self, position: int, epoch: int) -> tuple[int, int]:
        """(tokens of the epoch before a position, number of the sequence there)."""
        first, gap, base = (self.token, self.gap, self.base) if epoch == self.epoch else (0, 0, 0)
        return first + (position - gap) * self.seq_len, base + position - gap


@final
class FitCut:
    """Sequences of whole documents, in shuffled order. Begins with an epoch."""

    __slots__ = ("_bins", "alike", "base", "epoch", "gap", "order", "seq_len", "token")

    def __init__(self, bins: Bins, seed: int, *, epoch: int = 0, token: int = 0, base: int = 0) -> None:
        if token or base:
            raise ArgumentValueError('a cut with method="best_fit" begins with an epoch, at token 0')
        self._bins, self.alike = bins, False
        self.seq_len, self.epoch, self.token, self.base, self.gap = bins.seq_len, epoch, 0, 0, 0
        self.order: Order = Shuffle(bins.sequences, seed)

    def segments(self, ids: Int64Array, epoch: int) -> Segments:
        """What the sequences `ids` of an epoch hold."""
        return self._bins.segments(ids, epoch)

    def positions_of(self, document: int, length: int, epoch: int) -> Int64Array:
        """The positions that hold tokens of a document, as ranges of one each."""
        positions = np.sort(self.order._find(self._bins.sequences_of(document, length, epoch), epoch))
        return np.stack([positions, positions + 1], axis=1)

    def tokens(self, positions: Int64Array, epoch: int) -> int:
        """Tokens at ranges of positions: looks at each of them, or at each of the others where these are fewer."""
        if 2 * int((positions[:, 1] - positions[:, 0]).sum()) > self.order.size:
            others = np.array([0, *positions.reshape(-1).tolist(), self.order.size], dtype=np.int64).reshape(-1, 2)
            return self._bins.total - self._counted(others, epoch)
        return self._counted(positions, epoch)

    def _counted(self, positions: Int64Array, epoch: int) -> int:
        return sum(
            self._bins.tokens(self.order._take_run(first, min(_RUN, stop - first), epoch))
            for begin, stop in positions.tolist()
            for first in range(begin, stop, _RUN)
        )

    def edge(self, position: int, epoch: int) -> tuple[int, int]:
        """(0, 0) at the beginning of an epoch; a shuffled epoch has no edge inside."""
        return position, position


_RUN = 2**16


@final
class _Numbers(Order):
    """Positions of a cut that begins inside an epoch, to numbers of sequences: there counted on from the cut before.

    Positions before the cut occur there in rows that only pad; they stand for the first sequences of the cut.
    """

    __slots__ = ("_base", "_epoch", "_gap", "_size")

    def __init__(self, size: int, epoch: int, gap: int, base: int) -> None:
        self._size, self._epoch, self._gap, self._base = size, epoch, gap, base

    @property
    def size(self) -> int:
        return self._size

    @property
    def id_bound(self) -> int:
        return max(self._size, self._base + self._size - self._gap)

    def spec(self) -> Spec:
        # Never written by itself: the plan's own spec says all of it.
        return {"numbers": [self._size, self._epoch, self._gap, self._base]}

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        if epoch != self._epoch:
            return positions.copy()
        place = positions - self._gap
        return np.where(place < 0, positions % (self._size - self._gap), place) + self._base

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        return ids - self._base + self._gap if epoch == self._epoch else ids.copy()
