"""Samplers for a plain torch `DataLoader`: a drop-in `DistributedSampler`, and a `BatchSampler` over a plan.

Both walk on by themselves: the pass after a finished one is the next epoch, so forgetting `set_epoch` repeats nothing.
The position lives in the iterator. A pass ends when its last ids have been handed out; one that was broken off starts
again where it started; but with workers the last ids are handed out some batches before the loop ends, and a pass that
is broken off after that counts as finished. Under a prefetching DataLoader "handed out" runs ahead of what training
has consumed, so resume by `consumed_samples`, which the training loop counts, or use `detdata.Loader`, which counts for
you.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from operator import length_hint
from typing import Any, Literal, final

import numpy as np
import torch.utils.data
from torch.utils.data import Sampler

from detdata.checks import as_int, as_seed
from detdata.errors import ArgumentTypeError, ArgumentValueError, StateMismatch, UnknownFormat
from detdata.orders import Order, Sequential, Shuffle, TorchShuffle
from detdata.orders.base import MAX_EPOCH
from detdata.plans.batch import check_division
from detdata.plans.plan import MAX_STEP
from detdata.plans.protocol import AnyPlan
from detdata.plans.shards import CHUNK, blocks, count_parts
from detdata.topology import Topology

_FORMAT = "detdata.distributed_sampler/1"
_LIST = 1024


@final
class DistributedSampler(torch.utils.data.DistributedSampler[int]):
    """A drop-in for `torch.utils.data.DistributedSampler`, in O(1) memory and with an exact resume.

    dataset: anything with a length. num_replicas, rank: by default from the process group, torchrun or SLURM, else one
    process. shuffle, seed, drop_last: as torch's; an uneven epoch is padded from its front, or cut with drop_last.
    order: "keyed" (our shuffle, any size, no memory) or "torch" (the very ids of torch's sampler, for a run in
    progress; O(n) memory). Calling `set_epoch` is allowed and not needed. A subclass of torch's, so that frameworks
    which look for one leave it alone; only its attributes are torch's.
    Yields Python ints, `len(sampler)` of them a pass. Raises ValueError, TypeError; an empty dataset gives length 0.

    >>> sampler = DistributedSampler(range(6), num_replicas=2, rank=0, seed=1)
    >>> list(sampler) == list(sampler)  # the second pass is the next epoch
    False
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        order: Literal["keyed", "torch"] = "keyed",
    ) -> None:
        if order not in ("keyed", "torch"):
            raise ArgumentValueError(f"order must be 'keyed' or 'torch', got {order!r}")
        for name, flag in (("shuffle", shuffle), ("drop_last", drop_last)):
            if not isinstance(flag, (bool, np.bool_)):
                raise ArgumentTypeError(f"{name} must be True or False, got {flag!r}")
        if not hasattr(dataset, "__len__"):
            raise ArgumentTypeError(f"dataset must have a length, got {type(dataset).__name__}")
        given = Topology.detect() if num_replicas is None or rank is None else Topology()
        self.num_replicas = given.world_size if num_replicas is None else as_int(num_replicas, "num_replicas", low=1)
        self.rank = as_int(
            given.rank if rank is None else rank,
            "rank",
            high=self.num_replicas - 1,
            why=f"; num_replicas is {self.num_replicas}",
        )
        self.dataset = dataset
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        self.order = order
        self._size = len(dataset)
        self.seed = as_seed(seed)
        self._order = self._make_order() if self._size else None
        whole, rest = divmod(self._size, self.num_replicas)
        self.num_samples = whole + (1 if rest and not self.drop_last else 0)
        self.total_size = self.num_samples * self.num_replicas
        self.epoch = 0
        self._start = 0  # of this rank's samples, where the next pass begins
        self._made = 0
        self._live: Iterator[int] | None = None

    def _make_order(self) -> Order:
        if not self.shuffle:
            return Sequential(self._size)
        return Shuffle(self._size, self.seed) if self.order == "keyed" else TorchShuffle(self._size, self.seed)

    def __len__(self) -> int:
        """Samples of this rank in a whole epoch, also after a resume."""
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._chunks())  # hands out each id without running any Python

    def _chunks(self) -> Iterator[Iterator[int]]:
        epoch, place = self.epoch, self._start
        self._handed = place
        chunk = 512
        while place < self.num_samples and self._order is not None:
            stop = min(place + chunk, self.num_samples)
            if self.num_replicas == 1:
                ids = self._order._take_run(place, stop - place, epoch)
            else:
                first, end = (edge * self.num_replicas + self.rank for edge in (place, stop))
                positions = np.arange(first, end, self.num_replicas, dtype=np.int64)
                if stop == self.num_samples:  # only there may it reach beyond the end, into the padding
                    positions %= self._size
                ids = self._order._take(positions, epoch)
            last = stop == self.num_samples
            held_back = int(last)
            for at in range(0, ids.size - held_back, _LIST):  # few at a time: Python ints of a whole chunk spill
                live = iter(ids[at : min(at + _LIST, ids.size - held_back)].tolist())
                self._made, self._live = place + at + length_hint(live), live
                yield live
            if last:  # the pass is over as soon as its last id is out, whether or not anyone asks again
                if self.epoch == epoch:
                    self.epoch, self._start, self._handed = epoch + 1, 0, 0
                yield iter((int(ids[-1]),))
            place, chunk = stop, CHUNK

    @property
    def _handed(self) -> int:
        """How many of this rank's samples are out: those made, less those that still wait in the list's iterator."""
        return self._made - (0 if self._live is None else length_hint(self._live))

    @_handed.setter
    def _handed(self, count: int) -> None:
        self._made, self._live = count, None

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch. Naming the present one changes nothing, so a pending resume stays.

        >>> sampler = DistributedSampler(range(6), 1, 0)
        >>> sampler.resume(4)
        >>> sampler.set_epoch(0)
        >>> len(list(sampler))
        2
        """
        number = as_int(epoch, "epoch", high=MAX_EPOCH)
        if number != self.epoch:
            self.epoch, self._start, self._handed = number, 0, 0

    def resume(self, consumed_samples: int) -> None:
        """Let the next pass begin after `consumed_samples` real samples, counted over all ranks and epochs.

        An epoch counts its real samples: n, or with drop_last the largest multiple of num_replicas in it. Raises
        ValueError for a count that is no multiple of num_replicas within its epoch. Costs nothing, at any count.

        >>> straight = list(DistributedSampler(range(10), 1, 0, seed=3))
        >>> sampler = DistributedSampler(range(10), 1, 0, seed=3)
        >>> sampler.resume(4)
        >>> list(sampler) == straight[4:]
        True
        """
        count = as_int(consumed_samples, "consumed_samples")
        samples = self.total_size if self.drop_last else self._size
        if samples == 0:
            if count:
                raise ArgumentValueError(f"consumed_samples is {count}, but an epoch of this sampler has no samples")
            return
        epoch, inside = divmod(count, samples)
        place, beyond = divmod(inside, self.num_replicas)
        if beyond:
            low = count - beyond
            raise ArgumentValueError(
                f"consumed_samples is {count}, which leaves the {self.num_replicas} ranks uneven; "
                f"the nearest edges are {low} and {min(low + self.num_replicas, (epoch + 1) * samples)}"
            )
        self.epoch, self._start, self._handed = as_int(epoch, "epoch", high=MAX_EPOCH), place, place

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain JSON: ids *handed out*, which a prefetching DataLoader asks for ahead of time.

        >>> DistributedSampler(range(6), 1, 0).state_dict()["consumed_samples"]
        0
        """
        samples = self.total_size if self.drop_last else self._size
        inside = min(self._handed * self.num_replicas, samples)
        return {**self._identity(), "consumed_samples": self.epoch * samples + inside}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Another number of replicas is fine if the count divides; another order is refused.

        Raises StateMismatch (a ValueError) naming every field that differs; UnknownFormat; ValueError.
        """
        if not isinstance(state, Mapping):
            raise ArgumentTypeError(f"state must be a dict, got {type(state).__name__}")
        identity = self._identity()
        if state.get("format") != _FORMAT or set(state) != {*identity, "consumed_samples"}:
            raise UnknownFormat(f"state is no {_FORMAT} record: it has the keys {sorted(map(str, state))}")
        wrong = [name for name in identity if state[name] != identity[name]]
        if wrong:
            lines = "\n  ".join(f"{name}: saved {state[name]!r}, here {identity[name]!r}" for name in wrong)
            raise StateMismatch(f"the state belongs to another sampler:\n  {lines}")
        self.resume(state["consumed_samples"])

    def _identity(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "size": self._size,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "order": self.order,
        }

    def __getstate__(self) -> dict[str, Any]:
        place = self._handed  # a copy goes on where the handing-out stood
        return {**self.__dict__, "_start": place, "_made": place, "_live": None}


@final
class BatchSampler(Sampler[list[int]]):
    """This rank's batches of a plan, for `DataLoader(dataset, batch_sampler=…)`: lists of Python ints.

    plan: the plan; topology: by default detected. start_step: the global step to begin with.
    micro_steps: lists a global step. A pass is the rest of an epoch; the next one is the next epoch.
    Picklable (fork, spawn, forkserver); a copy goes on where the handing-out stood.
    Raises ValueError if world_size x micro_steps does not divide the batch size.

    >>> from detdata import Plan, Sequential, Topology
    >>> sampler = BatchSampler(Plan(Sequential(8), 4), Topology(1, 2), start_step=1)
    >>> list(sampler), list(sampler)
    ([[5, 7]], [[1, 3], [5, 7]])
    """

    def __init__(
        self, plan: AnyPlan, topology: Topology | None = None, *, start_step: int = 0, micro_steps: int = 1
    ) -> None:
        if not isinstance(plan, AnyPlan):
            raise ArgumentTypeError(f"plan must be a Plan, got {type(plan).__name__}; make one: Plan(Shuffle(n), 64)")
        self.plan = plan
        self.topology = Topology.detect() if topology is None else topology
        self.micro_steps = as_int(micro_steps, "micro_steps", low=1)
        step = as_int(start_step, "start_step", high=MAX_STEP)
        check_division(plan.batch_size_at(step), self.topology.world_size, self.micro_steps)
        self._start = (step, 0)
        self._handed = self._start

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return self.plan.epoch(self._start[0])

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch (the present one), also after a resume."""
        epoch = self.epoch
        return self._count(self.plan.first_step(epoch), self.plan.first_step(epoch + 1))

    def _count(self, first: int, last: int) -> int:
        return count_parts(self.plan, first, last, self.topology.rank, self.topology.world_size, self.micro_steps)

    def __iter__(self) -> Iterator[list[int]]:
        self._handed = start = self._start
        stop = self.plan.first_step(self.plan.epoch(start[0]) + 1)
        rank, ranks = self.topology.rank, self.topology.world_size
        for block in blocks(self.plan, start, stop, rank, ranks, self.micro_steps):
            step, micro = block.step, block.micro_step
            held = self._count(step, step + 1)  # parts of each of its steps: a short last batch may have fewer
            for ids in block.ids:
                micro += 1
                if micro == held:
                    step, micro = step + 1, 0
                if self._start == start:  # nobody moved the sampler meanwhile
                    self._handed = (step, micro)
                    if step == stop:
                        self._start = self._handed
                yield ids.tolist()  # row by row: a whole block of Python ints would fill the cache
        if self._start == start:
            self._start = self._handed = (stop, 0)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch. Naming the present one changes nothing, so a pending resume stays."""
        number = as_int(epoch, "epoch", high=MAX_EPOCH)
        if number != self.epoch:
            self._start = self._handed = (self.plan.first_step(number), 0)

    def resume(self, consumed_samples: int) -> None:
        """Let the next pass begin after `consumed_samples`, counted over all ranks (`plan.consumed(step)`).

        Raises ValueError for a count at which no step begins, naming the nearest ones.
        """
        self._start = self._handed = (self.plan.step(consumed_samples), 0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_start": self._handed}
