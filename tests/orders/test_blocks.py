"""BlockShuffle keeps reads local, and blocks without rows change nothing for the others."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import BlockShuffle, Concat, Sequential, Shuffle
from tests.orders.strategies import EPOCHS, SEEDS, splits


@st.composite
def corpora(draw):
    sizes = draw(splits(draw(st.integers(1, 80))))
    return sizes, draw(SEEDS), draw(st.integers(1, 5)), draw(EPOCHS)


@given(corpora())
def test_a_window_reads_its_own_blocks_only_and_each_block_is_read_in_one_window(corpus):
    sizes, seed, window, epoch = corpus
    order = BlockShuffle(sizes, seed, window)
    block_of = np.repeat(np.arange(len(sizes)), sizes)[order.take(np.arange(order.size), epoch)].tolist()

    sequence = list(dict.fromkeys(block_of))  # in the order of their first row
    position = read = 0
    while position < order.size:
        here = set()  # the blocks of this window: it goes on until all rows of all blocks begun have come
        rows = Counter()
        while not here or sum(rows.values()) < sum(sizes[block] for block in here):
            here.add(block_of[position])
            rows[block_of[position]] += 1
            position += 1
        assert len(here) <= window
        read += len(here)
    assert read == len(sequence) == sum(size > 0 for size in sizes)


@given(corpora())
def test_a_window_of_all_blocks_is_still_one_of_each_row(corpus):
    sizes, seed, _, epoch = corpus
    order = BlockShuffle(sizes, seed, window=2**40)

    assert sorted(order.take(np.arange(order.size), epoch).tolist()) == list(range(sum(sizes)))


def test_rows_are_shuffled_within_a_window_and_blocks_over_the_epoch():
    order = BlockShuffle([100] * 50, seed=1, window=5)
    blocks = [(order.take(np.arange(5000), epoch) // 100).reshape(10, 500) for epoch in range(3)]

    for epoch in blocks:
        assert all(len(set(row.tolist())) == 5 for row in epoch)
        assert all((np.diff(row) == 0).mean() < 0.5 for row in epoch)  # rows of one block don't come in a lump
    windows = [frozenset(row.tolist()) for epoch in blocks for row in epoch]
    assert len(set(windows)) == len(windows)  # which blocks meet changes with the epoch


def test_every_sequence_of_blocks_comes_out():
    order = BlockShuffle([1, 1, 1], seed=0, window=1)

    assert len({tuple(order.take([0, 1, 2], epoch).tolist()) for epoch in range(100)}) == 6


def test_an_order_of_blocks_gives_its_own_blocks():
    sources = Concat({"a": Shuffle(3, 1), "b": Sequential(5)})
    order = BlockShuffle(sources, seed=2, window=1)

    assert order.block_sizes.tolist() == [3, 5]
    assert order == BlockShuffle([3, 5], 2, 1, order=sources)
    assert BlockShuffle(order, seed=3).block_sizes.tolist() == [3, 5]
    ids = order.take(range(8)).tolist()
    assert {tuple(sorted(ids[:3])), tuple(sorted(ids[3:]))} == {(0, 1, 2), (3, 4, 5, 6, 7)} or {
        tuple(sorted(ids[:5])), tuple(sorted(ids[5:]))} == {(0, 1, 2), (3, 4, 5, 6, 7)}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "kind", "names"),
    [
        (([],), ValueError, "block_sizes"),
        (([0, 0],), ValueError, "block_sizes"),
        (([1, -1],), IndexError, "block_sizes"),
        (([1.0],), TypeError, "block_sizes"),
        ((["1"],), TypeError, "block_sizes"),
        (([True],), TypeError, "block_sizes"),
        ((None,), TypeError, "block_sizes"),
        (([2**62, 2**62],), ValueError, "block_sizes"),
        (([2**62] * 5,), ValueError, "block_sizes"),
        ((Shuffle(3),), TypeError, "block_sizes"),
        (([1], -1), ValueError, "seed"),
        (([1], 1.0), TypeError, "seed"),
        (([1], 0, 0), ValueError, "window"),
        (([1], 0, 1.5), TypeError, "window"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, kind, names):
    with pytest.raises(kind, match=names):
        BlockShuffle(*arguments)


def test_blocks_that_do_not_fit_the_order_are_refused():
    with pytest.raises(ValueError, match=r"7.*8"):
        BlockShuffle([3, 4], order=Sequential(8))
    with pytest.raises(TypeError, match="one order"):
        BlockShuffle(Concat({"a": Sequential(3)}), order=Sequential(3))
    with pytest.raises(TypeError, match="order"):
        BlockShuffle([3], order=3)
