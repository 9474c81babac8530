"""What is due at a step: by the policy, the clock, a signal, a better metric, or because a save has failed before."""

from __future__ import annotations

import math
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, final

from detdata.checkpoint.errors import CheckpointNotSaved
from detdata.checkpoint.group import Group
from detdata.checkpoint.meta import History
from detdata.checkpoint.pace import Decision, Pace
from detdata.checkpoint.policy import SavePolicy
from detdata.checkpoint.signals import Signals
from detdata.errors import ArgumentTypeError

RETRY_S = 10.0  # after a second failure in a row; each further one waits twice as long, 640 s at most


@final
class Schedule:
    """The state behind a policy: the same decisions on every rank. latest_at: when the latest was saved last."""

    def __init__(self, policy: SavePolicy, group: Group) -> None:
        self.policy = policy
        self.history = History()
        self.latest_at = time.monotonic()
        self._group = group
        self._pace = Pace(group, policy.latest_every_steps)
        self._signals = Signals()
        weakref.finalize(self, self._signals.orphan).atexit = False  # its handler outlives a forgotten Checkpointer
        self._failures, self._retry_at = 0, 0.0
        self._pending: tuple[str, ...] = ()  # kinds that failed or were put off
        self._best_unsaved = False  # the best so far may still fail to be saved; the one before it is:
        self._best_before: dict[str, Any] | None = None

    @property
    def signal(self) -> int:
        """The signal that this process has received and not yet been ended by; 0: none."""
        return self._signals.received

    def best_steps(self, saved: int) -> set[int]:
        """Return the steps whose checkpoints hold the best metric; the best may not be on disk, as `saved` is."""
        steps = [best["step"] for best in (self.history.best, self._best_before) if best is not None]
        return {saved} if steps[:1] == [saved] else set(steps)

    def due(self, step: int, given: Mapping[str, Any]) -> tuple[list[str], int]:
        """Return the kinds to save at global step `step`, and the signal to end by (0: none).

        given: the metrics of this step. Collective where clocks, signals or a metric have a say.
        """
        policy, now = self.policy, time.monotonic()
        if policy.on_signal:
            self._signals.listen()
        mine = Decision(
            self._signals.received,
            policy.timed and "latest" in policy.due(step, now - self.latest_at),
            bool(self._pending) and now >= self._retry_at,
        )
        agreed = self._pace.meet(step, mine) if policy.timed or policy.on_signal or self._pending else Decision()
        by_clock = agreed.latest or not policy.timed
        kinds = list(policy.due(step, math.inf if by_clock else -1.0))
        if self._is_best(step, given) and "periodic" not in kinds:
            kinds.insert(0, "periodic")
        if self._pending:  # a disk that was full a moment ago: what is due by now waits for the next try, too
            self.later(kinds)
            kinds = list(self._pending) if agreed.retry else []
        if agreed.signal and "latest" not in kinds:
            kinds.append("latest")
        return kinds, agreed.signal

    def _is_best(self, step: int, given: Mapping[str, Any]) -> bool:
        if self.policy.best is None or self.policy.best[0] not in given:
            return False
        name = self.policy.best[0]
        try:
            mine = float(given[name])
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                f"metric {name!r} decides which checkpoint is the best and must be a number, got {given[name]!r}"
            ) from error
        value = float(self._group.broadcast(mine, f"comparing the metric {name!r}, which every rank must pass to step"))
        best = self.history.best
        before = best["value"] if best is not None and best["metric"] == name else None
        if not self.policy.better(value, before):
            return False
        self._best_unsaved, self._best_before = True, best
        self.history.best = {"metric": name, "value": value, "step": step}
        return True

    def begun(self, kind: str) -> None:
        """Tell that a save of this kind is made or under way, so nothing of it is put off any more."""
        self._pending = tuple(one for one in self._pending if one != kind)

    def succeeded(self) -> None:
        """Tell that the save that was under way is on disk: failures are counted in a row."""
        self._failures = 0
        self._best_unsaved, self._best_before = False, None

    def later(self, kinds: Iterable[str]) -> None:
        """Tell that these kinds are due, and are not tried before the next try."""
        self._pending += tuple(kind for kind in kinds if kind not in self._pending)

    def put_off(self, kind: str) -> None:
        """Tell that a save could not begin, because another one is being written: it is due at the next step."""
        self._not_saved(kind)
        self._retry_at = 0.0

    def failed(self, kind: str, error: CheckpointNotSaved) -> None:
        """Tell that a save has failed: warn and plan the next try, or raise the error if that is enough of them."""
        self._not_saved(kind)
        self._failures += 1
        if self.policy.max_failures is not None and self._failures >= self.policy.max_failures:
            raise error
        wait = 0.0 if self._failures == 1 else RETRY_S * 2 ** min(self._failures - 2, 6)
        self._retry_at = time.monotonic() + wait
        again = "at the next step" if not wait else f"after {wait:.0f} s"
        warnings.warn(f"{error}. Training goes on; the save is tried again {again}", stacklevel=4)

    def _not_saved(self, kind: str) -> None:
        self.later([kind])
        if kind == "periodic" and self._best_unsaved:  # the next try is of another step
            self.history.best = self._best_before
            self._best_unsaved, self._best_before = False, None

    def close(self) -> None:
        """Put back the handlers of signals."""
        self._signals.release()
