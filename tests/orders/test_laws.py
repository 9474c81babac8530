"""What every order keeps, over random nested ones and at sizes that cannot be listed."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import BlockShuffle, Concat, DetdataError, Order, Sequential, Shuffle, Subset, TorchShuffle, from_spec
from tests.orders.strategies import EPOCHS, orders

HUGE = [10**12, 2**53 + 1, 2**62]
FIXED = [
    Sequential(10),
    Shuffle(10, 1),
    BlockShuffle([3, 0, 7], 1, 2),
    Subset(Shuffle(20, 1), range(0, 20, 2)),
    Concat({"a": Shuffle(4), "b": Sequential(6)}),
    TorchShuffle(10, 1),
]
by_kind = pytest.mark.parametrize("order", FIXED, ids=lambda order: type(order).__name__)


@given(orders(), EPOCHS)
def test_each_epoch_brings_every_id_exactly_once(order, epoch):
    ids = order.take(np.arange(order.size), epoch)

    assert ids.dtype == np.int64
    assert np.unique(ids).size == order.size == len(order)
    assert ids.min() >= 0
    assert ids.max() < order.id_bound
    assert order.size == order.id_bound or isinstance(order, (Subset, Shuffle, BlockShuffle, Concat))


@given(orders(), EPOCHS, EPOCHS)
def test_the_ids_are_the_same_set_in_every_epoch(order, one, other):
    everything = np.arange(order.size)

    assert sorted(order.take(everything, one).tolist()) == sorted(order.take(everything, other).tolist())


@given(orders(), EPOCHS)
def test_find_is_the_inverse_of_take(order, epoch):
    positions = np.arange(order.size)

    assert np.array_equal(positions, order.find(order.take(positions, epoch), epoch))


@given(orders(), EPOCHS, st.data())
def test_an_id_depends_on_its_own_position_only(order, epoch, data):
    whole = order.take(np.arange(order.size), epoch)
    some = data.draw(st.lists(st.integers(0, order.size - 1), max_size=30))
    shaped = np.array(some * 2, dtype=np.int64).reshape(2, len(some))

    assert np.array_equal(whole[shaped], order.take(shaped, epoch))
    assert [int(whole[p]) for p in some] == [int(order.take(p, epoch)) for p in some]
    assert np.array_equal(shaped, order.find(order.take(shaped, epoch), epoch))


@given(orders(), EPOCHS)
def test_a_spec_and_a_pickle_rebuild_the_order(order, epoch):
    everything = np.arange(order.size)
    for copy in (from_spec(json.loads(json.dumps(order.spec()))), pickle.loads(pickle.dumps(order))):
        assert copy == order
        assert hash(copy) == hash(order)
        assert copy.spec() == order.spec()
        assert np.array_equal(order.take(everything, epoch), copy.take(everything, epoch))


@given(orders(), orders())
def test_orders_are_equal_exactly_if_their_specs_are(one, other):
    assert (one == other) == (one.spec() == other.spec())
    assert one != one.spec()


@pytest.mark.parametrize("n", HUGE)
def test_orders_of_any_size_are_small_to_pickle_and_invertible(n):
    sizes = [n // 1000] * 999 + [n - n // 1000 * 999]
    half = Concat({"a": Shuffle(n // 2, 1), "b": Sequential(n // 2)})
    for order in (Sequential(n), Shuffle(n, 1), BlockShuffle(sizes, 1), half, Shuffle(half, 2), BlockShuffle(half),
                  Subset(Shuffle(n, 1), [0, n // 3, n - 1])):  # fmt: skip
        positions = np.unique([0, 1, order.size // 3, order.size // 2, order.size - 1])
        assert len(pickle.dumps(order)) < 10_000
        ids = order.take(positions, 7)
        assert np.unique(ids).size == positions.size
        assert np.array_equal(positions, order.find(ids, 7))
        assert pickle.loads(pickle.dumps(order)) == order


@pytest.mark.parametrize("order", [Shuffle(100), BlockShuffle([10] * 10), Shuffle(Sequential(100)), TorchShuffle(100),
                                   Subset(Shuffle(100), range(60)), Shuffle(10**12)], ids=repr)  # fmt: skip
def test_epochs_differ(order):
    some = np.arange(60)
    seen = {tuple(order.take(some, epoch).tolist()) for epoch in [*range(10), 10**6, 2**63 - 1]}

    assert len(seen) == 12


@by_kind
def test_seeds_over_the_whole_range_are_taken(order):
    if hasattr(order, "_seed"):
        for seed in (0, 2**63 - 1, np.int32(5)):
            spec = {**order.spec(), "seed": int(seed)}
            assert from_spec(spec).spec() == spec


BAD = [
    (True, TypeError), (1.0, TypeError), ("1", TypeError), (None, TypeError), ([True], TypeError),
    ([0.0, 1.0], TypeError),
    ([None], TypeError), ([[1], [2, 3]], TypeError), (np.array([1.5], dtype=object), TypeError),
    (np.array(["1"], dtype=object), TypeError), (np.array([], dtype=np.float64), TypeError),
    (-1, IndexError), (10**9, IndexError), ([0, -1], IndexError), ([0, 10**9], IndexError),
    (2**63, IndexError), (2**70, IndexError), ([0, 2**64], IndexError), (-(2**70), IndexError),
    (np.array([2**63], dtype=np.uint64), IndexError), (np.array([2**64 - 1], dtype=np.uint64), IndexError),
]  # fmt: skip


@by_kind
@pytest.mark.parametrize(("value", "kind"), BAD, ids=lambda x: repr(x)[:30] if not isinstance(x, type) else x.__name__)
def test_bad_positions_and_ids_are_refused_by_name(order, value, kind):
    for call, name in ((order.take, "positions"), (order.find, "ids")):
        with pytest.raises(kind, match=name) as caught:
            call(value)
        assert isinstance(caught.value, DetdataError)


@pytest.mark.parametrize(
    "positions",
    [
        pytest.param(np.array([1], dtype=object), id="object array in range"),
        pytest.param([True, 2], id="a bool among integers"),
    ],
)
def test_objects_and_bools_among_positions_are_refused(positions):
    with pytest.raises(TypeError, match="positions"):
        Shuffle(10).take(positions)


@by_kind
@pytest.mark.parametrize("epoch", [-1, 2**63, 1.0, True, "0", None, [0, 1]])
def test_a_bad_epoch_is_refused_by_name(order, epoch):
    for call in (order.take, order.find):
        with pytest.raises((TypeError, ValueError), match="epoch") as caught:
            call(0, epoch)
        assert isinstance(caught.value, DetdataError)


@by_kind
def test_integers_of_every_width_and_empty_arrays_are_taken(order):
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">i8"):
        assert order.take(np.array([1, 2], dtype=kind)).tolist() == order.take([1, 2]).tolist()
    for empty in ([], (), np.array([], dtype=np.int64), range(0), [[]]):
        found = order.take(empty)
        assert found.dtype == np.int64
        assert found.shape == np.shape(empty)
    assert isinstance(order.take(1), np.int64)
    assert order.take(np.array([2, 1], dtype=np.uint64)).dtype == np.int64


@by_kind
def test_a_result_belongs_to_the_caller(order):
    given_ = np.arange(5)
    for call, argument in ((order.take, given_), (order.find, order.take(given_))):
        expected = call(argument).copy()
        result = call(argument)
        result[:] = -1
        assert np.array_equal(expected, call(argument))
    assert np.array_equal(np.arange(5), given_)


@by_kind
def test_an_order_cannot_be_changed(order):
    with pytest.raises(AttributeError):
        order.size = 3
    with pytest.raises(AttributeError):
        order.new_attribute = 3


def test_an_order_is_an_order():
    assert all(isinstance(order, Order) for order in FIXED)
    with pytest.raises(TypeError):
        Order()
