"""Errors of saving and loading that are no mismatch and no broken checkpoint."""

from __future__ import annotations

from detdata.errors import DetdataError


class CheckpointNotFound(DetdataError, FileNotFoundError):
    """The step or folder that was asked for is not there; the message lists what is."""


class CheckpointNotSaved(DetdataError, OSError):
    """A save failed (disk full, read-only, …). What had been published before is untouched."""


class CheckpointNotLoaded(DetdataError, RuntimeError):
    """Loading failed half-way, after every check had passed: objects are part old, part new: start anew."""


class RankMissing(CheckpointNotSaved):
    """A rank did not come to where all must meet: it died, hangs, or makes other calls. The message names it."""


class ProbeFailed(CheckpointNotLoaded):
    """The probe gives another number after loading than it gave when the checkpoint was saved."""


class Preempted(SystemExit):
    """Raised after a signal, when the checkpoint is on disk; ends the process with `.code`.

    By the next `Checkpointer.step`, or where `with Checkpointer(…)` is left: then after the save that `on_exit` makes.

    code: 128 + the signal's number, as shells say it: 143 after SIGTERM, 138 after SIGUSR1 (on Linux).

    >>> isinstance(Preempted(143), SystemExit), Preempted(143).code
    (True, 143)
    """
