"""Random state while samples are read: seeded by the sample's address, and put back where it was.

What an augmentation draws must not depend on which worker ran it, on how many there are, or on what was fetched before;
and reading data must not move the training process's own streams (dropout would differ after a resume).
docs/randomness.md explains what is covered and what cannot be.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import torch
from torch.utils.data import get_worker_info

from detdata.checks import as_seed
from detdata.errors import DetdataError
from detdata.keys import fold, sample_rng
from detdata.streams import Stream, find_streams, seed_stream

Address: TypeAlias = tuple[int, int, int]  # seed, epoch, sample id

_address: Address | None = None
_asked = False  # whether the dataset asked for its address since `watch` began


@dataclass(frozen=True, slots=True)
class Sample:
    """The address of the sample that is being read: what its randomness may depend on.

    >>> Sample(seed=0, epoch=2, id=7).rng().integers(10) == Sample(seed=0, epoch=2, id=7).rng().integers(10)
    np.True_
    """

    seed: int
    epoch: int
    id: int

    def rng(self) -> np.random.Generator:
        """Return this sample's own NumPy generator, fresh: `detdata.sample_rng(seed, epoch, id)`."""
        return sample_rng(self.seed, self.epoch, self.id)


def current_sample() -> Sample:
    """Return the address of the sample that a `Loader` is reading now, in whatever process it is read.

    For use inside a dataset's `__getitem__`, with `randomness="sample"`; there it is the way to know the epoch (an
    attribute set in the training process never reaches a persistent worker). Raises RuntimeError elsewhere.

    >>> current_sample()
    Traceback (most recent call last):
    ...
    detdata.seeding.NoSample: no sample is being read here: current_sample() works ...
    """
    global _asked
    _asked = True
    if _address is None:
        raise NoSample(
            "no sample is being read here: current_sample() works inside a dataset's __getitem__ "
            'while a detdata.Loader with randomness="sample" reads it'
        )
    return Sample(*_address)


@final
class NoSample(DetdataError, RuntimeError):
    """`current_sample()` was called while no sample was being read."""


def set_address(address: Address | None) -> None:
    """Say which sample is read from here on."""
    global _address
    _address = address


def watch() -> None:
    """Forget whether the dataset asked for its address."""
    global _asked
    _asked = False


def was_asked() -> bool:
    """Whether the dataset asked for its address since `watch`."""
    return _asked


def seed_global(seed: int) -> None:
    """Seed python's, NumPy's and torch's global CPU streams from one 64-bit seed. About 10 µs.

    torch and NumPy both fill a Mersenne Twister from 32 bits, so they get different halves: with the same half they
    would draw the same bits. torch.manual_seed also visits every accelerator and takes up to 1 ms, so it isn't used.
    """
    random.seed(seed)
    np.random.seed(seed >> 32)
    torch.default_generator.manual_seed(seed & 0xFFFF_FFFF)


def seed_found(streams: list[Stream], seed: int) -> None:
    """Seed the generators that a dataset holds, each another way."""
    for index, stream in enumerate(streams):
        seed_stream(stream, fold("detdata.held/1", seed, index))


def worker_init_fn(seed: int) -> Callable[[int], None]:
    """Return a `worker_init_fn` for a plain torch `DataLoader`: python, NumPy, torch and held generators seeded.

    seed: 0 … 2**63 - 1. The worker's seed is a hash of (seed, the DataLoader's base seed, rank, worker), so it differs
    in every epoch, on every rank and in every worker. The rank is that of the process group, else RANK, else 0.
    Generators that the dataset object holds are reseeded too. The result is picklable (spawn, forkserver).

    This cannot make augmentations survive a resume, because a worker's streams depend on what it served before;
    `Loader` can. Raises ValueError, TypeError.

    >>> from torch.utils.data import DataLoader
    >>> loader = DataLoader(list(range(8)), num_workers=2, worker_init_fn=worker_init_fn(0))
    """
    return _WorkerInit(as_seed(seed), _group_rank())


def worker_seed(seed: int, base_seed: int, rank: int, worker: int) -> int:
    """Return the 64-bit seed of a worker: what `worker_init_fn` seeds it with.

    >>> worker_seed(0, 1, 0, 1) != worker_seed(0, 1, 1, 0)
    True
    """
    return fold("detdata.worker/1", seed, base_seed % 2**64, rank, worker)


@final
@dataclass(frozen=True)
class _WorkerInit:
    seed: int
    rank: int | None  # of the process group where this was made; a spawned worker has none of its own

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        base_seed = torch.initial_seed() if info is None else info.seed - worker
        rank = _group_rank()
        if rank is None:
            rank = self.rank if self.rank is not None else int(os.environ.get("RANK") or 0)
        seed = worker_seed(self.seed, base_seed, rank, worker)
        seed_global(seed)
        if info is not None:
            seed_found(find_streams(info.dataset), seed)


def _group_rank() -> int | None:
    distributed: Any = torch.distributed
    return int(distributed.get_rank()) if distributed.is_available() and distributed.is_initialized() else None
