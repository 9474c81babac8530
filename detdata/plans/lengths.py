"""The lengths of samples, sorted into buckets: which ids are in each, which bucket an id is in, what its bounds are."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Any, final

import numpy as np
import numpy.typing as npt
import xxhash

from detdata.arrays import Int64Array
from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError

CHUNK = 2**20  # lengths at a time: nothing of the size of all of them is made but the index
MAX_LENGTH = 2**40
MAX_BUCKETS = 2**15
_BINS = 2**22  # of the histogram; longer lengths are counted in bins of several
_FINE = 1024  # quantiles that tell how dense the lengths lie


def as_lengths(values: Any, name: str = "lengths") -> npt.NDArray[Any]:
    """Return lengths as an array of one dimension, of integers from 0 to 2**40, that nobody changes. O(n).

    An array that cannot be written to, as a memory map opened for reading, is taken as it is; another one is copied, in
    the smallest type that holds it.

    >>> as_lengths([3, 1]).tolist()
    [3, 1]
    """
    try:
        array = np.asanyarray(values)
    except (ValueError, OverflowError) as error:
        raise ArgumentTypeError(f"{name} must be integers in one dimension, one a sample: {error}") from error
    if array.size == 0 and isinstance(values, (list, tuple)):  # NumPy makes floats of no items
        array = array.astype(np.int64)
    if (
        array.ndim != 1
        or array.dtype.kind not in "iu"
        or (
            array.size
            and isinstance(values, (list, tuple))
            and any(isinstance(value, (bool, np.bool_)) for value in values)
        )
        or isinstance(array, np.ma.MaskedArray)
    ):
        raise ArgumentTypeError(
            f"{name} must be integers in one dimension, one a sample; got {brief(values)} of dtype {array.dtype} and "
            f"shape {array.shape}"
        )
    if not array.size:
        raise ArgumentValueError(f"{name} is empty: give the length of each sample")
    for first, part in chunks(array):
        low, high = int(part.min()), int(part.max())
        if low < 0 or high > MAX_LENGTH:
            at = first + int(part.argmin() if low < 0 else part.argmax())
            raise ArgumentValueError(f"{name}[{at}] is {low if low < 0 else high}; a length is in 0 … 2**40")
    if not array.flags.writeable:
        return np.asarray(array)
    kind = np.min_scalar_type(-1 - max(int(part.max()) for _, part in chunks(array)))  # signed, for differences
    held: npt.NDArray[Any] = np.array(array, dtype=kind)
    held.flags.writeable = False
    return held


def chunks(array: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield (first index, part) of an array, a million or so at a time."""
    for first in range(0, array.size, CHUNK):
        yield first, array[first : first + CHUNK]


def lengths_digest(array: npt.NDArray[Any]) -> str:
    """Return the digest of lengths: of their values as little-endian int64, one after another.

    >>> lengths_digest(np.array([1, 2], np.int8)) == lengths_digest(np.array([1, 2], np.uint32))
    True
    """
    state = xxhash.xxh3_128()
    for _, part in chunks(array):
        state.update(part.astype("<i8").tobytes())
    return "xxh3-128:" + state.hexdigest()


def even_bounds(array: npt.NDArray[Any], count: int, limit: int) -> Int64Array:
    """Return upper bounds of about `count` buckets, ascending; the last is the largest length, or `limit`. O(n).

    Not of equally many samples each, which leaves a long tail in one bucket: where lengths lie a times as dense, the
    buckets are sqrt(a) times as narrow, which for a given number of them pads least (each bucket pads in proportion to
    its samples times its width). Of evenly spread lengths all buckets have equally many. Integer arithmetic alone.
    """
    largest = min(int(array.max()), limit)
    shift = max(0, largest.bit_length() - (_BINS.bit_length() - 1))
    histogram = np.zeros((largest >> shift) + 1, dtype=np.int64)
    for _, part in chunks(array):
        found = np.bincount(np.minimum(part, largest).astype(np.int64) >> shift)
        histogram[: found.size] += found
    below = np.cumsum(histogram)
    targets = -(-np.arange(1, _FINE + 1, dtype=np.int64) * array.size // _FINE)
    fine = np.unique(np.searchsorted(below, targets))  # the last bin of each quantile
    edges = np.concatenate([[int(np.flatnonzero(histogram)[0]) - 1], fine]).tolist()
    totals = np.concatenate([[0], below[fine]]).tolist()
    mass = [0]
    for index, end in enumerate(fine.tolist()):
        mass.append(mass[-1] + isqrt((totals[index + 1] - totals[index]) * (end - edges[index]) << 20))
    bounds = []
    index = 1
    for number in range(1, count + 1):
        target = -(-mass[-1] * number // count)
        while mass[index] < target:
            index += 1
        width, inside = edges[index] - edges[index - 1], target - mass[index - 1]
        bounds.append(edges[index - 1] - (-width * inside // (mass[index] - mass[index - 1])))
    found = np.unique(np.array(bounds, dtype=np.int64))
    return np.append((found[:-1] + 1 << shift) - 1, largest) if shift else found


@final
class LengthIndex:
    """The ids of each bucket. bounds: int64[buckets], largest length of each, ascending; longer ones are in the last.

    Memory beside the lengths: 4 bytes a sample (8 from 2**32 samples on). Making it costs two passes over the lengths.

    >>> index = LengthIndex(np.array([5, 1, 9, 2]), np.array([4, 10]))
    >>> index.sizes.tolist(), index.ids(0, np.array([0, 1])).tolist(), index.place(2)
    ([2, 2], [1, 3], (1, 1))
    """

    def __init__(self, lengths: npt.NDArray[Any], bounds: Int64Array) -> None:
        self.lengths = lengths
        self.bounds = bounds
        label = np.uint8 if bounds.size <= 2**8 else np.uint16
        sizes = np.zeros(bounds.size, dtype=np.int64)
        for _, part in chunks(lengths):
            sizes += np.bincount(self._labels(part), minlength=bounds.size)
        self.sizes = sizes
        self.edges = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._index = np.empty(lengths.size, dtype=np.uint32 if lengths.size <= 2**32 else np.int64)
        free = self.edges[:-1].copy()
        for first, part in chunks(lengths):
            labels = self._labels(part).astype(label)
            order = np.argsort(labels, kind="stable")
            counts = np.bincount(labels, minlength=bounds.size)
            starts = np.cumsum(counts) - counts
            for bucket in np.flatnonzero(counts):
                mine = order[starts[bucket] : starts[bucket] + counts[bucket]]
                self._index[free[bucket] : free[bucket] + mine.size] = mine + first
            free += counts
        for array in (self.sizes, self.edges, self._index, self.bounds):
            array.flags.writeable = False

    def _labels(self, lengths: npt.NDArray[Any]) -> Int64Array:
        labels = np.searchsorted(self.bounds, lengths)
        return np.asarray(np.minimum(labels, self.bounds.size - 1), dtype=np.int64)

    def ids(self, bucket: Any, rank: Int64Array) -> Int64Array:
        """Return the ids at ranks of buckets (an int, or one for each rank): within a bucket ids ascend."""
        found: Int64Array = self._index[self.edges[bucket] + rank].astype(np.int64)
        return found

    def place(self, id: int) -> tuple[int, int]:
        """Return (bucket, rank in it) of an id."""
        bucket = int(self._labels(self.lengths[id : id + 1])[0])
        mine = self._index[self.edges[bucket] : self.edges[bucket + 1]]
        return bucket, int(np.searchsorted(mine, id))

    def longest(self, bucket: int) -> int:
        """Return the rank of the longest sample of a bucket, the first of several."""
        mine = self._index[self.edges[bucket] : self.edges[bucket + 1]]
        best, rank = -1, 0
        for first, part in chunks(mine):
            lengths = self.lengths[part]
            if int(lengths.max()) > best:
                best, rank = int(lengths.max()), first + int(lengths.argmax())
        return rank
