"""What an order is: position -> sample id, per epoch, and back.

`Order` is abstract; every order in the library is final. A subclass holds only immutable values and supplies five
things: `size`, `id_bound`, `spec()` and the two mappings `_take` and `_find`, which get checked int64 arrays.
`detdata.testing.OrderSuite` proves one that you wrote.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array, as_int64
from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, OutOfRange
from detdata.orders.tables import Tables, rebuild
from detdata.records import Spec, canonical_json, from_spec

MAX_EPOCH = 2**63 - 1


class Order(ABC):
    """A bijection from the positions of an epoch to sample ids, another one in every epoch.

    Immutable, hashable, equal exactly if the specs are equal, and pickled as its spec.
    """

    __slots__ = ("__weakref__", "_hash")

    @property
    @abstractmethod
    def size(self) -> int:
        """Samples in an epoch."""

    @property
    @abstractmethod
    def id_bound(self) -> int:
        """One more than the largest id the order may give: the length of the dataset that it is for."""

    @abstractmethod
    def spec(self) -> Spec:
        """Return the plain JSON that `detdata.from_spec` rebuilds this order from."""

    @abstractmethod
    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        """Ids at positions: int64 of any shape, checked to lie in [0, size). Returns a new int64 array."""

    @abstractmethod
    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        """Positions of ids: int64 of any shape, checked to lie in [0, id_bound). Returns a new int64 array.

        An id that the order has but this epoch does not use: -1. One that the order never has: OutOfRange.
        """

    def _tables(self) -> Tables:
        """Tables that the spec names by their digest, its own and those of the orders in it."""
        return {}

    def _uses_each_once(self) -> bool:
        """Whether every epoch uses each id once: else some may come more often, or not at all."""
        return True

    def _take_run(self, first: int, count: int, epoch: int) -> Int64Array:
        """Ids at positions first, first + 1 …, checked likewise: int64[count]. An order may know a faster way."""
        return self._take(np.arange(first, first + count, dtype=np.int64), epoch)

    @overload
    def take(self, positions: int | np.integer[Any], epoch: int = 0) -> np.int64: ...
    @overload
    def take(self, positions: npt.ArrayLike, epoch: int = 0) -> Int64Array: ...
    def take(self, positions: Any, epoch: int = 0) -> Any:
        """Return the sample ids at `positions` of an epoch's order.

        positions: an integer or integers of any shape, each in [0, size), in any order, repeats allowed.
        Returns int64 in the same shape (one NumPy int64 for one position). Raises IndexError for a position outside,
        TypeError for anything but integers. Epochs need no call between them: the epoch is an argument.

        >>> import detdata
        >>> detdata.Shuffle(8).take([[0, 1], [2, 7]], epoch=3).shape
        (2, 2)
        """
        checked = as_int64(positions, "positions", below=self.size, what="position")
        return self._take(checked, as_int(epoch, "epoch", high=MAX_EPOCH))[()]

    @overload
    def find(self, ids: int | np.integer[Any], epoch: int = 0) -> np.int64: ...
    @overload
    def find(self, ids: npt.ArrayLike, epoch: int = 0) -> Int64Array: ...
    def find(self, ids: Any, epoch: int = 0) -> Any:
        """Return the positions at which `ids` come in an epoch: the inverse of `take`.

        ids: an integer or integers of any shape. Returns int64 in the same shape; of an id that comes several times one
        of its positions, of a `Mixture` itself the first. Raises IndexError for an id that the order, or this epoch of
        it, does not have, TypeError for anything but integers.

        >>> import detdata
        >>> order = detdata.Shuffle(10**12, seed=1)
        >>> int(order.take(order.find(123456789)))
        123456789
        """
        checked = as_int64(ids, "ids", below=self.id_bound, what="sample id")
        number = as_int(epoch, "epoch", high=MAX_EPOCH)
        found = self._find(checked, number)
        if found.size and int(found.min()) < 0:
            unused = int(checked[found < 0].flat[0])
            raise OutOfRange(f"ids: sample id {unused} is not used in epoch {number} of this order")
        return found[()]

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Order):
            return NotImplemented
        return self is other or canonical_json(self.spec()) == canonical_json(other.spec())

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:  # not yet known; of a large subset it is worth keeping
            self._hash: int = hash(canonical_json(self.spec()))
            return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        tables = self._tables()
        return (rebuild, (self.spec(), tables)) if tables else (from_spec, (self.spec(),))

    def __repr__(self) -> str:
        text = canonical_json(self.spec()).decode()
        return f"<{type(self).__name__} of {self.size} samples: {text if len(text) <= 200 else text[:197] + '...'}>"


def kept_unused(found: Int64Array, then: Callable[[Int64Array], Int64Array]) -> Int64Array:
    """Return `then(found)`, but -1 where `found` is: what an inner order doesn't use, the outer one doesn't either."""
    unused = found < 0
    if not unused.any():
        return then(found)
    return np.asarray(np.where(unused, -1, then(np.where(unused, 0, found))), dtype=np.int64)


def as_each_once(order: Order, what: str) -> Order:
    """Return `order` if every epoch of it uses each id once. Raises TypeError."""
    if not order._uses_each_once():
        raise ArgumentTypeError(
            f"{what} is of an order that uses each id once an epoch, and a {type(order).__name__} doesn't; take the "
            "ids from what it is made of (the sources, weights or labels)"
        )
    return order


def as_order(value: object, name: str) -> Order:
    """Return `value` if it is an order, else raise a TypeError that says how to make one."""
    if not isinstance(value, Order):
        count = str(value) if type(value) is int else "len(dataset)"
        raise ArgumentTypeError(
            f"{name} must be an order, got {brief(value)} of type {type(value).__name__}; "
            f"for a plain shuffle pass Shuffle({count})"
        )
    return value
