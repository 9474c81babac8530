"""Which pass over a stream a foreign DataLoader's workers are in, known to all of them and to the training process.

A worker cannot be told its epoch: the stream was copied into it once. So each notes the pass that it begins in a little
memory that all share. What names a pass: workers of one pass are processes that their parent started one after another,
so the number in a process's name less the worker's own is the same for all; and how often this process began one, which
counts on where the workers are persistent.

There is no lock, which a killed worker might hold for ever: a note is one word, and all workers of a pass write the
same one.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import get_spawning_popen
from typing import Any, NamedTuple, final

from detdata.errors import DetdataError

_OWNER, _PASS, _STEP, _PLAN, _RING = 0, 1, 2, 3, 4  # where in the memory
_KEYS = 8  # passes that are remembered: two iterators may overlap
_BASE_BITS, _WORKER_BITS, _COUNT_BITS, _NUMBER_BITS = 20, 9, 12, 22  # of a note; 63 in all


@final
class ForeignWorkers(DetdataError, RuntimeError):
    """Something that cannot be known or done because the workers of another DataLoader run the stream."""


class Aim(NamedTuple):
    """Where a pass begins: the global step, or the beginning of an epoch so many after that of the step."""

    step: int
    epochs_later: int


@final
class Passes:
    """Passes that workers of foreign DataLoaders began. Shared by fork, spawn, forkserver; a pickled copy is fresh."""

    def __init__(self) -> None:
        self._shared: Any = multiprocessing.RawArray("q", _RING + _KEYS)
        self._shared[_OWNER] = os.getpid()
        self._begun_here = 0

    def __getstate__(self) -> dict[str, Any]:
        # Only a process that is being started may share memory; whatever else is pickled is a copy of its own.
        shared = self._shared if get_spawning_popen() is not None else None
        return {"shared": shared, "aim": list(self._shared[_PASS:_RING])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()
        if state["shared"] is not None:
            self._shared = state["shared"]
        else:
            _, step, plan = state["aim"]
            self._shared[_STEP], self._shared[_PLAN] = step, plan

    def aim(self, step: int, plan: int) -> None:
        """Let the next pass begin at this step of this plan; called in the training process."""
        if self._shared[_OWNER] != os.getpid():  # this process was forked off with it: from here on it has its own
            self.__init__()
        self._shared[_STEP], self._shared[_PLAN] = step, plan
        self._shared[_PASS] = self._number()

    def follow(self, step: int) -> None:
        """Let the next pass begin at this step of the same plan; called as the training process reads by itself."""
        if self._shared[_OWNER] == os.getpid():
            self._shared[_STEP] = step

    def since_aim(self) -> int:
        """Return how many passes workers began since `aim`."""
        return max(0, self._number() - int(self._shared[_PASS])) if self._shared[_OWNER] == os.getpid() else 0

    def begin(self, worker: int, workers: int, plan: int) -> Aim:
        """Note that this worker begins a pass; returns where. Raises ForeignWorkers."""
        parent = multiprocessing.parent_process()
        if parent is None or parent.pid != self._shared[_OWNER]:
            raise ForeignWorkers(
                "this stream was made in another process than the one that runs its DataLoader: make it there, or "
                "call its resume() there"
            )
        if plan != self._shared[_PLAN]:
            raise ForeignWorkers(
                "the stream went on from a state with another plan after these persistent workers were started: make "
                "a new DataLoader"
            )
        self._begun_here += 1
        number = self._note(_number_of_process() - worker, self._begun_here, workers)
        later = number - int(self._shared[_PASS])
        return Aim(int(self._shared[_STEP]), max(0, later))

    def aim_here(self, step: int) -> None:
        """Let the pass that was begun last count as the one that began at this step; called in each of its workers."""
        self._shared[_STEP] = step
        self._shared[_PASS] = self._number() - 1

    def _number(self) -> int:
        """Return the number of the next pass."""
        return _latest(self._shared[_RING:])

    def _note(self, base: int, count: int, workers: int) -> int:
        key = (workers & _ones(_WORKER_BITS)) << _COUNT_BITS | count & _ones(_COUNT_BITS)
        first = base & _ones(_BASE_BITS)
        words = self._shared[_RING:]  # each is read once: who finds no note of its pass must not count it either
        for word in words:
            noted = word >> _NUMBER_BITS
            # Another thread of the parent may have started a process between two workers, so the number may be off. A
            # pass with as many workers that began before or after is off by their number at least.
            distance = abs((noted >> (_COUNT_BITS + _WORKER_BITS)) - first)
            if word and noted & _ones(_COUNT_BITS + _WORKER_BITS) == key and distance < workers:
                return int(word & _ones(_NUMBER_BITS)) - 1
        following = _latest(words) + 1
        note = first << (_COUNT_BITS + _WORKER_BITS) | key
        self._shared[_RING + following % _KEYS] = note << _NUMBER_BITS | following
        return following - 1


def _latest(words: list[int]) -> int:
    return max(word & _ones(_NUMBER_BITS) for word in words)


def _ones(bits: int) -> int:
    return (1 << bits) - 1


def _number_of_process() -> int:
    """Return which child of its parent this process is: what multiprocessing names it by."""
    tail = multiprocessing.current_process().name.rpartition("-")[2].rpartition(":")[2]
    if not tail.isdigit():
        raise ForeignWorkers(
            f"the worker process is called {multiprocessing.current_process().name!r}, not Process-1 or so, and passes "
            "cannot be told apart: use the stream's own num_workers instead"
        )
    return int(tail)
