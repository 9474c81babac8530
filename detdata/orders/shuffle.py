"""The dataset's own order, and a full shuffle of it.

`Shuffle` is a keyed permutation (detdata.permutation): any position of any epoch costs the same, nothing is stored.
What it is bad at: locality. Neighbours in the order lie anywhere in the corpus; `BlockShuffle` keeps reads local.
"""

from __future__ import annotations

from typing import final

from detdata.arrays import Int64Array
from detdata.checks import MAX_SIZE, as_int, as_seed
from detdata.errors import ArgumentValueError
from detdata.keys import fold
from detdata.orders.base import Order, as_order, kept_unused
from detdata.orders.tables import Tables
from detdata.permutation import SMALL, permute, permute_run, unpermute
from detdata.records import Spec, from_spec, register_format


def as_size(value: object, name: str = "n") -> int:
    """Return `value` as a number of samples, 1 … 2**62; zero gets its own message, as it mostly is a wrong folder."""
    size = as_int(value, name, high=MAX_SIZE)
    if size == 0:
        raise ArgumentValueError(f"{name} is 0: the dataset is empty, so there is no order of it; check its path")
    return size


@final
class Sequential(Order):
    """The dataset's own order, 0, 1, 2 …, in every epoch.

    n: samples, 1 … 2**62. Raises ValueError, TypeError. Memory O(1).

    >>> Sequential(5).take([0, 4]).tolist()
    [0, 4]
    """

    __slots__ = ("_n",)

    def __init__(self, n: int) -> None:
        self._n = as_size(n)

    @property
    def size(self) -> int:
        """Samples in an epoch."""
        return self._n

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the order is for."""
        return self._n

    def spec(self) -> Spec:
        """Return the spec: format and n."""
        return {"format": "detdata.sequential/1", "n": self._n}

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        return positions.copy()

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        return ids.copy()


@final
class Shuffle(Order):
    """A full shuffle, another one in every epoch, addressable at any position and invertible.

    n: samples, 1 … 2**62, or an order, whose positions are then shuffled (`Shuffle(Concat({…}))`).
    seed: 0 … 2**63 - 1. Memory O(1), for n <= 2**16 O(n); `take` costs some 40 ns an id.
    Raises ValueError, TypeError.

    >>> order = Shuffle(4, seed=1)
    >>> [order.take(range(4), epoch).tolist() for epoch in range(2)]
    [[2, 3, 0, 1], [0, 3, 2, 1]]
    """

    __slots__ = ("_inner", "_seed")

    def __init__(self, n: int | Order, seed: int = 0) -> None:
        self._inner = n if isinstance(n, Order) else Sequential(n)
        self._seed = as_seed(seed)

    @property
    def size(self) -> int:
        """Samples in an epoch."""
        return self._inner.size

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the order is for."""
        return self._inner.id_bound

    @property
    def seed(self) -> int:
        """The seed of the shuffle."""
        return self._seed

    def spec(self) -> Spec:
        """Return the spec: format, seed, and n or the order that is shuffled."""
        return {"format": "detdata.shuffle/1", "seed": self._seed, "n": _n_or_spec(self._inner)}

    def _tables(self) -> Tables:
        return self._inner._tables()

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        places = permute(positions, self.size, self._key(epoch))
        return places if isinstance(self._inner, Sequential) else self._inner._take(places, epoch)

    def _take_run(self, first: int, count: int, epoch: int) -> Int64Array:
        places = permute_run(first, count, self.size, self._key(epoch))
        return places if isinstance(self._inner, Sequential) else self._inner._take(places, epoch)

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        key = self._key(epoch)
        return kept_unused(self._inner._find(ids, epoch), lambda found: unpermute(found, self.size, key))

    def _uses_each_once(self) -> bool:
        return self._inner._uses_each_once()

    def _network(self, epoch: int) -> tuple[int, int] | None:
        """(n, key) for `permute_together` where an epoch is nothing but its network, else None."""
        plain = self.size > SMALL and isinstance(self._inner, Sequential)
        return (self.size, self._key(epoch)) if plain else None

    def _key(self, epoch: int) -> int:
        return fold("detdata.shuffle/1", self._seed, epoch)


def _n_or_spec(inner: Order) -> int | Spec:
    return inner.size if isinstance(inner, Sequential) else inner.spec()


def _build_shuffle(spec: Spec) -> Shuffle:
    n = spec["n"]
    return Shuffle(as_order(from_spec(n), "n") if isinstance(n, dict) else n, spec["seed"])


def _build_sequential(spec: Spec) -> Sequential:
    return Sequential(spec["n"])


register_format("detdata.sequential/1", ("n",), _build_sequential)
register_format("detdata.shuffle/1", ("n", "seed"), _build_shuffle)
