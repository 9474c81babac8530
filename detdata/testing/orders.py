"""The laws of an order, as tests over orders that you list.

A law is a method `test_…`; it raises AssertionError that says which order broke it, and how. No test framework is
imported: pytest collects the methods of a subclass, and so may anything else. Orders too long to list are sampled.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, ClassVar, NoReturn

import numpy as np

from detdata.arrays import Int64Array
from detdata.keys import sample_rng
from detdata.orders import Order
from detdata.records import canonical_json, from_spec

LISTED = 5_000  # up to here an epoch is listed whole
_TELLING = 8  # of fewer samples, two epochs may well come out alike


class OrderSuite:
    """The laws that every order keeps. Subclass it, name the subclass `Test…`, and list orders.

    orders: those to prove, at least one; give small ones (they are listed whole), some of one sample, and huge ones.
    same_in_every_epoch: True for orders that are meant to be the same in each epoch, as `Sequential`.
    epochs: the epochs to look at. largest_pickle: bytes that a pickled order may take.

    >>> from detdata import Sequential
    >>> class TestSequential(OrderSuite):
    ...     orders = [Sequential(1), Sequential(100)]
    ...     same_in_every_epoch = True
    >>> TestSequential().test_epochs_differ_unless_declared()
    """

    orders: ClassVar[Sequence[Order]] = ()
    same_in_every_epoch: ClassVar[bool] = False
    epochs: ClassVar[Sequence[int]] = (0, 1, 2, 10**6)
    largest_pickle: ClassVar[int] = 10_000

    def test_there_are_orders_to_prove(self) -> None:
        """An empty list would pass every law."""
        if not self.orders:
            raise AssertionError(f"{type(self).__name__}.orders is empty: list the orders to prove")
        for order in self.orders:
            if not isinstance(order, Order):
                text = f"{type(self).__name__}.orders: {order!r} is no detdata.Order"
                raise AssertionError(text)  # noqa: TRY004  a law, not an argument

    def test_ids_are_pure(self) -> None:
        """The same position and epoch give the same id, whatever was asked before."""
        for order, epoch, positions in self._cases():
            first = _take(order, positions, epoch)
            for other in self.epochs:
                order.take(positions[::-1], other)
            order.find(first[:1], epoch)
            again = _take(order, positions, epoch)
            _same("pure", order, epoch, "the same call gave other ids after other calls", first, again)
            own = np.asarray(order.take(positions, epoch))
            if own.flags.writeable:
                own[:] = -1
            third = _take(order, positions, epoch)
            _same("pure", order, epoch, "writing to a result changed the next one", first, third)

    def test_ids_are_pointwise(self) -> None:
        """An id depends on its own position, not on what else is asked in the call, nor on the shape."""
        for order, epoch, positions in self._cases():
            whole = _take(order, positions, epoch)
            _same("pointwise", order, epoch, "reversed positions", whole[::-1], _take(order, positions[::-1], epoch))
            few = positions[:: max(1, positions.size // 50)]
            singles = np.array([order.take(int(position), epoch) for position in few], dtype=np.int64)
            _same("pointwise", order, epoch, "one position at a time", _take(order, few, epoch), singles)
            square = np.stack([positions, positions])
            _same("pointwise", order, epoch, "a shape of two rows", np.stack([whole, whole]), order.take(square, epoch))
            if order.take(positions[:0], epoch).shape != (0,):
                _broken("pointwise", order, epoch, "no positions must give no ids")

    def test_each_epoch_is_exact(self) -> None:
        """Every id at most once an epoch, in [0, id_bound); the same set of ids in every epoch."""
        for order in self.orders:
            sets: list[Int64Array] = []
            for epoch in self.epochs:
                positions = _positions(order)
                ids = np.asarray(order.take(positions, epoch))
                if ids.dtype != np.int64:
                    _broken("exact", order, epoch, f"ids must be int64, got {ids.dtype}")
                if ids.min() < 0 or ids.max() >= order.id_bound:
                    _broken("exact", order, epoch, f"ids span {ids.min()} … {ids.max()}; id_bound is {order.id_bound}")
                values, counts = np.unique(ids, return_counts=True)
                if counts.max() > 1:
                    twice = int(values[counts > 1][0])
                    at = positions[ids == twice].tolist()
                    _broken("exact", order, epoch, f"id {twice} comes {len(at)} times, at the positions {at[:5]}")
                sets.append(values)
            if order.size <= LISTED:
                for epoch, values in zip(self.epochs[1:], sets[1:], strict=True):
                    _same("exact", order, epoch, f"not the set of ids of epoch {self.epochs[0]}", sets[0], values)

    def test_find_undoes_take(self) -> None:
        """find(take(p)) is p."""
        for order, epoch, positions in self._cases():
            found = np.asarray(order.find(order.take(positions, epoch), epoch))
            if found.dtype != np.int64:
                _broken("invertible", order, epoch, f"positions must be int64, got {found.dtype}")
            _same("invertible", order, epoch, "find(take(positions)) is not positions", positions, found)

    def test_epochs_differ_unless_declared(self) -> None:
        """Every epoch has another order; with `same_in_every_epoch`, the same one."""
        for order in self.orders:
            positions = _positions(order)
            seen = [_take(order, positions, epoch) for epoch in self.epochs]
            for (one, first), (other, second) in combinations(zip(self.epochs, seen, strict=True), 2):
                alike = np.array_equal(first, second)
                if self.same_in_every_epoch and not alike:
                    _broken("epochs", order, other, f"is not as epoch {one}, but same_in_every_epoch is declared")
                if not self.same_in_every_epoch and alike and order.size >= _TELLING:
                    hint = "; declare same_in_every_epoch = True if that is meant"
                    _broken("epochs", order, other, f"brings the very order of epoch {one}{hint}")

    def test_the_spec_is_the_identity(self) -> None:
        """Equal specs mean equal orders and equal ids; the spec is plain JSON that names a format."""
        for order in self.orders:
            spec = order.spec()
            try:
                plain = json.loads(canonical_json(spec))
            except (TypeError, ValueError) as error:
                _broken("identity", order, None, f"its spec is no plain JSON: {error}")
            if plain != spec or not isinstance(spec.get("format"), str):
                _broken("identity", order, None, f"its spec must be plain JSON with a format, got {spec!r}")
            if canonical_json(order.spec()) != canonical_json(spec):
                _broken("identity", order, None, "its spec changes from call to call")
        for one, other in combinations(self.orders, 2):
            same = canonical_json(one.spec()) == canonical_json(other.spec())
            if same != (one == other) or (same and hash(one) != hash(other)):
                _broken("identity", one, None, f"== and hash must follow the spec; compared with {other!r}")
            if not same:
                continue
            for epoch in self.epochs:
                positions = _positions(one)
                what = "has the spec of another order with other ids: something that matters is not in the spec"
                _same("identity", one, epoch, what, _take(one, positions, epoch), _take(other, positions, epoch))

    def test_spec_and_pickle_rebuild_the_order(self) -> None:
        """from_spec and pickle give an equal order with the same ids, and a pickle is small."""
        for order in self.orders:
            made: dict[str, Any] = {
                "from_spec": from_spec(json.loads(json.dumps(order.spec()))),
                "a copy by way of pickle's protocol": copy.copy(order),
            }
            for how, other in made.items():
                if not isinstance(other, Order) or type(other) is not type(order) or other != order:
                    _broken("round trip", order, None, f"{how} gave {other!r}")
                if (other.size, other.id_bound) != (order.size, order.id_bound):
                    _broken("round trip", order, None, f"{how} changed size or id_bound")
                for epoch in self.epochs:
                    positions = _positions(order)
                    expected = _take(order, positions, epoch)
                    what = f"{how} gives other ids: something that matters is not in the spec"
                    _same("round trip", order, epoch, what, expected, _take(other, positions, epoch))
            size = len(pickle.dumps(order))
            if size > self.largest_pickle:
                _broken("round trip", order, None, f"pickles to {size} bytes; allowed are {self.largest_pickle}")

    def test_bad_input_is_refused(self) -> None:
        """Positions and ids outside are an IndexError, other types a TypeError, and so for the epoch."""
        for order in self.orders:
            calls: list[tuple[str, Callable[[Any], object], Any, type[Exception]]] = []
            asked: list[tuple[str, Callable[[Any], object], int]] = [
                ("take", order.take, order.size),
                ("find", order.find, order.id_bound),
            ]
            for name, call, end in asked:
                calls += [(name, call, value, IndexError) for value in (-1, end, [0, end], 2**70)]
                calls += [(name, call, value, TypeError) for value in (0.0, True, "0", None, [0.5])]
            in_epoch = partial(order.take, 0)
            calls += [("take(0, epoch)", in_epoch, value, TypeError) for value in (0.5, True, "0")]
            calls.append(("take(0, epoch)", in_epoch, -1, ValueError))
            for name, call, value, error in calls:
                try:
                    result = call(value)
                except error:
                    continue
                except Exception as other:  # noqa: BLE001  whatever it is, it is the wrong one, and reported
                    _broken("bad input", order, None, f"{name} of {value!r} raised {other!r}, not {error.__name__}")
                _broken("bad input", order, None, f"{name} of {value!r} gave {result!r}, not {error.__name__}")

    def _cases(self) -> Iterable[tuple[Order, int, Int64Array]]:
        for order in self.orders:
            for epoch in self.epochs:
                yield order, epoch, _positions(order)


def _positions(order: Order) -> Int64Array:
    """Every position of a short order; of a long one both ends and a random middle, sorted."""
    if order.size <= LISTED:
        return np.arange(order.size, dtype=np.int64)
    middle = sample_rng(0, 0, order.size).integers(0, order.size, 1000)
    ends = np.arange(500, dtype=np.int64)
    return np.unique(np.concatenate([ends, middle, order.size - 1 - ends]))


def _take(order: Order, positions: Int64Array, epoch: int) -> Int64Array:
    return np.array(order.take(positions, epoch))  # a copy: the order might hand out something of its own


def _same(law: str, order: Order, epoch: int, what: str, expected: Int64Array, found: Int64Array) -> None:
    if expected.shape != found.shape:
        _broken(law, order, epoch, f"{what}: expected the shape {expected.shape}, got {found.shape}")
    different = np.flatnonzero(expected.reshape(-1) != found.reshape(-1))
    if different.size:
        at = int(different[0])
        pair = f"{expected.flat[at]}, got {found.flat[at]}"
        _broken(law, order, epoch, f"{what}: {different.size} of {expected.size} differ, the first expected {pair}")


def _broken(law: str, order: Order, epoch: int | None, text: str) -> NoReturn:
    where = "" if epoch is None else f" in epoch {epoch}"
    try:
        name = repr(order)
    except (TypeError, ValueError):  # its spec is no JSON, and its repr shows the spec
        name = f"a {type(order).__name__}"
    raise AssertionError(f"law '{law}' is broken by {name}{where}: {text}")
