"""Errors of saving and loading that are no mismatch and no broken checkpoint."""

from __future__ import annotations

from detdata.errors import DetdataError


class CheckpointNotFound(DetdataError, FileNotFoundError):
    """The step or folder that was asked for is not there; the message lists what is."""


class CheckpointNotSaved(DetdataError, OSError):
    """A save failed (disk full, read-only, …). What had been published before is untouched."""


class CheckpointNotLoaded(DetdataError, RuntimeError):
    """Loading failed half-way, after every check had passed: objects are part old, part new: start anew."""
