"""Preemption: a signal is noted when it comes, and acted upon at the next edge of a step.

SIGTERM is what schedulers send before they kill, SIGUSR1 what `sbatch --signal=USR1@90` sends ahead of that. The
handler only notes; whatever handler was there is called after. A second signal changes nothing: launchers send several.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, final

NAMES = ("SIGTERM", "SIGUSR1")


@final
class Signals:
    """Notes SIGTERM and SIGUSR1 from `listen` to `release`; signals that this process ignores stay ignored.

    Handlers can be set in the main thread only; elsewhere `listen` does nothing. A forked child (a DataLoader worker)
    inherits the handler and must not swallow the signal: there it acts as if it had never been set.
    """

    def __init__(self) -> None:
        self.received = 0  # the signal's number; 0: none
        self._pid = 0
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Begin to note, if that has not begun yet."""
        if self._pid == os.getpid() or threading.current_thread() is not threading.main_thread():
            return
        self._pid, self._before = os.getpid(), {}
        for name in NAMES:
            number = getattr(signal, name, None)  # Windows has no SIGUSR1
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = _beneath(signal.signal(number, self._note), number)

    def release(self) -> None:
        """Put back the handlers that were there before, unless somebody has set others since."""
        if self._pid != os.getpid() or threading.current_thread() is not threading.main_thread():
            return
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._pid, self._before = 0, {}

    def orphan(self) -> None:
        """Act from now on as if `listen` had not been called: nobody is there any more to ask what was received."""
        self._pid = 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(number)
        if os.getpid() != self._pid:
            signal.signal(number, before if callable(before) else signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.received = self.received or number
        if callable(before):
            before(number, frame)


def _beneath(handler: Any, number: int) -> Any:
    """Return the handler beneath those of a parent process's Checkpointers, which have no say in a forked child."""
    owner = getattr(handler, "__self__", None)
    while isinstance(owner, Signals) and owner._pid != os.getpid():
        handler = owner._before.get(number, signal.SIG_DFL)
        owner = getattr(handler, "__self__", None)
    return handler
