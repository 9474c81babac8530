"""Values shuffled each within its own window: what orders do that keep neighbours near."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from detdata.arrays import Int64Array
from detdata.permutation import permute, unpermute


def within_windows(
    values: Int64Array, owner: Int64Array, window: Callable[[int], tuple[int, int, int]], *, inverse: bool
) -> Int64Array:
    """Shuffle (or unshuffle) each value within its own window; int64 in the shape of `values`.

    owner: the number of each value's window, in the same shape. window: number -> (first value, the one after the last,
    key).

    >>> shuffled = within_windows(np.arange(6), np.arange(6) // 3, lambda k: (3 * k, 3 * k + 3, k), inverse=False)
    >>> sorted(shuffled[:3].tolist()), sorted(shuffled[3:].tolist())
    ([0, 1, 2], [3, 4, 5])
    """
    mapping = unpermute if inverse else permute
    flat, windows = values.reshape(-1), owner.reshape(-1)
    by_window = np.argsort(windows, kind="stable")
    cuts = np.flatnonzero(np.diff(windows[by_window], prepend=-1)).tolist()
    result = np.empty_like(flat)
    for begin, end in pairwise([*cuts, flat.size]):
        mine = by_window[begin:end]
        first, after, key = window(int(windows[mine[0]]))
        result[mine] = mapping(flat[mine] - first, after - first, key) + first
    return result.reshape(values.shape)
