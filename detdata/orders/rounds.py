"""Groups laid in a line and dealt over batches, so that no group comes twice in a batch: by arithmetic, round by round.

Group after group with its tuples, one after another, make a line of numbers 0 … c · M - 1. Number t goes to batch
t mod M, as McNaughton's wrap-around rule fills machines (1959): a group of at most M tuples has at most one in a batch.
Batches that are alike modulo the number of rounds make a round. Of each group, what the line deals to a round is a run
of one after another; the runs are sorted by a keyed hash and dealt over the round's batches by the same rule. A round
holds about as many tuples as there are groups: which groups meet in a batch is drawn anew in every round.
Fixed in docs/spec.md, section 12.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from detdata.arrays import Int64Array
from detdata.keys import GOLDEN, mix64

TUPLES = 1024  # of a round at most, or two batches: any step costs the same however many groups there are
_AT_ONCE = 32768  # tuples of rounds that are made together


class Rounds(NamedTuple):
    """How `batches` batches of c tuples each fall into `total` rounds, some of one batch more than the others.

    >>> rounds = Rounds.of(batches=7, c=2, groups=6)
    >>> [rounds.of_batch(np.array([batch]))[0].tolist() for batch in range(7)]
    [[0], [0], [0], [1], [1], [2], [2]]
    """

    batches: int
    c: int
    total: int

    @classmethod
    def of(cls, batches: int, c: int, groups: int) -> Rounds:
        """Rounds of as many batches as hold each group once, but of no more than 1024 tuples or two batches."""
        most = min(-(-groups // c), max(2, TUPLES // c))
        return cls(batches, c, -(-batches // most))

    def sizes(self, rounds: Int64Array) -> Int64Array:
        """Batches of each round."""
        return self.batches // self.total + (rounds < self.batches % self.total).astype(np.int64)

    def first_batch(self, rounds: Int64Array) -> Int64Array:
        """The batch of the epoch with which each round begins."""
        return rounds * (self.batches // self.total) + np.minimum(rounds, self.batches % self.total)

    def of_batch(self, batch: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(round, place in it) of each batch of the epoch."""
        short, longer = divmod(self.batches, self.total)
        late = batch - longer * (short + 1)
        rounds = np.where(late < 0, batch // (short + 1), longer + late // short)
        return rounds, batch - self.first_batch(rounds)

    def of_number(self, number: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(round, how many of the line's tuples before it are in that round) of each number of the line."""
        slot, batch = np.divmod(number, self.batches)
        place, rounds = np.divmod(batch, self.total)
        return rounds, slot * self.sizes(rounds) + place

    def numbers(self, rounds: Int64Array) -> Int64Array:
        """Numbers of the line that fall to each round, those of one round after those of another, each ascending."""
        sizes = self.sizes(rounds)
        counts = sizes * self.c
        owner = np.repeat(np.arange(rounds.size), counts)
        slot, place = np.divmod(np.arange(owner.size) - (np.cumsum(counts) - counts)[owner], sizes[owner])
        numbers: Int64Array = slot * self.batches + rounds[owner] + self.total * place
        return numbers


@final
class Line:
    """One epoch's line. groups: int64[groups], which group lies where; tuples: how many each has there.

    >>> line = Line(Rounds.of(3, 2, 3), np.array([2, 0, 1]), np.array([2, 2, 2]), key=1)
    >>> line.tuple_of(np.array([0, 1, 5])).group.tolist()
    [2, 2, 1]
    """

    __slots__ = ("_edges", "_groups", "_key", "_known", "_rounds")

    def __init__(self, rounds: Rounds, groups: Int64Array, tuples: Int64Array, key: int) -> None:
        self._rounds = rounds
        self._groups = groups
        self._edges: Int64Array = np.concatenate([[0], np.cumsum(tuples)]).astype(np.int64)
        self._key = np.uint64(key)
        self._known: tuple[bytes, _Dealt] | None = None

    def tuple_of(self, number: Int64Array) -> _Tuple:
        """Return whose tuple each number of the line is, and which of them."""
        at = np.searchsorted(self._edges, number, side="right") - 1
        return _Tuple(self._groups[at], number - self._edges[at])

    def number_of(self, at: Int64Array, turn: Int64Array) -> Int64Array:
        """Return the number of the tuple `turn` of the group that lies at `at`."""
        return self._edges[at] + turn

    def deal(self, rounds: Int64Array, inside: Int64Array) -> Int64Array:
        """Return the number of the line that comes as number `inside` of its round."""
        return self._through(rounds, inside, inverse=False)

    def undeal(self, rounds: Int64Array, inside: Int64Array) -> Int64Array:
        """Return as which number of its round comes what the line deals to it as number `inside`."""
        return self._through(rounds, inside, inverse=True)

    def _through(self, rounds: Int64Array, inside: Int64Array, *, inverse: bool) -> Int64Array:
        if not rounds.size:
            return inside
        if rounds.min() == rounds.max():  # as in most steps
            dealt = self._dealt(rounds[:1])
            return (dealt.places if inverse else dealt.numbers)[inside]
        result = np.empty_like(inside)
        distinct, which = np.unique(rounds, return_inverse=True)
        by_round = np.argsort(which, kind="stable")
        together = max(1, _AT_ONCE // (self._rounds.c * int(self._rounds.sizes(distinct).max())))
        firsts = np.arange(0, distinct.size, together)
        cuts = np.searchsorted(which[by_round], np.append(firsts, distinct.size)).tolist()
        for first, begin, end in zip(firsts.tolist(), cuts[:-1], cuts[1:], strict=True):
            mine = by_round[begin:end]
            dealt = self._dealt(distinct[first : first + together])
            start = dealt.starts[which[mine] - first]
            at = start + inside[mine]
            result[mine] = dealt.places[at] - start if inverse else dealt.numbers[at]
        return result

    def _dealt(self, rounds: Int64Array) -> _Dealt:
        """The tuples of some rounds in the order in which they are dealt; of those last asked for it is kept."""
        name = rounds.tobytes()
        known = self._known
        if known is not None and known[0] == name:
            return known[1]
        dealt = self._new_dealt(rounds)
        self._known = (name, dealt)  # replaced whole, so threads see no half
        return dealt

    def _new_dealt(self, rounds: Int64Array) -> _Dealt:
        numbers = self._rounds.numbers(rounds)
        counts = self._rounds.sizes(rounds) * self._rounds.c
        starts = np.cumsum(counts) - counts
        at = np.searchsorted(self._edges, numbers, side="right")
        new = np.empty(numbers.size, dtype=np.bool_)
        np.not_equal(at[1:], at[:-1], out=new[1:])
        new[starts] = True
        begins = np.flatnonzero(new)  # of the runs of one group
        lengths = np.diff(np.append(begins, numbers.size))
        first_runs = np.searchsorted(begins, starts)
        round_of = np.repeat(np.arange(rounds.size), np.diff(np.append(first_runs, begins.size)))
        run = (np.arange(begins.size) - first_runs[round_of]).astype(np.uint64)  # its number in its round
        keys = mix64((rounds.astype(np.uint64) + np.uint64(1)) * GOLDEN + self._key)
        hashes = mix64((run + np.uint64(1)) * GOLDEN + keys[round_of])
        order = np.lexsort((hashes, round_of))  # stable: of equal hashes the first run first
        lengths = lengths[order]
        source = np.repeat(begins[order] - (np.cumsum(lengths) - lengths), lengths) + np.arange(numbers.size)
        places = np.empty_like(source)
        places[source] = np.arange(source.size)
        return _Dealt(starts, numbers[source], places)


class _Tuple(NamedTuple):
    group: Int64Array
    turn: Int64Array


class _Dealt(NamedTuple):
    """Tuples of rounds, those of one round after those of another."""

    starts: Int64Array  # where each round begins
    numbers: Int64Array  # of the line, in the order in which they are dealt
    places: Int64Array  # where each comes that the line deals, in the line's order
