"""Values of one type in one form: what they are, with nothing left of how they were stored.

Null positions instead of bitmaps; offsets that start at 0; zeros in place of whatever lies under a null; one NaN; no
children that belong to no list; no slices, views, dictionaries or runs. Both digests are made from these nodes, which
`build` makes of Arrow arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from detdata.arrays import Int64Array

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


def pick(node: Node, at: Int64Array, nulls: Nulls) -> Node:
    """Return the values at the places `at`, int64[n], null at the positions `nulls` whatever is there."""
    if isinstance(node, Missing):
        return Missing(at.size)
    if node.nulls is not None:
        lost = np.zeros(node.size, np.bool_)
        lost[node.nulls] = True
        nulls = either(np.flatnonzero(lost[at]), nulls)
    if isinstance(node, Coded):
        return Coded(at.size, nulls, zeroed(node.codes[at], nulls), node.values)
    if isinstance(node, Fixed):
        return Fixed(at.size, nulls, zeroed(node.values[at], nulls))
    if isinstance(node, Structs):
        if node.width is None:
            return Structs(at.size, nulls, tuple(pick(child, at, nulls) for child in node.children))
        places = spread(at, node.width)
        inside = None if nulls is None else spread(nulls, node.width)
        return Structs(at.size, nulls, (pick(node.children[0], places, inside),), node.width)
    sizes = zeroed(np.diff(node.offsets)[at], nulls)
    edges = edges_of(sizes)
    if isinstance(node, Lists):
        places = np.repeat(node.offsets[at] - edges[:-1], sizes) + np.arange(edges[-1])
        return Lists(at.size, nulls, edges, pick(node.child, places, None))
    pieces = bytes_objects(node.offsets, node.data)[at]
    if nulls is not None:
        pieces[nulls] = b""
    return Bytes(at.size, nulls, edges, np.frombuffer(b"".join(pieces), np.uint8))


def bytes_objects(edges: Int64Array, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.object_]:
    """Return each piece data[edges[i]:edges[i + 1]] as bytes, object[n].

    Arrow makes them three times as quickly as slices of a memoryview are made. `edges` ascend and stay in `data`.
    """
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.large_binary(), edges.size - 1, buffers)
    pieces: npt.NDArray[np.object_] = array.to_numpy(zero_copy_only=False)
    return pieces


def spread(positions: Int64Array, width: int) -> Int64Array:
    """Return the places of the `width` items of each of some lists of that size.

    >>> spread(np.array([0, 2]), 2).tolist()
    [0, 1, 4, 5]
    """
    return (positions[:, None] * width + np.arange(width)).reshape(-1)


def either(one: Nulls, other: Nulls) -> Nulls:
    """Return the positions that are in one or the other."""
    if one is None or other is None:
        found = other if one is None else one
        return found if found is not None and found.size else None
    return np.union1d(one, other)


def edges_of(lengths: Int64Array) -> Int64Array:
    """Return where pieces of these lengths begin, and the end of the last, int64[n + 1]."""
    edges = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=edges[1:])
    return edges


def zeroed(values: npt.NDArray[Any], nulls: Nulls) -> npt.NDArray[Any]:
    """Return the values with zeros where they are null; a copy if any is."""
    if nulls is None:
        return values
    values = values.copy()
    values[nulls] = 0
    return values
