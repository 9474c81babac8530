"""Subset and Concat against lists, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import BlockShuffle, Concat, GroupShuffle, Mixture, Plan, Sequential, Shuffle, Subset
from tests.orders.strategies import EPOCHS, orders


@given(orders(), EPOCHS, st.data())
def test_a_subset_is_the_order_without_the_others(order, epoch, data):
    ids = order.take(np.arange(order.size), epoch).tolist()
    kept = data.draw(st.sets(st.sampled_from(ids), min_size=1))

    subset = Subset(order, data.draw(st.permutations(sorted(kept))))

    assert [id for id in ids if id in kept] == subset.take(np.arange(subset.size), epoch).tolist()
    assert subset == Subset(order, sorted(kept))
    for id in set(ids) - kept:
        with pytest.raises(IndexError, match="ids"):
            subset.find(id, epoch)


@given(st.lists(orders(largest=20, depth=2), min_size=1, max_size=4), EPOCHS)
def test_a_concat_is_its_sources_one_after_another(sources, epoch):
    order = Concat({str(index): source for index, source in enumerate(sources)})
    expected, base = [], 0
    for source in sources:
        expected += [base + id for id in source.take(np.arange(source.size), epoch).tolist()]
        base += source.id_bound

    assert expected == order.take(np.arange(order.size), epoch).tolist()
    assert base == order.id_bound
    assert [source.size for source in sources] == order.block_sizes.tolist()


def test_the_sources_of_a_concat_keep_their_order_and_names():
    a, b = Shuffle(3, 1), Shuffle(4, 2)

    assert Concat({"a": a, "b": b}) != Concat({"b": b, "a": a})
    assert Concat({"a": a, "b": b}) != Concat({"a": a, "c": b})


def test_train_and_validation_parts_share_nothing_and_miss_nothing():
    order = Shuffle(1000, 5)
    train, validation = Subset(order, range(900)), Subset(order, range(900, 1000))
    for epoch in (0, 3):
        ids = [*train.take(range(900), epoch).tolist(), *validation.take(range(100), epoch).tolist()]
        assert sorted(ids) == list(range(1000))


def test_subsets_of_subsets_cost_no_more_than_their_number():
    order = Shuffle(50, 1)
    for size in range(49, 9, -1):
        order = Subset(Shuffle(order, size), range(size))

    assert sorted(order.take(np.arange(10), 3).tolist()) == list(range(10))


def test_empty_and_repeated_and_foreign_ids_are_refused_by_name():
    order = Subset(Shuffle(10), range(0, 10, 2))
    for ids, kind in [([], ValueError), ([1, 1], ValueError),
                      ([10], IndexError), ([-1], IndexError), ([1.0], TypeError),
                      ([True], TypeError), ("12", TypeError), (None, TypeError)]:  # fmt: skip
        with pytest.raises(kind, match="ids"):
            Subset(Shuffle(10), ids)
    with pytest.raises(IndexError, match="3"):
        Subset(order, [2, 3])
    with pytest.raises(TypeError, match="order"):
        Subset(10, [1])


def test_bad_sources_are_refused_by_name():
    too_large = {"a": Sequential(2**62), "b": Sequential(1)}
    for sources, kind in [({}, ValueError), ([Sequential(2)], TypeError), ({"a": 2}, TypeError), (None, TypeError),
                          ({1: Sequential(2)}, TypeError), (too_large, ValueError)]:  # fmt: skip
        with pytest.raises(kind, match="sources"):
            Concat(sources)


@pytest.mark.parametrize("kind", [Sequential, Shuffle])
@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-1, ValueError), (2**62 + 1, ValueError), (1.0, TypeError),
                                          (True, TypeError), ("5", TypeError), (None, TypeError)])  # fmt: skip
def test_a_bad_size_is_refused_by_name(kind, n, error):
    with pytest.raises(error, match="n "):
        kind(n)


@pytest.mark.parametrize("n", [np.int8(5), np.int32(5), np.uint64(5), np.int64(5)])
def test_numpy_sizes_and_seeds_are_widened(n):
    assert Shuffle(n, seed=n) == Shuffle(5, seed=5)
    assert type(Shuffle(n, seed=n).spec()["n"]) is int


def thin():
    """Orders that leave ids out, or use some several times."""
    return {
        "groups": GroupShuffle(np.arange(60) % 7, 3, 2, seed=4),
        "mixture": Mixture({"a": Shuffle(20), "b": Shuffle(40)}, {"a": 3, "b": 1}, size=50, seed=2),
    }


@pytest.mark.parametrize("name", ["groups", "mixture"])
@pytest.mark.parametrize(
    "around",
    [
        lambda order: Shuffle(order, seed=5),
        lambda order: Concat({"x": Sequential(9), "y": order}),
        lambda order: BlockShuffle([order.size // 2, order.size - order.size // 2], seed=1, order=order),
        lambda order: Shuffle(Concat({"x": order, "y": Shuffle(5)})),
    ],
)
def test_an_order_around_one_that_leaves_ids_out_says_which(name, around):
    order = around(thin()[name])
    for epoch in range(3):
        ids = order.take(range(order.size), epoch)
        used = set(ids.tolist())
        for id in range(order.id_bound):
            if id in used:
                assert int(ids[order.find(id, epoch)]) == id
                assert Plan(order, 1).when(id, epoch) is not None
            else:
                assert Plan(order, 1).when(id, epoch) is None
                with pytest.raises(IndexError, match=f"sample id {id} is not used in epoch {epoch}"):
                    order.find(id, epoch)


@pytest.mark.parametrize("name", ["groups", "mixture"])
def test_a_subset_is_of_an_order_that_uses_each_id_once(name):
    for order in (thin()[name], Shuffle(thin()[name])):
        with pytest.raises(TypeError, match="uses each id once"):
            Subset(order, [1])
