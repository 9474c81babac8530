"""The kernel: one-to-one at every size, on arrays of every form, and every order of a small n within reach."""

import itertools
from collections import Counter
from math import isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.keys import fold
from detdata.permutation import permute, permute_run, unpermute

CHUNK = 8192
EDGES = [2**16, 2**31, 2**32, 2**53, 2**62]
LARGE = sorted({n + d for n in EDGES for d in (-2, -1, 0, 1, 2) if n + d <= 2**62})
SQUARES = [257**2, 257**2 + 1, 257 * 258, 257 * 258 + 1, 2**20, 3_000_000, (2**31 - 1) ** 2, (2**31 - 1) ** 2 + 1]


def spread(n, count=4096):
    """Both ends, places around powers of two, and a random middle: int64[<= count + 300], in [0, n)."""
    rng = np.random.default_rng(n % 2**32)
    powers = np.array([2**k + d for k in range(62) for d in (-1, 0, 1)], dtype=np.int64)
    ends = np.concatenate([np.arange(min(n, 50)), n - 1 - np.arange(min(n, 50))])
    return np.unique(np.concatenate([powers[powers < n], ends, rng.integers(0, n, count)]))


@pytest.mark.parametrize("n", [1, 2, 3, 255, 256, 257, 65535, *LARGE, *SQUARES])
def test_the_permutation_is_undone_by_its_inverse(n):
    positions = spread(n)
    for key in (0, 2**64 - 1, fold("test", n)):
        ids = permute(positions, n, key)

        assert ids.dtype == np.int64
        assert ids.min() >= 0
        assert ids.max() < n
        assert np.array_equal(positions, unpermute(ids, n, key))
        assert np.array_equal(positions, permute(unpermute(positions, n, key), n, key))


@pytest.mark.parametrize("n", range(1, 301))
def test_every_small_size_is_one_to_one(n):
    for key in range(8):
        assert sorted(permute(np.arange(n), n, key).tolist()) == list(range(n))


@pytest.mark.parametrize("n", [65537, 65792, 65793, 66049, 100_003, 2**18])
def test_sizes_just_past_the_change_over_are_one_to_one(n):
    assert np.array_equal(np.arange(n), np.sort(permute(np.arange(n), n, fold("test", n))))


@given(st.integers(1, 2**62), st.integers(0, 2**64 - 1), st.data())
def test_any_size_and_key_is_undone_by_its_inverse(n, key, data):
    positions = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=20)), dtype=np.int64)

    assert np.array_equal(positions, unpermute(permute(positions, n, key), n, key))


@pytest.mark.parametrize("n", [1, 1000, 2**16, 65537, 2**20, 1_100_000, 10**7, 2**26, 2**26 + 1, 2**40])
def test_a_run_says_what_its_positions_say(n):
    rng = np.random.default_rng(n % 2**32)
    a = isqrt(n - 1) + 1
    firsts = {0, 1, a - 1, -(-n // a), n // 2, max(n - 5000, 0), n - 1, *rng.integers(0, n, 8).tolist()}
    for first in sorted(min(first, n - 1) for first in firsts):
        for length in (0, 1, 4095, 4096, CHUNK, CHUNK + 1, 5 * CHUNK - 3):
            positions = np.arange(first, min(first + length, n))
            run = permute_run(first, positions.size, n, fold("test", n))

            assert run.dtype == np.int64
            # In parts too short for tables, so that both do not go the same way.
            parts = [permute(positions[at : at + 4000], n, fold("test", n)) for at in range(0, positions.size, 4000)]
            assert np.array_equal(run, np.concatenate([positions[:0], *parts]))


@pytest.mark.parametrize("n", [1000, 2**40])
@pytest.mark.parametrize("length", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 5])
def test_a_long_call_says_what_short_ones_say(n, length):
    positions = (np.arange(length, dtype=np.int64) * 7919) % n
    whole = permute(positions, n, key=5)

    pieces = [permute(positions[start : start + 1000], n, key=5) for start in range(0, length, 1000)]
    assert np.array_equal(np.concatenate([*pieces, np.empty(0, dtype=np.int64)]), whole)


@pytest.mark.parametrize("n", [1000, 2**40])
@pytest.mark.parametrize("mapping", [permute, unpermute])
def test_any_form_of_array_is_taken_and_none_is_changed(n, mapping):
    base = np.arange(960, dtype=np.int64)
    expected = mapping(base, n, 9)
    read_only = base.copy()
    read_only.flags.writeable = False
    forms = {
        "strided": (np.repeat(base, 2)[::2], expected),
        "reversed": (base[::-1], expected[::-1]),
        "transposed": (base.reshape(24, 40).T, expected.reshape(24, 40).T),
        "fortran": (np.asfortranarray(base.reshape(24, 40)), expected.reshape(24, 40)),
        "cube": (base.reshape(8, 10, 12), expected.reshape(8, 10, 12)),
        "one repeated": (np.broadcast_to(base[3], (4, 5)), np.full((4, 5), expected[3])),
        "no dimension": (np.array(base[7]), np.array(expected[7])),
        "empty": (base[:0].reshape(0, 3), base[:0].reshape(0, 3)),
        "read-only": (read_only, expected),
    }
    for form, (given_, wanted) in forms.items():
        before = given_.copy()
        found = mapping(given_, n, 9)
        assert found.shape == given_.shape, form
        assert found.dtype == np.int64, form
        assert np.array_equal(wanted, found), form
        assert np.array_equal(before, given_), form
        assert found.size == 0 or not np.shares_memory(found, given_), form


@pytest.mark.parametrize("n", [1000, 2**40])
def test_a_result_may_be_written_to_without_changing_the_next(n):
    first = permute(np.arange(10), n, 1)
    kept = first.copy()
    first[:] = 0

    assert np.array_equal(kept, permute(np.arange(10), n, 1))


def test_all_24_orders_of_four_come_out_equally_often():
    keys = 24_000
    seen = Counter(tuple(permute(np.arange(4), 4, fold("orders", key)).tolist()) for key in range(keys))

    assert set(itertools.permutations(range(4))) == set(seen)
    chi2 = sum((count - keys / 24) ** 2 / (keys / 24) for count in seen.values())
    assert chi2 < 23 + 5 * (2 * 23) ** 0.5  # chi-square with 23 degrees of freedom: mean 23, deviation 6.8


def test_the_walk_ends_where_most_values_lie_outside():
    """n just past a square has the largest share of the domain outside: a*b - n is largest there."""
    for root in (257, 1000, 46341, 2**31 - 1):
        n = root * root + 1
        a = isqrt(n - 1) + 1
        assert a * (-(-n // a)) - n < a
        positions = np.arange(n - 1000, n, dtype=np.int64)
        assert np.array_equal(positions, unpermute(permute(positions, n, 3), n, 3))


def test_neighbouring_keys_agree_in_about_one_place():
    n = 70_000
    agreements = [int((permute(np.arange(n), n, key) == permute(np.arange(n), n, key + 1)).sum()) for key in range(20)]

    assert sum(agreements) < 20 + 5 * 20**0.5  # Poisson(1) each
