"""Ids from many orders in one go: what a batch of a mixture needs, some places of each of several sources.

A plain shuffle asked for few places costs as much for one as for a hundred, and a mixture may ask dozens of them for
each batch. So all that such shuffles are asked for goes through one pass of the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from detdata.arrays import Int64Array
from detdata.orders.base import Order
from detdata.orders.shuffle import Shuffle
from detdata.permutation import permute_together

_MANY = 2048  # places of one order in one epoch from which a call of its own is quicker


def take_together(orders: Sequence[Order], owner: Int64Array, places: Int64Array, epochs: Int64Array) -> Int64Array:
    """Return the ids at places of orders, each in an epoch of its own: int64[k].

    owner: int64[k], index of the order. places: int64[k], in its range, unchecked. epochs: int64[k].
    """
    by_call = np.lexsort((epochs, owner))
    new = (np.diff(owner[by_call]) != 0) | (np.diff(epochs[by_call]) != 0)
    cuts = [0, *(np.flatnonzero(new) + 1).tolist(), owner.size]
    ids = np.empty_like(places)
    waiting: list[Int64Array] = []
    networks: list[tuple[int, int]] = []
    for begin, end in pairwise(cuts):
        mine = by_call[begin:end]
        order, epoch = orders[int(owner[mine[0]])], int(epochs[mine[0]])
        network = order._network(epoch) if isinstance(order, Shuffle) and mine.size < _MANY else None
        if network is not None:
            waiting.append(mine)
            networks.append(network)
        else:
            ids[mine] = order._take(places[mine], epoch)
    if len(waiting) == 1:
        mine = waiting[0]
        ids[mine] = orders[int(owner[mine[0]])]._take(places[mine], int(epochs[mine[0]]))
    elif waiting:
        mine = np.concatenate(waiting)
        which = np.repeat(np.arange(len(waiting)), [part.size for part in waiting])
        ids[mine] = permute_together(places[mine], which, networks)
    return ids
