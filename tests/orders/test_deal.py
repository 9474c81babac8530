"""Dealt labels: exact counts, evenly all along, invertible, and what the page says (tests/second_mixture.py)."""

from __future__ import annotations

from collections import Counter
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.orders.deal import MAX_DRAWS, STRETCH, Deal
from tests.orders.mixture_strategies import MANY, SOME
from tests.second_mixture import deal as dealt

KEYS = st.integers(0, 2**64 - 1)


@st.composite
def counts(draw, most=12, largest=60):
    """How often each of some labels comes, zeros among them, at least one in all."""
    numbers = draw(st.lists(st.one_of(st.just(0), st.integers(0, 3), st.integers(0, largest)), max_size=most))
    numbers.insert(draw(st.integers(0, len(numbers))), draw(st.integers(1, largest)))
    return numbers


@MANY
@given(counts(), KEYS)
def test_labels_are_what_the_page_says(numbers, key):
    deal = Deal(numbers, key)

    assert list(dealt(numbers, key)) == deal.draw(np.arange(deal.size)).label.tolist()


@SOME
@given(counts(), KEYS, st.data())
def test_counts_ranks_and_positions_are_those_of_a_plain_count(numbers, key, data):
    deal = Deal(numbers, key)
    everything = np.arange(deal.size)
    label, rank = deal.draw(everything)
    had, before = Counter(), []
    for position in range(deal.size):
        before.append([had[i] for i in range(len(numbers))])
        assert rank[position] == had[label[position]]
        had[int(label[position])] += 1
    before.append([had[i] for i in range(len(numbers))])

    assert numbers == before[-1]
    assert before == deal.before(np.arange(deal.size + 1)).tolist()
    assert np.array_equal(everything, deal.find(label, rank))
    some = np.array(data.draw(st.lists(st.integers(0, deal.size - 1), max_size=20)), dtype=np.int64)
    assert np.array_equal(label[some], deal.draw(some).label)
    assert np.array_equal(rank[some], deal.draw(some).rank)
    assert np.array_equal(some, deal.find(label[some], rank[some]))


@SOME
@given(st.lists(st.one_of(st.integers(0, 5), st.integers(0, 10**6)), min_size=1, max_size=40).filter(any), KEYS)
def test_every_label_comes_evenly(numbers, key):
    deal = Deal(numbers, key)
    depth = ceil(log2(len(numbers)))
    last = -(-deal.size // STRETCH)
    edges = np.unique(np.linspace(0, last, 400).astype(np.int64))[:-1] * STRETCH
    off = np.abs(deal.before(edges) - np.outer(edges, numbers) / deal.size)
    assert off.max() < max(depth, 1e-6)
    anywhere = np.unique(np.linspace(0, deal.size, 1000).astype(np.int64))
    off = np.abs(deal.before(anywhere) - np.outer(anywhere, numbers) / deal.size)
    assert off.max() < depth + 8 or len(numbers) == 1


@pytest.mark.parametrize("numbers", [[2**31], [2**31 - 1, 1], [1, 2**30, 2**30 - 1], [2**21] * 1024, [1] * 1000])
def test_the_largest_deals_are_exact(numbers):
    deal = Deal(numbers, 7)
    positions = np.unique(np.linspace(0, deal.size - 1, 50).astype(np.int64))
    label, rank = deal.draw(positions)

    assert MAX_DRAWS >= deal.size == sum(numbers)
    assert np.array_equal(positions, deal.find(label, rank))
    step = deal.before(positions + 1) - deal.before(positions)
    assert np.array_equal(label, step.argmax(axis=1))
    assert [1] * positions.size == step.sum(axis=1).tolist()
    assert numbers == deal.before(np.array([deal.size]))[0].tolist()


def test_a_rare_label_is_found_wherever_it_is():
    for key in range(50):
        deal = Deal([1, 10**6], key)
        position = deal.find(np.array([0]), np.array([0]))
        assert deal.draw(position).label.tolist() == [0]


def test_the_place_of_a_rare_label_is_spread_evenly():
    places = [int(Deal([1, 1023], key).find(np.array([0]), np.array([0]))[0]) // 128 for key in range(2000)]
    cells = np.bincount(places, minlength=8)

    assert ((cells - 250) ** 2 / 250).sum() < 24.3  # chi-square of 7 degrees of freedom, one in a thousand


def test_a_deal_is_not_periodic():
    """What comes 256 draws later is no better known than by its share."""
    same = []
    for key in range(40):
        label = Deal([128, 64, 64], key).draw(np.arange(256)).label
        other = Deal([128, 64, 64], key + 1000).draw(np.arange(256)).label
        same.append(float((label == other).mean()))

    assert abs(np.mean(same) - (0.25 + 2 * 0.0625)) < 0.02


@pytest.mark.parametrize("numbers", [[0], [0, 0], [-1, 5], [2**31, 1], []])
def test_a_deal_of_nothing_or_too_much_is_refused(numbers):
    with pytest.raises(ValueError):
        Deal(numbers, 0)
