"""When the ranks of a run look at the clock and at signals together, so that all save at the same step.

What depends on the step alone needs no exchange. The clock and signals are another matter on each rank; so the ranks
meet every so many steps, about once a second, and rank 0 says when next. A rank alone looks at every step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from detdata.checkpoint.group import Group

SECONDS = 1.0  # between two meetings; a meeting takes some milliseconds
MOST_STEPS = 10_000


@dataclass(slots=True)
class Decision:
    """What the ranks found: the signal that some rank has received (0: none), and what rank 0's clock says is due."""

    signal: int = 0
    latest: bool = False
    retry: bool = False


class Pace:
    """Counts steps from one meeting to the next. every: all steps divisible by it are meetings too."""

    def __init__(self, group: Group, every: int | None) -> None:
        self._group = group
        self._every = every
        self._next = 0
        self._last_step, self._last_at = 0, time.monotonic()

    def meet(self, step: int, mine: Decision) -> Decision:
        """Return what all ranks do at `step`; `mine` is what this rank knows. Collective where a meeting is due."""
        if self._group.size == 1:
            return mine
        on_grid = self._every is not None and step % self._every == 0
        if step < self._next and not on_grid:
            return Decision()
        flags = self._group.flags(mine.signal, int(mine.latest), int(mine.retry), self._interval(step))
        _, latest, retry, interval = flags[0]
        self._next = step + interval
        return Decision(max(row[0] for row in flags), bool(latest), bool(retry))

    def all_are(self, step: int, mine: bool) -> bool:
        """Whether `mine` holds on every rank; False between two meetings. Collective where one is due."""
        if self._group.size == 1:
            return mine
        if step < self._next:
            return False
        flags = self._group.flags(int(mine), self._interval(step))
        self._next = step + flags[0][1]
        return all(row[0] for row in flags)

    def _interval(self, step: int) -> int:
        now = time.monotonic()
        steps, spent = max(step - self._last_step, 1), max(now - self._last_at, 1e-6)
        self._last_step, self._last_at = step, now
        return min(max(int(SECONDS * steps / spent), 1), MOST_STEPS)
