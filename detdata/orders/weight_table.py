"""Weights as a running sum of integers: which id a number below their total falls to.

Weights are taken exactly, as integers times a power of two. They are scaled by one power of two so that their exact sum
lies in 2**61 … 2**62, and rounded down, a positive one to at least 1. That is integer arithmetic alone, so the same on
any machine and for any number of weights, and mostly not even a rounding: only bits below 2**-61 of the total go.

An alias table would find an id in one step, but takes 12 to 16 bytes an item, and which ids come would hang on how it
was built. A running sum takes 8, and says all in one line. Fixed in docs/spec.md, section 11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, final

import numpy as np
import numpy.typing as npt
import xxhash

from detdata.arrays import Int64Array, UInt64Array
from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError

BITS = 62  # of the scaled sum of the weights
_CHUNK = 2**17  # weights at a time: what is made of them on the way stays small
_BLOCK = 256  # sums between two that are kept aside, where a search begins
_MANTISSA = 53  # bits of a float64
_LOWEST = -1074  # exponents of float64 are above that, as frexp gives them
_LOW = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)


@final
class WeightTable:
    """Running sums of integer weights. 8 bytes an item.

    >>> table = WeightTable.of([1, 0, 3])
    >>> table.find(np.array([0, table.total // 4 - 1, table.total // 4, table.total - 1])).tolist()
    [0, 0, 2, 2]
    """

    __slots__ = ("_blocks", "_sums", "digest")

    def __init__(self, sums: Int64Array, digest: str) -> None:
        self._sums = sums
        self._blocks = sums[_BLOCK - 1 :: _BLOCK].copy()  # dense, so that a search misses the cache less often
        self._sums.flags.writeable = self._blocks.flags.writeable = False
        self.digest = digest

    @classmethod
    def of(cls, weights: Any) -> WeightTable:
        """Return the table of weights that come from outside. Two passes over them, a few ns each.

        Raises ValueError for a weight that is negative or not finite, for none and for none above 0; else TypeError.
        """
        array = _read(weights)
        shift = _scale(array)
        sums = np.empty(array.size, dtype=np.int64)
        state = xxhash.xxh3_128()
        before = 0
        for first, part in _chunks(array):
            units = _units(part, shift)
            state.update(units.astype("<u8").tobytes())
            here = sums[first : first + units.size]
            np.cumsum(units.view(np.int64), out=here)
            here += before
            before = int(here[-1])
        return cls(sums, "xxh3-128:" + state.hexdigest())

    @property
    def size(self) -> int:
        """Items."""
        return int(self._sums.size)

    @property
    def total(self) -> int:
        """The sum of the integer weights, below 2**63."""
        return int(self._sums[-1])

    @property
    def units(self) -> Int64Array:
        """The integer weights, int64[n]; made anew each time."""
        units: Int64Array = np.diff(self._sums, prepend=0)
        return units

    def find(self, numbers: Int64Array) -> Int64Array:
        """Return the item to which each number in [0, total) falls: the first whose running sum is above it.

        int64[k] to int64[k]. Some 0.3 µs each where the table does not fit the cache: a third of one bisection's time.
        """
        items: Int64Array = np.searchsorted(self._blocks, numbers, side="right").astype(np.int64)
        items *= _BLOCK
        step = _BLOCK // 2
        while step:
            probe = np.minimum(items + (step - 1), self._sums.size - 1)
            items += np.where(self._sums.take(probe) <= numbers, step, 0)
            step //= 2
        return items

    def __reduce__(self) -> tuple[Any, ...]:
        return (WeightTable, (self._sums, self.digest))


def scaled(hashes: UInt64Array, total: int) -> Int64Array:
    """Return floor(hash * total / 2**64) of each 64-bit hash: evenly spread over 0 … total - 1. total < 2**63.

    >>> scaled(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 10).tolist()
    [0, 5, 9]
    """
    high, low = np.uint64(total >> 32), np.uint64(total & 0xFFFF_FFFF)
    upper, lower = hashes >> _HALF, hashes & _LOW
    middle = upper * low + ((lower * low) >> _HALF)  # at most 2**64 - 2**32: no carry is lost
    other = lower * high + (middle & _LOW)
    numbers: Int64Array = (upper * high + (middle >> _HALF) + (other >> _HALF)).view(np.int64)
    return numbers


def _read(weights: Any) -> npt.NDArray[Any]:
    """Return weights as an array of one dimension of integers or of floats of up to 64 bits, each checked."""
    try:
        array = np.asanyarray(weights)
    except (OverflowError, ValueError) as error:
        raise ArgumentTypeError(f"weights must be numbers in one dimension: {error}") from error
    mixed = isinstance(weights, (list, tuple)) and bool in set(map(type, weights))  # NumPy makes numbers of them
    if array.size and (array.dtype.kind not in "iuf" or array.dtype.itemsize > 8 or mixed):
        raise ArgumentTypeError(
            f"weights must be integers or floats of at most 64 bits, got {brief(weights)} of dtype {array.dtype}"
            f"{' with a bool among them' if mixed else ''}"
        )
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentTypeError("weights is a masked array; give its filled values: weights.filled(0)")
    if array.ndim != 1:
        raise ArgumentTypeError(f"weights must have one dimension, one weight an id; got the shape {array.shape}")
    if not array.size:
        raise ArgumentValueError("weights is empty: give the weight of each sample id")
    for first, part in _chunks(array):
        good = np.isfinite(part) & (part >= 0)
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            raise ArgumentValueError(f"weights[{first + at}] is {part[at]}; a weight is a finite number of at least 0")
    return np.asarray(array)


def _chunks(array: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    for first in range(0, array.size, _CHUNK):
        yield first, array[first : first + _CHUNK]


def _exactly(part: npt.NDArray[Any]) -> tuple[UInt64Array, Any]:
    """Return (m, e): each weight is exactly m * 2**e. m: uint64[k]; e: int64[k], or 0 for all of them."""
    if part.dtype.kind != "f":
        return part.astype(np.uint64), 0
    mantissa, exponent = np.frexp(part.astype(np.float64))
    return np.ldexp(mantissa, _MANTISSA).astype(np.uint64), exponent.astype(np.int64) - _MANTISSA


def _scale(array: npt.NDArray[Any]) -> int:
    """Return the s for which the exact sum of all weights, times 2**s, lies in 2**61 … 2**62, the end not included."""
    total: Counter[int] = Counter()  # exponent -> the sum of what has it
    for _, part in _chunks(array):
        whole, exponent = _exactly(part)
        if isinstance(exponent, int):
            total[0] += (int((whole >> _HALF).sum()) << 32) + int((whole & _LOW).sum())
            continue
        bins = exponent + (_MANTISSA - _LOWEST)
        # Sums of halves of 32 bits over a chunk stay below 2**53: float64 holds them exactly, in any order.
        upper = np.bincount(bins, (whole >> _HALF).astype(np.float64))
        lower = np.bincount(bins, (whole & _LOW).astype(np.float64))
        for at in np.flatnonzero(upper + lower).tolist():
            total[at + _LOWEST - _MANTISSA] += (int(upper[at]) << 32) + int(lower[at])
    if not sum(total.values()):
        raise ArgumentValueError(f"weights are all 0, of {array.size} items: at least one must be above 0")
    lowest = min(exponent for exponent, value in total.items() if value)
    exact = sum(value << (exponent - lowest) for exponent, value in total.items() if value)
    return BITS - exact.bit_length() - lowest


def _units(part: npt.NDArray[Any], shift: int) -> UInt64Array:
    """Return weight * 2**shift of each, rounded down, of a positive weight at least 1. uint64[k], each below 2**62."""
    whole, exponent = _exactly(part)
    by = np.asarray(exponent + shift, dtype=np.int64)
    left = np.where(whole > 0, np.clip(by, 0, 63), 0).astype(np.uint64)
    right = np.clip(-by, 0, 63).astype(np.uint64)
    units: UInt64Array = np.maximum((whole << left) >> right, whole > 0)
    return units
