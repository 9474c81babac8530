"""Reading the spec of a bucketed plan: its changes, and the lengths that it names by their digest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from detdata.checks import as_int, brief
from detdata.errors import ArgumentValueError, UnknownFormat
from detdata.orders.tables import table_at_hand
from detdata.plans.plan import MAX_STEP
from detdata.plans.spans import Change, before_resize

MAX_CHANGES = 1024  # each costs some ms when a plan is rebuilt


def lengths_at_hand(named: object, way: str) -> npt.NDArray[Any]:
    """Return the lengths that a spec names by count and digest. Raises UnknownFormat, ValueError for none at hand."""
    if not isinstance(named, dict) or set(named) != {"count", "digest"}:
        raise UnknownFormat(f"lengths must be their count and digest, got {brief(named)}")
    array: npt.NDArray[Any] = table_at_hand(named["digest"], np.ndarray, "lengths", way)
    if array.size != named["count"]:
        raise UnknownFormat(f"lengths: the spec says {named['count']} of them, those of its digest are {array.size}")
    return array


def read_changes(items: object, check_size: Callable[[int], object]) -> tuple[Change, ...]:
    """Return the changes of a spec: such as `resized` and `skipping` could have made. Raises ValueError, TypeError."""
    if not isinstance(items, list) or len(items) > MAX_CHANGES:
        raise UnknownFormat(f"changes must be a list of at most {MAX_CHANGES}, got {brief(items)}")
    changes: tuple[Change, ...] = ()
    for item in items:
        change = _change(item)
        if change.kind == "resize":
            check_size(change.value)
            if before_resize(changes, change.first) != changes:
                raise UnknownFormat(f"changes: {item} would have replaced one before it")
        elif change.value <= change.first:
            raise ArgumentValueError(f"changes: {item} skips no step: the last must be above the first")
        changes = (*changes, change)
    return changes


def _change(item: object) -> Change:
    if not isinstance(item, list) or len(item) != 3 or item[0] not in ("resize", "skip"):
        raise UnknownFormat(f"changes must be lists [resize or skip, step, value], got {brief(item)}")
    return Change(item[0], as_int(item[1], "changes", high=MAX_STEP), as_int(item[2], "changes", low=1, high=MAX_STEP))
