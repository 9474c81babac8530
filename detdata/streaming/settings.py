"""What a stream is: its arguments, checked against each other, as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from torch.utils.data import IterableDataset, default_collate

from detdata.checks import as_int, as_seed, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.loader_state import seed_of
from detdata.orders import Order, Sequential
from detdata.plans import Plan
from detdata.plans.batch import check_division
from detdata.reading import Randomness
from detdata.streaming.places import Grid
from detdata.streaming.rows import CollateKept, Filter, Map, Packing, RowReader, collect, collect_tokens
from detdata.topology import Topology

# batches: whole batches of a plan. rows: single rows. filled: samples of rows that a filter keeps. packed: sequences.
Kind: TypeAlias = Literal["batches", "rows", "filled", "packed"]
Tail: TypeAlias = Literal["drop", "pad", "keep", "carry"]

_PASSED_ON = frozenset(
    {"prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout", "worker_init_fn", "pin_memory"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A stream's arguments, checked. lanes: of all ranks; per_lane: samples of a lane in a step."""

    kind: Kind
    reader: RowReader
    plan: Plan
    topology: Topology
    lanes: int
    per_lane: int
    batched: bool
    collate: Callable[[list[Any]], Any]
    randomness: Randomness
    seed: int
    num_workers: int
    loading: dict[str, Any]

    @property
    def filtered(self) -> bool:
        """Whether how many rows are handed out cannot be known without reading."""
        return self.reader.filter is not None

    @property
    def arithmetic(self) -> bool:
        """Whether the place in the source follows from the global step."""
        return self.kind in {"batches", "rows"}

    @property
    def endless(self) -> bool:
        """Whether a pass has no end."""
        return not self.arithmetic and self.plan.tail == "carry"

    @property
    def drops_rest(self) -> bool:
        """Whether what fills no batch at the end of an epoch is left out."""
        return self.plan.tail == "drop" or self.kind == "packed"

    @property
    def grid(self) -> Grid:
        """The rows of each lane."""
        return Grid(self.plan, self.lanes)

    @property
    def own_lanes(self) -> range:
        """The lanes of this rank."""
        return range(self.topology.rank, self.lanes, self.topology.world_size)

    @property
    def seq_len(self) -> int | None:
        """Tokens of a sequence, where rows are packed."""
        return None if self.reader.packing is None else self.reader.packing.seq_len

    @property
    def reader_collate(self) -> Callable[[list[Any]], Any]:
        """What collates in the process that reads."""
        if self.kind == "batches":
            return CollateKept(self.collate) if self.filtered else self.collate
        return collect if self.kind != "packed" else collect_tokens


def check(
    dataset: Any,
    order: Any,
    batch_size: Any,
    *,
    topology: Any,
    tail: Any,
    filter: Filter | None,
    map: Map | None,
    fill: Any,
    lanes: Any,
    seq_len: Any,
    tokens: Any,
    eos: Any,
    num_workers: Any,
    randomness: Any,
    seed: Any,
    collate_fn: Any,
    loading: dict[str, Any],
) -> Settings:
    """Return the settings that these arguments of `Stream` make. Raises TypeError, ValueError."""
    size = _size_of(dataset)
    if topology is not None and not isinstance(topology, Topology):
        raise ArgumentTypeError(f"topology must be a Topology, got {topology!r}")
    place = Topology.detect() if topology is None else topology
    for name, function in (("filter", filter), ("map", map), ("collate_fn", collate_fn)):
        if function is not None and not callable(function):
            raise ArgumentTypeError(f"{name} must be a function, got {brief(function)}")
    if not isinstance(fill, bool):
        raise ArgumentTypeError(f"fill must be True or False, got {brief(fill)}")
    if randomness not in get_args(Randomness):
        raise ArgumentValueError(f"randomness must be one of {', '.join(get_args(Randomness))}; got {randomness!r}")
    packing = _packing(seq_len, tokens, eos)
    batched = batch_size is not None or isinstance(order, Plan)
    kind = _kind(packing, filter, batched, fill)
    plan = _plan(order, size, batch_size, tail, kind, place.world_size)
    _check_loading(loading, kind)
    count = place.world_size if lanes is None else as_int(lanes, "lanes", low=1)
    if lanes is not None and (kind in {"batches", "rows"} or not batched):
        raise ArgumentValueError("lanes is for batches that are filled: give it with batch_size and filter or seq_len")
    settings = Settings(
        kind=kind,
        reader=RowReader(dataset, filter, map, packing),
        plan=plan,
        topology=place,
        lanes=count,
        per_lane=max(1, plan.batch_size // count),
        batched=batched,
        collate=default_collate if collate_fn is None else collate_fn,
        randomness=randomness,
        seed=seed_of(plan) if seed is None else as_seed(seed),
        num_workers=as_int(num_workers, "num_workers"),
        loading=dict(loading),
    )
    _check_shares(settings, size)
    return settings


def _size_of(dataset: Any) -> int:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise ArgumentTypeError(
            f"dataset must have a length and rows by number, got {type(dataset).__name__}; "
            "for what can only be iterated there is detdata.Resumable"
        )
    size = len(dataset)
    if size == 0:
        raise ArgumentValueError(f"dataset is empty (a {type(dataset).__name__} of length 0): check its path or filter")
    return size


def _packing(seq_len: Any, tokens: Any, eos: Any) -> Packing | None:
    if seq_len is None:
        if tokens is not None or eos is not None:
            raise ArgumentValueError("tokens and eos are for packing: give seq_len too")
        return None
    if not (tokens is None or isinstance(tokens, str) or callable(tokens)):
        raise ArgumentTypeError(f"tokens must be a column's name or a function of a row, got {brief(tokens)}")
    last = None if eos is None else as_int(eos, "eos", high=2**63 - 1)
    return Packing(as_int(seq_len, "seq_len", low=1, high=2**31), tokens, last)


def _kind(packing: Packing | None, filter: Filter | None, batched: bool, fill: bool) -> Kind:
    if packing is not None:
        if not fill:
            raise ArgumentValueError("fill=False is for filters; sequences of seq_len tokens are always full")
        return "packed"
    if filter is not None and (fill or not batched):
        return "filled"
    return "batches" if batched else "rows"


def _plan(order: Any, size: int, batch_size: Any, tail: Any, kind: Kind, ranks: int) -> Plan:
    policy = order.tail if isinstance(order, Plan) else tail
    if kind == "packed" and policy not in {None, "drop", "carry"}:
        raise ArgumentValueError(f'tail={policy!r} does not fit packing; take "drop" or "carry"')
    if isinstance(order, Plan):
        if batch_size is not None or tail is not None:
            raise ArgumentValueError("batch_size and tail are the plan's own where a Plan is given")
        # A plan with tail="drop" needs as many rows as a batch has; sequences are counted otherwise than rows.
        plan = replace(order, tail="keep") if kind == "packed" and policy == "drop" else order
    elif order is None or isinstance(order, Order):
        each = ranks if batch_size is None else batch_size
        rule: Any = "keep" if tail is None or (kind == "packed" and tail == "drop") else tail
        plan = Plan(Sequential(size) if order is None else order, each, rule)
    else:
        raise ArgumentTypeError(f"order must be an order or a Plan, got {brief(order)}; leave it out for rows in order")
    if plan.order.id_bound != size:
        raise ArgumentValueError(
            f"dataset has {size} rows, but the order is of a dataset of {plan.order.id_bound}; make the order of "
            f"len(dataset), or name the rows that are meant: Subset(Sequential({size}), ids)"
        )
    return plan


def _check_loading(loading: dict[str, Any], kind: Kind) -> None:
    unknown = sorted(set(loading) - _PASSED_ON)
    if unknown:
        raise ArgumentTypeError(
            f"{', '.join(unknown)}: neither an argument of Stream nor one that it passes on to torch's DataLoader "
            f"({', '.join(sorted(_PASSED_ON))})"
        )
    if loading.get("pin_memory") and kind != "batches":
        raise ArgumentValueError(
            "pin_memory is for batches that workers collate; rows, filled and packed batches are made in the training "
            "process: pin each by batch.pin_memory()"
        )


def _check_shares(settings: Settings, size: int) -> None:
    """Refuse what would leave a rank without data while another has some, or give ranks different numbers of steps."""
    plan, ranks = settings.plan, settings.topology.world_size
    if settings.arithmetic:
        check_division(plan.batch_size, ranks, 1)
        if settings.kind == "rows" and plan.tail == "carry":
            raise ArgumentValueError('tail="carry" is for batches; for single rows take "keep", "drop" or "pad"')
        check_last_step(plan, 0, ranks)
        return
    if plan.resizes:
        raise ArgumentValueError(
            "a plan that changes its batch size on the way cannot be filled from a filter; fill=False can"
        )
    if settings.batched and (settings.lanes % ranks or plan.batch_size % settings.lanes):
        raise ArgumentValueError(
            f"batch_size {plan.batch_size} must be a multiple of lanes {settings.lanes}, and that of world_size {ranks}"
        )
    packed = settings.kind == "packed"
    if plan.tail == "pad":
        raise ArgumentValueError('tail="pad" does not fit a filter; take "keep", "drop" or "carry"')
    if settings.lanes > 1 and plan.tail != "carry":
        raise ArgumentValueError(
            f"{size} rows, {ranks} rank(s), {settings.lanes} lane(s): how many {'sequences' if packed else 'rows'} "
            "each has in an epoch is not known before they are read, so steps could not be equal. Take one of: "
            'tail="carry" (each runs on into its next epoch; end by until(step)); '
            "fill=False (a step takes batch_size rows and gives what is kept of them); "
            f"or an order of the rows that are kept, Subset(Sequential({size}), ids)"
        )
    if plan.order.size < settings.lanes:
        raise ArgumentValueError(
            f"{plan.order.size} rows cannot be shared by {settings.lanes} lane(s) of {ranks} rank(s), each with one"
        )


def check_last_step(plan: Plan, epoch: int, ranks: int) -> None:
    """Refuse an epoch whose kept last step has rows for some ranks and none for the others."""
    if plan.tail != "keep" or ranks == 1:
        return
    step = plan.first_step(epoch + 1) - 1
    last = plan.consumed(step + 1) - plan.consumed(step)
    if last < ranks:
        rows = plan.consumed(step + 1) - plan.consumed(plan.first_step(epoch))
        raise ArgumentValueError(
            f"epoch {epoch} of {rows} rows in batches of {plan.batch_size_at(step)} ends with a step of {last} row(s) "
            f'for {ranks} ranks: with tail="keep" some would have a step less than the others, whatever the number of '
            'workers and files. Take tail="drop" or "pad", or another batch_size'
        )
