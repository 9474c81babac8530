"""A mixture of sources by weight: exact counts all along, mixed by a key, each source walked in whole passes.

One endless sequence of draws says which source comes when (detdata.orders.timeline); the r-th draw of a source is place
r mod size of its pass r // size. So where each source stands follows from the number of draws alone, whatever was
reweighted, added or used up before. What it is bad at: single look-ups in many places; each block of draws that is
touched costs some 0.2 ms. Fixed in docs/spec.md, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, final, overload

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array, as_int64
from detdata.checks import as_int
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.orders.base import Order
from detdata.orders.mixture_run import EpochPlace, Run
from detdata.orders.mixture_terms import FORMAT, KEYS, Stop, as_terms, build_terms, check_form
from detdata.orders.segments import MAX_DRAWS, grouped
from detdata.orders.tables import Tables
from detdata.orders.together import take_together
from detdata.records import Spec, register_format


@final
class Mixture(Order):
    """Sources drawn from by weight, each in its own order and in whole passes: none repeats before it is used up.

    sources: name -> order; ids live in the concatenation of their datasets, in the order given, as in `Concat`.
    weights: name -> integer, float or fraction, read exactly; 0: not drawn until it is reweighted. seed: 0 … 2**63 - 1.
    How long an epoch is: size: so many draws of one endless sequence, in which sources and limits go on over epochs. Or
    stop: "first" (the default) ends it when a source is first used up, "all" when each has been used up at least once,
    "all_once" when each has been used up, and none repeats: one that is used up drops out.
    limits: name -> passes after which a source drops out. changes: (position, {name: weight}), rising, from which on
    those weights hold; see `reweighted`.

    Within a stretch of equal weights a source of share w has had k·w draws after k draws, to within 1 each 256 draws
    (more, where a share is below 1/256: a power of two of 1/share at least), to within log2(sources) + 1 each 32, and
    to within log2(sources) + 9 at any time. An epoch may bring an id several times, or not at all.
    Raises ValueError, TypeError. `take` costs some 0.3 ms, and 0.2 µs an id beside what the sources cost.

    >>> from detdata import Shuffle
    >>> mixture = Mixture({"web": Shuffle(10**9), "code": Shuffle(10**6)}, {"web": 0.75, "code": 0.25}, size=1000)
    >>> mixture.counts(1000), mixture.take([0, 999], epoch=10**6).shape
    ({'web': 751, 'code': 249}, (2,))
    """

    __slots__ = ("_bases", "_orders", "_run", "_terms")

    def __init__(
        self,
        sources: Mapping[str, Order],
        weights: Mapping[str, Any],
        seed: int = 0,
        size: int | None = None,
        stop: Stop | None = None,
        *,
        limits: Mapping[str, int] | None = None,
        changes: Sequence[tuple[int, Mapping[str, Any]]] = (),
    ) -> None:
        self._terms = as_terms(sources, weights, seed, size, stop, limits, changes)
        self._orders = tuple(self._terms.sources.values())
        self._bases = np.array([0, *accumulate(order.id_bound for order in self._orders)], dtype=np.int64)
        self._run = Run(self._terms)

    @property
    def size(self) -> int:
        """Draws in an epoch."""
        return self._run.size

    @property
    def id_bound(self) -> int:
        """Length of the concatenated dataset."""
        return int(self._bases[-1])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sources, in the order of their ids."""
        return self._terms.names

    @property
    def seed(self) -> int:
        """The seed by which sources are mixed; their own orders have their own."""
        return self._terms.seed

    @property
    def stop(self) -> Stop | None:
        """The rule that ends an epoch; None where `size` does."""
        return self._terms.stop

    def spec(self) -> Spec:
        """Return the spec: sources, weights as fractions, and the changes in rising positions."""
        return self._terms.spec()

    @overload
    def source_of(self, ids: int | np.integer[Any]) -> np.int64: ...
    @overload
    def source_of(self, ids: npt.ArrayLike) -> Int64Array: ...
    def source_of(self, ids: Any) -> Any:
        """Return which source each id is of, as an index into `names`: int64 in the shape of `ids`.

        Raises IndexError, TypeError as `find` does.

        >>> from detdata import Shuffle
        >>> Mixture({"a": Shuffle(3), "b": Shuffle(2)}, {"a": 1, "b": 1}).source_of([2, 3]).tolist()
        [0, 1]
        """
        checked = as_int64(ids, "ids", below=self.id_bound, what="sample id")
        return self._source_of(checked)[()]

    def counts(self, position: int, epoch: int = 0) -> dict[str, int]:
        """Return how many draws each source has had in the run before a position (0 … size) of an epoch, exactly.

        Draws within one epoch are the difference of two counts. Raises ValueError, TypeError. Cost: some 0.3 ms.

        >>> from detdata import Shuffle
        >>> mixture = Mixture({"a": Shuffle(100), "b": Shuffle(100)}, {"a": 1, "b": 3}, size=1000)
        >>> mixture.counts(512), mixture.counts(512, epoch=1)
        ({'a': 128, 'b': 384}, {'a': 377, 'b': 1135})
        """
        return dict(zip(self.names, self._run.counts(position, epoch).tolist(), strict=True))

    def passes(self, position: int, epoch: int = 0) -> dict[str, tuple[int, int]]:
        """Return where each source stands before a position (0 … size) of an epoch: (pass, place) of its next draw.

        The pass is the epoch that its order is asked for. Raises ValueError, TypeError.

        >>> from detdata import Shuffle
        >>> mixture = Mixture({"a": Shuffle(100), "b": Shuffle(100)}, {"a": 1, "b": 3}, size=1000)
        >>> mixture.passes(512)
        {'a': (1, 28), 'b': (3, 84)}
        """
        number, place = self._run.standing(position, epoch)
        rows = zip(number.tolist(), place.tolist(), strict=True)
        return dict(zip(self.names, rows, strict=True))

    def find_all(self, id: int, epoch: int = 0) -> Int64Array:
        """Return every position at which an id comes in an epoch, rising: int64[k], k = 0 where it doesn't.

        Raises IndexError for an id that no source has, TypeError, ValueError. Cost: some 0.5 ms each.

        >>> from detdata import Sequential
        >>> mixture = Mixture({"a": Sequential(2), "b": Sequential(90)}, {"a": 1, "b": 9}, size=100)
        >>> [int(mixture.take(p)) for p in mixture.find_all(1)]
        [1, 1, 1, 1, 1]
        """
        checked = as_int64(as_int(id, "id"), "id", below=self.id_bound, what="sample id")
        source = int(self._source_of(checked))
        at = self._run.epoch(epoch)
        low, high = self._run.ranks(source, at)
        order, local = self._orders[source], int(checked - self._bases[source])
        found = [
            number * order.size + _all_places(order, local, number + int(at.passes[source]))
            for number in range(low // order.size, -(-high // order.size))
        ]
        ranks = np.concatenate([np.empty(0, dtype=np.int64), *found])
        return self._run.positions(source, ranks[(ranks >= low) & (ranks < high)], at)

    def reweighted(
        self,
        position: int,
        weights: Mapping[str, Any],
        add: Mapping[str, Order] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> Mixture:
        """Return the mixture in which other weights hold from a position on; each source goes on exactly where it was.

        position: with `size`, a number of draws of the run (epoch * size + position), in any epoch; with `stop`, a
        position below `size`, the same in each epoch. weights: those left out stay, 0 takes a source away. add: name ->
        order of further sources, which come after the others; limits: theirs. Draws before stay what they were;
        changes from there on are replaced. Raises ValueError, TypeError.

        >>> from detdata import Shuffle
        >>> mixture = Mixture({"web": Shuffle(10**6)}, {"web": 1}, size=10**5).reweighted(
        ...     1000, {"web": 3, "math": 1}, add={"math": Shuffle(10**4)})
        >>> mixture.counts(1000), mixture.counts(2024)
        ({'web': 1000, 'math': 0}, {'web': 1768, 'math': 256})
        """
        terms, more = self._terms, {} if add is None else add
        at = as_int(position, "position", high=MAX_DRAWS if terms.stop is None else self.size - 1)
        if not isinstance(more, Mapping):
            raise ArgumentTypeError(f"add must be a dict of name: order, got {type(more).__name__}")
        taken = [name for name in more if name in terms.sources]
        if taken:
            raise ArgumentValueError(f"add names {taken[0]!r}, which is a source already; take another name")
        theirs = {} if limits is None else limits
        for name in theirs:
            if name not in more:
                raise ArgumentValueError(f"limits names {name!r}, which `add` does not; former limits stay")
        old = {name: passes for name, passes in zip(terms.names, terms.limits, strict=True) if passes is not None}
        named = [(p, {terms.names[i]: weight for i, weight in rows}) for p, rows in terms.changes if p < at]
        first = {**dict(zip(terms.names, terms.weights, strict=True)), **dict.fromkeys(more, 0)}
        return Mixture({**terms.sources, **more}, first, terms.seed, terms.size, terms.stop,
                       limits={**old, **theirs}, changes=[*named, (at, weights)])  # fmt: skip

    def agrees(self, other: Order, position: int, epoch: int = 0) -> bool:
        """Return whether another order brings the same ids before a position of an epoch, as far as specs tell.

        True for a mixture that was reweighted at that position or later: its run up to there may go on with this one.

        >>> from detdata import Shuffle
        >>> mixture = Mixture({"a": Shuffle(99), "b": Shuffle(99)}, {"a": 1, "b": 3}, size=1000)
        >>> later = mixture.reweighted(640, {"a": 2})
        >>> later.agrees(mixture, 640), later.agrees(mixture, 641)
        (True, False)
        """
        if not isinstance(other, Mixture) or self == other:
            return self == other
        number, draws = as_int(epoch, "epoch"), as_int(position, "position", high=self.size)
        if self._terms.stop is not None and (number or draws > other.size):
            return False  # a change holds in each epoch, in those before too
        draws += self._run.epoch(number).draw
        return self._terms.before(draws) == other._terms.before(draws)

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        if positions.size == 0:
            return positions.copy()
        source, number, place = self._run.draw(positions.reshape(-1), epoch)
        ids = take_together(self._orders, source, place, number) + self._bases[source]
        return ids.reshape(positions.shape)

    def _uses_each_once(self) -> bool:
        return False

    def _tables(self) -> Tables:
        return {digest: table for order in self._orders for digest, table in order._tables().items()}

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        at, flat = self._run.epoch(epoch), ids.reshape(-1)
        result = np.empty_like(flat)
        for source, where in grouped(self._source_of(flat)):
            result[where] = self._find_first(source, flat[where] - self._bases[source], at)
        return result.reshape(ids.shape)

    def _find_first(self, source: int, local: Int64Array, at: EpochPlace) -> Int64Array:
        """First positions of a source's own ids, -1 where an epoch has none: the first pass that has one decides."""
        low, high = self._run.ranks(source, at)
        order, result = self._orders[source], np.full(local.size, -1, dtype=np.int64)
        left = np.arange(local.size)
        for number in range(low // order.size, -(-high // order.size)):
            begin = number * order.size
            places = _first_places(order, local[left], number + int(at.passes[source]), low - begin)
            hit = (places >= 0) & (places < high - begin)
            result[left[hit]] = self._run.positions(source, places[hit] + begin, at)
            left = left[~hit]
            if not left.size:
                break
        return result

    def _source_of(self, ids: Int64Array) -> Int64Array:
        return np.searchsorted(self._bases, ids, side="right").astype(np.int64) - 1


def _all_places(order: Order, id: int, epoch: int) -> Int64Array:
    """Every position of an id in an epoch of a source, rising."""
    if isinstance(order, Mixture):
        return order.find_all(id, epoch)
    found = order._find(np.array([id], dtype=np.int64), epoch)
    return found[found >= 0]


def _first_places(order: Order, ids: Int64Array, epoch: int, low: int) -> Int64Array:
    """First positions from `low` on of ids in an epoch of a source, -1 where there is none."""
    found = order._find(ids, epoch)
    late = (found >= 0) & (found < low)
    if late.any():
        found[late] = -1
        if isinstance(order, Mixture):  # an id may come again
            for index in np.flatnonzero(late):
                places = order.find_all(int(ids[index]), epoch)
                found[index] = next((int(place) for place in places if place >= low), -1)
    return found


def _build(spec: Spec) -> Mixture:
    mixture = Mixture(**build_terms(spec))
    check_form(spec, mixture._terms)
    return mixture


register_format(FORMAT, KEYS, _build)
