"""The ordered form: the values of one column in one block of rows, as a few streams of bytes.

Every part of a value (null positions, lengths, bytes) has a stream of its own, so that the digest does not depend on
where batches are cut, and nothing needs to be held until a block is full. Fixed in docs/spec.md, section 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from detdata.algorithms import Hasher, new_hasher
from detdata.rows.hashing import as_bytes
from detdata.rows.nodes import Bytes, Coded, Fixed, Lists, Missing, Node

_Piece: TypeAlias = tuple[Any, int]  # what to add to a stream; how many values its null positions are counted over


class ColumnBlock:
    """Digest of one column over the rows of one block, fed piece by piece."""

    __slots__ = ("_algorithm", "_seen", "_streams")

    def __init__(self, algorithm: str) -> None:
        self._algorithm = algorithm
        self._streams: list[Hasher] = []
        self._seen: list[int] = []

    def update(self, node: Node) -> None:
        """Add the next rows. `node` is of one type for all rows, and has no dictionary. Cost: that of the hash."""
        for place, (data, size) in enumerate(_pieces(node)):
            if place == len(self._streams):  # the type decides how many there are; known with the first rows
                self._streams.append(new_hasher(self._algorithm))
                self._seen.append(0)
            if data is not None:
                self._streams[place].update(as_bytes(data + self._seen[place] if size else data).data)
            self._seen[place] += size

    def digest(self) -> bytes:
        """Return the digest of the rows so far; more may follow."""
        return new_hasher(self._algorithm, b"".join(stream.digest() for stream in self._streams)).digest()


def _pieces(node: Node) -> Iterator[_Piece]:
    """Yield what each stream of a node gets, its own before its children's."""
    if isinstance(node, Missing):
        return
    if isinstance(node, Coded):
        raise TypeError("the ordered form takes values, not codes")
    yield node.nulls, node.size
    if isinstance(node, Fixed):
        yield node.values, 0
    elif isinstance(node, Bytes):
        yield np.diff(node.offsets), 0
        yield node.data, 0
    elif isinstance(node, Lists):
        yield np.diff(node.offsets), 0
        yield from _pieces(node.child)
    else:
        for child in node.children:
            yield from _pieces(child)
