"""The suite for other people's orders: ours pass it, and orders with a planted fault break the law that names it."""

import re

import numpy as np
import pytest

from detdata import BlockShuffle, Concat, Order, Sequential, Shuffle, Subset, TorchShuffle, register_format
from detdata.testing import OrderSuite


class TestSequential(OrderSuite):
    orders = (Sequential(1), Sequential(1000), Sequential(2**62))
    same_in_every_epoch = True


class TestShuffle(OrderSuite):
    orders = (*map(Shuffle, (1, 2, 1000, 70_000, 2**53 + 1, 2**62)), Shuffle(1000, 1), Shuffle(Shuffle(1000, 2), 2))


class TestBlockShuffle(OrderSuite):
    orders = (BlockShuffle([1]), BlockShuffle([0, 5, 0, 300, 1], 3, 2), BlockShuffle([10**9] * 1000, 3),
              BlockShuffle([40, 60], 1, 1, order=Shuffle(100)))  # fmt: skip


class TestCompose(OrderSuite):
    orders = (
        Subset(Shuffle(1000, 1), range(0, 1000, 7)),
        Subset(Shuffle(10**12, 1), [0, 5, 10**11, *range(10**6, 10**6 + 100)]),
        Concat({"a": Shuffle(100, 1), "b": Shuffle(200, 2)}),
        Shuffle(Concat({"a": Sequential(10**12), "b": Subset(Shuffle(100), range(50))}), 3),
    )


class TestTorchShuffle(OrderSuite):
    orders = (TorchShuffle(1), TorchShuffle(1000, 1))


class Rotation(Order):
    """An honest order of a third party, and the base of the faulty ones."""

    __slots__ = ("n", "seed")

    def __init__(self, n, seed=0):
        self.n, self.seed = n, seed

    @property
    def size(self):
        return self.n

    @property
    def id_bound(self):
        return self.n

    def spec(self):
        return {"format": f"tests.{type(self).__name__.lower()}/1", "n": self.n, "seed": self.seed}

    def _take(self, positions, epoch):
        return (positions + self.seed + epoch) % self.n

    def _find(self, ids, epoch):
        return (ids - self.seed - epoch) % self.n

    def __init_subclass__(cls):
        def build(spec):
            return cls(spec["n"], spec.get("seed", 0))

        build.__qualname__ = cls.__qualname__
        register_format(f"tests.{cls.__name__.lower()}/1", tuple(cls(5).spec().keys() - {"format"}), build)


class Honest(Rotation):
    __slots__ = ()


class Repeats(Rotation):
    """No bijection: the last position brings the first one's id."""

    __slots__ = ()

    def _take(self, positions, epoch):
        return (np.where(positions == self.n - 1, 0, positions) + epoch) % self.n


class Outside(Rotation):
    __slots__ = ()

    def _take(self, positions, epoch):
        return positions + 1 + epoch % 2


class OtherSet(Rotation):
    """One-to-one, but of other ids in other epochs."""

    __slots__ = ()

    @property
    def id_bound(self):
        return self.n + 10

    def _take(self, positions, epoch):
        return positions + epoch % 3

    def _find(self, ids, epoch):
        return ids - epoch % 3


class WrongInverse(Rotation):
    __slots__ = ()

    def _find(self, ids, epoch):
        return (ids - self.seed + epoch) % self.n


class RightAtEpochZero(Rotation):
    __slots__ = ()

    def _find(self, ids, epoch):
        return (ids - self.seed) % self.n


class CallOrder(Rotation):
    """Depends on what was asked before."""

    __slots__ = ("calls",)

    def _take(self, positions, epoch):
        self.calls = getattr(self, "calls", 0) + 1
        return (positions + epoch + self.calls) % self.n


class HandsOutItsOwn(Rotation):
    """Its results are one and the same array."""

    __slots__ = ("table",)

    def _take(self, positions, epoch):
        if not hasattr(self, "table"):
            self.table = np.arange(self.n)
        return self.table[:] if np.array_equal(positions, np.arange(self.n)) else self.table[positions]


class Company(Rotation):
    """Depends on what else is asked in the call."""

    __slots__ = ()

    def _take(self, positions, epoch):
        return (positions + epoch + positions.size) % self.n


class SameEpochs(Rotation):
    __slots__ = ()

    def _take(self, positions, epoch):
        return (positions + self.seed) % self.n

    def _find(self, ids, epoch):
        return (ids - self.seed) % self.n


class Dishonest(Rotation):
    """Its spec keeps silent about the seed."""

    __slots__ = ()

    def spec(self):
        return {"format": "tests.dishonest/1", "n": self.n}


class NoJson(Rotation):
    __slots__ = ()

    def spec(self):
        return {"format": "tests.nojson/1", "n": np.int64(self.n), "seed": self.seed}


class Fat(Rotation):
    __slots__ = ()

    def spec(self):
        return {"format": "tests.fat/1", "n": self.n, "seed": self.seed, "table": [7] * 10_000}


class Lenient(Rotation):
    """Takes positions as Python does: from the end too."""

    __slots__ = ()

    def take(self, positions, epoch=0):
        return self._take(np.asarray(positions).astype(np.int64) % self.n, epoch)


class Float(Rotation):
    __slots__ = ()

    def _take(self, positions, epoch):
        return np.float64((positions + epoch) % self.n)


LAWS = [name for name in dir(OrderSuite) if name.startswith("test_")]


def broken(*orders, **settings):
    """The laws that these orders break: name -> message."""
    suite = type("TestIt", (OrderSuite,), {"orders": orders, **settings})()
    found = {}
    for law in LAWS:
        try:
            getattr(suite, law)()
        except AssertionError as error:
            found[law] = str(error)
    return found


def test_an_honest_order_of_a_third_party_breaks_no_law():
    assert broken(Honest(1), Honest(101, 3), Honest(101, 4), Honest(10**12)) == {}


@pytest.mark.parametrize(
    ("orders", "law", "words"),
    [
        ((Repeats(53),), "test_each_epoch_is_exact", r"'exact'.*comes 2 times, at the positions \[0, 52\]"),
        ((Outside(53),), "test_each_epoch_is_exact", "'exact'.*id_bound is 53"),
        ((OtherSet(53),), "test_each_epoch_is_exact", "'exact'.*not the set of ids of epoch 0"),
        ((Float(53),), "test_each_epoch_is_exact", "'exact'.*int64.*float64"),
        ((WrongInverse(53, 3),), "test_find_undoes_take", "'invertible'.*in epoch 1"),
        ((RightAtEpochZero(10**12),), "test_find_undoes_take", "'invertible'.*in epoch 1"),
        ((CallOrder(53),), "test_ids_are_pure", "'pure'.*after other calls"),
        ((HandsOutItsOwn(53),), "test_ids_are_pure", "'pure'.*writing to a result changed the next one"),
        ((Company(53),), "test_ids_are_pointwise", "'pointwise'.*one position at a time"),
        ((SameEpochs(53),), "test_epochs_differ_unless_declared", "'epochs'.*same_in_every_epoch"),
        ((Dishonest(53, 1), Dishonest(53, 2)), "test_the_spec_is_the_identity", "'identity'.*not in the spec"),
        ((Dishonest(53, 1),), "test_spec_and_pickle_rebuild_the_order", "'round trip'.*not in the spec"),
        ((NoJson(53),), "test_the_spec_is_the_identity", "'identity'.*no plain JSON"),
        ((Fat(53),), "test_spec_and_pickle_rebuild_the_order", "'round trip'.*bytes"),
        ((Lenient(53),), "test_bad_input_is_refused", "'bad input'.*take of -1"),
        ((), "test_there_are_orders_to_prove", "empty"),
        ((5,), "test_there_are_orders_to_prove", "no detdata.Order"),
    ],
    ids=lambda value: type(value[0]).__name__ if isinstance(value, tuple) and value else "",
)
def test_a_planted_fault_breaks_the_law_that_names_it(orders, law, words):
    suite = type("TestIt", (OrderSuite,), {"orders": orders})()
    with pytest.raises(AssertionError) as caught:
        getattr(suite, law)()
    assert re.search(words, str(caught.value)), str(caught.value)


def test_a_fault_breaks_no_law_that_it_does_not_touch():
    assert set(broken(WrongInverse(53, 3))) == {"test_find_undoes_take"}
    assert set(broken(SameEpochs(53))) == {"test_epochs_differ_unless_declared"}
    assert broken(SameEpochs(53), same_in_every_epoch=True) == {}
    assert set(broken(Dishonest(53, 1), Dishonest(53, 2))) == {
        "test_the_spec_is_the_identity",
        "test_spec_and_pickle_rebuild_the_order",
    }


def test_orders_declared_the_same_that_are_not_are_found_out():
    assert "declared" in broken(Honest(53), same_in_every_epoch=True)["test_epochs_differ_unless_declared"]
