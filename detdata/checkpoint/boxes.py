"""Boxes: what part of a tensor a piece of it is, by offset and size in each dimension. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # offset and size in each dimension


def whole_of(shape: Sequence[int]) -> Box:
    """Return the box that is a whole tensor.

    >>> whole_of((2, 3))
    ((0, 0), (2, 3))
    """
    return (0,) * len(shape), tuple(shape)


def volume(box: Box) -> int:
    """Return the number of values in a box."""
    return math.prod(box[1])


def overlap(a: Box, b: Box) -> Box | None:
    """Return what two boxes have in common; None if that is nothing.

    >>> overlap(((0,), (4,)), ((3,), (9,))), overlap(((0,), (4,)), ((4,), (9,)))
    (((3,), (1,)), None)
    """
    if len(a[0]) != len(b[0]):
        return None
    low = tuple(max(x, y) for x, y in zip(a[0], b[0], strict=True))
    high = tuple(min(x + m, y + n) for x, m, y, n in zip(a[0], a[1], b[0], b[1], strict=True))
    if any(end <= start for start, end in zip(low, high, strict=True)):
        return None
    return low, tuple(end - start for start, end in zip(low, high, strict=True))


def slices(box: Box, origin: Sequence[int] | None = None) -> tuple[slice, ...]:
    """Return the index of a box in a tensor whose first value is at `origin`."""
    zeros = (0,) * len(box[0]) if origin is None else origin
    return tuple(slice(at - zero, at - zero + size) for at, zero, size in zip(box[0], zeros, box[1], strict=True))


def why_no_tiling(boxes: Sequence[Box], whole: Box) -> str | None:
    """Return why `boxes`, none of them empty, do not hold every value of `whole` once; None if they do.

    Cost O(n log n) for n boxes in rows, O(n²) for the worst.

    >>> why_no_tiling([((0,), (2,)), ((2,), (1,))], ((0,), (3,)))
    >>> why_no_tiling([((0,), (2,)), ((1,), (1,))], ((0,), (3,)))
    'two pieces hold the values at [1] of size [1]'
    >>> why_no_tiling([((0,), (2,))], ((0,), (3,)))
    'they hold 2 of 3 values'
    """
    outside = next((box for box in boxes if overlap(box, whole) != box), None)
    if outside is not None:
        return f"a piece at {list(outside[0])} of size {list(outside[1])} is outside"
    held = sum(map(volume, boxes))
    if held < volume(whole):
        return f"they hold {held} of {volume(whole)} values"
    axes = range(len(whole[0]))
    axis = max(axes, key=lambda one: len({box[0][one] for box in boxes}), default=None)
    active: list[Box] = []
    for box in boxes if axis is None else sorted(boxes, key=lambda one: one[0][axis]):
        if axis is not None:
            active = [one for one in active if one[0][axis] + one[1][axis] > box[0][axis]]
        for one in active:
            common = overlap(one, box)
            if common is not None:
                return f"two pieces hold the values at {list(common[0])} of size {list(common[1])}"
        active.append(box)
    return None
