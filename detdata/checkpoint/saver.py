"""Saves at once or behind the training: one at a time, and whatever goes wrong comes out at the next call."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from detdata.checkpoint.remote_path import AnyPath
from detdata.checkpoint.snapshot import Buffers
from detdata.checkpoint.writing import Content, Writer

_log = logging.getLogger("detdata")


@dataclass(frozen=True, slots=True)
class SaveReport:
    """One save that is on disk.

    path: the folder, of a URL a RemotePath; whatever later saves do, it is the name that was published. kind: "latest"
    or "periodic". size_bytes: of all its files but the manifest. blocked_s: seconds that the training stood still for
    it. total_s: seconds from the call until it was on disk, or in the store. Both are wall time.

    >>> import detdata, tempfile, torch
    >>> checkpointer = detdata.Checkpointer(tempfile.mkdtemp(), model=torch.nn.Linear(2, 2))
    >>> path = checkpointer.save()
    >>> checkpointer.last_save.path == path, checkpointer.last_save.kind, checkpointer.last_save.step
    (True, 'latest', 0)
    """

    path: AnyPath
    kind: str
    step: int
    size_bytes: int
    blocked_s: float
    total_s: float


@final
class Saver:
    """Runs the saves of one Checkpointer. done: called in the saving thread with each SaveReport, for retention."""

    def __init__(self, writer: Writer, done: Callable[[SaveReport], None]) -> None:
        self._writer = writer
        self._done = done
        self._buffers = Buffers()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.kind = "latest"  # of the save behind the training that was begun last
        atexit.register(_tell_of_error, weakref.ref(self))
        self.last: SaveReport | None = None

    @property
    def begun(self) -> bool:
        """Whether there is a save behind the training that `collect` has not told of: the same on all ranks."""
        return self._thread is not None

    @property
    def busy(self) -> bool:
        """Whether a save is under way behind the training."""
        return self._thread is not None and self._thread.is_alive()

    def save(self, content: Content, kind: str, step: int, begun: float) -> SaveReport:
        """Save now. begun: `time.monotonic()` when the call came, for the report. Raises what `Writer.write` raises."""
        return self._write(content, kind, step, begun, None)

    def start(self, content: Content, kind: str, step: int, begun: float) -> None:
        """Copy the tensors of `content` to memory of our own, and save the copy in a thread. Nothing else may be on.

        The thread is no daemon: a process that ends cleanly waits for it.
        """
        content = replace(content, trees=self._buffers.copy(dict(content.trees)))
        blocked = time.monotonic() - begun

        def work() -> None:
            try:
                self._write(content, kind, step, begun, blocked)
            except BaseException as error:  # noqa: BLE001 - raised in the training's thread by `collect`
                self._error = error

        self.kind = kind
        self._thread = threading.Thread(target=work, name="detdata-save", daemon=False)
        self._thread.start()

    def collect(self, *, wait: bool) -> bool:
        """Return whether a save behind the training has ended since the last time; raise its error, once.

        wait: for the save that is under way, first.
        """
        if wait and self._thread is not None:
            self._thread.join()
        if self._thread is None or self.busy:
            return False
        self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return True

    def _write(self, content: Content, kind: str, step: int, begun: float, blocked: float | None) -> SaveReport:
        written = self._writer.write(content, kind, step)
        total = time.monotonic() - begun
        report = SaveReport(written.path, kind, step, written.size_bytes, total if blocked is None else blocked, total)
        self._done(report)
        self.last = report
        _log.info(
            "saved %s: global step %d, %.1f MB, the training waited %.3f s of %.3f s",
            report.path,
            step,
            report.size_bytes / 1e6,
            report.blocked_s,
            report.total_s,
        )
        return report


def _tell_of_error(saver: weakref.ref[Saver]) -> None:
    """At the end of the process, after its threads: say what went wrong with a save that nobody asked after."""
    there = saver()
    if there is not None and there._error is not None:
        sys.stderr.write(f"detdata: {there._error}\n")
