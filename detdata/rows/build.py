"""Arrow arrays to nodes: every way of storing values undone, and every offset checked before it is followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from detdata.arrays import Int64Array
from detdata.errors import ArgumentValueError
from detdata.rows import schema as kinds
from detdata.rows.nodes import (
    Bytes,
    Coded,
    Fixed,
    Lists,
    Missing,
    Node,
    Nulls,
    Structs,
    edges_of,
    either,
    pick,
    spread,
    zeroed,
)

_DAMAGED = "the file is damaged"
_MOST_ITEMS = 1 << 30


def node_of(array: Any, above: Nulls = None, *, coded: bool = False) -> Node:
    """Return the node of an Arrow array (not chunked).

    array: of a type that `type_text` knows. above: positions that are null because what holds them is. coded: keep
    dictionaries, for a reader who wants each value once; not inside lists, whose items are hashed together.
    Cost: O(values), mostly without a copy.
    """
    number = array.type.id
    if kinds.is_extension(array.type):
        return node_of(array.storage, above, coded=coded)
    if number == kinds.RUNS:
        rows = np.arange(array.offset, array.offset + len(array))
        return _taken(array.values, np.searchsorted(array.run_ends.to_numpy(), rows, "right"), above)
    if number == kinds.DICTIONARY:
        if coded and 0 < len(array.dictionary) <= len(array):
            return _coded(array, above)
        nulls = either(_null_positions(array), above)
        return _taken(array.dictionary, _codes(array, nulls), nulls)
    if number == kinds.NULL:
        return Missing(len(array))
    nulls = either(_null_positions(array), above)
    if number in kinds.VIEWS:
        return _bytes(_without_views(array, nulls), nulls)
    if number in kinds.STRINGS or number in kinds.BINARIES:
        return _bytes(array, nulls)
    if number in kinds.LISTS or number == kinds.MAP:
        offsets = _numbers(array.buffers()[1], _index_type(array), len(array) + 1, array.offset)
        return _lists(array.values, offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64), nulls)
    if number in kinds.LIST_VIEWS:
        starts, sizes = (_numbers(array.buffers()[i], _index_type(array), len(array), array.offset) for i in (1, 2))
        return _lists(array.values, starts.astype(np.int64), sizes.astype(np.int64), nulls)
    if number == kinds.STRUCT:
        children = tuple(node_of(array.field(i), nulls, coded=coded) for i in range(array.type.num_fields))
        return Structs(len(array), nulls, children)
    if number == kinds.FIXED_LIST:
        width = array.type.list_size
        child = array.values.slice(array.offset * width, len(array) * width)
        inside = None if nulls is None else spread(nulls, width)
        return Structs(len(array), nulls, (node_of(child, inside),), width)
    return Fixed(len(array), nulls, _fixed(array, nulls))


def _fixed(array: Any, nulls: Nulls) -> npt.NDArray[Any]:
    """Return the bits of values of a fixed width: zero where null, one NaN, decimals in 16 or 32 bytes."""
    kind, size = array.type, len(array)
    buffer = array.buffers()[1]
    if kind.id == kinds.BOOL:
        return zeroed(_bits(buffer, array.offset, size), nulls)
    if kind.id in kinds.DECIMALS:
        return _decimals(array, nulls)
    width = 16 if kind.id == kinds.INTERVAL else kind.bit_width // 8
    if width not in {1, 2, 4, 8} or kind.id == kinds.FIXED_BINARY:
        raw = _numbers(buffer, np.uint8, size * width, array.offset * width)
        return zeroed(raw.reshape(size, width), nulls)
    values = _numbers(buffer, np.dtype(f"u{width}"), size, array.offset)
    if kind.id in kinds.FLOATS:
        nan = np.isnan(values.view(f"f{width}"))
        if nan.any():
            values = values.copy()
            values[nan] = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}[width]
    return zeroed(values, nulls)


def _decimals(array: Any, nulls: Nulls) -> npt.NDArray[np.uint8]:
    """Return two's complement numbers of 16 bytes, or of 32 where the precision is over 38; uint8[n, bytes]."""
    size, words = len(array), array.type.bit_width // 64
    if words == 0:  # 32 bits
        words, narrow = 1, _numbers(array.buffers()[1], np.int32, size, array.offset).astype(np.int64)
    else:
        narrow = _numbers(array.buffers()[1], np.int64, size * words, array.offset * words)
    given = zeroed(narrow.reshape(size, words), nulls)
    wanted = 2 if array.type.precision <= 38 else 4
    whole = np.empty((size, wanted), np.int64)
    kept = min(words, wanted)
    whole[:, :kept] = given[:, :kept]
    sign = given[:, kept - 1 : kept] >> 63
    whole[:, kept:] = sign
    if words > wanted and (given[:, wanted:] != sign).any():
        raise ArgumentValueError(f"a number has more digits than its type {array.type} allows; {_DAMAGED}")
    return whole.astype("<i8", copy=False).view(np.uint8).reshape(size, wanted * 8)


def _bytes(array: Any, nulls: Nulls) -> Bytes:
    buffers = array.buffers()
    offsets = _numbers(buffers[1], _index_type(array), len(array) + 1, array.offset).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = _numbers(buffers[2], np.uint8, last - first, first)
    offsets -= first
    lengths = np.diff(offsets)
    _check_lengths(lengths)
    if nulls is not None and lengths[nulls].any():  # bytes that belong to no value
        keep = np.repeat(_others(nulls, len(array)), lengths)
        lengths[nulls] = 0
        data, offsets = data[keep], edges_of(lengths)
    return Bytes(len(array), nulls, offsets, data)


def _lists(values: Any, starts: Int64Array, sizes: Int64Array, nulls: Nulls) -> Lists:
    """Return lists of `sizes` values from `starts` on, with children that are theirs alone and in their order."""
    if nulls is not None:
        sizes[nulls] = 0
    _check_lengths(sizes)
    edges = edges_of(sizes)
    full = np.flatnonzero(sizes)
    if full.size and (starts[full].min() < 0 or (starts[full] + sizes[full]).max() > len(values)):
        raise ArgumentValueError(f"a list has items beyond the {len(values)} that there are; {_DAMAGED}")
    if full.size == 0:
        child = values.slice(0, 0)
    elif (starts[full] - edges[full] == starts[full[0]]).all():
        child = values.slice(int(starts[full[0]]), int(edges[-1]))
    elif edges[-1] > _MOST_ITEMS:  # views may share items, so a small file can make any number of them
        raise ArgumentValueError(
            f"{sizes.size} lists have {edges[-1]} items; at most {_MOST_ITEMS} are taken at a time"
        )
    else:
        return Lists(
            sizes.size, nulls, edges, _taken(values, np.repeat(starts - edges[:-1], sizes) + np.arange(edges[-1]))
        )
    return Lists(sizes.size, nulls, edges, node_of(child))


def _check_lengths(lengths: Int64Array) -> None:
    if lengths.size and lengths.min() < 0:
        raise ArgumentValueError(f"a value has less than no bytes or items; {_DAMAGED}")


def _coded(array: Any, above: Nulls) -> Coded:
    nulls = either(_null_positions(array), above)
    return Coded(len(array), nulls, _codes(array, nulls), node_of(array.dictionary))


def _codes(array: Any, nulls: Nulls) -> Int64Array:
    codes = _fixed(array.indices, nulls).astype(np.int64)
    if codes.size and not 0 <= codes.min() <= codes.max() < max(1, len(array.dictionary)):
        raise ArgumentValueError(f"a code lies outside the {len(array.dictionary)} values that there are; {_DAMAGED}")
    return codes


def _taken(values: Any, at: Int64Array, nulls: Nulls = None) -> Node:
    """Return the values at some places, and null where `nulls` says so."""
    if len(values) == 0:
        values = pa.nulls(1, values.type)
    if at.size < len(values):  # take those before looking at each
        try:
            return node_of(values.take(pa.array(at)), nulls)
        except pa.ArrowNotImplementedError:  # for views
            pass
    return pick(node_of(values), at, nulls)


def _without_views(array: Any, nulls: Nulls) -> Any:
    """Return strings as large binary. What lies under a null is no view, and is followed by pyarrow all the same."""
    size, buffers = len(array), array.buffers()
    views = zeroed(_numbers(buffers[1], np.uint8, 16 * size, 16 * array.offset).reshape(size, 16), nulls)
    made = pa.Array.from_buffers(array.type, size, [None, pa.py_buffer(views), *buffers[2:]])
    made.validate(full=True)  # a view may point anywhere
    return made.cast(pa.large_binary())


def _index_type(array: Any) -> npt.DTypeLike:
    return np.int64 if array.type.id in kinds.WIDE else np.int32


def _null_positions(array: Any) -> Nulls:
    if array.null_count == 0:
        return None
    return np.flatnonzero(_bits(array.buffers()[0], array.offset, len(array)) == 0)


def _others(nulls: Int64Array, size: int) -> npt.NDArray[np.bool_]:
    keep = np.ones(size, np.bool_)
    keep[nulls] = False
    return keep


def _bits(buffer: Any, offset: int, size: int) -> npt.NDArray[np.uint8]:
    """Return `size` bits from bit `offset` on, one a byte."""
    skip = offset & 7
    raw = _numbers(buffer, np.uint8, (skip + size + 7) >> 3, offset >> 3)
    return np.unpackbits(raw, bitorder="little")[skip : skip + size]


def _numbers(buffer: Any, dtype: npt.DTypeLike, count: int, offset: int) -> npt.NDArray[Any]:
    """Return `count` items from item `offset` of a buffer; zeros where an array without values has no buffer."""
    dtype = np.dtype(dtype)
    if count == 0 or buffer is None or buffer.size == 0:
        if count > 1:
            raise ArgumentValueError(f"an array lacks a buffer for its {count} values; {_DAMAGED}")
        return np.zeros(count, dtype)
    return np.frombuffer(buffer, dtype, count, offset * dtype.itemsize)
