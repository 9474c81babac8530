"""Whole documents in sequences of one size ("best_fit"): which document lies in which bin, epoch by epoch.

A document of more than seq_len tokens gives sequences of its own from its beginning on, and what is left, 1 … seq_len
tokens, is its item. Which lengths share a bin is worked out once (detdata.plans.pack_fit). Which of the documents whose
items have one length takes which place for it changes each epoch: rank (a · place + b) mod p, p the next prime from
their count on, with a and b from a key of (seed, epoch, length). So every place is found by itself, and every document.

Weaker than a shuffle: any two documents of a length are as likely to meet in a bin as any other two, but of three and
more, those whose ranks rise evenly are likelier. Bins are visited shuffled, so among bins nothing of it shows.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array, UInt64Array
from detdata.errors import ArgumentValueError
from detdata.keys import GOLDEN, fold, mix64
from detdata.plans.lengths import chunks
from detdata.plans.pack_fit import best_fit
from detdata.plans.pack_primes import prime_from
from detdata.plans.pack_segments import Segments, runs, segments_of

MAX_SEQ_LEN = 2**24  # lengths are counted one by one
MAX_DOCUMENTS = 2**31 - 1  # products of two places fit 62 bits, and 32 bits have one to spare

_LONG = np.uint32(2**31)  # mark of a document that has sequences of its own before its item

_HALF = np.uint64(32)


class _Turn(NamedTuple):
    """One epoch's places: rank = (times · place + plus) mod prime, for each length that occurs."""

    times: Int64Array  # int64[lengths]
    plus: Int64Array  # int64[lengths]


@final
class Bins:
    """The sequences of best_fit: first the bins, 0 … bins - 1, then those that are one piece of a long document.

    lengths: checked by `as_lengths`. Memory: 4 bytes a document, 16 more for each longer than seq_len. Raises
    ValueError for too many documents, or a seq_len beyond 2**24.
    """

    __slots__ = (
        "_counts", "_edges", "_index", "_known", "_long", "_pieces", "_primes", "_seed", "_values", "patterns",
        "seq_len", "total",
    )  # fmt: skip

    def __init__(self, lengths: npt.NDArray[Any], seq_len: int, seed: int) -> None:
        if lengths.size > MAX_DOCUMENTS:
            raise ArgumentValueError(f'lengths has {lengths.size} documents; method="best_fit" takes up to 2**31 - 1')
        if seq_len > MAX_SEQ_LEN:
            raise ArgumentValueError(f'seq_len is {seq_len}; method="best_fit" takes up to 2**24')
        self.seq_len = seq_len
        self._seed = seed
        counts = np.zeros(seq_len + 1, dtype=np.int64)
        long, pieces = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for first, part in chunks(lengths):
            counts += np.bincount(_items(part, seq_len), minlength=seq_len + 1)
            found = np.flatnonzero(part > seq_len)
            long.append(found + first)
            pieces.append((part[found].astype(np.int64) - 1) // seq_len)
        self._long = np.concatenate(long)
        self._pieces = np.concatenate([[0], np.cumsum(np.concatenate(pieces))]).astype(np.int64)
        counts[0] = 0  # documents without a token
        self.total = int(counts @ np.arange(seq_len + 1)) + int(self._pieces[-1]) * seq_len
        self._values = np.flatnonzero(counts)
        self._counts = counts[self._values]
        self._edges = np.concatenate([[0], np.cumsum(self._counts)]).astype(np.int64)
        many = self._counts.tolist()
        primes = {count: prime_from(count) for count in set(many)}  # few: all counts together are the documents
        self._primes = np.array([primes[count] for count in many], dtype=np.int64)
        self._index = self._sorted(lengths, counts)
        self.patterns = best_fit(self._values.tolist(), many, seq_len)
        self._known: tuple[tuple[int, _Turn], ...] = ()

    def _sorted(self, lengths: npt.NDArray[Any], counts: Int64Array) -> npt.NDArray[np.uint32]:
        """The documents that have an item by its length, those of one length ascending; long ones marked. In chunks."""
        index = np.empty(int(counts.sum()), dtype=np.uint32)
        free = np.cumsum(counts) - counts
        label = np.uint16 if self.seq_len < 2**16 else np.int32
        for first, part in chunks(lengths):
            items = _items(part, self.seq_len)
            order = np.argsort(items.astype(label), kind="stable")
            here = np.bincount(items, minlength=self.seq_len + 1)
            order = order[here[0] :]
            here[0] = 0
            items = items[order]
            marked = (order + first).astype(np.uint32) | np.where(part[order] > self.seq_len, _LONG, np.uint32(0))
            index[(free - np.cumsum(here) + here)[items] + np.arange(items.size)] = marked
            free += here
        return index

    @property
    def bins(self) -> int:
        """How many sequences are bins."""
        return int(self.patterns.edges[-1])

    @property
    def sequences(self) -> int:
        """How many sequences there are."""
        return self.bins + int(self._pieces[-1])

    def segments(self, ids: Int64Array, epoch: int) -> Segments:
        """Return what the sequences ids[i] of an epoch hold, as row i."""
        row = np.arange(ids.size, dtype=np.int64)
        single = ids >= self.bins
        parts = [self._of_bins(ids[~single], row[~single], epoch), self._of_pieces(ids[single], row[single])]
        both = np.concatenate(parts)
        return both[np.argsort(both["row"], kind="stable")] if parts[1].size else parts[0]

    def tokens(self, ids: Int64Array) -> int:
        """Return how many tokens the sequences `ids` have together, in any epoch."""
        entries = self.patterns
        filled = np.add.reduceat(entries.copies * self._values[entries.length], entries.first[:-1])
        mine = ids[ids < self.bins]
        pattern = np.searchsorted(entries.edges, mine, side="right") - 1
        return int(filled[pattern].sum()) + (ids.size - mine.size) * self.seq_len

    def sequences_of(self, document: int, length: int, epoch: int) -> Int64Array:
        """Return the sequences that hold tokens of a document of `length` tokens, at least 1, in an epoch."""
        at = int(np.searchsorted(self._long, document))
        pieces = np.empty(0, dtype=np.int64)
        if length > self.seq_len:
            pieces = np.arange(self._pieces[at], self._pieces[at + 1], dtype=np.int64) + self.bins
        value = int(np.searchsorted(self._values, (length - 1) % self.seq_len + 1))
        mine = self._index[self._edges[value] : self._edges[value + 1]]
        rank = bisect_left(mine, document, key=lambda marked: int(marked & ~_LONG))
        place = self._place_of(rank, value, epoch)
        entries = np.flatnonzero(self.patterns.length == value)
        entry = int(entries[np.searchsorted(self.patterns.base[entries], place, side="right") - 1])
        pattern = int(np.searchsorted(self.patterns.first, entry, side="right")) - 1
        nth = (place - int(self.patterns.base[entry])) // int(self.patterns.copies[entry])
        return np.append(pieces, int(self.patterns.edges[pattern]) + nth)

    def _of_bins(self, ids: Int64Array, row: Int64Array, epoch: int) -> Segments:
        edges, first, length, copies, base = self.patterns
        pattern = np.searchsorted(edges, ids, side="right") - 1
        counts = first[pattern + 1] - first[pattern]
        entry = runs(first[pattern], counts)
        nth: Int64Array = np.repeat(ids - edges[pattern], counts)
        many = copies[entry]
        value = np.repeat(length[entry], many)
        place = runs(base[entry] + nth * many, many)
        rank = self._ranks_at(place, value, epoch)
        marked = self._index[self._edges[value] + rank]
        document = (marked & ~_LONG).astype(np.int64)
        start = np.zeros_like(document)
        long = np.flatnonzero(marked & _LONG)
        at = np.searchsorted(self._long, document[long])
        start[long] = (self._pieces[at + 1] - self._pieces[at]) * self.seq_len
        return segments_of(np.repeat(np.repeat(row, counts), many), document, start, start + self._values[value])

    def _of_pieces(self, ids: Int64Array, row: Int64Array) -> Segments:
        piece = ids - self.bins
        at = np.searchsorted(self._pieces, piece, side="right") - 1
        start = (piece - self._pieces[at]) * self.seq_len
        return segments_of(row, self._long[at], start, start + self.seq_len)

    def _ranks_at(self, places: Int64Array, value: Int64Array, epoch: int) -> Int64Array:
        """The rank that is in each place for a length, among the documents with that length."""
        turn = self._turn(epoch)
        times, plus, prime = turn.times[value], turn.plus[value], self._primes[value]
        counts = self._counts[value]
        ranks = (times * places + plus) % prime
        walking = np.flatnonzero(ranks >= counts)
        while walking.size:  # the prime is a little more than the count: what comes out above goes through again
            ranks[walking] = (times[walking] * ranks[walking] + plus[walking]) % prime[walking]
            walking = walking[ranks[walking] >= counts[walking]]
        return ranks

    def _place_of(self, rank: int, value: int, epoch: int) -> int:
        turn, prime = self._turn(epoch), int(self._primes[value])
        inverse, plus = pow(int(turn.times[value]), -1, prime), int(turn.plus[value])
        place = (rank - plus) * inverse % prime
        while place >= int(self._counts[value]):
            place = (place - plus) * inverse % prime
        return place

    def _turn(self, epoch: int) -> _Turn:
        for known, turn in self._known:
            if known == epoch:
                return turn
        key = np.uint64(fold("detdata.best_fit/1", self._seed, epoch))
        keys = mix64((self._values.astype(np.uint64) + np.uint64(1)) * GOLDEN + key)
        turn = _Turn(_scaled(mix64(keys + GOLDEN), self._primes - 1) + 1, _scaled(keys, self._primes))
        self._known = ((epoch, turn), *self._known[:1])  # replaced whole, so threads see no half
        return turn


def _items(lengths: npt.NDArray[Any], seq_len: int) -> Int64Array:
    """The tokens of each document's item; 0 of a document without a token."""
    wide = lengths.astype(np.int64, copy=False)
    return np.where(wide > 0, (wide - 1) % seq_len + 1, 0)


def _scaled(hashes: UInt64Array, below: Int64Array) -> Int64Array:
    return ((hashes >> _HALF) * below.astype(np.uint64) >> _HALF).view(np.int64)
