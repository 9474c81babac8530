"""A keyed sequence of labels in which every label comes exactly as often as it should, and evenly all along.

What mixtures and length buckets have in common: `counts[i]` draws of label i, in an order that looks random, and at any
position it is known how often each label came before. Nothing of the sequence's length is stored.

Positions come in stretches of 32. How often each label came before a stretch is worked out by halving: the labels are
the leaves of a binary tree, and what falls to a node is split between its halves in proportion, rounded with a keyed
offset. So a split is off by less than 1, and a label at the edge of a stretch by less than log2(labels). Within a
stretch the labels are sorted by a keyed hash. The bits are fixed in docs/spec.md, section 10.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np

from detdata.arrays import Int64Array, UInt64Array
from detdata.keys import GOLDEN, fold, mix64

STRETCH = 32
MAX_DRAWS = 2**31  # products of two counts fit an int64
_LOW = np.uint64(STRETCH - 1)
_AT_ONCE = 2**20  # numbers in an array of stretches x labels: 8 MiB


class Drawn(NamedTuple):
    """What is drawn at positions. label: int64[k]; rank: int64[k], how often that label came before."""

    label: Int64Array
    rank: Int64Array


@final
class Deal:
    """counts: how often each label is drawn, at least one in all and at most 2**31. key: 0 … 2**64 - 1.

    >>> deal = Deal([2, 1], key=5)
    >>> sorted(deal.draw(np.arange(3)).label.tolist())
    [0, 0, 1]
    """

    __slots__ = ("_counts", "_levels", "_salt", "size")

    def __init__(self, counts: Any, key: int) -> None:
        self._counts = np.asarray(counts, dtype=np.int64)
        self.size = int(self._counts.sum())
        if not 0 < self.size <= MAX_DRAWS or int(self._counts.min()) < 0:
            raise ValueError(f"a deal is of 1 … 2**31 draws, got {self.size}")
        self._salt = np.uint64(fold("detdata.deal/1", key))
        self._levels = _levels(self._counts, self._salt)

    def before(self, positions: Int64Array) -> Int64Array:
        """Return how often each label comes before each position 0 … size: int64[k, labels]."""
        stretch = positions // STRETCH
        counts = self._at_edges(stretch)
        inside = positions - stretch * STRETCH
        rows = np.flatnonzero(inside)
        if rows.size:
            labels = self._stretches(stretch[rows])[0]
            known = np.arange(STRETCH) < inside[rows, np.newaxis]
            np.add.at(counts, (np.repeat(rows, inside[rows]), labels[known]), 1)
        return counts

    def draw(self, positions: Int64Array) -> Drawn:
        """Return what is drawn at positions 0 … size - 1, int64 of one dimension, in any order."""
        stretch = positions // STRETCH
        first, last = (int(stretch.min()), int(stretch.max())) if stretch.size else (0, -1)
        if last - first < 2 * stretch.size:  # what lies together needs no sorting
            needed, row = np.arange(first, last + 1, dtype=np.int64), stretch - first
        else:
            needed, row = np.unique(stretch, return_inverse=True)
        at_once = max(1, _AT_ONCE // max(self._counts.size, STRETCH))
        parts = [self._stretches(needed[begin : begin + at_once]) for begin in range(0, max(1, needed.size), at_once)]
        labels, ranks = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
        place = row, positions % STRETCH
        return Drawn(labels[place], ranks[place])

    def find(self, label: Int64Array, rank: Int64Array) -> Int64Array:
        """Return the positions of draws: the inverse of `draw`. Each rank must be below its label's count."""
        at_once = max(1, _AT_ONCE // self._counts.size)
        if label.size > at_once:
            cuts = range(0, label.size, at_once)
            return np.concatenate([self.find(label[k : k + at_once], rank[k : k + at_once]) for k in cuts])
        low = np.zeros(label.size, dtype=np.int64)  # the last stretch before which at most `rank` came
        high = np.full(label.size, -(-self.size // STRETCH), dtype=np.int64)
        column = np.arange(label.size)
        while (high - low > 1).any():
            middle = (low + high) // 2
            late = self._at_edges(middle)[column, label] > rank
            high, low = np.where(late, middle, high), np.where(late, low, middle)
        labels, ranks = self._stretches(low)
        inside = np.argmax((labels == label[:, np.newaxis]) & (ranks == rank[:, np.newaxis]), axis=1)
        positions: Int64Array = low * STRETCH + inside
        return positions

    def _at_edges(self, stretch: Int64Array) -> Int64Array:
        """How often each label comes before each stretch: int64[k, labels]."""
        known = np.minimum(stretch * STRETCH, self.size)[:, np.newaxis]
        for left, whole, offset in self._levels:
            split = np.empty((stretch.size, 2 * left.size), dtype=np.int64)
            split[:, 0::2] = (known * left + offset) // whole
            split[:, 1::2] = known - split[:, 0::2]
            known = split
        counts: Int64Array = known[:, : self._counts.size]
        return counts

    def _stretches(self, stretch: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(labels int64[k, 32], ranks int64[k, 32]) of whole stretches; beyond the end of the sequence label -1."""
        k, slot = stretch.size, np.arange(STRETCH, dtype=np.int64)
        edges = self._at_edges(np.concatenate([stretch, stretch + 1]))
        own = np.zeros((k, self._counts.size + 1), dtype=np.int64)  # the last column: what lacks beyond the end
        own[:, :-1] = edges[k:] - edges[:k]
        length = own.sum(axis=1, keepdims=True)
        own[:, -1:] = STRETCH - length
        ahead = np.zeros_like(own)  # rank of a label's first draw here, less the slot that it has
        ahead[:, :-1] = edges[:k]
        ahead += own - np.cumsum(own, axis=1)
        runs = own.reshape(-1)
        by_slot = np.repeat(np.tile(np.arange(own.shape[1], dtype=np.int64), k), runs).reshape(k, STRETCH)
        rank_by_slot = np.repeat(ahead.reshape(-1), runs).reshape(k, STRETCH) + slot
        begin = np.arange(0, k * STRETCH, STRETCH, dtype=np.int64)[:, np.newaxis]
        label = by_slot.reshape(-1)[begin + _slots(stretch, length, self._salt)]
        positions = np.sort(label * STRETCH + slot, axis=1) % STRETCH  # of the label of each slot, as they come
        rank = np.empty_like(label)
        rank.reshape(-1)[begin + positions] = rank_by_slot
        beyond = slot >= length
        label[beyond], rank[beyond] = -1, -1
        return label, rank


def _levels(counts: Int64Array, salt: np.uint64) -> list[tuple[Int64Array, Int64Array, Int64Array]]:
    """From the root down: (draws of each node's left half, of the node and at least 1, offset of its rounding)."""
    depth = max(0, int(counts.size - 1).bit_length())
    heap = np.zeros(2 ** (depth + 1), dtype=np.int64)  # node 1 is the root, 2n and 2n + 1 the halves of n
    heap[2**depth : 2**depth + counts.size] = counts
    for level in range(depth - 1, -1, -1):
        below = heap[2 ** (level + 1) : 2 ** (level + 2)]
        heap[2**level : 2 ** (level + 1)] = below[0::2] + below[1::2]
    nodes = heap[: 2**depth]
    hashes = mix64(np.arange(2**depth, dtype=np.uint64) * GOLDEN + salt) >> np.uint64(32)
    offset = ((hashes * nodes.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
    whole = np.maximum(nodes, 1)
    spans = [slice(2**level, 2 ** (level + 1)) for level in range(depth)]
    return [(heap[2 * span.start : 2 * span.stop : 2], whole[span], offset[span]) for span in spans]


def _slots(stretch: Int64Array, length: Int64Array, salt: np.uint64) -> Int64Array:
    """A keyed permutation of the slots of each stretch, int64[k, 32]; those beyond `length` stay behind the others."""
    slot = np.arange(STRETCH, dtype=np.uint64)
    address = stretch.astype(np.uint64)[:, np.newaxis] * np.uint64(STRETCH) + slot + np.uint64(2**32)
    hashes: UInt64Array = mix64(address * GOLDEN + salt) & ~_LOW | slot
    hashes[slot >= length.astype(np.uint64)] |= np.uint64(2**64 - STRETCH)
    hashes.sort(axis=1)
    return (hashes & _LOW).astype(np.int64)
