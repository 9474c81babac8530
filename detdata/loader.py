"""Loader: torch's own DataLoader, fed by a plan, with a position that counts what training has consumed.

Nothing of torch's is forked. A batch sampler hands each micro-batch's address to the workers (detdata.reading); what it
handed out is noted, and the loop's position moves when the batch arrives, however far the workers have run ahead.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, final, get_args

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, default_collate

from detdata.checks import as_int, as_seed, as_version, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, DetdataError, StateMismatch
from detdata.keys import fold
from detdata.loader_state import FORMAT, Saved, changed, compare, compare_step, continued, read_state, seed_of
from detdata.look_ahead import LookAhead, look_ahead
from detdata.orders.tables import TableMissing
from detdata.plans import Batch
from detdata.plans.batch import check_division
from detdata.plans.per_source import per_source_if_any
from detdata.plans.plan import MAX_STEP
from detdata.plans.protocol import AnyPlan
from detdata.plans.shards import count_parts, parts
from detdata.progress import Progress
from detdata.reading import Randomness, Reader, Request, as_is, pack
from detdata.topology import Topology

_log = logging.getLogger("detdata")
_DECIDED_BY_THE_PLAN = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")
_PASSED_ON = frozenset(inspect.signature(DataLoader.__init__).parameters) - {"self", "dataset", *_DECIDED_BY_THE_PLAN}


@final
class Loader:
    """Batches of a plan from a dataset, resumable at any consumed_samples without reading what was skipped.

    dataset: map-style; `__getitems__` is used where it has one. plan: which samples each global step consumes.
    topology: this rank's place, by default detected. micro_steps: batches of this rank a global step (gradient
    accumulation). num_workers and all further arguments go to torch's `DataLoader` (not batch_size, shuffle, sampler,
    batch_sampler, drop_last: the plan decides).
    randomness: "sample" seeds python's, NumPy's and torch's streams for every sample by (seed, epoch, id); "batch"
    once a batch by (seed, step, micro step, rank); "off" not at all. seed: of that randomness, by default the plan's.
    dataset_version: a string or whatever has a `.digest`, such as a Manifest; a state of another version is refused.

    `for batch in loader` gives the rest of the current epoch, then stops; the next `for` is the next epoch.
    Raises TypeError and ValueError for wrong arguments, among them a dataset shorter than the plan's.

    >>> from detdata import Plan, Shuffle
    >>> loader = Loader(list(range(100)), Plan(Shuffle(100), 10))
    >>> for batch in loader:
    ...     if loader.progress.global_step == 3:
    ...         break
    >>> loader.progress
    Progress(global_step=3, epoch=0, consumed_samples=30, micro_step=0)
    """

    def __init__(
        self,
        dataset: Any,
        plan: AnyPlan,
        topology: Topology | None = None,
        *,
        micro_steps: int = 1,
        num_workers: int = 0,
        randomness: Randomness = "sample",
        seed: int | None = None,
        dataset_version: Any = None,
        **dataloader_kwargs: Any,
    ) -> None:
        if not isinstance(plan, AnyPlan):
            raise ArgumentTypeError(
                f"plan must be a Plan, got {type(plan).__name__}; make one: Plan(Shuffle(len(dataset)), batch_size)"
            )
        if topology is not None and not isinstance(topology, Topology):
            raise ArgumentTypeError(f"topology must be a Topology, got {topology!r}")
        if randomness not in get_args(Randomness):
            raise ArgumentValueError(f"randomness must be one of {', '.join(get_args(Randomness))}; got {randomness!r}")
        _check_dataset(dataset, plan)
        _check_kwargs(dataloader_kwargs)
        self.plan = plan
        self.topology = Topology.detect() if topology is None else topology
        self.micro_steps = as_int(micro_steps, "micro_steps", low=1)
        # Which of a plan's batch sizes this topology is for shows when a position is loaded; one of them must fit.
        parts_of_a_batch = self.topology.world_size * self.micro_steps
        sizes = plan.batch_sizes(0, MAX_STEP)
        fits = [size for size in sizes if size % parts_of_a_batch == 0]
        check_division(fits[0] if fits else sizes[0], self.topology.world_size, self.micro_steps)
        self.randomness: Randomness = randomness
        self.seed = seed_of(plan) if seed is None else as_seed(seed)
        self.dataset_version = as_version(dataset_version)
        self._step = self._micro = 0
        self._last: tuple[int, int] | None = None
        self._pass: object = None  # the iteration that may move the position
        self._requests = _Requests(self.topology, self.micro_steps)
        # A generator of the loader's own: without one, torch draws from the global stream at every `iter`.
        self._generator = torch.Generator()
        collate = dataloader_kwargs.get("collate_fn")
        collate = default_collate if collate is None else collate
        self._torch_loader: DataLoader[Any] = DataLoader(
            Reader(dataset, randomness, self.seed, self.topology.rank, collate),  # type: ignore[arg-type]
            batch_sampler=self._requests,  # type: ignore[arg-type]
            num_workers=as_int(num_workers, "num_workers"),
            **{"generator": self._generator, **dataloader_kwargs, "collate_fn": as_is},
        )
        workers = self._torch_loader.num_workers
        self._requests.ahead = look_ahead(dataset, workers, workers * (self._torch_loader.prefetch_factor or 1))

    @property
    def dataset(self) -> Any:
        """The dataset that was given."""
        return self._torch_loader.dataset.dataset  # type: ignore[attr-defined]

    @property
    def progress(self) -> Progress:
        """Where training stands: counts a batch from the moment the loop has it. Readable at any time."""
        step = self._step
        return Progress(
            step, self.plan.epoch(step), self.plan.consumed(step), self._micro, per_source_if_any(self.plan, step)
        )

    @property
    def batch(self) -> Batch | None:
        """What the micro-batch that the loop has last had is made of: its ids, and which rows only pad (`real`).

        None before the first one. Costs one look-up in the plan.

        >>> from detdata import Plan, Sequential
        >>> loader = Loader(list(range(5)), Plan(Sequential(5), 4, tail="pad"))
        >>> [(batch.tolist(), loader.batch.real.tolist()) for batch in loader][1]
        ([4, 0, 1, 2], [True, False, False, False])
        """
        if self._last is None:
            return None
        step, micro = self._last
        return self.plan.shard(step, self.topology.rank, self.topology.world_size, micro, self.micro_steps)

    @property
    def blocks_loaded(self) -> int | None:
        """Blocks of a corpus that were loaded (decoded) for this loader so far, in all its processes.

        Over an epoch, divided by the corpus's blocks, this is how often a block is decoded. None where it is not known:
        the dataset is no corpus, it loads no blocks, or the workers have no folder to share them in. With
        num_workers=0 it is what the dataset itself counts.
        """
        if self._torch_loader.num_workers == 0:
            loaded: int | None = getattr(self.dataset, "blocks_loaded", None)
            return loaded
        return None if self._requests.ahead is None else self._requests.ahead.blocks_loaded

    def __len__(self) -> int:
        """Micro-batches of this rank in the whole current epoch, however many of them are done."""
        epoch = self.plan.epoch(self._step)
        return self._count(self.plan.first_step(epoch), self.plan.first_step(epoch + 1))

    @property
    def remaining(self) -> int:
        """Micro-batches of this rank from here to the end of the current epoch."""
        left = self._count(self._step, self.plan.first_step(self.plan.epoch(self._step) + 1)) - self._micro
        return max(left, 0)  # below where this rank has no part of a short last batch that others are in the middle of

    def _count(self, first: int, last: int) -> int:
        return count_parts(self.plan, first, last, self.topology.rank, self.topology.world_size, self.micro_steps)

    def __iter__(self) -> Iterator[Any]:
        """Yield the rest of the current epoch."""
        return self._run(None)

    def until(self, step: int) -> Iterator[Any]:
        """Yield batches until global step `step` is done, over epoch ends and without restarting the workers there.

        step: the global step to stop at; at or before the current one, nothing is yielded.

        >>> from detdata import Plan, Shuffle
        >>> loader = Loader(list(range(100)), Plan(Shuffle(100), 10))
        >>> len(list(loader.until(25))), loader.progress.epoch
        (25, 2)
        """
        return self._run(as_int(step, "step", high=MAX_STEP))

    def _run(self, stop: int | None) -> Iterator[Any]:
        if stop is None:
            stop = self.plan.first_step(self.plan.epoch(self._step) + 1)
        if stop <= self._step:
            return
        for size in self.plan.batch_sizes(self._step, stop):  # now, and not when that step comes
            check_division(size, self.topology.world_size, self.micro_steps)
        mine = self._pass = object()
        handed = self._requests.aim(self.plan, (self._step, self._micro), stop)
        self._generator.manual_seed(fold("detdata.loader/1", self.seed, self.topology.rank, self._step, self._micro))
        for batch in self._torch_loader:
            self._check_pass(mine)
            step, micro = handed.popleft()
            last = micro + 1 == self.micro_steps or micro + 1 == self._count(step, step + 1)  # a short batch has fewer
            self._step, self._micro = (step + 1, 0) if last else (step, micro + 1)
            self._last = step, micro
            yield batch
            self._check_pass(mine)
        self._step, self._micro = stop, 0  # of a short last batch this rank may have had no part

    def _check_pass(self, mine: object) -> None:
        if self._pass is not mine:
            raise StaleIteration(
                "this iteration of the Loader is over: another `for`, `until`, `resume` or `load_state_dict` has moved "
                "its position since; begin a new `for batch in loader`"
            )

    def resume(self, consumed_samples: int) -> None:
        """Go to `consumed_samples`, counted over all ranks; costs the same at any count and reads nothing.

        Raises ValueError for a count at which no step begins, naming the two nearest ones.
        """
        self._move(self.plan, self.plan.step(as_int(consumed_samples, "consumed_samples")), 0)

    def _move(self, plan: AnyPlan, step: int, micro: int) -> None:
        check_division(plan.batch_size_at(step), self.topology.world_size, self.micro_steps)
        self.plan, self._step, self._micro, self._pass, self._last = plan, step, micro, None, None

    def state_dict(self) -> dict[str, Any]:
        """Return plan and position as plain JSON: what was consumed, not what was fetched ahead."""
        version = {} if self.dataset_version is None else {"dataset_version": self.dataset_version}
        return {
            "format": FORMAT,
            "plan": self.plan.spec(),
            "seed": self.seed,
            "randomness": self.randomness,
            "micro_steps": self.micro_steps,
            "progress": self.progress.to_dict(),
            **version,
        }

    def check_state(self, state: Mapping[str, Any]) -> list[tuple[str, str, str]]:
        """Return what keeps a state from being loaded here: (field, saved, found) of each. Changes nothing.

        Raises UnknownFormat for a record that is no loader state.
        """
        return self._read(state)[1]

    def _read(self, state: Mapping[str, Any]) -> tuple[Saved[AnyPlan] | None, list[tuple[str, str, str]]]:
        """Return what a state holds, None if it names tables that are not at hand, and what keeps it from loading."""
        try:
            saved = read_state(state, self.plan)
        except TableMissing as error:
            return None, [(error.what, error.digest, "other ones, or none")]
        return saved, self._differences(saved)

    def _differences(self, saved: Saved[AnyPlan]) -> list[tuple[str, str, str]]:
        found = compare(saved, self.plan, self.seed, self.randomness, self.dataset_version)
        micro = saved.progress.micro_step
        if micro and saved.micro_steps != self.micro_steps:
            found.append(("micro_steps", f"{saved.micro_steps} (saved after {micro} of them)", str(self.micro_steps)))
        elif micro and not found:
            found += compare_step(saved, self.plan)
        return found

    def batch_size_change(self, state: Mapping[str, Any]) -> tuple[int, int] | None:
        """Return (saved, present) global batch size if loading this state would go on with another one, else None.

        A plan made with `resized` says so itself and is no change here. Changes nothing; raises UnknownFormat.
        """
        saved, wrong = self._read(state)
        if saved is None or wrong:
            return None  # it would not be loaded
        step = saved.progress.global_step
        sizes = saved.plan.batch_size_at(step), continued(saved, self.plan).batch_size_at(step)
        return sizes if sizes[0] != sizes[1] and not changed(self.plan) else None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, on any world size and number of workers, and from a step's edge on any micro_steps.

        If this loader's plan has another batch size, the saved plan is continued with it from here
        (`plan.resized`); a plan that was changed after the saved step continues it as it says.
        Raises StateMismatch (a ValueError) naming every field that differs (order, size, seed, tail …), before
        anything changes; UnknownFormat; ValueError if world_size x micro_steps does not divide the batch size.
        """
        saved, wrong = self._read(state)
        if saved is None or wrong:
            lines = "\n  ".join(f"{field}: saved {was}, here {now}" for field, was, now in wrong)
            way = "Build the loader with the saved run's plan: detdata.from_spec(state['plan'])"
            if [field for field, _, _ in wrong] == ["dataset_version"]:
                way = "Get the saved version of the data; to go on with this one on purpose, drop that key of the state"
            raise StateMismatch(f"the state belongs to another run:\n  {lines}\n{way}")
        progress = saved.progress
        plan = continued(saved, self.plan)
        if plan not in (self.plan, saved.plan):
            _log.info(
                "batch size is %d from step %d on", plan.batch_size_at(progress.global_step), progress.global_step
            )
        serves = getattr(self.dataset, "serves", None)
        if callable(serves) and not serves(plan):
            raise StateMismatch(
                "the state goes on with other sequences than the dataset has: it was saved with another seq_len. Make "
                "PackedDataset and Loader with the plan of that run: detdata.from_spec(state['plan'], [lengths])"
            )
        self._move(plan, progress.global_step, progress.micro_step)


@final
class StaleIteration(DetdataError, RuntimeError):
    """A loop over a Loader whose position was moved by somebody else meanwhile."""


@final
class _Requests(Sampler[Request]):
    """The batch sampler inside: addresses of micro-batches, each noted as it is handed out."""

    def __init__(self, topology: Topology, micro_steps: int) -> None:
        self.topology = topology
        self.micro_steps = micro_steps
        self.ahead: LookAhead | None = None
        self._aim: tuple[AnyPlan, tuple[int, int], int, deque[tuple[int, int]]] | None = None

    def aim(self, plan: AnyPlan, start: tuple[int, int], stop: int) -> deque[tuple[int, int]]:
        """Say what the next pass covers; returns the queue in which it will note (step, micro step) of each."""
        handed: deque[tuple[int, int]] = deque()
        self._aim = (plan, start, stop, handed)
        return handed

    def __iter__(self) -> Iterator[Request]:
        if self._aim is None:
            return
        plan, start, stop, handed = self._aim
        mine = parts(plan, start, stop, self.topology.rank, self.topology.world_size, self.micro_steps)
        if self.ahead is None:
            for part in mine:
                handed.append((part.step, part.micro_step))
                yield pack(part)
            return
        for part, notice in self.ahead.walk(mine):
            handed.append((part.step, part.micro_step))
            yield pack(part, notice)


def _check_dataset(dataset: Any, plan: AnyPlan) -> None:
    indexed = hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")
    if isinstance(dataset, IterableDataset) or not indexed:
        raise ArgumentTypeError(
            f"dataset must be map-style (dataset[i]), got {type(dataset).__name__}: samples are asked for by id"
        )
    if not hasattr(dataset, "__len__"):
        return
    if len(dataset) == 0:
        raise ArgumentValueError(f"dataset is empty (a {type(dataset).__name__} of length 0): check its path or filter")
    size, bound = len(dataset), plan.id_bound
    if size != bound:
        raise ArgumentValueError(
            f"dataset has {size} samples, but the plan is of a dataset of {bound}; make its order (or its lengths) of "
            f"len(dataset), or name the samples that are meant: Subset(Shuffle({size}), ids)"
        )


def _check_kwargs(kwargs: dict[str, Any]) -> None:
    decided = [name for name in _DECIDED_BY_THE_PLAN if name in kwargs]
    if decided:
        raise ArgumentTypeError(f"{', '.join(decided)}: not an argument of Loader, because the plan decides it")
    unknown = sorted(set(kwargs) - _PASSED_ON)
    if unknown:
        raise ArgumentTypeError(f"{', '.join(unknown)}: neither an argument of Loader nor of torch's DataLoader")
    collate = kwargs.get("collate_fn")
    if collate is not None and not callable(collate):
        raise ArgumentTypeError(f"collate_fn must be a function of a list of samples, got {brief(collate)}")
    if kwargs.get("in_order") is False:
        raise ArgumentValueError("in_order=False gives batches in an order that depends on timing; Loader needs True")
