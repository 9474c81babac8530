"""DocumentShuffle keeps the laws of an order, mixes evenly, and keeps to its cells and windows."""

import numpy as np
import pytest

from detdata.plans.pack_order import CELL, WINDOW, DocumentShuffle
from detdata.testing import OrderSuite


class TestDocumentShuffle(OrderSuite):
    epochs = (0, 1, 10**6)
    orders = tuple(
        DocumentShuffle(n, seed)
        for n, seed in ((1, 0), (9, 1), (256, 1), (300, 2), (4000, 3), (4999, 1), (2**62, 0))
    )  # fmt: skip


@pytest.mark.parametrize("n", [1, 256, 257, 4095, 4096, 4097, 4352, 12_345])
def test_windows_hold_whole_cells_and_cover_the_epoch(n):
    order = DocumentShuffle(n, seed=4)
    for epoch in range(3):
        after = number = 0
        while after < n:
            first, begin = order.window(number, epoch)[0], after
            after = order.window(number, epoch)[1]
            assert first == begin
            documents = order.take(np.arange(first, after), epoch)
            cells, counts = np.unique(order.cells_of(documents), return_counts=True)
            assert cells.size <= WINDOW // CELL
            assert counts.tolist() == [min(CELL, n - int(cell) * CELL) for cell in cells]
            assert set(order.window_of(np.arange(first, after), epoch).tolist()) == {number}
            number += 1
        assert number == -(-order.cells * CELL // WINDOW)


def test_every_document_comes_everywhere_those_of_the_short_cell_too():
    n, epochs = 20 * WINDOW + 100, 1500
    order = DocumentShuffle(n, seed=11)
    short = np.flatnonzero(order.cells_of(np.arange(n)) == order.cells - 1)[:2]
    seen = np.array([order.find([0, n // 2, *short], epoch) for epoch in range(epochs)]).T

    assert short.size == 2
    for positions in seen:
        counts = np.bincount(positions * 10 // n, minlength=10)
        assert ((counts - epochs / 10) ** 2 / (epochs / 10)).sum() < 35  # 9 degrees of freedom


def test_neighbours_change_from_epoch_to_epoch_and_are_far_apart_in_the_corpus():
    n = 50_000
    order = DocumentShuffle(n, seed=2)
    epochs = [order.take(np.arange(n), epoch) for epoch in range(2)]
    follows = [dict(zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True)) for ids in epochs]

    assert sum(follows[0][id] == follows[1].get(id) for id in follows[0]) < 50  # a cell has 255 others
    distances = np.abs(np.diff(epochs[0]))
    assert abs(np.median(distances) / n - (1 - 0.5**0.5)) < 0.01  # as of two random ones
