"""The keyed permutation: a bijection of [0, n) for n up to 2**62, in both directions, in O(1) memory.

Small n (up to 2**16) are exact: the ids are sorted by a keyed hash, so that every one of the n! orders can come out.
Above that, a Feistel network over mixed radices (a, b), a = ceil(sqrt n), b = ceil(n / a): its domain a*b exceeds n by
less than a, so a value outside [0, n) is rare and is sent through the network again (cycle walking).

Why six rounds: with three or four, outputs b positions apart are visibly related (docs/shuffle-quality.md has the
measurement). What it is bad at: single calls; a call costs some 0.1 ms however few positions it asks for.
The bits are fixed in docs/spec.md, section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from math import isqrt
from typing import TypeAlias

import numpy as np

from detdata.arrays import Int64Array, UInt64Array
from detdata.keys import GOLDEN, fold, mix64

SMALL = 2**16  # up to here by sorting; ids fit the low 16 bits of a sort key
ROUNDS = 6
_CHUNK = 8192  # positions a pass: four work arrays of 64 KiB stay in the L2 cache

_TABLED = 2**13  # for n up to 2**26 the round functions fit 1.5 MiB, written out …
_BULK = 4096  # … and from so many positions a call on, that is worth it
_ROWS = 8  # a run is worth a path of its own while a pass covers no more rows of the a x b square than that

_M1 = np.uint64(0x9E3779B97F4A7C15)  # odd part of 2**64 / golden ratio, as in SplitMix64
_M2 = np.uint64(0xD6E8FEB86659FD93)  # multiplier of the "rrmxmx" mixer by Pelle Evensen, 2018
_HALF = np.uint64(32)

_Numbers: TypeAlias = int | np.uint64 | UInt64Array  # one for all values, or one for each
_Network: TypeAlias = Callable[[UInt64Array, UInt64Array, UInt64Array], None]
_work: list[UInt64Array] = []  # at most one: 256 KiB of fresh pages a call would cost a third of its time


def permute(positions: Int64Array, n: int, key: int, exact: int = SMALL) -> Int64Array:
    """Return the image of each position under the permutation of [0, n) that `key` selects.

    positions: int64 of any shape, each in [0, n), unchecked. key: 0 … 2**64 - 1. Returns a new int64 array.
    exact: the largest n that is sorted. Time O(len(positions)) and, for n <= exact, O(n) once per key: whoever goes
    back and forth between many keys sorts less.

    >>> permute(np.arange(5), 5, key=1).tolist()
    [4, 3, 0, 1, 2]
    """
    if n <= exact:
        return _small(n, key)[0][positions].astype(np.int64)
    return _large(positions, n, key, inverse=False)


def permute_run(first: int, count: int, n: int, key: int) -> Int64Array:
    """Return `permute(np.arange(first, first + count), n, key)`, int64[count]: what a whole epoch on one rank asks for.

    Faster than that for n up to 2**26, because the first round reads its table from end to end.

    >>> permute_run(1, 3, 5, key=1).tolist()
    [3, 0, 1]
    """
    a, b = _radices(n)
    if n <= SMALL or a > _TABLED or count < _BULK or b < _CHUNK // _ROWS:
        return permute(np.arange(first, first + count), n, key)
    tables = _tables(a, b, key, inverse=False)
    result = np.empty(count, dtype=np.uint64)
    with _workspace() as work:
        for start in range(0, count, _CHUNK):
            out = result[start : start + _CHUNK]
            left, right = work[0, : out.size], work[1, : out.size]
            _first_round(tables, b, first + start, left, right)
            _other_rounds(tables, left, right, out, work[2, : out.size], begin=1, inverse=False)
        _walk(result, partial(_looked_up, tables, b, inverse=False), work, n)
    return result.view(np.int64)


def permute_together(positions: Int64Array, owner: Int64Array, networks: Sequence[tuple[int, int]]) -> Int64Array:
    """Return `permute(positions[i], *networks[owner[i]])` of each i, int64[k], in one pass.

    networks: (n, key) of each, every n above 2**16. For a few positions of each of many permutations: a pass costs some
    0.1 ms and a position of its own less than 0.2 µs.

    >>> permute_together(np.array([5, 5]), np.array([0, 1]), [(10**6, 1), (10**9, 2)]).tolist()
    [581668, 859818478]
    """
    sizes = np.array([n for n, _ in networks], dtype=np.int64)
    radices = np.array([_radices(n) for n, _ in networks], dtype=np.uint64)
    round_keys = np.array([_round_keys(key) for _, key in networks], dtype=np.uint64)
    result = positions.astype(np.uint64)
    left = np.arange(result.size)  # those that are still to go through the network
    while left.size:
        at = owner[left]
        (a, b), keys = radices[at].T, round_keys[at].T
        values = result[left]
        _mixed(tuple(keys), a, b, values, values, np.empty((4, left.size), dtype=np.uint64), inverse=False)
        result[left] = values
        left = left[values.view(np.int64) >= sizes[at]]
    return result.view(np.int64)


def unpermute(ids: Int64Array, n: int, key: int, exact: int = SMALL) -> Int64Array:
    """Undo `permute`: the position that each id came from.

    >>> unpermute(permute(np.arange(5), 5, key=1), 5, key=1).tolist()
    [0, 1, 2, 3, 4]
    """
    if n <= exact:
        return _small(n, key)[1][ids].astype(np.int64)
    return _large(ids, n, key, inverse=True)


@lru_cache(maxsize=32)  # 256 KiB each at most; a pure function, so the cache can't change a result
def _small(n: int, key: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint16]], ...]:
    ids = np.arange(n, dtype=np.uint64)
    hashes = mix64((ids + np.uint64(1)) * GOLDEN + np.uint64(key))
    # The low 16 bits make way for the id, so all sort keys differ and any sorting algorithm gives the same order.
    order = np.sort(hashes & np.uint64(0xFFFF_FFFF_FFFF_0000) | ids).astype(np.uint16)
    inverse = np.empty(n, dtype=np.uint16)
    inverse[order] = np.arange(n, dtype=np.uint16)
    order.flags.writeable = inverse.flags.writeable = False
    return order, inverse


@lru_cache(maxsize=4096)  # some 0.5 KiB each; a batch of a mixture may need hundreds
def _round_keys(key: int) -> tuple[np.uint64, ...]:
    return tuple(np.uint64(fold("detdata.feistel/1", key, index)) for index in range(ROUNDS))


def _radices(n: int) -> tuple[int, int]:
    a = isqrt(n - 1) + 1
    return a, -(-n // a)


def _large(values: Int64Array, n: int, key: int, *, inverse: bool) -> Int64Array:
    a, b = _radices(n)
    if a <= _TABLED and values.size >= _BULK:
        network = partial(_looked_up, _tables(a, b, key, inverse=inverse), b, inverse=inverse)
    else:
        network = partial(_mixed, _round_keys(key), a, b, inverse=inverse)
    flat = values.reshape(-1).view(np.uint64)
    result = np.empty(flat.size, dtype=np.uint64)
    with _workspace() as work:
        _send(flat, result, network, work)
        _walk(result, network, work, n)
    return result.view(np.int64).reshape(values.shape)


@contextmanager
def _workspace() -> Iterator[UInt64Array]:
    try:  # taken away while in use, so a thread or a signal handler that comes in between gets one of its own
        work = _work.pop()
    except IndexError:
        work = np.empty((4, _CHUNK), dtype=np.uint64)
    yield work
    if not _work:
        _work.append(work)


def _send(source: UInt64Array, target: UInt64Array, network: _Network, work: UInt64Array) -> None:
    for start in range(0, source.size, _CHUNK):
        network(source[start : start + _CHUNK], target[start : start + _CHUNK], work)


def _walk(result: UInt64Array, network: _Network, work: UInt64Array, n: int) -> None:
    """Send values that came out at n or above through the network again, until none is left."""
    if not result.size or int(result.max()) < n:
        return
    walking = np.flatnonzero(result >= n)
    ids = result[walking]
    while walking.size:
        _send(ids, ids, network, work)  # in place: the network has read its input before it writes
        inside = ids < n
        result[walking[inside]] = ids[inside]
        walking, ids = walking[~inside], ids[~inside]


def _split(x: UInt64Array, b: _Numbers, left: UInt64Array, right: UInt64Array) -> None:
    radix = np.uint64(b)
    np.floor_divide(x, radix, out=left)
    np.multiply(left, radix, out=right)
    np.subtract(x, right, out=right)


def _mixed(
    keys: tuple[_Numbers, ...],
    a: _Numbers,
    b: _Numbers,
    x: UInt64Array,
    out: UInt64Array,
    work: UInt64Array,
    *,
    inverse: bool,
) -> None:
    """Write the network's image of x, each < a*b, to `out`; everything in place, as fresh pages cost more than sums."""
    left, right, mixed, spare = (row[: x.size] for row in work)
    _split(x, b, left, right)
    halves, radix = (left, right), (np.uint64(a), np.uint64(b))
    for index in reversed(range(ROUNDS)) if inverse else range(ROUNDS):
        target, modulus = halves[index % 2], radix[index % 2]
        _round(halves[1 - index % 2], keys[index], modulus, mixed, spare)
        if inverse:  # t - m, plus the modulus where that went below 0: then it is huge, and the sum is the smaller
            np.subtract(target, mixed, out=target)
            np.add(target, modulus, out=mixed)
        else:  # t + m, less the modulus where that went past it: else the difference wraps and is the larger
            np.add(target, mixed, out=target)
            np.subtract(target, modulus, out=mixed)
        np.minimum(target, mixed, out=target)
    np.multiply(left, radix[1], out=out)
    np.add(out, right, out=out)


def _round(source: UInt64Array, key: _Numbers, modulus: _Numbers, mixed: UInt64Array, spare: UInt64Array) -> None:
    """mixed = F(source, key) in [0, modulus): xor, multiply, xorshift, multiply, then 32 bits scaled to the range."""
    np.bitwise_xor(source, key, out=mixed)
    np.multiply(mixed, _M1, out=mixed)
    np.right_shift(mixed, _HALF, out=spare)
    np.bitwise_xor(mixed, spare, out=mixed)
    np.multiply(mixed, _M2, out=mixed)
    np.right_shift(mixed, _HALF, out=mixed)
    np.multiply(mixed, modulus, out=mixed)
    np.right_shift(mixed, _HALF, out=mixed)


@lru_cache(maxsize=4)  # at most 1.5 MiB each
def _tables(a: int, b: int, key: int, *, inverse: bool) -> tuple[UInt64Array, ...]:
    """Return what `_looked_up` adds in each round, in the order in which it goes, and the two halves' last reductions.

    A round function has only a (or b) arguments, so in bulk a look-up beats mixing. And where a table goes on past its
    last argument, beginning again, nobody need reduce the sums in between: after k additions a half is below (k + 1)
    times its radix.
    """
    tables = []
    for turn in range(ROUNDS):
        index = ROUNDS - 1 - turn if inverse else turn
        modulus, arguments = (a, b) if index % 2 == 0 else (b, a)
        source = np.arange(arguments, dtype=np.uint64)
        table = np.empty_like(source)
        _round(source, _round_keys(key)[index], np.uint64(modulus), table, np.empty_like(source))
        if inverse:
            table = (np.uint64(modulus) - table) % np.uint64(modulus)
        tables.append(np.tile(table, (turn + 1) // 2 + 1))
    times = ROUNDS // 2 + 1
    tables += [
        np.tile(np.arange(a, dtype=np.uint64) * np.uint64(b), times),
        np.tile(np.arange(b, dtype=np.uint64), times),
    ]
    for table in tables:
        table.flags.writeable = False
    return tuple(tables)


def _looked_up(
    tables: tuple[UInt64Array, ...], b: int, x: UInt64Array, out: UInt64Array, work: UInt64Array, *, inverse: bool
) -> None:
    """Do what `_mixed` does, by the tables of one direction: half as many passes over the data."""
    left, right, found = (row[: x.size] for row in work[:3])
    _split(x, b, left, right)
    _other_rounds(tables, left, right, out, found, begin=0, inverse=inverse)


def _first_round(tables: tuple[UInt64Array, ...], b: int, first: int, left: UInt64Array, right: UInt64Array) -> None:
    """Split first, first + 1 … and do round 0: in each row of b positions, left + F(0), left + F(1) …"""
    row, column = divmod(first, b)
    done = 0
    while done < left.size:
        size = min(b - column, left.size - done)
        np.add(tables[0][column : column + size], np.uint64(row), out=left[done : done + size])
        right[done : done + size] = tables[ROUNDS + 1][column : column + size]
        row, column, done = row + 1, 0, done + size


def _other_rounds(
    tables: tuple[UInt64Array, ...],
    left: UInt64Array,
    right: UInt64Array,
    out: UInt64Array,
    found: UInt64Array,
    *,
    begin: int,
    inverse: bool,
) -> None:
    halves = (right, left) if inverse else (left, right)
    for turn in range(begin, ROUNDS):
        target, source = halves[turn % 2], halves[1 - turn % 2]
        tables[turn].take(source.view(np.int64), out=found, mode="clip")  # always in range; "raise" would copy
        np.add(target, found, out=target)
    tables[ROUNDS].take(left.view(np.int64), out=found, mode="clip")
    tables[ROUNDS + 1].take(right.view(np.int64), out=out, mode="clip")
    np.add(out, found, out=out)
