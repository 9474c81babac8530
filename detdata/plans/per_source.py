"""What each source of a mixture has given to training: the samples that a plan's steps consumed, by name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from detdata.arrays import Int64Array
from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError
from detdata.orders.mixture import Mixture
from detdata.plans.plan import MAX_STEP, Plan
from detdata.plans.protocol import AnyPlan


def per_source(plan: AnyPlan, step: int) -> dict[str, int]:
    """Return how many samples of each source all ranks consumed before a step; their sum is `plan.consumed(step)`.

    plan: of a `Mixture` or a `PlanMixture`, also in `EveryEpoch` and `Phases`. Exact: what a tail dropped and what was
    skipped doesn't count, nor does padding. For logs; states and checkpoints have it in `Progress.per_source`.
    Cost: some 0.5 ms; with `size=` and tail="drop", for each epoch that drops.
    Raises TypeError for a plan of no mixture, ValueError for a negative step.

    >>> from detdata import Shuffle
    >>> mixture = Mixture({"web": Shuffle(10**6), "code": Shuffle(10**4)}, {"web": 3, "code": 1}, size=10**5)
    >>> per_source(Plan(mixture, 64), 1000)
    {'web': 48000, 'code': 16000}
    """
    found = per_source_if_any(plan, as_int(step, "step", high=MAX_STEP))
    if found is None:
        raise ArgumentTypeError(f"plan must be of a Mixture or a PlanMixture, got {brief(plan)}: it has no sources")
    return found


def per_source_if_any(plan: AnyPlan, step: int) -> dict[str, int] | None:
    """Return `per_source` of a plan that is of a mixture, None of any other.

    >>> from detdata import Sequential
    >>> per_source_if_any(Plan(Sequential(8), 2), 1) is None
    True
    """
    if isinstance(plan, Plan):
        return _of_mixture(plan, plan.order, step) if isinstance(plan.order, Mixture) else None
    own = getattr(plan, "_per_source", None)  # of plans made of plans
    found: dict[str, int] | None = None if own is None else own(step)
    return found


def _of_mixture(plan: Plan, mixture: Mixture, step: int) -> dict[str, int]:
    place = plan._walk.place(step)
    here = plan._epochs.position(place.epoch, place.q)
    counts = _had(mixture, place.epoch, here)
    for first, last, begin, end in _unused(plan, place.epoch):
        counts -= _had_between(mixture, first, last, begin, end)
    for begin, end in plan._epochs.holes(place.epoch):
        if begin < here:
            counts -= _had_between(mixture, place.epoch, place.epoch + 1, begin, min(end, here))
    return dict(zip(mixture.names, counts.tolist(), strict=True))


def _unused(plan: Plan, before: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (first epoch, epoch after the last, begin, end) of positions that no step of those epochs consumes."""
    special = {epoch for first, _, last, _ in plan.skips for epoch in (first, last)}
    special |= {plan.epoch(step - back) for step, _ in plan.resizes for back in (0, 1)}  # an epoch may end for a resize
    edges = {0, before, *special, *(epoch + 1 for epoch in special)}
    for first, last in pairwise(sorted(edge for edge in edges if edge <= before)):
        stop = plan.order.size  # epochs first … last - 1 are alike
        if plan.tail == "drop":
            used = plan.consumed(plan.first_step(first + 1)) - plan.consumed(plan.first_step(first))
            if used < plan._epochs.run(first)[0]:
                stop = plan._epochs.position(first, used)
                yield first, last, stop, plan.order.size
        for begin, end in plan._epochs.holes(first):
            if begin < stop:
                yield first, last, begin, end


def _had(mixture: Mixture, epoch: int, position: int) -> Int64Array:
    return mixture._run.counts(position, epoch)


def _had_between(mixture: Mixture, first: int, last: int, begin: int, end: int) -> Int64Array:
    """Draws of each source at positions begin … end - 1 of all epochs first … last - 1."""
    if (begin, end) == (0, mixture.size):
        return _had(mixture, last, 0) - _had(mixture, first, 0)
    if mixture.stop is not None:  # each epoch has the same labels
        return (_had(mixture, first, end) - _had(mixture, first, begin)) * (last - first)
    counts = np.zeros(len(mixture.names), dtype=np.int64)
    for epoch in range(first, last):
        counts += _had(mixture, epoch, end) - _had(mixture, epoch, begin)
    return counts
