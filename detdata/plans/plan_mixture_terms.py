"""What a mixture of plans is made of: its arguments checked, and brought into the one form that its spec has."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, UnknownFormat
from detdata.orders.quotas import as_weights, read_weight
from detdata.orders.segments import MAX_DRAWS
from detdata.plans.composite import as_plan, documents_of
from detdata.plans.protocol import AnyPlan
from detdata.records import Spec, from_spec

FORMAT = "detdata.plan_mixture/1"
KEYS = ("plans", "weights", "seed", "size", "changes")


class Reweighting(NamedTuple):
    """From step `first` on, `weights` of all plans, in their order."""

    first: int
    weights: tuple[Fraction, ...]


def as_plans(plans: object) -> dict[str, AnyPlan]:
    """Return plans by name, checked to be packed all or none. Raises TypeError, ValueError."""
    if not isinstance(plans, Mapping):
        raise ArgumentTypeError(f"plans must be a dict of name: plan, got {brief(plans)}")
    if not plans:
        raise ArgumentValueError("plans is empty: give at least one name: plan")
    for name, plan in plans.items():
        if not isinstance(name, str):
            raise ArgumentTypeError(f"plans: names must be strings, got {brief(name)}")
        as_plan(plan, f"plans[{name!r}]")
    packed = {name: documents_of(plan) is not None for name, plan in plans.items()}
    if len(set(packed.values())) > 1:
        raise ArgumentValueError(
            "plans must be packed all, or none, as a batch is read either by tokens of documents or by samples; "
            f"{brief([name for name, yes in packed.items() if yes])} are packed: mix the others on their own"
        )
    return dict(plans)


def as_changes(
    weights: object, changes: object, names: tuple[str, ...]
) -> tuple[tuple[Fraction, ...], tuple[Reweighting, ...]]:
    """Return the weights at the beginning, and changes without those that change nothing."""
    given = as_weights(weights, names)
    missing = [name for name in names if name not in given]
    if missing:
        raise ArgumentValueError(f"weights: {brief(missing)} have none; give each plan one (0: it is not drawn)")
    rows = list(changes) if isinstance(changes, (list, tuple)) else None
    if rows is None or any(not isinstance(row, (list, tuple)) or len(row) != 2 for row in rows):
        raise ArgumentTypeError(f"changes must be a list of (step, {{name: weight}}), got {brief(changes)}")
    now = {name: given[name] for name in names}
    start, kept, last = tuple(now.values()), [], -1
    for number, (step, later) in enumerate([(0, {}), *rows]):
        at = as_int(step, f"changes[{number - 1}]: step", high=MAX_DRAWS - 1)
        if number and at <= last:
            raise ArgumentValueError(f"changes must have rising steps, got {at} after {last}")
        last = at if number else -1
        before = tuple(now.values())
        now.update(as_weights(later, names, f"changes[{number - 1}]"))
        after = tuple(now.values())
        if not any(after):
            raise ArgumentValueError("weights are all 0: at least one plan must be drawn")
        if at == 0:
            start = after
        elif after != before:
            kept.append(Reweighting(at, after))
    return start, tuple(kept)


def arguments(spec: Spec) -> dict[str, Any]:
    """Return the arguments of the mixture that a spec describes."""
    pairs, changes = _pairs(spec["plans"], "plans"), _pairs(spec["changes"], "changes")
    names = [name for name, _ in pairs]
    if any(not isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise UnknownFormat(f"plans of a {FORMAT} spec must have names that differ, got {brief(names)}")
    return {
        "plans": {name: as_plan(from_spec(one), f"plans[{name!r}]") for name, one in pairs},
        "weights": _read_weights(spec["weights"], names),
        "seed": spec["seed"],
        "size": spec["size"],
        "changes": [(step, _read_weights(row, names)) for step, row in changes],
    }


def _pairs(value: object, name: str) -> list[tuple[Any, Any]]:
    if not isinstance(value, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in value):
        raise UnknownFormat(f"{name} of a {FORMAT} spec must be a list of pairs, got {brief(value)}")
    return [(first, second) for first, second in value]


def _read_weights(texts: object, names: list[str]) -> dict[str, Fraction]:
    if not isinstance(texts, list) or len(texts) != len(names):
        raise UnknownFormat(f"weights must be a list of one for each of the {len(names)} plans, got {brief(texts)}")
    return {name: read_weight(text, "weights") for name, text in zip(names, texts, strict=True)}
