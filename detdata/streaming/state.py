"""A stream's saved state: read strictly, compared with the present stream field by field, and continued.

docs/spec.md, section 5, fixes the record. It holds no data: rows that are in stock, and the part of a row that is left
over between two sequences, are read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from detdata.checks import as_int, as_seed, brief
from detdata.errors import ArgumentTypeError, StateMismatch, UnknownFormat
from detdata.loader_state import Saved, compare, continued
from detdata.orders import Sequential
from detdata.plans import Plan
from detdata.progress import Progress
from detdata.records import from_spec
from detdata.streaming.places import LanePlace, Place
from detdata.streaming.settings import Kind, Settings
from detdata.streaming.source import Found, Source, check_record

FORMAT = "detdata.stream/1"
_KEYS = frozenset(
    {"format", "kind", "plan", "seed", "randomness", "filtered", "progress", "counted", "lanes", "packing", "source"}
)
_LANE_KEYS = {"count", "ended", "places"}


@dataclass(frozen=True, slots=True)
class SavedStream:
    """A state, checked. counted: rank, world size, rows seen and kept by a filter that leaves batches short."""

    kind: Kind
    loader: Saved[Plan]
    filtered: bool
    counted: tuple[int, int, int, int] | None
    lanes: int
    places: tuple[LanePlace, ...]
    ended: bool
    packing: dict[str, Any] | None
    source: dict[str, Any]


def write(
    settings: Settings, progress: Progress, place: Place, counted: Sequence[int], source: Source
) -> dict[str, Any]:
    """Return the state of a stream as plain JSON."""
    packing = settings.reader.packing
    return {
        "format": FORMAT,
        "kind": settings.kind,
        "plan": settings.plan.spec(),
        "seed": settings.seed,
        "randomness": settings.randomness,
        "filtered": settings.filtered,
        "progress": progress.to_dict(),
        "counted": list(counted) if settings.kind == "batches" and settings.filtered else None,
        "lanes": None
        if settings.arithmetic
        else {
            "count": settings.lanes,
            "ended": place.ended,
            "places": [[at.lane, at.epoch, at.row, at.offset, at.kept] for at in place.lanes],
        },
        "packing": None if packing is None else {"seq_len": packing.seq_len, "eos": packing.eos},
        "source": source.record(_consumed(settings, progress, place)),
    }


def _consumed(settings: Settings, progress: Progress, place: Place) -> int | None:
    """Rows of the corpus, from its beginning, that were consumed; None for all: of an order that is not theirs."""
    order = settings.plan.order
    if not isinstance(order, Sequential):
        return None
    if settings.arithmetic:
        return min(progress.consumed_samples, order.size) if not settings.plan.skips else None
    if any(at.epoch for at in place.lanes) or settings.plan.skips:
        return None
    reach = [at.lane + settings.lanes * (at.row - 1 + (at.offset > 0)) + 1 for at in place.lanes if at.row or at.offset]
    return min(max([0, *reach]), order.size)


def read(state: Any) -> SavedStream:
    """Return the contents of a state, or of those of all ranks. Raises UnknownFormat, StateMismatch."""
    if isinstance(state, (list, tuple)):
        return _joined([read(one) for one in state])
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(f"state must be a dict, or a list of one for each rank, got {type(state).__name__}")
    if state.get("format") != FORMAT:
        raise UnknownFormat(f"state has the format {brief(state.get('format'))}; a stream's state is {FORMAT!r}")
    if set(state) != _KEYS:
        raise UnknownFormat(f"a {FORMAT} state has the keys {sorted(_KEYS)}, got {sorted(map(str, state))}")
    kind = state["kind"]
    if kind not in get_args(Kind):
        raise UnknownFormat(f"state['kind'] must be one of {', '.join(get_args(Kind))}, got {brief(kind)}")
    plan = from_spec(state["plan"])
    if not isinstance(plan, Plan):
        raise UnknownFormat(f"state['plan'] must be a plan's spec, got that of a {type(plan).__name__}")
    progress = Progress.from_dict(state["progress"])
    if not isinstance(state["filtered"], bool):
        raise UnknownFormat(f"state['filtered'] must be true or false, got {brief(state['filtered'])}")
    lanes, places, ended = _lanes(state["lanes"], kind)
    if not places:
        step = progress.global_step
        there = (plan.consumed(step), plan.epoch(step), 0)
        if there != (progress.consumed_samples, progress.epoch, progress.micro_step):
            raise UnknownFormat(
                f"state contradicts itself: at global_step {step} its plan has consumed {there[0]} samples and is in "
                f"epoch {there[1]}, and its progress says {progress.consumed_samples} and {progress.epoch}"
            )
    return SavedStream(
        kind,
        Saved(plan, as_seed(state["seed"]), str(state["randomness"]), 1, progress, None),
        state["filtered"],
        _counted(state["counted"]),
        lanes,
        places,
        ended,
        _packing(state["packing"], kind),
        check_record(state["source"]),
    )


def _lanes(record: Any, kind: Kind) -> tuple[int, tuple[LanePlace, ...], bool]:
    if (record is None) != (kind in {"batches", "rows"}):
        raise UnknownFormat(f"state['lanes'] does not fit its kind {kind!r}")
    if record is None:
        return 0, (), False
    if not isinstance(record, Mapping) or set(record) != _LANE_KEYS or not isinstance(record["ended"], bool):
        raise UnknownFormat(f"state['lanes'] must have the keys {sorted(_LANE_KEYS)}")
    rows = record["places"]
    if not isinstance(rows, list) or not rows or any(not isinstance(row, list) or len(row) != 5 for row in rows):
        raise UnknownFormat("state['lanes']['places'] must be rows of [lane, epoch, row, offset, kept]")
    count = as_int(record["count"], "state['lanes']['count']", low=1)
    places = tuple(LanePlace(*(as_int(item, "state['lanes']") for item in row)) for row in rows)
    if sorted({at.lane for at in places}) != [at.lane for at in places] or places[-1].lane >= count:
        raise UnknownFormat(f"state['lanes']['places'] must be of rising lanes below {count}")
    return count, places, record["ended"]


def _counted(record: Any) -> tuple[int, int, int, int] | None:
    if record is None:
        return None
    if not isinstance(record, list) or len(record) != 4:
        raise UnknownFormat("state['counted'] must be [rank, world size, rows seen, rows kept]")
    rank, ranks, seen, kept = (as_int(item, "state['counted']") for item in record)
    return rank, ranks, seen, kept


def _packing(record: Any, kind: Kind) -> dict[str, Any] | None:
    if (record is None) != (kind != "packed") or not (record is None or isinstance(record, Mapping)):
        raise UnknownFormat(f"state['packing'] does not fit its kind {kind!r}")
    return None if record is None else dict(record)


def _joined(states: list[SavedStream]) -> SavedStream:
    """Return the state of all ranks together."""
    if not states:
        raise UnknownFormat("state is an empty list: give the state of each rank")
    first = states[0]
    steps = {(one.loader.progress.global_step, one.loader.plan, one.lanes, one.kind) for one in states}
    if len(steps) > 1:
        saved = sorted({one.loader.progress.global_step for one in states})
        raise StateMismatch(f"the ranks' states are not of one moment of one run: they are of the global steps {saved}")
    if not first.places:
        return first
    places = tuple(sorted((at for one in states for at in one.places), key=lambda at: at.lane))
    if len({at.lane for at in places}) < len(places):
        raise StateMismatch(f"the ranks' states hold a lane twice: {[at.lane for at in places]}")
    return replace(first, places=places)


def differences(saved: SavedStream, settings: Settings, source: Source) -> Found:
    """Return (field, saved, found) of everything that keeps a state from going on in the present stream."""
    now, was = settings.plan, saved.loader.plan
    grows = _grows(saved, settings)
    found: Found = []
    for field, before, here in (
        ("kind", saved.kind, settings.kind),
        ("filter", "one" if saved.filtered else "none", "one" if settings.filtered else "none"),
    ):
        if before != here:
            found.append((field, before, here))
    if was.order.size < now.order.size and _plain(was) and _plain(now) and not grows:
        found.append(("size", str(was.order.size), f"{now.order.size}; rows can be added in the first epoch only"))
    else:
        loader = saved.loader._replace(plan=_grown(saved.loader, settings)) if grows else saved.loader
        if saved.places:  # its batch size follows from here on; what was before is in the lanes
            loader = loader._replace(plan=replace(loader.plan, batch_size=now.batch_size))
        found += compare(loader, now, settings.seed, settings.randomness, None)
    packing = settings.reader.packing
    here_packing = None if packing is None else {"seq_len": packing.seq_len, "eos": packing.eos}
    if saved.kind == settings.kind and saved.packing != here_packing:
        found.append(("packing", str(saved.packing), str(here_packing)))
    if saved.kind == settings.kind and saved.places:
        found += _lane_differences(saved, settings)
    return found + source.differences(saved.source, may_grow=_plain(was) and _plain(now))


def _lane_differences(saved: SavedStream, settings: Settings) -> Found:
    if saved.lanes != settings.lanes:
        how = f"{settings.lanes}; make the stream with lanes={saved.lanes}, of which each rank takes its part"
        return [("lanes", str(saved.lanes), how)]
    held = {at.lane for at in saved.places}
    missing = [lane for lane in settings.own_lanes if lane not in held]
    beyond = [at for at in saved.places if at.row > settings.grid.rows(at.epoch, at.lane)]
    if beyond:
        rows = settings.grid.rows(beyond[0].epoch, beyond[0].lane)
        return [(f"row of lane {beyond[0].lane}", str(beyond[0].row), f"the lane has {rows} rows")]
    if not missing:
        return []
    how = f"lanes {missing} are needed here; load the states of all ranks, as a list"
    return [("lanes", f"lanes {sorted(held)} of {saved.lanes}", how)]


def size_change(saved: SavedStream, settings: Settings) -> tuple[int, int] | None:
    """Return (saved, present) batch size where loading a state goes on with another one."""
    plan, step = settings.plan, saved.loader.progress.global_step
    if not settings.batched or saved.kind == "rows" or plan.resizes or plan.skips:
        return None
    sizes = saved.loader.plan.batch_size_at(step), plan.batch_size
    return sizes if sizes[0] != sizes[1] else None


def resumed(saved: SavedStream, settings: Settings) -> tuple[Plan, Place]:
    """Return the plan and the place to go on with; `differences` has found none."""
    progress = saved.loader.progress
    if not saved.places:
        loader = saved.loader
        if _grows(saved, settings):
            loader = loader._replace(plan=_grown(loader, settings))
        return continued(loader, settings.plan), Place(progress.global_step)
    own = set(settings.own_lanes)
    place = Place(progress.global_step, tuple(at for at in saved.places if at.lane in own), saved.ended)
    grown = settings.plan.order.size > saved.loader.plan.order.size
    return settings.plan, replace(place, ended=False) if grown else place.following()


def _plain(plan: Plan) -> bool:
    return isinstance(plan.order, Sequential)


def _grows(saved: SavedStream, settings: Settings) -> bool:
    """Whether rows were added behind a sequence of which the first pass is not over, or is just over."""
    was, now, progress = saved.loader.plan, settings.plan, saved.loader.progress
    if not (_plain(was) and _plain(now) and was.order.size < now.order.size):
        return False
    if saved.places:
        return all(at.epoch == 0 for at in saved.places)
    return progress.consumed_samples <= was.order.size and progress.epoch <= 1 and not was.skips


def _grown(saved: Saved[Plan], settings: Settings) -> Plan:
    """Return the saved plan over the longer sequence: what was consumed stays, a short last batch included."""
    step, consumed = saved.progress.global_step, saved.progress.consumed_samples
    plan = replace(saved.plan, order=settings.plan.order)
    if plan.consumed(step) == consumed:
        return plan
    last = consumed - plan.consumed(step - 1)
    return plan.resized(step - 1, last).resized(step, saved.plan.batch_size_at(step))
