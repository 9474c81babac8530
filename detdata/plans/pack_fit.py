"""Best-fit decreasing on a histogram: how bins of one size are filled with items, when only lengths matter.

Items of one length are all alike, so what is packed is not items but counts (histogram packing: Krell, Kosec, Perez,
Fitzgibbon 2021, "Efficient sequence packing without cross-contamination"). The result is a list of patterns, each with
the number of bins that are filled so. It is what best-fit decreasing does item by item, the longest first, each into
the fullest bin that has room for it; but the work grows with the number of different lengths, not of items.

Bad at: lengths of which most are above half a bin; nothing fits beside them, and no packing helps.
Fixed in docs/spec.md, section 15.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from detdata.arrays import Int64Array

_Entries: TypeAlias = tuple[tuple[int, int], ...]  # (which length, how many of it), the longest first
_Group: TypeAlias = tuple[int, _Entries]  # bins that are filled alike
_BITS = 1024  # rooms whose marks share one integer


class Patterns(NamedTuple):
    """How bins are filled.

    Pattern p has the bins edges[p] … edges[p + 1] - 1 and the entries first[p] … first[p + 1] - 1. Entry e
    is `copies[e]` items of the length with index `length[e]`, the longest first; the k-th bin of its pattern holds the
    items base[e] + k · copies[e] and on of all items of that length.
    """

    edges: Int64Array  # int64[patterns + 1]
    first: Int64Array  # int64[patterns + 1]
    length: Int64Array  # int64[entries]
    copies: Int64Array  # int64[entries]
    base: Int64Array  # int64[entries]


def best_fit(lengths: list[int], counts: list[int], size: int) -> Patterns:
    """Pack counts[i] items of lengths[i] each, 1 … size and ascending, into bins of `size`. Deterministic.

    Time about O(lengths · log(size)), whatever the counts.

    >>> best_fit([3, 4, 6], [5, 1, 2], size=10).edges.tolist()  # 6+4, 3+3+3, 6+3, 3
    [0, 1, 2, 3, 4]
    """
    groups = _Groups(size)
    for index in range(len(lengths) - 1, -1, -1):
        _place(groups, index, lengths[index], counts[index], size)
    return _listed(groups.all(), len(lengths))


def _place(groups: _Groups, index: int, length: int, count: int, size: int) -> None:
    """Put all items of one length into bins."""
    while count:
        room = groups.fullest(length)
        bins, entries = (count, ()) if room is None else groups.pop(room)
        room = size if room is None else room
        fit = min(room // length, count)  # into each bin, until what is left is no longer the fullest that has room
        filled = min(bins, count // fit)
        groups.push(room - fit * length, (filled, (*entries, (index, fit))))
        if room < size and bins > filled:  # a new bin is made when it is needed
            groups.push(room, (bins - filled, entries))
        count -= filled * fit


class _Groups:
    """Groups of bins by the room that they have left, the last one added on top; and which rooms there are."""

    def __init__(self, size: int) -> None:
        self._stacks: dict[int, list[_Group]] = {}
        self._marks = [0] * (size // _BITS + 1)  # bit r of word w: a group with room w * _BITS + r
        self._words = 0  # bit w: word w is not zero

    def push(self, room: int, group: _Group) -> None:
        self._stacks.setdefault(room, []).append(group)
        word, bit = divmod(room, _BITS)
        self._marks[word] |= 1 << bit
        self._words |= 1 << word

    def pop(self, room: int) -> _Group:
        stack = self._stacks[room]
        group = stack.pop()
        if not stack:
            word, bit = divmod(room, _BITS)
            self._marks[word] ^= 1 << bit
            if not self._marks[word]:
                self._words ^= 1 << word
        return group

    def fullest(self, length: int) -> int | None:
        """The least room that takes an item of this length; None where none does."""
        word, bit = divmod(length, _BITS)
        marks = self._marks[word] >> bit << bit
        if not marks:
            words = self._words >> (word + 1) << (word + 1)
            if not words:
                return None
            word = _lowest(words)
            marks = self._marks[word]
        return word * _BITS + _lowest(marks)

    def all(self) -> list[_Group]:
        """Every group: the fullest first, of equally full ones the lowest in its stack first."""
        return [group for room in sorted(self._stacks) for group in self._stacks[room]]


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _listed(groups: list[_Group], lengths: int) -> Patterns:
    used = [0] * lengths
    first, rows = [0], []
    for bins, entries in groups:
        for index, copies in entries:
            rows.append((index, copies, used[index]))
            used[index] += bins * copies
        first.append(len(rows))
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    edges = np.concatenate([[0], np.cumsum([bins for bins, _ in groups], dtype=np.int64)]).astype(np.int64)
    return Patterns(edges, np.array(first, dtype=np.int64), *(column.copy() for column in table.T))
