"""Permutations with a size and a key for each element: bijections, those of the page, and as even as chance."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.keys import GOLDEN, mix64
from detdata.orders.each import SORTED, permute_each, unpermute_each
from detdata.permutation import permute
from tests.orders import second_orders

SIZES = st.one_of(st.integers(1, 12), st.integers(SORTED - 1, SORTED + 2), st.integers(1, 5000), st.integers(1, 2**40))
KEYS = st.integers(0, 2**64 - 1)


def whole(n, key):
    return permute_each(np.arange(n), np.full(n, n), np.full(n, key, dtype=np.uint64))


@given(st.integers(1, 400), KEYS)
def test_it_is_a_bijection_and_undone_by_its_inverse(n, key):
    image = whole(n, key)

    assert sorted(image.tolist()) == list(range(n))
    assert unpermute_each(image, np.full(n, n), np.full(n, key, dtype=np.uint64)).tolist() == list(range(n))


@given(st.lists(st.tuples(SIZES, KEYS, st.integers(0, 2**40)), min_size=1, max_size=30, unique_by=lambda row: row[1]))
def test_each_element_is_permuted_by_itself(rows):
    sizes = np.array([n for n, _, _ in rows])
    keys = np.array([key for _, key, _ in rows], dtype=np.uint64)
    positions = np.array([p % n for n, _, p in rows])

    image = permute_each(positions, sizes, keys)

    expected = [second_orders.permute_each(int(p), n, key) for p, (n, key, _) in zip(positions, rows, strict=True)]
    assert expected == image.tolist()
    assert positions.tolist() == unpermute_each(image, sizes, keys).tolist()


@given(st.integers(1, SORTED), KEYS)
def test_up_to_64_it_is_the_permutation_of_the_shuffles(n, key):
    assert whole(n, key).tolist() == permute(np.arange(n), n, key).tolist()


def test_thousands_of_elements_at_once():
    keys = np.repeat(mix64((np.arange(3000, dtype=np.uint64) + np.uint64(1)) * GOLDEN), 2)
    sizes = np.repeat(np.arange(3000) % 150 + 2, 2)
    positions = np.arange(6000) % 2
    order = np.argsort(mix64(np.arange(6000, dtype=np.uint64)))

    image = permute_each(positions, sizes, keys)

    assert (image[::2] != image[1::2]).all()
    assert np.array_equal(image[order], permute_each(positions[order], sizes[order], keys[order]))
    assert np.array_equal(positions[order], unpermute_each(image[order], sizes[order], keys[order]))


@pytest.mark.parametrize("n", [3, 5, 33, 65, 100, 130])
def test_any_two_places_get_any_two_ids_equally_often(n):
    keys = mix64((np.arange(100_000, dtype=np.uint64) + np.uint64(1)) * GOLDEN + np.uint64(n))
    b = second_orders.radices(n)[1]
    for one, other in ((0, 1), (0, b % n), (1, n - 1)):  # neighbours in a row and in a column of the square
        first, second = (permute_each(np.full(keys.size, p), np.full(keys.size, n), keys) for p in (one, other))
        counts = np.bincount(first * n + second, minlength=n * n).reshape(n, n)[~np.eye(n, dtype=bool)]
        mean = keys.size / counts.size
        chi = ((counts - mean) ** 2 / mean).sum()
        assert abs(chi - (counts.size - 1)) < 5 * sqrt(2 * (counts.size - 1))
