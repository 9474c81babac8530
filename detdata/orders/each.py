"""Many small permutations at once: every element has a size and a key of its own.

A batch asks for the permutation of each of its groups, and calls of `detdata.permutation` one by one would cost a
hundred times as much. Up to 64 ids they are sorted by a keyed hash, row by row: the very permutation of `permute`, and
exact. Above that it is its network with round keys that are mixed rather than hashed, which a whole array can do.

Why ten rounds, and 64: of such small squares six leave pairs of neighbours visibly related, up to 130 ids; ten are
clean from 33 on (tests/orders/test_each.py). Fixed in docs/spec.md, section 12.
"""

from __future__ import annotations

import numpy as np

from detdata.arrays import Int64Array, UInt64Array
from detdata.keys import GOLDEN, mix64

SORTED = 64  # ids up to which a permutation is made by sorting
ROUNDS = 10
_ROWS = 512  # groups sorted at once: 256 KiB
_CHUNK = 2048  # elements sent through the network at once: their round keys are 160 KiB

_M1 = np.uint64(0x9E3779B97F4A7C15)  # those of detdata.permutation
_M2 = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFF)
_STEPS = (np.arange(1, ROUNDS + 1, dtype=np.uint64) * GOLDEN)[:, np.newaxis]


def permute_each(positions: Int64Array, sizes: Int64Array, keys: UInt64Array) -> Int64Array:
    """Return the image of each position under the permutation of [0, size) that its key selects. All of int64[k].

    Equal keys stand for equal sizes. Cost about 0.3 ms a call and, for large groups, 0.4 µs an element.

    >>> permute_each(np.arange(5), np.full(5, 5), np.full(5, 1, dtype=np.uint64)).tolist()
    [4, 3, 0, 1, 2]
    """
    return _each(positions, sizes, keys, inverse=False)


def unpermute_each(values: Int64Array, sizes: Int64Array, keys: UInt64Array) -> Int64Array:
    """Undo `permute_each`.

    >>> unpermute_each(np.array([4, 3]), np.full(2, 5), np.full(2, 1, dtype=np.uint64)).tolist()
    [0, 1]
    """
    return _each(values, sizes, keys, inverse=True)


def _each(values: Int64Array, sizes: Int64Array, keys: UInt64Array, *, inverse: bool) -> Int64Array:
    small = np.flatnonzero(sizes <= SORTED)
    if small.size == sizes.size:
        return _sorted(values, sizes, keys, inverse=inverse)
    result = _walked(values, sizes, keys, inverse=inverse)
    if small.size:
        result[small] = _sorted(values[small], sizes[small], keys[small], inverse=inverse)
    return result


def _sorted(values: Int64Array, sizes: Int64Array, keys: UInt64Array, *, inverse: bool) -> Int64Array:
    distinct, first, row = np.unique(keys, return_index=True, return_inverse=True)
    lengths = sizes[first].astype(np.uint64)
    result = np.empty_like(values)
    for begin in range(0, distinct.size, _ROWS):
        some = slice(begin, begin + _ROWS)
        index = np.arange(int(lengths[some].max()), dtype=np.uint64)
        hashes = mix64((index + np.uint64(1)) * GOLDEN + distinct[some, np.newaxis])
        hashes = hashes & ~_LOW | index  # the low bits make way for the id, so all differ
        hashes[index >= lengths[some, np.newaxis]] = 2**64 - 1  # past the end of a shorter group: sorted behind it
        mine = np.flatnonzero((row >= begin) & (row < begin + _ROWS))
        rows = row[mine] - begin
        if inverse:
            result[mine] = (hashes[rows] < hashes[rows, values[mine], np.newaxis]).sum(axis=1)
        else:
            result[mine] = (np.sort(hashes, axis=1)[rows, values[mine]] & _LOW).astype(np.int64)
    return result


def _walked(values: Int64Array, sizes: Int64Array, keys: UInt64Array, *, inverse: bool) -> Int64Array:
    result = np.empty(values.size, dtype=np.uint64)
    for begin in range(0, values.size, _CHUNK):
        some = slice(begin, begin + _CHUNK)
        n = sizes[some].astype(np.uint64)
        a, b = _radices(sizes[some])
        round_keys = mix64(keys[some] + _STEPS)
        images = _network(values[some].astype(np.uint64), a, b, round_keys, inverse=inverse)
        walking = np.flatnonzero(images >= n)
        while walking.size:  # outside of its own [0, n): through the network again
            again = _network(images[walking], a[walking], b[walking], round_keys[:, walking], inverse=inverse)
            images[walking] = again
            walking = walking[again >= n[walking]]
        result[some] = images
    return result.view(np.int64)


def _radices(sizes: Int64Array) -> tuple[UInt64Array, UInt64Array]:
    """Return the smallest a with a * a >= n, and the smallest b with a * b >= n, of each n."""
    a = np.sqrt(sizes.astype(np.float64)).astype(np.int64)  # may be off by one, and is put right
    a -= a * a > sizes
    a += a * a < sizes
    a += a * a < sizes
    return a.astype(np.uint64), (-(-sizes // a)).astype(np.uint64)


def _network(x: UInt64Array, a: UInt64Array, b: UInt64Array, keys: UInt64Array, *, inverse: bool) -> UInt64Array:
    """Return the network's image of each x, below a * b. keys: uint64[rounds, k]."""
    left = x // b
    halves, radix = [left, x - left * b], (a, b)
    for index in reversed(range(ROUNDS)) if inverse else range(ROUNDS):
        mine, modulus = index % 2, radix[index % 2]
        z = (halves[1 - mine] ^ keys[index]) * _M1
        z ^= z >> _HALF
        z *= _M2
        added = ((z >> _HALF) * modulus) >> _HALF
        if inverse:  # what went below 0 is huge, and what it is with the modulus is the smaller
            moved = halves[mine] - added
            halves[mine] = np.minimum(moved, moved + modulus)
        else:  # likewise
            moved = halves[mine] + added
            halves[mine] = np.minimum(moved, moved - modulus)
    image: UInt64Array = halves[0] * b + halves[1]
    return image
