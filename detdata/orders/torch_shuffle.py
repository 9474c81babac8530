"""torch's own order, for a run in progress that changes over to detdata without changing its data.

The one named exception to "the order is integer arithmetic of ours": the ids come from `torch.randperm`, so they are
what the torch that is installed makes, and an epoch costs O(n) time and memory. New runs should use `Shuffle`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import final

import numpy as np

from detdata.arrays import Int64Array
from detdata.checks import as_seed
from detdata.orders.base import Order
from detdata.orders.shuffle import as_size
from detdata.records import Spec, register_format


@final
class TorchShuffle(Order):
    """The ids that torch's `DistributedSampler(shuffle=True, seed=seed)` gives after `set_epoch(epoch)`.

    n: samples, 1 … 2**62 (memory O(n) once used); seed: 0 … 2**63 - 1. Needs torch when ids are asked for
    (ImportError). torch makes its generator of seed + epoch: epoch 1 of seed 0 is epoch 0 of seed 1 here.

    >>> TorchShuffle(5, seed=0).take(range(5), epoch=0).tolist()
    [4, 0, 1, 3, 2]
    """

    __slots__ = ("_n", "_seed")

    def __init__(self, n: int, seed: int = 0) -> None:
        self._n = as_size(n)
        self._seed = as_seed(seed)

    @property
    def size(self) -> int:
        """Samples in an epoch."""
        return self._n

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the order is for."""
        return self._n

    def spec(self) -> Spec:
        """Return the spec: format, n and seed."""
        return {"format": "detdata.torch_shuffle/1", "n": self._n, "seed": self._seed}

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        return _randperm(self._n, epoch + self._seed)[positions]

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        return _inverse(self._n, epoch + self._seed)[ids]


@lru_cache(maxsize=2)  # this epoch's and, over an epoch's edge, the next one's
def _randperm(n: int, torch_seed: int) -> Int64Array:
    try:
        import torch
    except ImportError as error:
        raise ImportError("TorchShuffle needs torch: pip install detdata[torch]") from error
    generator = torch.Generator()
    generator.manual_seed(torch_seed)
    order: Int64Array = torch.randperm(n, generator=generator).numpy()
    order.flags.writeable = False
    return order


@lru_cache(maxsize=1)
def _inverse(n: int, torch_seed: int) -> Int64Array:
    inverse = np.empty(n, dtype=np.int64)
    inverse[_randperm(n, torch_seed)] = np.arange(n, dtype=np.int64)
    inverse.flags.writeable = False
    return inverse


def _build(spec: Spec) -> TorchShuffle:
    return TorchShuffle(spec["n"], spec["seed"])


register_format("detdata.torch_shuffle/1", ("n", "seed"), _build)
