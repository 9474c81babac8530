"""Iterables without random access: resumed by their own state if they have one, else by reading from the start."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias, final

from torch.utils.data import IterableDataset, get_worker_info

from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, StateMismatch, UnknownFormat
from detdata.streaming.passes import ForeignWorkers
from detdata.topology import Topology

FORMAT = "detdata.resumable/1"
_KEYS = {"format", "epoch", "consumed", "own", "at"}
Way: TypeAlias = Literal["start", "own state", "replay", "restart"]


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a pass over an iterable was begun.

    way: "start" (of an epoch), "own state" (the iterable's), "replay" (read from its beginning and thrown away) or
    "restart" (from its beginning, and handed out again). replayed: samples that were read again and not handed out.
    repeated: samples, over all ranks, that were trained on before and are handed out again.

    >>> Resumption("replay", replayed=100, repeated=0)
    Resumption(way='replay', replayed=100, repeated=0)
    """

    way: Way
    replayed: int
    repeated: int


@final
class Resumable(IterableDataset[Any]):
    """An iterable that can only be read from its beginning, made resumable; for a loop in one process a rank.

    source: something whose `iter()` begins anew each time, or a function that gives an iterable: a generator function,
    a Hugging Face IterableDataset. If the source, or its iterator, has `state_dict` and `load_state_dict`, these are
    used, and are exact only as far as that state is. Else a resume reads on from the beginning, which takes as long as
    what was read had taken; with replay=False it hands out from the beginning again (near-lossless, for sources that
    are never the same twice). `resumption` says which it was, and how many samples.
    Its `set_epoch(epoch)`, if it has one, is called before each pass. topology: rank r of W takes samples r, r + W …,
    and reads them all; the last ones that are not enough for every rank are left out. By default detected.

    `for` gives the rest of the pass; the next `for` is the next one. Not for a DataLoader's workers (RuntimeError):
    each would read everything. Raises TypeError for an iterator, which cannot begin anew.

    >>> samples = Resumable(lambda: (n * n for n in range(5)))
    >>> for sample in samples:
    ...     if sample == 4:
    ...         break
    >>> again = Resumable(lambda: (n * n for n in range(5)))
    >>> again.load_state_dict(samples.state_dict())
    >>> list(again), again.resumption
    ([9, 16], Resumption(way='replay', replayed=3, repeated=0))
    """

    def __init__(
        self,
        source: Iterable[Any] | Callable[[], Iterable[Any]],
        topology: Topology | None = None,
        *,
        replay: bool = True,
    ) -> None:
        super().__init__()
        if isinstance(source, Iterator):
            raise ArgumentTypeError(
                f"source must begin anew at each iter(), and a {type(source).__name__} is read once: "
                "give the function that makes it"
            )
        if not (isinstance(source, Iterable) or callable(source)):
            raise ArgumentTypeError(f"source must be an iterable or a function that gives one, got {brief(source)}")
        if not isinstance(replay, bool):
            raise ArgumentTypeError(f"replay must be True or False, got {brief(replay)}")
        if topology is not None and not isinstance(topology, Topology):
            raise ArgumentTypeError(f"topology must be a Topology, got {topology!r}")
        self.topology = Topology.detect() if topology is None else topology
        self.replay = replay
        self._source = source
        self._epoch = self._consumed = 0
        self._saved: tuple[Any, int] | None = None  # the source's own state, and the samples before it
        self._live: Any = None  # what has the source's state while a pass is on
        self._resumption = Resumption("start", 0, 0)
        self._pass: object = None

    @property
    def epoch(self) -> int:
        """The pass that is on, or the next one."""
        return self._epoch

    @property
    def consumed(self) -> int:
        """Samples of this pass that were handed out, over all ranks."""
        return self._consumed

    @property
    def resumption(self) -> Resumption:
        """How the last pass was begun."""
        return self._resumption

    def __iter__(self) -> Iterator[Any]:
        """Yield the rest of the pass."""
        info = get_worker_info()
        if info is not None:
            raise ForeignWorkers(
                f"a Resumable cannot run in a DataLoader's workers ({info.num_workers} here): each would read the "
                "whole source, and how much was consumed would not be known. Iterate over it directly, or num_workers=0"
            )
        if self._live is not None and self._pass is not None:
            # A pass was broken off. Its own state leads on; iter() of a source that took a state may begin there again.
            self._saved, self._live = (copy.deepcopy(self._live.state_dict()), self._consumed), None
        mine = self._pass = object()
        return self._run(mine)

    def _run(self, mine: object) -> Iterator[Any]:
        self._check_pass(mine)
        ranks, rank = self.topology.world_size, self.topology.rank
        begun, samples = self._saved, None
        while True:
            try:
                if samples is None:
                    samples = self._begin()
                    self._saved = None
                share = list(islice(samples, ranks))
            except BaseException:
                if self._pass is mine:  # the source may be anywhere in what was being read: go on from where it began
                    self._saved, self._live = begun, None
                raise
            self._check_pass(mine)
            if len(share) < ranks:
                break
            self._consumed += ranks
            yield share[rank]
        self._live, self._epoch, self._consumed, self._pass = None, self._epoch + 1, 0, None

    def _check_pass(self, mine: object) -> None:
        if self._pass is not mine:
            raise StateMismatch("this iteration is over: the position was moved meanwhile; begin a new `for`")

    def _begin(self) -> Iterator[Any]:
        """Return an iterator that stands where the pass goes on."""
        iterable = self._source
        if not isinstance(iterable, Iterable):
            iterable = iterable()
            if not isinstance(iterable, Iterable):
                raise ArgumentTypeError(f"source must give an iterable, it gave {brief(iterable)}")
        tell = getattr(iterable, "set_epoch", None)
        if callable(tell):
            tell(self._epoch)
        way, before = self._way()
        own = None if self._saved is None else self._saved[0]
        holds = _has_state(iterable)
        if way == "own state" and holds:
            iterable.load_state_dict(own)  # type: ignore[attr-defined]
        samples = iter(iterable)
        if way == "own state" and not holds:
            if not _has_state(samples):
                raise StateMismatch("the saved state is the source's own, and this source takes none")
            samples.load_state_dict(own)  # type: ignore[attr-defined]
        self._live = iterable if holds else samples if _has_state(samples) else None
        if way == "restart":
            self._resumption = Resumption(way, 0, self._consumed)
            self._consumed = 0
            return samples
        skipped = sum(1 for _ in islice(samples, self._consumed - before))
        if skipped < self._consumed - before:
            raise StateMismatch(
                f"{self._consumed} samples of this source were consumed, and it ends after {before + skipped}: "
                "it is not the one that was saved"
            )
        self._resumption = Resumption(way, skipped, 0)
        return samples

    def _way(self) -> tuple[Way, int]:
        if self._saved is not None:
            return "own state", self._saved[1]
        if not self._consumed:
            return "start", 0
        return ("replay" if self.replay else "restart"), 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and the source's own state where it has one; the same kind of values as that holds."""
        own, at = self._saved or (None, 0)
        if self._live is not None and self._pass is not None:
            own, at = copy.deepcopy(self._live.state_dict()), self._consumed
        return {"format": FORMAT, "epoch": self._epoch, "consumed": self._consumed, "own": own, "at": at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state at the next `for`, on any world size. Raises UnknownFormat, TypeError, ValueError."""
        if not isinstance(state, Mapping):
            raise ArgumentTypeError(f"state must be a dict, got {type(state).__name__}")
        if state.get("format") != FORMAT or set(state) != _KEYS:
            raise UnknownFormat(f"state is no {FORMAT} record: it has the keys {sorted(map(str, state))}")
        epoch, consumed, at = (as_int(state[name], name) for name in ("epoch", "consumed", "at"))
        if at > consumed:
            raise ArgumentValueError(f"state contradicts itself: its own state is at {at} of {consumed} samples")
        self._epoch, self._consumed, self._pass, self._live = epoch, consumed, None, None
        self._saved = None if state["own"] is None else (copy.deepcopy(state["own"]), at)

    def __getstate__(self) -> dict[str, Any]:
        state = self.state_dict()
        saved = None if state["own"] is None else (state["own"], state["at"])
        return {**self.__dict__, "_live": None, "_pass": None, "_saved": saved}


def _has_state(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))
