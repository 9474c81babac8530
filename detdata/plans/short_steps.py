"""Which steps of a stretch may have fewer rows than a whole batch: the last ones of the epochs of the data."""

from __future__ import annotations

from collections.abc import Iterator

from detdata.plans.protocol import AnyPlan


def short_steps(plan: AnyPlan, first: int, last: int) -> Iterator[int]:
    """Yield the steps of first … last - 1 that may be short, in any order. Cost: one look-up for each epoch.

    >>> from detdata import Plan, Sequential
    >>> list(short_steps(Plan(Sequential(5), 2, "keep"), 0, 8))
    [2, 5]
    """
    inner = getattr(plan, "_short_steps", None)
    if inner is not None:  # of a plan made of plans, whose epochs end anywhere in its own
        yield from inner(first, last)
        return
    if first < last:
        epoch = plan.epoch(first) + 1
        while (end := plan.first_step(epoch)) <= last:
            yield end - 1
            epoch += 1
