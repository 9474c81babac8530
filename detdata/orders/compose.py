"""Orders made of orders: some ids of one, or several one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array, as_int64
from detdata.checks import MAX_SIZE
from detdata.errors import ArgumentTypeError, ArgumentValueError, OutOfRange
from detdata.orders.base import Order, as_each_once, as_order
from detdata.orders.tables import Tables
from detdata.records import Spec, from_spec, register_format

MAX_READ = 2**31  # items that the runs of a spec may stand for: more is a spec made to exhaust the memory

_Mapping: TypeAlias = Callable[[Order, Int64Array], Int64Array]


@final
class Subset(Order):
    """Just these ids, in the order in which `order` brings them.

    ids: distinct ids of `order`, in any order (a set: only which ones matters), at least one. For a train and a
    validation part of one dataset. Memory O(len(ids)); the first `take` of an epoch costs O(len(ids) log len(ids)).
    Raises ValueError for none or repeated ids, IndexError for an id that `order` does not have.

    >>> from detdata import Shuffle
    >>> sorted(Subset(Shuffle(100, seed=1), [7, 5, 70]).take(range(3)).tolist())
    [5, 7, 70]
    """

    __slots__ = ("_ids", "_inner", "_known")

    def __init__(self, order: Order, ids: npt.ArrayLike) -> None:
        self._inner = as_each_once(as_order(order, "order"), "a Subset")
        given = np.arange(ids.start, ids.stop, ids.step) if isinstance(ids, range) else ids
        flat = as_int64(given, "ids", below=order.id_bound, what="sample id").reshape(-1)
        if flat.size == 0:
            raise ArgumentValueError("ids is empty: a subset needs at least one sample id")
        self._ids = np.unique(flat)
        if self._ids.size != flat.size:
            raise ArgumentValueError(f"ids has {flat.size - self._ids.size} repeated ids; a subset has each id once")
        self._inner._find(self._ids, 0)  # raises for an id that the inner order does not have
        self._ids.flags.writeable = False
        self._known: tuple[tuple[int, Int64Array], ...] = ()

    @property
    def size(self) -> int:
        """Samples in an epoch."""
        return int(self._ids.size)

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the order is for."""
        return self._inner.id_bound

    def spec(self) -> Spec:
        """Return the spec: format, the inner order, and the ids as runs, [first, count] of each."""
        starts = np.flatnonzero(np.diff(self._ids, prepend=self._ids[0] - 2) != 1)
        counts = np.diff(np.append(starts, self._ids.size))
        runs = np.stack([self._ids[starts], counts], axis=1).tolist()
        return {"format": "detdata.subset/1", "order": self._inner.spec(), "runs": runs}

    def _tables(self) -> Tables:
        return self._inner._tables()

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        return self._inner._take(self._places(epoch)[positions], epoch)

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        index = np.minimum(np.searchsorted(self._ids, ids), self._ids.size - 1)
        outside = self._ids[index] != ids
        if outside.any():
            raise OutOfRange(f"ids: sample id {int(ids[outside].flat[0])} is not in this subset of {self.size}")
        return np.searchsorted(self._places(epoch), self._inner._find(ids, epoch)).astype(np.int64)

    def _places(self, epoch: int) -> Int64Array:
        """The inner positions of an epoch's samples, sorted; of the last two epochs asked for they are kept.

        Kept here and not in a table by value: comparing a large subset with another costs as much as its spec, and
        subsets of subsets would each time be worked out from the bottom. Replaced whole, so threads see no half.
        """
        for known, places in self._known:
            if known == epoch:
                return places
        places = np.sort(self._inner._find(self._ids, epoch))
        places.flags.writeable = False
        self._known = ((epoch, places), *self._known[:1])
        return places


@final
class Concat(Order):
    """Source after source, each in its own order. Shuffle them together with `Shuffle(Concat({…}))`.

    sources: name -> order, at least one. Ids live in the concatenation of the sources' datasets, in the order given,
    as in `torch.utils.data.ConcatDataset`. Raises ValueError, TypeError. Memory O(sources).

    >>> from detdata import Sequential
    >>> Concat({"books": Sequential(3), "web": Sequential(2)}).take(range(5)).tolist()
    [0, 1, 2, 3, 4]
    """

    __slots__ = ("_bases", "_edges", "_sources")

    def __init__(self, sources: Mapping[str, Order]) -> None:
        if not isinstance(sources, Mapping):
            raise ArgumentTypeError(f"sources must be a dict of name: order, got {type(sources).__name__}")
        if not sources:
            raise ArgumentValueError("sources is empty: give at least one name: order")
        for name, order in sources.items():
            if not isinstance(name, str):
                raise ArgumentTypeError(f"sources: names must be strings, got {name!r}")
            as_order(order, f"sources[{name!r}]")
        bound = sum(order.id_bound for order in sources.values())
        if bound > MAX_SIZE:
            raise ArgumentValueError(f"sources have {bound} samples together; at most 2**62 are possible")
        self._sources = tuple(sources.items())
        self._edges = _edges([order.size for order in sources.values()])
        self._bases = _edges([order.id_bound for order in sources.values()])

    @property
    def size(self) -> int:
        """Samples in an epoch."""
        return int(self._edges[-1])

    @property
    def id_bound(self) -> int:
        """Length of the concatenated dataset."""
        return int(self._bases[-1])

    @property
    def block_sizes(self) -> Int64Array:
        """Samples of each source, int64[sources]: what `BlockShuffle` takes for its blocks."""
        return np.diff(self._edges)

    def spec(self) -> Spec:
        """Return the spec: format and the sources as [name, spec] pairs, in order."""
        return {"format": "detdata.concat/1", "sources": [[name, order.spec()] for name, order in self._sources]}

    def _tables(self) -> Tables:
        return {digest: table for _, order in self._sources for digest, table in order._tables().items()}

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        return self._each(positions, self._edges, self._bases, lambda order, values: order._take(values, epoch))

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        return self._each(ids, self._bases, self._edges, lambda order, values: order._find(values, epoch))

    def _uses_each_once(self) -> bool:
        return all(order._uses_each_once() for _, order in self._sources)

    def _each(self, values: Int64Array, come: Int64Array, go: Int64Array, apply: _Mapping) -> Int64Array:
        """Send each value through its own source: `come` are the edges it is counted in, `go` those of the result."""
        result = np.empty_like(values)
        source = np.searchsorted(come, values, side="right") - 1
        for index in np.unique(source):
            mask = source == index
            found = apply(self._sources[index][1], values[mask] - come[index])
            result[mask] = np.where(found < 0, found, found + go[index])
        return result


def _edges(sizes: list[int]) -> Int64Array:
    edges = np.concatenate([[0], np.cumsum(np.array(sizes, dtype=np.int64))]).astype(np.int64)
    edges.flags.writeable = False
    return edges


def read_runs(rows: Any, name: str, *, below: int, what: str) -> tuple[Int64Array, Int64Array]:
    """Return the two columns of a spec's run-length list, checked before anything of the runs' length is allocated.

    below: bound of the first column, whose entries are called `what`. Raises ValueError, TypeError, IndexError.
    """
    runs: Any = np.array(rows, dtype=object) if isinstance(rows, list) else None
    if runs is None or runs.ndim != 2 or runs.shape[1] != 2:
        raise ArgumentValueError(f"{name} must be a list of pairs [{what}, count], got {str(rows)[:80]}")
    wrong = next((item for item in runs.flat if type(item) is not int), None)
    if wrong is not None:
        raise ArgumentTypeError(
            f"{name} must be pairs of integers, got {str(wrong)[:80]} of type {type(wrong).__name__}"
        )
    first = as_int64(runs[:, 0].tolist(), name, below=below, what=what)
    count = as_int64(runs[:, 1].tolist(), name, below=MAX_READ + 1, what="count")
    total = sum(count.tolist())  # Python integers: the sum may pass 2**63
    if (count < 1).any():
        raise ArgumentValueError(f"{name}: every count must be at least 1, got {int(count.min())}")
    if total > MAX_READ:
        raise ArgumentValueError(f"{name} has runs of {total} items in all; at most 2**31 are read from a spec")
    return first, count


def _build_subset(spec: Spec) -> Subset:
    order = as_order(from_spec(spec["order"]), "order")
    first, count = read_runs(spec["runs"], "runs", below=order.id_bound, what="sample id")
    if int(count.sum()) > order.size:
        raise ArgumentValueError(f"runs name {int(count.sum())} ids of an order that has {order.size}")
    return Subset(order, np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum())))


def _build_concat(spec: Spec) -> Concat:
    sources = spec["sources"]
    if not isinstance(sources, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in sources):
        raise ArgumentTypeError(f"sources must be a list of pairs [name, spec], got {str(sources)[:80]}")
    names = [name for name, _ in sources]
    if any(not isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ArgumentValueError(f"sources: names must be strings that differ, got {str(names)[:200]}")
    return Concat({name: as_order(from_spec(order), f"sources[{name!r}]") for name, order in sources})


register_format("detdata.subset/1", ("order", "runs"), _build_subset)
register_format("detdata.concat/1", ("sources",), _build_concat)
