"""Ids of many orders in one pass are those that each order gives by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detdata import BlockShuffle, Concat, Sequential, Shuffle
from detdata.orders.together import take_together
from detdata.permutation import permute, permute_together
from tests.orders.mixture_strategies import SOME

LARGE = st.one_of(st.integers(65537, 10**6), st.integers(65537, 2**62), st.just(2**62))
ORDERS = (
    Shuffle(70_000, 1), Shuffle(5, 2), Sequential(10**6), Shuffle(Shuffle(80_000, 3), 4), Shuffle(2**62, 5),
    BlockShuffle([40, 60], 6), Concat({"a": Shuffle(10**6), "b": Sequential(3)}),
)  # fmt: skip


@SOME
@given(st.lists(st.tuples(LARGE, st.integers(0, 2**64 - 1)), min_size=1, max_size=6), st.data())
def test_a_pass_over_many_networks_gives_what_each_gives(networks, data):
    rows = st.integers(0, len(networks) - 1).flatmap(
        lambda owner: st.tuples(st.just(owner), st.integers(0, networks[owner][0] - 1))
    )
    chosen = data.draw(st.lists(rows, max_size=30))
    owner = np.array([row for row, _ in chosen], dtype=np.int64)
    positions = np.array([position for _, position in chosen], dtype=np.int64)

    expected = [int(permute(np.array([p]), *networks[row])[0]) for row, p in chosen]
    assert expected == permute_together(positions, owner, networks).tolist()


@SOME
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2**62), st.integers(0, 2)), min_size=1, max_size=60))
def test_ids_of_many_orders_are_those_that_each_gives(rows):
    owner, places, epochs = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    places %= np.array([order.size for order in ORDERS], dtype=np.int64)[owner]

    expected = [int(ORDERS[i].take(p, e)) for i, p, e in zip(owner, places, epochs, strict=True)]
    assert expected == take_together(ORDERS, owner, places, epochs).tolist()


def test_many_places_of_one_order_are_taken_in_one_call():
    owner = np.repeat([0, 1], 5000)
    places = np.concatenate([np.arange(5000), np.arange(5000) % 5])
    ids = take_together(ORDERS, owner, places, np.zeros_like(owner))

    assert np.array_equal(ORDERS[0].take(np.arange(5000)), ids[:5000])
    assert np.array_equal(ORDERS[1].take(np.arange(5000) % 5), ids[5000:])
