"""The shuffle is as well mixed as a true one, and the battery that says so finds the faults of bad ones."""

import importlib.util
import sys
from math import isqrt

import numpy as np
import pytest

from detdata.keys import fold, mix64
from tests import second
from tests.sources import ROOT


def load():
    spec = importlib.util.spec_from_file_location("shuffle_quality", ROOT / "tools" / "shuffle_quality.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


quality = load()


def outside(rows):
    limit = quality.bound(len(rows))
    return [row for row in rows if abs(row.z) > limit]


@pytest.fixture(scope="module")
def mine():
    return quality.battery(quality.ours, quality.our_window, quality.QUICK)


@pytest.fixture(scope="module")
def numpys():
    return quality.battery(quality.numpys, quality.numpys_window, quality.QUICK)


def test_every_statistic_is_that_of_a_true_shuffle(mine):
    assert len(mine) > 150
    assert outside(mine) == []


def test_the_bounds_hold_for_the_shuffles_of_numpy(numpys):
    assert outside(numpys) == []


@pytest.mark.parametrize("who", ["mine", "numpys"])
def test_the_scores_spread_as_those_of_true_shuffles_do(who, request):
    z = np.array([row.z for row in request.getfixturevalue(who)])

    # About 200 scores, some of them of one and the same order: wide bounds, which a dulled battery still leaves.
    assert abs(z.mean()) < 0.5
    assert 0.7 < z.std() < 1.35


# --- shuffles known to be bad ---


def network(n, seed, epoch, rounds):
    """The network of the library with another number of rounds, in plain NumPy."""
    key = fold("detdata.shuffle/1", seed, epoch)
    a = isqrt(n - 1) + 1
    b = -(-n // a)
    keys = [fold("detdata.feistel/1", key, index) for index in range(rounds)]

    def mixed(x, k, m):
        z = (x ^ np.uint64(k)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        return (((z >> np.uint64(32)) * np.uint64(m)) >> np.uint64(32)).astype(np.int64)

    def once(x):
        left, right = x // b, x % b
        for index, k in enumerate(keys):
            if index % 2:
                right = (right + mixed(left.astype(np.uint64), k, b)) % b
            else:
                left = (left + mixed(right.astype(np.uint64), k, a)) % a
        return left * b + right

    x = once(np.arange(n))
    while (x >= n).any():
        x = np.where(x >= n, once(x), x)
    return x


def affine_network(n, seed, epoch):
    """Four rounds over a power of two that only multiply and add, so that low bits depend on low bits only."""
    half = (n - 1).bit_length() + 1 >> 1
    mask = 2**half - 1
    keys = [fold("affine", seed, epoch, index) for index in range(8)]

    def once(x):
        left, right = x >> half, x & mask
        for multiply, add in zip(keys[::2], keys[1::2], strict=True):
            left, right = right, left ^ (right * (multiply & mask | 1) + (add & mask)) & mask
        return left << half | right

    x = once(np.arange(n))
    while (x >= n).any():
        x = np.where(x >= n, once(x), x)
    return x


def congruence(n, seed, epoch):
    """(c i + d) mod n."""
    c = fold("c", seed, epoch) % n
    while np.gcd(c, n) != 1:
        c += 1
    return (np.arange(n) * (c % n) + fold("d", seed, epoch) % n) % n


def neighbours(n, seed, epoch):
    """A true shuffle of seed and epoch added up: (0, 1) is (1, 0)."""
    return np.random.default_rng([seed + epoch]).permutation(n)


def weak_sort(n, seed, epoch):
    """Sorted by four bits of a hash, ties by id."""
    keys = mix64(np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(fold("w", seed, epoch)))
    return np.argsort(keys >> np.uint64(60), kind="stable")


def test_the_network_under_test_is_that_of_the_library_at_six_rounds():
    n = 70_000

    assert np.array_equal(quality.ours(n, 3, 4), network(n, 3, 4, rounds=6))
    key = fold("detdata.shuffle/1", 3, 4)
    x = [second.network(x, n, key, rounds=4) for x in (0, 1)]
    assert x == network(n, 3, 4, rounds=4)[:2].tolist() or max(x) >= n


@pytest.mark.parametrize("rounds", [3, 4])
def test_three_and_four_rounds_are_found_out(rounds):
    n = 70_000
    b = -(-n // (isqrt(n - 1) + 1))
    scale = quality.Scale({n: 12}, 0, 0, 0, 0)

    rows = {row.stride: row for row in quality.gap_rows(lambda *at: network(*at, rounds), scale)}

    assert rows[b].z > 20
    assert sorted(np.unique(network(n, 0, 0, rounds)).tolist()) == list(range(n))  # one-to-one, and yet


@pytest.mark.parametrize(
    ("shuffle", "n", "rows", "name"),
    [
        (affine_network, 2**16 + 1, quality.gap_rows, "gaps"),
        (affine_network, 2**16 + 1, quality.whole_rows, None),
        (congruence, 70_001, quality.gap_rows, "gaps"),
        (congruence, 70_001, quality.whole_rows, "distinct gaps"),
        (weak_sort, 70_000, quality.gap_rows, "gaps"),
        (weak_sort, 70_000, quality.small_rows, "orders of four"),
        (weak_sort, 70_000, quality.small_rows, "position x item"),
        (neighbours, 70_000, quality.neighbour_rows, "seed against epoch: agreements"),
        (lambda n, *_: np.arange(n), 70_000, quality.whole_rows, "parity kept"),
        (lambda n, *_: np.arange(n), 70_000, quality.whole_rows, "serial correlation"),
        (lambda n, *_: np.arange(n), 70_000, quality.whole_rows, "cycles"),
        (lambda n, *_: np.arange(n), 70_000, quality.small_rows, "fixed points"),
    ],
)
def test_a_bad_shuffle_is_found_out_by_the_statistic_for_it(shuffle, n, rows, name):
    scale = quality.Scale({n: 2}, 2_000, 2_000, 20, 2**12)

    found = outside(list(rows(shuffle, scale)))

    assert any(name in (None, row.name) for row in found)
    assert max(abs(row.z) for row in found) > 8


def test_a_window_that_is_not_uniform_is_found_out():
    def window(n, seed, start, length):
        return np.random.default_rng(start).integers(0, n // 2, length) * 2

    found = {row.name for row in outside(list(quality.window_rows(window, quality.QUICK)))}

    assert {"window: low 8 bits", "window: gaps of low 8 bits"} <= found


def test_the_page_has_the_table_of_a_run_that_passed():
    page = quality.PAGE.read_text(encoding="utf-8")
    table = page.partition(quality.BEGIN)[2].partition(quality.END)[0]

    assert "Made " in table
    assert "outside ±" in table
    assert table.split("outside ±")[1].split("|")[1].strip() == "0"
