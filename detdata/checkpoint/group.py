"""The processes of a run: how they agree, so that a checkpoint is published by all of them or by none.

They exchange plain JSON over gloo groups of their own (never the group of the training, whose collectives may be on the
way in another thread), each exchange behind a barrier that says which rank is missing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import math
import re
import sys
from typing import Any, TypeAlias, final

import torch

from detdata.checkpoint.errors import RankMissing
from detdata.errors import ArgumentValueError

_made = itertools.count()


@final
class Alone:
    """A process that talks to no other: there is no process group, or only this process in it."""

    size = 1

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def all_gather(self, value: Any, doing: str) -> list[Any]:
        """Return the value alone."""
        return [value]

    def broadcast(self, value: Any, doing: str) -> Any:
        """Return the value."""
        return value

    def flags(self, *values: int) -> list[list[int]]:
        """Return the values of this process."""
        return [list(values)]


@final
class Ranks:
    """All processes of the default process group. Making one is collective, and so is every call.

    timeout_s: how long the slowest rank may be behind the first one; then RankMissing names those that did not come.
    """

    def __init__(self, timeout_s: float) -> None:
        distributed = torch.distributed
        self._timeout = dt.timedelta(seconds=timeout_s)
        self.rank = distributed.get_rank()
        self.size = distributed.get_world_size()
        self._meetings = 0
        # Who came to a meeting is written down in the store that the process group was made with: gloo's own errors
        # name a rank that is late, but not one whose connection broke.
        getter = getattr(distributed.distributed_c10d, "_get_default_store", None)
        self._store: Any = None if getter is None else getter()
        self._name = f"made {next(_made)}"
        self._sign(self.rank)
        try:
            self._group: Any = distributed.new_group(backend="gloo", timeout=self._timeout)
        except (RuntimeError, ValueError) as error:
            raise RankMissing(self._message("making the Checkpointer", str(error))) from error

    def all_gather(self, value: Any, doing: str) -> list[Any]:
        """Return every rank's value, in the order of ranks. value: plain JSON. doing: for the message, "saving …".

        Raises RankMissing.
        """
        data = json.dumps(value).encode()
        self._meet(doing)
        sizes = self._numbers([len(data)], doing)
        longest = max(size for (size,) in sizes)
        mine = torch.zeros(longest, dtype=torch.uint8, device="cpu")
        mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        rows = self._gather(mine, doing)
        return [json.loads(bytes(row[:size].numpy())) for row, (size,) in zip(rows, sizes, strict=True)]

    def broadcast(self, value: Any, doing: str) -> Any:
        """Return the value of rank 0; the other ranks' values do not matter. Raises RankMissing."""
        return self.all_gather(value if self.rank == 0 else None, doing)[0]

    def flags(self, *values: int) -> list[list[int]]:
        """Return every rank's integers: as many on each. The cheapest exchange, for every few steps of a training."""
        return self._numbers(list(values), "agreeing whether to save")

    def _numbers(self, values: list[int], doing: str) -> list[list[int]]:
        return [row.tolist() for row in self._gather(torch.tensor(values, dtype=torch.int64, device="cpu"), doing)]

    def _gather(self, mine: torch.Tensor, doing: str) -> list[torch.Tensor]:
        rows = [torch.empty_like(mine) for _ in range(self.size)]
        try:
            torch.distributed.all_gather(rows, mine, group=self._group)
        except (RuntimeError, ValueError) as error:
            raise RankMissing(self._message(doing, str(error))) from error
        return rows

    def _meet(self, doing: str) -> None:
        self._meetings += 1
        self._sign(self.rank)
        try:
            torch.distributed.monitored_barrier(self._group, timeout=self._timeout, wait_all_ranks=True)
        except (RuntimeError, ValueError) as error:
            raise RankMissing(self._message(doing, str(error))) from error

    def _key(self, rank: int) -> str:
        return f"detdata/{self._name}/{rank}"

    def _sign(self, rank: int) -> None:
        with contextlib.suppress(Exception):  # it is for a better message only
            self._store.set(self._key(rank), str(self._meetings))  # over the last one: the store keeps all for ever

    def _came(self, rank: int) -> bool:
        return bool(self._store.check([self._key(rank)])) and int(self._store.get(self._key(rank))) >= self._meetings

    def _missing(self, text: str) -> str:
        found = re.search(r"\[Rank \d+\]: Ranks? ([\d, ]+) failed to pass", text)
        if found is not None:
            return found[1].strip()
        try:
            return ", ".join(str(rank) for rank in range(self.size) if not self._came(rank))
        except Exception:  # noqa: BLE001 - it is for a better message only
            return "0" if self.rank else ""  # who keeps the store, mostly, is gone with it

    def _message(self, doing: str, text: str) -> str:
        if not torch.distributed.is_initialized():
            return (
                f"rank {self.rank}, {doing}: the process group is gone. Call destroy_process_group() after close(), or "
                "after `with Checkpointer(…)`. What had been published before is untouched"
            )
        missing = self._missing(text)
        who = "another rank is gone or did not come in time; rank 0 says which"
        if missing:
            who = f"rank {missing} of {self.size} is gone, or did not come within {self._timeout}"
        return (
            f"rank {self.rank}, {doing}: {who}. Every rank must make the same calls of the Checkpointer, in the same "
            "order. What had been published before is untouched; start the job anew"
        )


Group: TypeAlias = Alone | Ranks


def _distributed_here() -> bool:
    """Whether this process is one of several of an initialised torch.distributed process group."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    return bool(
        distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def groups(rank: int, timeout_s: float) -> tuple[Group, Group]:
    """Return the processes to agree with: once for the training's thread, once for the saves behind it.

    Raises ValueError for a time-out that is no number above 0.
    """
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < math.inf:
        raise ArgumentValueError(f"timeout_seconds must be a number above 0, got {timeout_s!r}")
    if _distributed_here():
        return Ranks(timeout_s), Ranks(timeout_s)
    alone = Alone(rank)
    return alone, alone
