"""What torch's DataLoader sees in place of the user's dataset: reads and collates one micro-batch, randomness seeded.

The batch sampler hands the worker one object for each micro-batch, ids with their epochs; torch's map-style fetcher
passes it whole to `__getitems__`. So the epoch travels with the ids, and persistent workers cannot miss it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, final

import numpy as np
from torch.utils.data import get_worker_info

from detdata.arrays import Int64Array
from detdata.keys import fold, sample_seeds
from detdata.look_ahead import Notice
from detdata.plans.shards import Part
from detdata.seeding import NoSample, seed_found, seed_global, set_address, was_asked, watch
from detdata.streams import (
    GlobalState,
    Stream,
    find_streams,
    restore_global,
    same_global,
    save_global,
    stream_state,
)

Randomness: TypeAlias = Literal["sample", "batch", "off"]
Collate: TypeAlias = Callable[[list[Any]], Any]


# A part as it travels to a worker, step, micro step, ids, epochs, and news of later ones if there are any: a plain
# tuple with the arrays as bytes, because a pickled array or class costs 20 µs, more than everything else that is done
# for a batch with randomness="off".
Request: TypeAlias = tuple[int, int, bytes, bytes | int, Notice | None]


def pack(part: Part, notice: Notice | None = None) -> Request:
    """Return the request for a part."""
    epochs = part.epochs if isinstance(part.epochs, int) else part.epochs.tobytes()
    return part.step, part.micro_step, part.ids.tobytes(), epochs, notice


def unpack(request: Request) -> Part:
    """Return the part that is requested; its arrays are read-only."""
    step, micro_step, ids, epochs, _ = request
    return Part(
        step,
        micro_step,
        np.frombuffer(ids, dtype=np.int64),
        epochs if isinstance(epochs, int) else np.frombuffer(epochs, dtype=np.int64),
    )


@final
class Reader:
    """A map-style dataset that reads a `Request` as one collated batch. Picklable if dataset and collate_fn are.

    Collating happens here, not in torch's fetcher after it, because collate functions draw random numbers too (a
    masked-language-model collator does); so it is seeded, and in the training process the streams are put back after.
    """

    def __init__(self, dataset: Any, randomness: Randomness, seed: int, rank: int, collate: Collate) -> None:
        self.dataset = dataset
        self.collate = collate
        self.randomness = randomness
        self.seed = seed
        self.rank = rank
        self._one_by_one = not callable(getattr(dataset, "__getitems__", None))
        self._held: list[Stream] | None = None  # looked for in the process that reads
        self._probe: GlobalState | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": None, "_probe": None, "_epoch": None}

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, request: Request) -> Any:
        """Read a micro-batch. In the training process the global random state is put back after."""
        part, notice = unpack(request), request[-1]
        if self._held is None and self.randomness != "off":
            self._held = find_streams([self.dataset, self.collate])
        if notice is not None:
            self.dataset.expect(notice)
        if self.randomness == "off":
            return self.collate(self._read_plain(part))
        state = save_global() if get_worker_info() is None else None
        batch_seed = fold("detdata.batch/1", self.seed, part.step, part.micro_step, self.rank)
        try:
            if self.randomness == "batch":
                self._seed(batch_seed)
                return self.collate(self._read_plain(part))
            samples = self._read_samples(part)
            set_address(None)
            self._seed(batch_seed)  # else what is drawn here would hang on the last sample, or on how it was read
            return self.collate(samples)
        finally:
            set_address(None)
            if state is not None:
                restore_global(state)

    def _read_plain(self, part: Part) -> list[Any]:
        items: list[Any] = []
        for epoch, ids in _by_epoch(part):
            self._tell_epoch(epoch)
            items += self._fetch(ids.tolist())
        return items

    def _read_samples(self, part: Part) -> list[Any]:
        items: list[Any] = []
        for epoch, ids in _by_epoch(part):
            self._tell_epoch(epoch)
            whole = None if self._one_by_one else self._read_whole(ids.tolist())
            items += self._read_each(epoch, ids) if whole is None else whole
        return items

    def _read_each(self, epoch: int, ids: Int64Array) -> list[Any]:
        items = []
        dataset, many = self.dataset, callable(getattr(self.dataset, "__getitems__", None))
        for id, seed in zip(ids.tolist(), sample_seeds(self.seed, epoch, ids).tolist(), strict=True):
            self._seed(seed)
            set_address((self.seed, epoch, id))
            items.append(dataset.__getitems__([id])[0] if many else dataset[id])
        return items

    def _read_whole(self, ids: list[int]) -> list[Any] | None:
        """Read with one call of the dataset's `__getitems__`; None if it drew random numbers.

        A read that drew none is what reading one by one with any seeds would have given, so it stands. One that did
        draw would depend on the batch: from then on, samples are read one by one, each with its own seed.
        """
        if self._probe is None:
            self._seed(0)
            self._probe = save_global()
        self._seed(0)
        held = [stream_state(stream) for stream in self._held or ()]
        watch()
        try:
            items = self._fetch(ids)
        except NoSample:
            items = []
        untouched = held == [stream_state(stream) for stream in self._held or ()]
        if untouched and not was_asked() and same_global(save_global(), self._probe):
            return items
        self._one_by_one = True
        return None

    def _fetch(self, ids: list[int]) -> list[Any]:
        if callable(getattr(self.dataset, "__getitems__", None)):
            return list(self.dataset.__getitems__(ids))
        dataset = self.dataset
        return [dataset[id] for id in ids]

    def _seed(self, seed: int) -> None:
        seed_global(seed)
        if self._held:
            seed_found(self._held, seed)

    def _tell_epoch(self, epoch: int) -> None:
        """Call the dataset's own `set_epoch`, where it has one, in the process that reads."""
        set_epoch = getattr(self.dataset, "set_epoch", None)  # each time: another reader may have told another one
        if callable(set_epoch):
            set_epoch(epoch)


def _by_epoch(part: Part) -> Iterator[tuple[int, Int64Array]]:
    if isinstance(part.epochs, int):
        yield part.epochs, part.ids
        return
    cuts = np.flatnonzero(np.diff(part.epochs)) + 1
    for ids, epochs in zip(np.split(part.ids, cuts), np.split(part.epochs, cuts), strict=True):
        yield int(epochs[0]), ids


def as_is(batch: Any) -> Any:
    """Collate what is collated already: what torch's fetcher gets for its collate_fn."""
    return batch
