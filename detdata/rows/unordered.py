"""The order-free form: two numbers for each row, added up twice.

A sum does not see the order of its terms, and, unlike an exclusive or, does see a row that is there twice. The second
sum is over the same rows mixed once more, so that two changes which cancel out in one do not in the other. That is
good against accident; whoever wants to can make other rows with the same sums. Fixed in docs/spec.md, section 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from detdata.arrays import Int64Array, UInt64Array
from detdata.keys import GOLDEN, mix64
from detdata.rows.hashing import as_bytes
from detdata.rows.nodes import Bytes, Coded, Fixed, Lists, Missing, Node, bytes_objects, edges_of

ROWS_AT_ONCE = 8192  # so that what is mixed stays in the cache
_NULL = np.uint64(0x6A09E667F3BCC908)  # the null word of a null itself
_MASK = 2**64 - 1


class Holes(NamedTuple):
    """Which values are null, or have nulls inside. at: their places, ascending; words: uint64, what is null in each."""

    at: Int64Array
    words: UInt64Array


class Values(NamedTuple):
    """Each value in two numbers, so that no value is a null's: bits, uint64[size], and a null word, 0 without holes.

    bits: those of a null are 0. holes: the null words that are not 0; None if all are.
    """

    bits: UInt64Array
    holes: Holes | None

    def differ(self, other: Values) -> npt.NDArray[np.bool_]:
        """Return where two columns of as many values of one type have different ones, bool[size]."""
        unlike: npt.NDArray[np.bool_] = self.bits != other.bits
        if self.holes is not None or other.holes is not None:
            unlike |= _dense(self.holes, unlike.size) != _dense(other.holes, unlike.size)
        return unlike

    def part(self, start: int, size: int) -> Values:
        """Return `size` of the values, from `start` on."""
        if self.holes is None:
            return Values(self.bits[start : start + size], None)
        first, last = np.searchsorted(self.holes.at, (start, start + size)).tolist()
        holes = Holes(self.holes.at[first:last] - start, self.holes.words[first:last]) if last > first else None
        return Values(self.bits[start : start + size], holes)


class RowSums:
    """Sums over the rows of a table, in any order."""

    __slots__ = ("_once", "_twice")

    def __init__(self) -> None:
        self._once = 0
        self._twice = 0

    def update(self, rows: Values) -> None:
        """Add rows, as `row_values` returns them.

        From v + n and v + 2n both numbers of a row can be told, so a row that is replaced by any other changes a sum.
        """
        once, twice = rows.bits, rows.bits
        if rows.holes is not None:
            once, twice = once.copy(), twice.copy()
            once[rows.holes.at] += rows.holes.words
            twice[rows.holes.at] += rows.holes.words + rows.holes.words
        self._once = (self._once + int(once.sum(dtype=np.uint64))) & _MASK
        self._twice = (self._twice + int(mix64(twice ^ GOLDEN).sum(dtype=np.uint64))) & _MASK

    def add(self, other: RowSums) -> None:
        """Add the rows that another one has."""
        self._once = (self._once + other._once) & _MASK
        self._twice = (self._twice + other._twice) & _MASK

    def digest(self, rows: int, schema: bytes) -> str:
        """Return 128 bits, in hex, of the sums, the number of rows and the schema."""
        numbers = b"".join(number.to_bytes(8, "little") for number in (rows, self._once, self._twice))
        return xxhash.xxh3_128_hexdigest(b"detdata.rows.unordered/1\0" + schema + numbers)


def row_values(columns: Sequence[Node], rows: int) -> Values:
    """Return two numbers for each of `rows` rows, of the values of all columns in it.

    Cost: about 10 ns a number and row, 0.1 to 0.3 µs a string or list that is not in a dictionary.
    """
    return _together([values_of(column) for column in columns], rows)


def values_of(node: Node) -> Values:
    """Return two numbers for each value of a node; equal values have equal ones, whatever the node's form.

    Numbers of up to 8 bytes are their own bits, so only the values of one type can be compared.
    """
    if isinstance(node, Missing):
        return Values(np.zeros(node.size, np.uint64), _holes(np.arange(node.size), np.full(node.size, _NULL)))
    if isinstance(node, Coded):
        inner = values_of(node.values)
        values = inner.bits[node.codes]
        holes = None
        if inner.holes is not None:
            words = _dense(inner.holes, node.values.size)[node.codes]
            holes = _holes(np.flatnonzero(words), words[words != 0])
    elif isinstance(node, Fixed):
        values = node.values.astype(np.uint64, copy=False) if node.values.ndim == 1 else _wide(node.values)
        holes = None
    elif isinstance(node, Bytes):
        values, holes = _each(node.offsets, node.data), None
    elif isinstance(node, Lists):
        values, holes = _list_values(node.child, node.offsets)
    elif node.width is not None:
        values, holes = _list_values(node.children[0], np.arange(node.size + 1, dtype=np.int64) * node.width)
    else:
        values, holes = _together([values_of(child) for child in node.children], node.size)
    return Values(values, holes) if node.nulls is None else _without(values, holes, node.nulls)


def joined(parts: Sequence[Values]) -> Values:
    """Return the values of one part, at least, after those of another."""
    if len(parts) == 1:
        return parts[0]
    edges = edges_of(np.array([part.bits.size for part in parts], np.int64))
    holes = [
        (part.holes.at + edge, part.holes.words) for part, edge in zip(parts, edges[:-1], strict=True) if part.holes
    ]
    both = Holes(*(np.concatenate(one) for one in zip(*holes, strict=True))) if holes else None
    return Values(np.concatenate([part.bits for part in parts]), both)


def _without(values: UInt64Array, holes: Holes | None, nulls: Int64Array) -> Values:
    """Return the values with nulls at the places `nulls`, whatever was there."""
    values = values.copy() if values.base is not None or not values.flags.writeable else values
    values[nulls] = 0
    if holes is None:
        return Values(values, Holes(nulls, np.full(nulls.size, _NULL)))
    words = _dense(holes, values.size)
    words[nulls] = _NULL
    return Values(values, _holes(np.flatnonzero(words), words[words != 0]))


def _holes(at: Int64Array, words: UInt64Array) -> Holes | None:
    return Holes(at, words) if at.size else None


def _dense(holes: Holes | None, size: int) -> UInt64Array:
    words = np.zeros(size, np.uint64)
    if holes is not None:
        words[holes.at] = holes.words
    return words


class RowMix:
    """The numbers of rows in the making: columns come in any order and in pieces, each mixed with its place."""

    __slots__ = ("_total", "_words")

    def __init__(self, rows: int) -> None:
        self._total = np.zeros(rows, np.uint64)
        self._words: UInt64Array | None = None  # null words, once there is one

    def add(self, column: int, row: int, values: Values) -> None:
        """Mix in the values that a column, by its number, has from a row on."""
        place = _place(column)
        self._total[row : row + values.bits.size] += mix64(values.bits ^ place)
        if values.holes is not None:
            if self._words is None:
                self._words = np.zeros(self._total.size, np.uint64)
            self._words[row + values.holes.at] += mix64(values.holes.words ^ place)

    def values(self, start: int, stop: int) -> Values:
        """Return the numbers of some rows, all of whose columns are there."""
        bits = mix64(self._total[start:stop])
        if self._words is None:
            return Values(bits, None)
        words = self._words[start:stop]
        return Values(bits, _holes(np.flatnonzero(words), words[words != 0]))

    def add_to(self, sums: RowSums) -> None:
        """Add all rows to the sums."""
        for start in range(0, self._total.size, ROWS_AT_ONCE):
            sums.update(self.values(start, start + ROWS_AT_ONCE))


def _together(parts: list[Values], size: int) -> Values:
    """Return the numbers of each row of several columns."""
    mix = RowMix(size)
    for number, part in enumerate(parts):
        mix.add(number, 0, part)
    return mix.values(0, size)


@lru_cache(maxsize=4096)
def _place(number: int) -> np.uint64:
    return np.uint64(int(mix64(np.array([((number + 1) * int(GOLDEN)) & _MASK], np.uint64))[0]))


def _wide(values: npt.NDArray[np.uint8]) -> UInt64Array:
    """Return values of more than 8 bytes, or of an odd number of them, taken 8 bytes at a time."""
    size, width = values.shape
    words = np.zeros((size, -(-width // 8) * 8), np.uint8)
    words[:, :width] = values
    total = np.zeros(size, np.uint64)
    if width <= 8:
        return words.view("<u8").reshape(-1).astype(np.uint64) if width else total
    for word in np.ascontiguousarray(words.view("<u8").T):
        total = mix64((total ^ word) + GOLDEN)
    return total


def _each(edges: Int64Array, data: npt.NDArray[np.uint8]) -> UInt64Array:
    """Return the xxh3-64 of each piece data[edges[i]:edges[i + 1]]."""
    return np.fromiter(map(xxhash.xxh3_64_intdigest, bytes_objects(edges, data)), np.uint64, edges.size - 1)


def _list_values(child: Node, edges: Int64Array) -> tuple[UInt64Array, Holes | None]:
    """Return the numbers of each list of children.

    Numbers and binaries of a fixed width are hashed as the bytes that they are, null ones as zeros. Other children, and
    those of no bytes, are hashed by their own 64 bits. The null words of children are mixed with their places in it.
    """
    if isinstance(child, Fixed) and child.values.shape[1:] != (0,):
        width = child.values.itemsize if child.values.ndim == 1 else child.values.shape[1]
        values = _each(edges * width, as_bytes(child.values))
        holes = None if child.nulls is None else Holes(child.nulls, np.full(child.nulls.size, _NULL))
    else:
        inner = values_of(child)
        values, holes = _each(edges * 8, as_bytes(inner.bits)), inner.holes
    if holes is None:
        return values, None
    owner = np.searchsorted(edges, holes.at, side="right") - 1
    places = mix64((holes.at - edges[owner] + 1).astype(np.uint64) * GOLDEN)
    words = np.zeros(edges.size - 1, np.uint64)
    np.add.at(words, owner, mix64(holes.words ^ places))
    return values, _holes(np.flatnonzero(words), words[words != 0])
