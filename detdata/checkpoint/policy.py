"""When to save: two tiers, the rolling latest and the periodic ones that stay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from detdata.checks import as_int
from detdata.errors import ArgumentTypeError, ArgumentValueError

_COUNTS = {  # arguments that count something -> what else to say of a wrong one
    "latest_every_steps": "",
    "periodic_every_steps": "",
    "keep_periodic": "; to keep all, pass None",
    "keep_every_steps": "",
    "max_failures": "; to never raise, pass None",
}


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
    keep_every_steps: periodic ones of steps divisible by it stay for ever.
    best: name of a metric that `step(**metrics)` is given, the lower the better, or (name, "min" | "max"). A value
    better than all before is a reason for a periodic checkpoint at that step, and the best one always stays.
    on_signal: SIGTERM and SIGUSR1 are noted from the first `step` on; the next `step` saves and ends the process, and
    so does leaving the `with` block after the last one.
    on_exit: leaving a `with Checkpointer(…)` block without an error saves what was not yet saved.
    max_failures: a save that `step` made and that fails is a warning, and tried again at the next step, then after 10,
    20, 40 … seconds, not in between; the so-manieth failure in a row is raised. 1: the first. None: never.
    A step at which both are due writes both. Raises ValueError, TypeError.

    >>> SavePolicy(latest_every_seconds=60, periodic_every_steps=1000, keep_periodic=3).keep_periodic
    3
    """

    latest_every_seconds: float | None = _UNSET
    latest_every_steps: int | None = None
    periodic_every_steps: int | None = None
    keep_periodic: int | None = None
    keep_every_steps: int | None = None
    best: str | tuple[str, Literal["min", "max"]] | None = None
    on_signal: bool = True
    on_exit: bool = True
    max_failures: int | None = 5

    def __post_init__(self) -> None:
        if self.latest_every_seconds is _UNSET:  # "every 10 steps" must not silently wait for 600 seconds too
            object.__setattr__(self, "latest_every_seconds", 600.0 if self.latest_every_steps is None else None)
        seconds = self.latest_every_seconds
        if seconds is not None:
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
                raise ArgumentTypeError(f"latest_every_seconds must be a number or None, got {seconds!r}")
            if not math.isfinite(seconds) or seconds < 0:
                raise ArgumentValueError(f"latest_every_seconds must be finite and at least 0, got {seconds!r}")
        for name, why in _COUNTS.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, as_int(value, name, low=1, why=why))
        for name in ("on_signal", "on_exit"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentTypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if isinstance(self.best, str):
            object.__setattr__(self, "best", (self.best, "min"))
        if self.best is not None and not (
            isinstance(self.best, tuple)
            and len(self.best) == 2
            and isinstance(self.best[0], str)
            and self.best[1] in ("min", "max")
        ):
            raise ArgumentTypeError(f'best must be the name of a metric or (name, "min" | "max"), got {self.best!r}')

    @property
    def timed(self) -> bool:
        """Whether the clock has a say in when the latest is saved."""
        return self.latest_every_seconds is not None

    def better(self, value: float, than: float | None) -> bool:
        """Whether a value of the best metric is better than the best so far; NaN and infinities never are.

        >>> SavePolicy(best=("accuracy", "max")).better(0.9, 0.8), SavePolicy(best="loss").better(float("nan"), None)
        (True, False)
        """
        if self.best is None or not math.isfinite(value):
            return False
        return than is None or (value < than if self.best[1] == "min" else value > than)

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
