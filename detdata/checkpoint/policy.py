"""When to save: two tiers, the rolling latest and the periodic ones that stay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from detdata.checks import as_int
from detdata.errors import ArgumentTypeError, ArgumentValueError


class _Unset:
    def __repr__(self) -> str:
        return "600 (None where latest_every_steps is given)"


_UNSET: Any = _Unset()


@dataclass(frozen=True, slots=True)
class SavePolicy:
    """When `Checkpointer.step` saves, and what stays.

    latest_every_seconds, latest_every_steps: thresholds of the rolling `ckpt_latest`. Where both are given both must
    hold: at least so many seconds since the last one, and a step divisible by so many. None: no such threshold; both
    None: `step` never saves it. Where neither is given it is 600 seconds.
    periodic_every_steps: a `ckpt_step_<n>` at every step n divisible by it; None: never.
    keep_periodic: how many periodic ones stay, those of the highest steps; None: all. What was just written and what
    was resumed from always stay.
    A step at which both are due writes both. Raises ValueError, TypeError.

    >>> SavePolicy(latest_every_seconds=60, periodic_every_steps=1000, keep_periodic=3).keep_periodic
    3
    """

    latest_every_seconds: float | None = _UNSET
    latest_every_steps: int | None = None
    periodic_every_steps: int | None = None
    keep_periodic: int | None = None

    def __post_init__(self) -> None:
        if self.latest_every_seconds is _UNSET:  # "every 10 steps" must not silently wait for 600 seconds too
            object.__setattr__(self, "latest_every_seconds", 600.0 if self.latest_every_steps is None else None)
        seconds = self.latest_every_seconds
        if seconds is not None:
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
                raise ArgumentTypeError(f"latest_every_seconds must be a number or None, got {seconds!r}")
            if not math.isfinite(seconds) or seconds < 0:
                raise ArgumentValueError(f"latest_every_seconds must be finite and at least 0, got {seconds!r}")
        for name in ("latest_every_steps", "periodic_every_steps", "keep_periodic"):
            value = getattr(self, name)
            if value is not None:
                why = "; to keep all, pass None" if name == "keep_periodic" else ""
                object.__setattr__(self, name, as_int(value, name, low=1, why=why))

    def due(self, step: int, seconds: float) -> tuple[str, ...]:
        """Return the kinds due at global step `step`, `seconds` after the last save of the latest.

        >>> SavePolicy(latest_every_seconds=60, latest_every_steps=10, periodic_every_steps=20).due(40, 59.0)
        ('periodic',)
        >>> SavePolicy(latest_every_seconds=60, latest_every_steps=10).due(30, 60.0)
        ('latest',)
        """
        kinds = []
        if self.periodic_every_steps is not None and step % self.periodic_every_steps == 0:
            kinds.append("periodic")
        by_time = self.latest_every_seconds is None or seconds >= self.latest_every_seconds
        by_step = self.latest_every_steps is None or step % self.latest_every_steps == 0
        wanted = self.latest_every_seconds is not None or self.latest_every_steps is not None
        if wanted and by_time and by_step:
            kinds.append("latest")
        return tuple(kinds)
