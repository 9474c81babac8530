"""Batch sizes that change with the step: a table of them, made part of a plan.

A plan with such a table is `plan.resized` many times. So it is in the plan's spec, a resume needs nothing else, and
each size goes on at exactly the next unseen sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.plans.bucket_plan import BucketPlan
from detdata.plans.pack_plan import PackPlan
from detdata.plans.plan import MAX_BATCH, MAX_STEP, Plan
from detdata.plans.spans import Change, before_resize
from detdata.plans.views import EveryEpoch

Sizes: TypeAlias = Mapping[int, int] | Sequence[tuple[int, int]]
_AnyPlan = TypeVar("_AnyPlan", Plan, BucketPlan, PackPlan, EveryEpoch)
MAX_STAGES = 1024  # a plan holds each one in its spec


def ramped(plan: _AnyPlan, sizes: Sizes) -> _AnyPlan:
    """Return the plan whose batch size is, from each step of a table on, the one that the table says there.

    sizes: {step: size, …} or [(step, size), …], in any order, no step twice. A size is a `batch_size`; of a
    `BucketPlan` that goes by max_tokens it is a `max_tokens`. The same plan as `plan.resized(step, size)` for each row
    in order of steps, so changes of size that the plan has after the first row are replaced; without a row it is
    `plan`. `linear_ramp` makes such a table. Raises TypeError, ValueError.

    >>> from detdata import Shuffle
    >>> plan = ramped(Plan(Shuffle(10**9), 256), {1000: 512, 3000: 1024})
    >>> [plan.batch_size_at(step) for step in (0, 999, 1000, 3000, 10**6)], plan.consumed(1001)
    ([256, 256, 512, 1024, 1024], 256512)
    """
    if not isinstance(plan, (Plan, BucketPlan, PackPlan, EveryEpoch)):
        raise ArgumentTypeError(
            f"plan must be a Plan, BucketPlan, PackPlan or an EveryEpoch of one, got {type(plan).__name__}; of several "
            "plans put together give the parts their batch sizes"
        )
    rows = _rows(sizes)
    changed: _AnyPlan = _resized(plan, rows)
    return changed


def linear_ramp(first: int, last: int, steps: int, divisor: int = 1) -> tuple[tuple[int, int], ...]:
    """Return a table of batch sizes that rise from `first` to `last` within so many steps, for `ramped`.

    first, last: batch sizes, multiples of `divisor`, which is what ranks x micro steps must divide: each size between
    them is one too. At step s the size is first + divisor · ⌊s · k / steps⌋, k = (last - first) / divisor, and from
    step `steps` on it is `last`: stages are equally long, to within a step. Returns rows (step, size), at most 4096 of
    them. Raises TypeError, ValueError.

    >>> linear_ramp(256, 1024, steps=3000, divisor=256)
    ((0, 256), (1000, 512), (2000, 768), (3000, 1024))
    """
    unit = as_int(divisor, "divisor", low=1, high=MAX_BATCH)
    begin = as_int(first, "first", low=1, high=MAX_BATCH)
    end = as_int(last, "last", low=begin, high=MAX_BATCH, why=f"; a ramp rises, and first is {begin}")
    length = as_int(steps, "steps", low=1, high=MAX_STEP)
    for name, size in (("first", begin), ("last", end)):
        if size % unit:
            raise ArgumentValueError(f"{name} must be a multiple of divisor, {unit}; got {size}")
    stages = (end - begin) // unit
    if stages >= MAX_STAGES:
        raise ArgumentValueError(
            f"a ramp from {begin} to {end} by {unit} has {stages + 1} sizes, and at most {MAX_STAGES} are possible: "
            "take a larger divisor"
        )
    table = {}
    for stage in range(stages + 1):
        table[-(-stage * length // max(stages, 1))] = begin + stage * unit  # of several at one step the last holds
    return tuple(table.items())


def _rows(sizes: Sizes) -> tuple[tuple[int, int], ...]:
    """Return a table as rows of Python integers, in order of steps."""
    pairs = list(sizes.items()) if isinstance(sizes, Mapping) else sizes
    kinds = (list, tuple)
    if not isinstance(pairs, kinds) or any(not isinstance(row, kinds) or len(row) != 2 for row in pairs):
        raise ArgumentTypeError(f"sizes must be {{step: size, …}} or [(step, size), …], got {brief(sizes)}")
    rows = [(as_int(step, "sizes: step", high=MAX_STEP), as_int(size, "sizes: size", low=1)) for step, size in pairs]
    rows.sort()
    twice = [row[0] for row, after in pairwise(rows) if row[0] == after[0]]
    if twice:
        raise ArgumentValueError(f"sizes says twice what holds from step {twice[0]} on; say it once")
    return tuple(rows)


def _resized(plan: Any, rows: tuple[tuple[int, int], ...]) -> Any:
    if isinstance(plan, EveryEpoch):
        return plan.with_plan(_resized(plan.plan, rows))
    if isinstance(plan, Plan) and rows:  # all rows at once: one by one each of them would lay out the epochs again
        kept = [row for row in plan.resizes if row[0] < rows[0][0]]
        return plan._with_sizes((*kept, *rows), plan.skips)
    if isinstance(plan, BucketPlan) and rows:  # likewise
        tokens = plan.max_tokens is not None
        sizes = [plan._checked(*((None, size) if tokens else (size, None))) for _, size in rows]
        changes = [Change("resize", step, size) for (step, _), size in zip(rows, sizes, strict=True)]
        return plan._changed((*before_resize(plan.changes, rows[0][0]), *changes))
    for step, size in rows:
        plan = plan.resized(step, size)
    return plan
