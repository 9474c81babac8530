"""Arrow arrays brought into one form: what the values are, with nothing left of how they were stored.

Null positions instead of bitmaps; offsets that start at 0; zeros in place of whatever lies under a null; one NaN; no
children that belong to no list; no slices, views, dictionaries or runs. Both digests are made from these nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from detdata.arrays import Int64Array
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.rows import schema as kinds

Nulls: TypeAlias = Int64Array | None  # positions, ascending, at least one; None: no value is null


@dataclass(frozen=True, slots=True)
class Missing:
    """`size` values of the null type."""

    size: int


@dataclass(frozen=True, slots=True)
class Fixed:
    """Values of a fixed width. values: unsigned, [size], or uint8[size, width] where wider than 8 bytes."""

    size: int
    nulls: Nulls
    values: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Bytes:
    """Strings. Value i is data[offsets[i]:offsets[i + 1]]. offsets: int64[size + 1] from 0; data: uint8."""

    size: int
    nulls: Nulls
    offsets: Int64Array
    data: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists. offsets: int64[size + 1] from 0, into `child`."""

    size: int
    nulls: Nulls
    offsets: Int64Array
    child: Node


@dataclass(frozen=True, slots=True)
class Structs:
    """Values made of one value of each child, all of this size; or, with `width`, of `width` values of the only one."""

    size: int
    nulls: Nulls
    children: tuple[Node, ...]
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Coded:
    """Value i is values[codes[i]]; codes: int64[size], 0 where null. Only made on request."""

    size: int
    nulls: Nulls
    codes: Int64Array
    values: Node


Node: TypeAlias = Missing | Fixed | Bytes | Lists | Structs | Coded


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
        runs = np.searchsorted(array.run_ends.to_numpy(), np.arange(array.offset, array.offset + len(array)), "right")
        return node_of(_taken(array.values, pa.array(runs)), above, coded=coded)
    if number == kinds.DICTIONARY:
        if coded and 0 < len(array.dictionary) <= len(array):
            return _coded(array, above)
        return node_of(_taken(array.dictionary, array.indices), above, coded=coded)
    if number == kinds.NULL:
        return Missing(len(array))
    if number in kinds.VIEWS:
        array.validate(full=True)  # a view may point anywhere
        array = pc.cast(array, pa.large_binary())
        number = array.type.id
    nulls = _either(_null_positions(array), above)
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
        inside = None if nulls is None else (nulls[:, None] * width + np.arange(width)).reshape(-1)
        return Structs(len(array), nulls, (node_of(child, inside),), width)
    return Fixed(len(array), nulls, _fixed(array, nulls))


def _fixed(array: Any, nulls: Nulls) -> npt.NDArray[Any]:
    """Return the bits of values of a fixed width: zero where null, one NaN, decimals in 16 or 32 bytes."""
    kind, size = array.type, len(array)
    buffer = array.buffers()[1]
    if kind.id == kinds.BOOL:
        return _zeroed(_bits(buffer, array.offset, size), nulls)
    if kind.id in kinds.DECIMALS:
        return _decimals(array, nulls)
    width = 16 if kind.id == kinds.INTERVAL else kind.bit_width // 8
    if width not in {1, 2, 4, 8} or kind.id == kinds.FIXED_BINARY:
        raw = _numbers(buffer, np.uint8, size * width, array.offset * width)
        return _zeroed(raw.reshape(size, width), nulls)
    values = _numbers(buffer, np.dtype(f"u{width}"), size, array.offset)
    if kind.id in kinds.FLOATS:
        nan = np.isnan(values.view(f"f{width}"))
        if nan.any():
            values = values.copy()
            values[nan] = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}[width]
    return _zeroed(values, nulls)


def _decimals(array: Any, nulls: Nulls) -> npt.NDArray[np.uint8]:
    """Return two's complement numbers of 16 bytes, or of 32 where the precision is over 38; uint8[n, bytes]."""
    size, words = len(array), array.type.bit_width // 64
    if words == 0:  # 32 bits
        words, narrow = 1, _numbers(array.buffers()[1], np.int32, size, array.offset).astype(np.int64)
    else:
        narrow = _numbers(array.buffers()[1], np.int64, size * words, array.offset * words)
    given = _zeroed(narrow.reshape(size, words), nulls)
    wanted = 2 if array.type.precision <= 38 else 4
    whole = np.empty((size, wanted), np.int64)
    kept = min(words, wanted)
    whole[:, :kept] = given[:, :kept]
    sign = given[:, kept - 1 : kept] >> 63
    whole[:, kept:] = sign
    if words > wanted and (given[:, wanted:] != sign).any():
        raise ArgumentValueError(f"a number has more digits than its type {array.type} allows; the file is damaged")
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
        data, offsets = data[keep], _edges(lengths)
    return Bytes(len(array), nulls, offsets, data)


def _lists(values: Any, starts: Int64Array, sizes: Int64Array, nulls: Nulls) -> Lists:
    """Return lists of `sizes` values from `starts` on, with children that are theirs alone and in their order."""
    if nulls is not None:
        sizes[nulls] = 0
    _check_lengths(sizes)
    edges = _edges(sizes)
    full = np.flatnonzero(sizes)
    if full.size == 0:
        child = values.slice(0, 0)
    elif (starts[full] - edges[full] == starts[full[0]]).all():
        child = values.slice(int(starts[full[0]]), int(edges[-1]))
    else:
        child = _taken(values, pa.array(np.repeat(starts - edges[:-1], sizes) + np.arange(edges[-1])))
    if len(child) != edges[-1]:
        raise ArgumentValueError(f"lists hold {edges[-1]} items where there are {len(child)}; the file is damaged")
    return Lists(sizes.size, nulls, edges, node_of(child))


def _check_lengths(lengths: Int64Array) -> None:
    if lengths.size and lengths.min() < 0:
        raise ArgumentValueError("a value has less than no bytes or items; the file is damaged")


def _taken(values: Any, places: Any) -> Any:
    """Return values[places]; some releases of pyarrow cannot do so for views, and all refuse places that are none."""
    try:
        return values.take(places)
    except pa.ArrowNotImplementedError:
        return pc.cast(values, _without_views(values.type)).take(places)


def _without_views(kind: Any) -> Any:
    """Return the type with other containers in place of views."""
    if kind.id in kinds.VIEWS:
        return pa.large_string() if kind.id in kinds.STRINGS else pa.large_binary()
    if kind.id in kinds.LISTS or kind.id in kinds.LIST_VIEWS:
        return pa.large_list(_without_views(kind.value_type))
    if kind.id == kinds.FIXED_LIST:
        return pa.list_(_without_views(kind.value_type), kind.list_size)
    if kind.id == kinds.MAP:
        return pa.map_(_without_views(kind.key_type), _without_views(kind.item_type))
    if kind.id == kinds.STRUCT:
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([pa.field(field.name, _without_views(field.type)) for field in fields])
    return kind


def _coded(array: Any, above: Nulls) -> Coded:
    nulls = _either(_null_positions(array), above)
    codes = _fixed(array.indices, nulls).astype(np.int64)
    return Coded(len(array), nulls, codes, node_of(array.dictionary, coded=False))


def _index_type(array: Any) -> npt.DTypeLike:
    return np.int64 if array.type.id in kinds.WIDE else np.int32


def _null_positions(array: Any) -> Nulls:
    if array.null_count == 0:
        return None
    return np.flatnonzero(_bits(array.buffers()[0], array.offset, len(array)) == 0)


def _either(one: Nulls, other: Nulls) -> Nulls:
    if one is None or other is None:
        found = other if one is None else one
        return found if found is not None and found.size else None
    return np.union1d(one, other)


def _others(nulls: Int64Array, size: int) -> npt.NDArray[np.bool_]:
    keep = np.ones(size, np.bool_)
    keep[nulls] = False
    return keep


def _edges(lengths: Int64Array) -> Int64Array:
    edges = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=edges[1:])
    return edges


def _zeroed(values: npt.NDArray[Any], nulls: Nulls) -> npt.NDArray[Any]:
    if nulls is None:
        return values
    values = values.copy()
    values[nulls] = 0
    return values


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
            raise ArgumentTypeError(f"an array lacks a buffer for its {count} values; the file is damaged")
        return np.zeros(count, dtype)
    return np.frombuffer(buffer, dtype, count, offset * dtype.itemsize)
