"""Labels of samples: which samples belong together, and where each is among those of its label."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
import xxhash

from detdata.arrays import Int64Array, as_int64
from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError

_CHUNK = 2**17  # labels at a time, of what is made of them on the way
_SPREAD = 4  # labels that span no more than so many times their number are counted, which is quicker than sorting


def as_labels(values: Any, name: str = "labels") -> npt.NDArray[Any]:
    """Return labels as an array of one dimension of any integers, without copying one.

    >>> as_labels([-1, 7]).tolist()
    [-1, 7]
    """
    try:
        array = np.asarray(values)
    except (OverflowError, ValueError) as error:
        raise ArgumentTypeError(f"{name} must be integers in one dimension: {error}") from error
    mixed = isinstance(values, (list, tuple)) and bool in set(map(type, values))  # NumPy makes integers of them
    if array.size and (array.dtype.kind not in "iu" or mixed):
        raise ArgumentTypeError(
            f"{name} must be integers, one a sample; got {brief(values)} of dtype {array.dtype}. "
            f"Integers for labels of any kind: numpy.unique({name}, return_inverse=True)[1]"
        )
    if array.ndim != 1:
        raise ArgumentTypeError(f"{name} must have one dimension, one label a sample; got the shape {array.shape}")
    if not array.size:
        raise ArgumentValueError(f"{name} is empty: give the label of each sample")
    return array


def numbered(labels: npt.NDArray[Any]) -> tuple[Int64Array, Int64Array]:
    """Return (the number of each sample's group, int64[n]; the samples of each group, int64[groups]).

    A group is what has one label; groups are numbered 0, 1 … in the order of their labels.

    >>> numbered(np.array([7, -1, 7]))[0].tolist()
    [1, 0, 1]
    """
    low, high = int(labels.min()), int(labels.max())
    if high - low >= _SPREAD * labels.size + 2**16:
        _, number, counts = np.unique(labels, return_inverse=True, return_counts=True)
        return number.astype(np.int64, copy=False), counts.astype(np.int64, copy=False)
    wide = labels if labels.dtype == np.uint64 else labels.astype(np.int64, copy=False)
    offset = (wide - wide.dtype.type(low)).astype(np.int64, copy=False)
    found = np.bincount(offset)
    present = found > 0
    as_numbers: Int64Array = np.cumsum(present) - 1
    return as_numbers[offset], found[present].astype(np.int64, copy=False)


@final
class GroupIndex:
    """The members of each group, in the order of their ids, and the group of each id.

    labels: one a sample, any integers. ids: those that count; None: all. size: samples, with those that do not count.
    counts: int64[groups]. Memory 4 bytes a sample (8 from 2**31 samples on), twice that once `find` was asked.

    >>> index = GroupIndex(np.array([5, 9, 5]))
    >>> index.members(np.array([0, 0, 1]), np.array([0, 1, 0])).tolist(), index.find(np.array([2]))
    ([0, 2, 1], (array([0]), array([1])))
    """

    __slots__ = ("_edges", "_members", "_places", "counts", "digest", "size")

    def __init__(self, labels: npt.NDArray[Any], ids: Any = None) -> None:
        self.size = int(labels.size)
        used = None if ids is None else _used(ids, self.size)
        number, self.counts = numbered(labels if used is None else labels[used])
        self.digest = _digest(number, used, self.size)
        few = number.astype(np.uint16) if self.counts.size <= 2**16 else number  # NumPy sorts those by counting
        order = np.argsort(few, kind="stable")
        kind = np.int32 if self.size < 2**31 else np.int64
        self._members = (order if used is None else used[order]).astype(kind)
        self._edges: Int64Array = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
        self._places: npt.NDArray[Any] | None = None
        for array in (self._members, self._edges, self.counts):
            array.flags.writeable = False

    def members(self, group: Int64Array, rank: Int64Array) -> Int64Array:
        """Return the ids at ranks of groups, int64."""
        ids: Int64Array = self._members[self._edges[group] + rank].astype(np.int64)
        return ids

    def find(self, ids: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return (group, rank in it) of ids; group -1 where an id does not count."""
        if self._places is None:  # made once it is needed, and set whole, so threads see no half
            places = np.full(self.size, -1, dtype=self._members.dtype)
            places[self._members] = np.arange(self._members.size)
            places.flags.writeable = False
            self._places = places
        place = self._places[ids].astype(np.int64)
        group = np.where(place < 0, -1, np.searchsorted(self._edges, place, side="right") - 1).astype(np.int64)
        return group, place - self._edges[np.maximum(group, 0)]


def _used(ids: Any, size: int) -> Int64Array:
    given = np.arange(ids.start, ids.stop, ids.step) if isinstance(ids, range) else ids
    flat = as_int64(given, "ids", below=size, what="sample id").reshape(-1)
    used = np.unique(flat)
    if not used.size:
        raise ArgumentValueError("ids is empty: name the sample ids that are to be used, or leave it out for all")
    if used.size != flat.size:
        raise ArgumentValueError(f"ids has {flat.size - used.size} repeated ids; give each id once")
    return used


def _digest(number: Int64Array, used: Int64Array | None, size: int) -> str:
    """Digest of the group number of each sample, -1 where it does not count, as little-endian int64."""
    if used is not None:
        whole = np.full(size, -1, dtype=np.int64)
        whole[used] = number
        number = whole
    state = xxhash.xxh3_128()
    for first in range(0, size, _CHUNK):
        state.update(number[first : first + _CHUNK].astype("<i8").tobytes())
    return "xxh3-128:" + state.hexdigest()
