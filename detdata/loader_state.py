"""A loader's saved state: read strictly, compared with the present plan field by field, and continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar, cast

from detdata.checks import as_int, as_seed, brief
from detdata.errors import ArgumentTypeError, UnknownFormat
from detdata.orders.mixture import Mixture
from detdata.orders.tables import rebuild
from detdata.plans import BucketPlan, PackPlan, Plan
from detdata.plans.composite import CompositePlan
from detdata.plans.protocol import AnyPlan
from detdata.plans.views import EveryEpoch
from detdata.progress import Progress
from detdata.records import Spec, canonical_json

FORMAT = "detdata.loader/1"
_KEYS = frozenset({"format", "plan", "seed", "randomness", "micro_steps", "progress"})
_CHANGING = frozenset({"batch_size", "max_tokens", "resizes", "skips", "changes", "phases"})
_OPTIONAL = "dataset_version"  # there where the loader was told one


_P = TypeVar("_P", bound=AnyPlan)


class Saved(NamedTuple, Generic[_P]):
    """A loader's state, checked."""

    plan: _P
    seed: int
    randomness: str
    micro_steps: int
    progress: Progress
    dataset_version: str | None


def read_state(state: Mapping[str, Any], present: AnyPlan) -> Saved[AnyPlan]:
    """Return a state dict's contents. present: the loader's plan, for tables that the saved spec names by digest.

    Raises UnknownFormat for another record, or one that contradicts itself; TableMissing.
    """
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(f"state must be a dict, got {type(state).__name__}")
    if state.get("format") != FORMAT:
        raise UnknownFormat(f"state has the format {state.get('format')!r}; a loader's state is {FORMAT!r}")
    if set(state) - {_OPTIONAL} != _KEYS:
        raise UnknownFormat(f"a {FORMAT} state has the keys {sorted(_KEYS)}, got {sorted(map(str, state))}")
    version = state.get(_OPTIONAL)
    if _OPTIONAL in state and not (isinstance(version, str) and version):
        raise UnknownFormat(f"state['dataset_version'] must be a string, got {brief(version)}")
    # A plan of many lengths takes seconds to be made anew, and mostly it is the one that is there.
    plan = present if state["plan"] == present.spec() else rebuild(state["plan"], present._tables())
    if not isinstance(plan, AnyPlan):
        raise UnknownFormat(f"state['plan'] must be a plan's spec, got that of a {type(plan).__name__}")
    progress = Progress.from_dict(state["progress"])
    consumed = plan.consumed(progress.global_step)
    if consumed != progress.consumed_samples:
        raise UnknownFormat(
            f"state contradicts itself: consumed_samples is {progress.consumed_samples}, "
            f"but the plan has consumed {consumed} at global_step {progress.global_step}"
        )
    epoch = plan.epoch(progress.global_step)
    if epoch != progress.epoch:
        raise UnknownFormat(
            f"state contradicts itself: epoch is {progress.epoch}, "
            f"but global_step {progress.global_step} of the plan begins in epoch {epoch}"
        )
    micro_steps = as_int(state["micro_steps"], "micro_steps", low=1)
    as_int(progress.micro_step, "micro_step", high=micro_steps - 1)
    return Saved(plan, as_seed(state["seed"]), str(state["randomness"]), micro_steps, progress, version)


def compare(
    saved: Saved[Any], plan: AnyPlan, seed: int, randomness: str, dataset_version: str | None
) -> list[tuple[str, str, str]]:
    """Return (field, saved, found) of everything that keeps a state from going on under the present plan."""
    found = _compare_plans(saved.plan, plan, saved.progress.global_step)
    for field, was, now in (
        ("randomness", saved.randomness, randomness),
        ("seed", str(saved.seed), str(seed)),
    ):
        if was != now and field not in [field for field, _, _ in found]:
            found.append((field, was, now))
    if saved.dataset_version is not None and saved.dataset_version != dataset_version:
        found.append(("dataset_version", saved.dataset_version, dataset_version or "not declared"))
    if not found and not _continues(saved, plan):
        found.append(("batches", _changes(saved.plan), _changes(plan)))
    return found


def _goes_on(saved: Plan, plan: Plan, step: int) -> bool:
    """Whether what two orders gave before a step is the same: a mixture may have other weights from there on."""
    if saved.order == plan.order:
        return True
    if not isinstance(saved.order, Mixture) or not isinstance(plan.order, Mixture):
        return False
    place = saved._walk.place(step)
    return plan.order.agrees(saved.order, saved._epochs.position(place.epoch, place.q), place.epoch)


def _compare_plans(saved: AnyPlan, plan: AnyPlan, step: int) -> list[tuple[str, str, str]]:
    """Return what differs between two plans beside sizes of batches, and what was changed on the way."""
    if isinstance(saved, EveryEpoch) and isinstance(plan, EveryEpoch) and saved.epoch_steps == plan.epoch_steps:
        return _compare_plans(saved.plan, plan.plan, step)
    if isinstance(saved, Plan) and isinstance(plan, Plan):
        found = [] if _goes_on(saved, plan, step) else _compare_orders(saved.order.spec(), plan.order.spec())
        return found if saved.tail == plan.tail else [*found, ("tail", saved.tail, plan.tail)]
    was, now = saved.spec(), plan.spec()
    if was["format"] != now["format"]:
        return [("plan", str(was["format"]), str(now["format"]))]
    if isinstance(saved, BucketPlan) and isinstance(plan, BucketPlan):
        sizes = [(key, was[key], now[key]) for key in ("batch_size", "max_tokens")]
        if (was["max_tokens"] is None) != (now["max_tokens"] is None):
            return [(key, str(old), str(new)) for key, old, new in sizes]
        if was["bounds"] != now["bounds"] and "clip" == was["oversized"] == now["oversized"]:
            return [(key, str(old), str(new)) for key, old, new in sizes if old != new] or _differing(was, now)
    if isinstance(saved, PackPlan) and isinstance(plan, PackPlan) and saved.seq_len_at(0) != plan.seq_len_at(0):
        return [("seq_len", str(saved.seq_len_at(0)), str(plan.seq_len_at(0))), *_differing(was, now)]
    return _differing(was, now)


def _differing(was: Spec, now: Spec) -> list[tuple[str, str, str]]:
    """Return the keys of two specs, of those that never change on the way, that differ."""
    fields = [key for key in sorted({*was, *now} - _CHANGING) if was.get(key) != now.get(key)]
    return [(key, _short(was.get(key)), _short(now.get(key))) for key in fields]


def changed(plan: AnyPlan) -> bool:
    """Whether anything was changed on the way: a size of batches or of sequences, or steps skipped."""
    if isinstance(plan, EveryEpoch):
        return changed(plan.plan)
    return any(getattr(plan, name, ()) for name in ("resizes", "skips", "changes", "relengths"))


def compare_step(saved: Saved[Any], plan: AnyPlan) -> list[tuple[str, str, str]]:
    """Return what would cut the step under way, of which some micro-batches are done, out of other samples."""
    step = saved.progress.global_step
    was, now = saved.plan, continued(saved, plan)
    if was.batch_size_at(step) == now.batch_size_at(step) and was.digest(step, step + 1) == now.digest(step, step + 1):
        return []
    done = f"saved after {saved.progress.micro_step} of {saved.micro_steps} micro-batches of step {step}"
    return [("batches", f"{_changes(was)} ({done})", f"{_changes(now)}; change it from step {step + 1} on")]


def continued(saved: Saved[_P], plan: _P) -> _P:
    """Return the plan to go on with: the saved one up to the saved step, then as the present one says."""
    was = saved.plan
    if isinstance(was, EveryEpoch) and isinstance(plan, EveryEpoch):
        inner: Saved[Any] = saved._replace(plan=was.plan)  # type: ignore[arg-type]
        return cast("_P", plan.with_plan(continued(inner, plan.plan)))
    if isinstance(was, Plan) and isinstance(plan, Plan) and was.order != plan.order and plan.order.spec()["changes"]:
        was = replace(was, order=plan.order)  # a mixture with other weights from here on: `compare` has seen to that
    if isinstance(plan, CompositePlan) and not changed(plan):
        return was  # its parts are the saved ones', or it is the saved one before a change
    if isinstance(was, BucketPlan) and isinstance(plan, BucketPlan) and not changed(plan):
        step = saved.progress.global_step
        if was._size_at(step) == plan._size_at(0):
            return was  # to cut its rest anew would be another run
    if changed(plan) or plan == was:
        return plan  # its past is the saved one's: `compare` has seen to that
    # A plan made from its arguments alone: what was changed on the way is in the state, the size from here on is not.
    tokens = getattr(plan, "max_tokens", None)
    size = {"batch_size": plan.batch_size} if tokens is None else {"max_tokens": tokens}  # type: ignore[attr-defined]
    return was.resized(saved.progress.global_step, **size)  # type: ignore[attr-defined, no-any-return]


def seed_of(plan: AnyPlan) -> int:
    """Return a plan's own seed: that of the outermost order that has one, else 0."""
    pending: list[Any] = [plan.spec()]
    while pending:
        spec = pending.pop(0)
        if isinstance(spec, Mapping):
            if isinstance(spec.get("seed"), int):
                return int(spec["seed"])
            pending.extend(value for value in spec.values() if isinstance(value, (Mapping, list)))
        elif isinstance(spec, list):
            pending.extend(value for value in spec[:1000] if isinstance(value, (Mapping, list)))
    return 0


def _continues(saved: Saved[Any], plan: AnyPlan) -> bool:
    """Whether the present plan is a plain one, or one whose past is that of the saved plan."""
    if not changed(plan) or saved.plan == plan:
        return True
    return _same_past(saved.plan, plan, saved.progress.global_step)


def _same_past(saved: AnyPlan, plan: AnyPlan, step: int) -> bool:
    if isinstance(saved, EveryEpoch) and isinstance(plan, EveryEpoch):
        return _same_past(saved.plan, plan.plan, step)
    if isinstance(saved, Plan) and isinstance(plan, Plan):
        return _past(saved, step) == _past(plan, step)
    if isinstance(plan, CompositePlan):
        return plan.agrees(saved, step)
    if isinstance(saved, BucketPlan) and isinstance(plan, BucketPlan):
        return saved._past(step) == plan._past(step)
    if isinstance(saved, PackPlan) and isinstance(plan, PackPlan):
        return saved._past(step) == plan._past(step)
    return False


def _past(plan: Plan, step: int) -> tuple[object, ...]:
    place = plan._walk.place(step)
    here = (place.epoch, plan._epochs.position(place.epoch, place.q))
    sizes = ((0, plan.batch_size), *(item for item in plan.resizes if item[0] < step))
    # A skip that ends at this step's first sample belongs to the plan that goes on from here, not to its past.
    skips = tuple(item for item in plan.skips if item[2:] < here)
    return sizes, skips, place.consumed


def _changes(plan: AnyPlan) -> str:
    spec = plan.spec()
    return ", ".join(f"{key} {_short(spec[key])}" for key in sorted(_CHANGING & set(spec)) if spec[key] is not None)


def _compare_orders(saved: Spec, present: Spec) -> list[tuple[str, str, str]]:
    if canonical_json(saved) == canonical_json(present):
        return []
    names = {"n": "size", "seed": "seed"}
    fields = {key for key in {*saved, *present} if saved.get(key) != present.get(key)}
    plain = all(not isinstance(spec.get(key), dict) for spec in (saved, present) for key in fields)
    if fields <= set(names) and plain:
        return [(names[key], str(saved.get(key)), str(present.get(key))) for key in sorted(fields)]
    return [("order", _short(saved), _short(present))]


def _short(spec: object) -> str:
    text = canonical_json(spec).decode()
    return text if len(text) <= 300 else text[:297] + "..."
