"""Arrow arrays in slices that fit into memory once everything is written out.

A dictionary, run ends and views store once what is there many times, and nulls store nothing at all: a file of some
KB can say TB. So slices are cut by how many bytes their values have, not by their number alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from detdata.arrays import Int64Array
from detdata.errors import ArgumentValueError
from detdata.rows import schema as kinds
from detdata.rows.nodes import edges_of, spread

_MOST_BYTES = 16 << 20  # of a slice that has more than one value
_LONGEST = 1 << 30  # bytes of a value
_LEAST = 8  # bytes that a value is counted for, though it may store nothing
_MOST_ITEMS = 1 << 22  # inside of values that are looked at together
_SHARING = kinds.VIEWS | kinds.LIST_VIEWS | {kinds.DICTIONARY, kinds.RUNS}
_EMPTY = {kinds.NULL, kinds.STRUCT, kinds.FIXED_LIST, kinds.FIXED_BINARY}  # types whose values may store nothing


class _TooManyItems(Exception):
    """Values have more items than can be looked at together."""


def slices(array: Any, rows: int, *, coded: bool = False) -> Iterator[Any]:
    """Yield an array in slices of at most `rows` values, and of some 16 MiB as far as values can be parted.

    coded: the reader keeps a dictionary that has no more values than the slice. Raises ValueError for a value of more
    than 1 GiB in a type that may say more than it stores. Cost: that of slicing; O(values) for such types.
    """
    grows = _grows(array.type)
    for first in range(0, len(array), rows):
        part = array.slice(first, min(rows, len(array) - first))
        kept = coded and part.type.id == kinds.DICTIONARY and 0 < len(part.dictionary) <= len(part)
        if grows and not kept:
            yield from _cut(part)
        else:
            yield part


def _cut(part: Any) -> Iterator[Any]:
    try:
        edges = edges_of(_sizes(part, np.arange(len(part))))
    except _TooManyItems:
        half = len(part) // 2
        if not half:
            raise ArgumentValueError(f"a value has more items than fit into {_LONGEST:,} bytes") from None
        yield from _cut(part.slice(0, half))
        yield from _cut(part.slice(half))
        return
    start = 0
    while start < len(part):
        end = max(int(np.searchsorted(edges, edges[start] + _MOST_BYTES, "right")) - 1, start + 1)
        if edges[end] - edges[start] > _LONGEST:
            size = int(edges[end] - edges[start])
            raise ArgumentValueError(f"a value has {size:,} bytes once it is written out; at most {_LONGEST:,} do")
        yield part.slice(start, end - start)
        start = end


def _grows(kind: Any, *, inside: bool = False) -> bool:
    """Whether values of a type can be more than what is stored of them. inside: they are items of something."""
    if kinds.is_extension(kind):
        return _grows(kind.storage_type, inside=inside)
    if kind.id in _SHARING or (inside and kind.id in _EMPTY and _width(kind) == _LEAST):
        return True
    inside = inside or kind.id != kinds.STRUCT
    return any(_grows(kind.field(i).type, inside=inside) for i in range(kind.num_fields))


def _width(kind: Any) -> int | None:
    """Return the bytes of each value, at least 8, where they are as many for all of a type."""
    if kinds.is_extension(kind):
        return _width(kind.storage_type)
    if kind.id in kinds.STRINGS | kinds.BINARIES | kinds.LISTS | _SHARING | {kinds.MAP}:
        return None
    if kind.id in {kinds.STRUCT, kinds.FIXED_LIST}:
        widths = [_width(kind.field(i).type) for i in range(kind.num_fields)]
        if None in widths:
            return None
        times = kind.list_size if kind.id == kinds.FIXED_LIST else 1
        return max(_LEAST, times * sum(width or 0 for width in widths))
    if kind.id == kinds.NULL:
        return _LEAST
    return max(_LEAST, 16 if kind.id == kinds.INTERVAL else kind.bit_width // 8)


def _sizes(array: Any, at: Int64Array) -> Int64Array:
    """Return how many bytes the values at some places have, at least 8 for each, int64[n]."""
    kind, number = array.type, array.type.id
    if kinds.is_extension(kind):
        return _sizes(array.storage, at)
    if number == kinds.RUNS:
        runs = np.searchsorted(array.run_ends.to_numpy(), at + array.offset, "right")
        return _sizes(array.values, _within(runs, array.values)) if len(array.values) else np.full(at.size, _LEAST)
    width = _width(kind)
    if width is not None:
        found = np.full(at.size, width)
    elif number == kinds.DICTIONARY:
        if len(array.dictionary) == 0:
            return np.full(at.size, _LEAST)
        codes = array.indices.fill_null(0).to_numpy()[at].astype(np.int64)
        found = _sizes(array.dictionary, _within(codes, array.dictionary))
    elif number == kinds.STRUCT:
        found = np.full(at.size, _LEAST)
        for i in range(kind.num_fields):
            found += _sizes(array.field(i), at)
    elif number == kinds.FIXED_LIST:
        _check_items(at.size * kind.list_size, at.size)
        child = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        items = _sizes(child, spread(at, kind.list_size))
        found = _LEAST + items.reshape(at.size, kind.list_size).sum(axis=1)
    elif number in kinds.VIEWS:
        lengths = np.frombuffer(array.buffers()[1] or b"", np.int32)[4 * array.offset :: 4]
        found = np.maximum(lengths[at].astype(np.int64), _LEAST)
    else:
        found = _lengths(array, at)
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)[at]] = _LEAST  # whatever lies there
    return found


def _lengths(array: Any, at: Int64Array) -> Int64Array:
    """Return the same for strings, lists, list views and maps."""
    number, buffers = array.type.id, array.buffers()
    index = np.dtype(np.int64 if number in kinds.WIDE else np.int32)
    starts = np.frombuffer(buffers[1] or bytes(8), index)[array.offset :]
    if number in kinds.LIST_VIEWS:
        counts = np.frombuffer(buffers[2] or b"", index)[array.offset :][at].astype(np.int64)
        starts = starts[at].astype(np.int64)
    else:
        counts = starts[at + 1].astype(np.int64) - starts[at]
        starts = starts[at].astype(np.int64)
    if number in kinds.STRINGS or number in kinds.BINARIES:
        return np.maximum(counts, _LEAST)
    values = array.values
    width = _width(values.type)
    if width is not None:
        return np.maximum(counts * width, _LEAST)
    if array.null_count:
        counts[array.is_null().to_numpy(zero_copy_only=False)[at]] = 0
    full = counts > 0
    if not full.any():
        return np.full(at.size, _LEAST)
    first = max(int(starts[full].min()), 0)
    last = min(int((starts + counts)[full].max()), len(values))
    _check_items(last - first, at.size)
    edges = edges_of(_sizes(values.slice(first, max(last - first, 0)), np.arange(max(last - first, 0))))
    begins, ends = (np.clip(places - first, 0, edges.size - 1) for places in (starts, starts + counts))
    return np.maximum(edges[ends] - edges[begins], _LEAST)


def _check_items(count: int, values: int) -> None:
    if count > (_MOST_ITEMS if values > 1 else _LONGEST // _LEAST):
        raise _TooManyItems


def _within(places: Int64Array, values: Any) -> Int64Array:
    """Return places that are none as the nearest that is one: whoever takes the values finds the damage."""
    return np.clip(places, 0, max(len(values) - 1, 0))
